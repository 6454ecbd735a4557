//! Recovery of indexes: taken from their files where these are good, made anew otherwise.

use super::{Recovery, Start, indexed};
use crate::base::Offset;
use crate::io::disk::Disk;
use crate::storage::derived::DerivedState;
use crate::storage::error::OpenError;
use crate::storage::index::SegmentIndex;
use crate::storage::log::scan::{Found, Scanner};
use crate::storage::log::segment::Segment;
use crate::storage::names::FileKind;

impl<D: Disk, S: DerivedState> Recovery<'_, D, S> {
    /// The index of the segment in which the scan begins, for what lies before it: from its files
    /// where they are good, made anew otherwise.
    pub(super) async fn index_up_to(
        &mut self,
        segment: &Segment<D::File>,
        start: Start,
    ) -> Result<SegmentIndex, OpenError> {
        if start.position == 0 {
            return Ok(SegmentIndex::new(segment.base));
        }
        if let Some(mut index) = self.saved_index(segment, start).await? {
            let before = index.clone();
            index.cut(start.position);
            self.index_is_stale = index != before;
            let from = index.rewind_to_last_entry(self.config.index_interval_bytes);
            if self
                .walk(segment, &mut index, from, None, start)
                .await?
                .is_ok()
            {
                self.find_first_timestamp(segment, &mut index).await?;
                segment.index_saved_bytes.set(start.position);
                return Ok(index);
            }
        }
        self.report.rebuilt_indexes += 1;
        self.index_is_stale = self.folder.offset_indexes.contains(&segment.base)
            || self.folder.time_indexes.contains(&segment.base);
        let mut index = SegmentIndex::new(segment.base);
        match self
            .walk(segment, &mut index, 0, Some(segment.base), start)
            .await?
        {
            Ok(()) => Ok(index),
            Err((position, reason)) => Err(self.corrupt(segment.base, position, reason)),
        }
    }

    pub(super) async fn saved_index(
        &self,
        segment: &Segment<D::File>,
        start: Start,
    ) -> Result<Option<SegmentIndex>, OpenError> {
        if !self.folder.has_indexes(segment.base) {
            return Ok(None);
        }
        let disk = &self.core.disk;
        let offsets = self.io(disk
            .read_file(&self.path(segment.base, FileKind::OffsetIndex))
            .await)?;
        let times = self.io(disk
            .read_file(&self.path(segment.base, FileKind::TimeIndex))
            .await)?;
        match SegmentIndex::decode(
            segment.base,
            &offsets,
            &times,
            segment.size_bytes.get().max(start.position),
            Offset(i64::MAX),
        ) {
            Ok(index) => Ok(Some(index)),
            Err(reason) => {
                tracing::warn!(file = %self.path(segment.base, FileKind::OffsetIndex).display(), %reason, "the index is damaged and is made anew");
                Ok(None)
            }
        }
    }

    /// Notes the batches from `from` up to the scan's start in the index. The inner error is where
    /// and why the batches do not lead there.
    pub(super) async fn walk(
        &mut self,
        segment: &Segment<D::File>,
        index: &mut SegmentIndex,
        from: u64,
        mut expected: Option<Offset>,
        start: Start,
    ) -> Result<Result<(), (u64, String)>, OpenError> {
        let open = self.open_segment(segment).await?;
        let mut scanner = Scanner::new(&open.file, start.position, Scanner::<D::File>::WALK_BYTES);
        let mut position = from;
        let result = loop {
            match self.io(scanner.batch_at(position, expected).await)? {
                Found::Batch(batch) => {
                    self.report.scanned_bytes += batch.len() as u64;
                    index.note(indexed(&batch, position), self.config.index_interval_bytes);
                    position += batch.len() as u64;
                    expected = Some(batch.last_offset().next());
                }
                Found::End => {
                    break match expected {
                        Some(end) if end != start.offset => Err((
                            position,
                            format!("the log is at {end} where {} was due", start.offset),
                        )),
                        _ => Ok(()),
                    };
                }
                Found::Bad(fault) => break Err((position, fault.to_string())),
            }
        };
        Ok(result)
    }

    pub(super) async fn find_first_timestamp(
        &self,
        segment: &Segment<D::File>,
        index: &mut SegmentIndex,
    ) -> Result<(), OpenError> {
        if index.first_timestamp().is_some() {
            return Ok(());
        }
        let open = self.open_segment(segment).await?;
        let mut scanner = Scanner::new(
            &open.file,
            segment.size_bytes.get(),
            Scanner::<D::File>::LOOK_BYTES,
        );
        if let Found::Batch(first) = self.io(scanner.header_at(0).await)? {
            index.set_first_timestamp(first.max_timestamp());
        }
        Ok(())
    }

    /// Makes and saves the indexes of a segment that has a successor beginning at `end`.
    pub(super) async fn rebuild_rolled(
        &mut self,
        segment: &Segment<D::File>,
        end: Offset,
    ) -> Result<(), OpenError> {
        self.report.rebuilt_indexes += 1;
        let mut index = SegmentIndex::new(segment.base);
        let whole = Start {
            segment_base: segment.base,
            position: segment.size_bytes.get(),
            offset: end,
        };
        if let Err((position, reason)) = self
            .walk(segment, &mut index, 0, Some(segment.base), whole)
            .await?
        {
            return Err(self.corrupt(segment.base, position, reason));
        }
        index.note_time();
        self.save_index(segment, &index, end).await
    }

    pub(super) async fn save_index(
        &self,
        segment: &Segment<D::File>,
        index: &SegmentIndex,
        end: Offset,
    ) -> Result<(), OpenError> {
        let disk = &self.core.disk;
        let offsets = index.encode_offsets(segment.size_bytes.get());
        let times = index.encode_times(end);
        let offsets_path = self.path(segment.base, FileKind::OffsetIndex);
        let times_path = self.path(segment.base, FileKind::TimeIndex);
        self.io(disk.write_file(&offsets_path, &offsets).await)?;
        self.io(disk.write_file(&times_path, &times).await)?;
        self.io(disk.sync_dir(self.dir).await)
    }
}
