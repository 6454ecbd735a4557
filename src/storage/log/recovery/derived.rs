//! Recovery of the derived state: from the newest good snapshot, and the batches after it.

use std::collections::VecDeque;
use std::rc::Rc;

use super::{Recovery, Start};
use crate::base::Offset;
use crate::io::disk::Disk;
use crate::storage::checkpoint::PartitionCheckpoint;
use crate::storage::derived::DerivedState;
use crate::storage::error::OpenError;
use crate::storage::index::SegmentIndex;
use crate::storage::log::scan::{Found, Scanner};
use crate::storage::log::segment::Segment;
use crate::storage::names::FileKind;

impl<D: Disk, S: DerivedState> Recovery<'_, D, S> {
    /// Brings the derived state to the offset where the scan begins.
    pub(super) async fn restore_derived(
        &mut self,
        checkpoint: Option<&PartitionCheckpoint>,
        trusted: &VecDeque<Rc<Segment<D::File>>>,
        first: Option<&Segment<D::File>>,
        first_index: &SegmentIndex,
        start: Start,
    ) -> Result<(), OpenError> {
        let first_base = trusted
            .front()
            .map_or(start.segment_base, |first| first.base);
        // What is durable beyond the scan's start is in the commit log, and so in the segments by now.
        let known_end = self.durable_offset.max(start.offset);
        let known_end = self
            .last_base()
            .map_or(known_end, |last| last.max(known_end));
        let from = self
            .restore_snapshot(checkpoint, first_base, known_end)
            .await?;
        let from = from.unwrap_or_else(|| {
            self.derived.borrow_mut().clear();
            Offset(i64::MIN)
        });
        self.report.replayed_from = from.max(first_base);
        self.derived_from = from;
        for (nth, segment) in trusted.iter().enumerate() {
            let end = trusted
                .get(nth + 1)
                .map_or(start.segment_base, |next| next.base);
            if end > from {
                self.replay(segment, 0, segment.size_bytes.get(), from)
                    .await?;
            }
        }
        if let Some(segment) = first
            && start.offset > from
        {
            let position = first_index.position_at_or_before(from);
            self.replay(segment, position, start.position, from).await?;
        }
        Ok(())
    }

    /// Restores the newest snapshot that is whole, at or below `end` and not before `first_base`, where
    /// the batches begin that follow it; says where it stands.
    async fn restore_snapshot(
        &mut self,
        checkpoint: Option<&PartitionCheckpoint>,
        first_base: Offset,
        end: Offset,
    ) -> Result<Option<Offset>, OpenError> {
        let embedded = checkpoint.and_then(|checkpoint| checkpoint.snapshot.as_ref());
        if first_base > end {
            return Ok(None);
        }
        let within = first_base..=end;
        let mut candidates: Vec<Offset> = self
            .folder
            .snapshots
            .range(within.clone())
            .copied()
            .collect();
        if let Some((offset, bytes)) = embedded
            && within.contains(offset)
            && candidates.last().is_none_or(|newest| offset >= newest)
            && self.derived.borrow_mut().restore(bytes).is_ok()
        {
            return Ok(Some(*offset));
        }
        while let Some(offset) = candidates.pop() {
            let path = self.path(offset, FileKind::Snapshot);
            let bytes = self.io(self.core.disk.read_file(&path).await)?;
            let restored = self.derived.borrow_mut().restore(&bytes);
            match restored {
                Ok(()) => return Ok(Some(offset)),
                Err(reason) => {
                    tracing::warn!(file = %path.display(), %reason, "the snapshot is damaged; an older one is tried");
                }
            }
        }
        Ok(None)
    }

    /// Replays what lies between two positions of a file and is not below `from`.
    pub(super) async fn replay(
        &mut self,
        segment: &Segment<D::File>,
        start: u64,
        end: u64,
        from: Offset,
    ) -> Result<(), OpenError> {
        let open = self.open_segment(segment).await?;
        let mut scanner = Scanner::new(&open.file, end, Scanner::<D::File>::WALK_BYTES);
        let mut position = start;
        loop {
            match self.io(scanner.batch_at(position, None).await)? {
                Found::Batch(batch) => {
                    position += batch.len() as u64;
                    if batch.base_offset() >= from {
                        self.derived.borrow_mut().replay(&batch);
                    }
                }
                Found::End => return Ok(()),
                Found::Bad(fault) => return Err(self.corrupt(segment.base, position, fault)),
            }
        }
    }
}
