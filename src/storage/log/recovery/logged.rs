//! What the commit log holds of a log is put into its segments, before these are scanned.

use std::collections::VecDeque;
use std::rc::Rc;

use super::Recovery;
use crate::base::Offset;
use crate::base::limits::DISK_BLOCK_BYTES;
use crate::io::disk::{Disk, DiskFile, OpenMode};
use crate::storage::batch_view::BatchView;
use crate::storage::commit::format::{Entry, EntryKind, HeadersChecksum, Reference};
use crate::storage::derived::DerivedState;
use crate::storage::error::OpenError;
use crate::storage::names::FileKind;

const BLOCK: u64 = DISK_BLOCK_BYTES as u64;

/// What one write puts into a segment, in bytes.
const WRITE_BYTES: usize = 1 << 20;

/// Consecutive bytes of a segment.
struct Patch {
    segment_base: Offset,
    start: u64,
    bytes: Vec<u8>,
}

impl Patch {
    /// Takes bytes that begin within the patch or right behind it.
    fn overlay(&mut self, position: u64, bytes: &[u8]) -> bool {
        let Some(at) = position.checked_sub(self.start).map(|at| at as usize) else {
            return false;
        };
        if at > self.bytes.len() {
            return false;
        }
        let end = at + bytes.len();
        if end > self.bytes.len() {
            self.bytes.resize(end, 0);
        }
        self.bytes[at..end].copy_from_slice(bytes);
        true
    }
}

impl<D: Disk, S: DerivedState> Recovery<'_, D, S> {
    /// Applies the entries in order. What lies below `from` is in flushed segments; segments that lie
    /// whole below the log's start stay deleted.
    pub(super) async fn apply_logged(
        &mut self,
        logged: Vec<Entry>,
        mut from: Offset,
        log_start: Offset,
    ) -> Result<(), OpenError> {
        let logged_bases = logged.iter().map(|entry| entry.place.segment_base);
        let bases = self.folder.logs.keys().copied().chain(logged_bases);
        let first_base = bases
            .filter(|base| *base <= log_start)
            .max()
            .unwrap_or(Offset::ZERO);
        let mut patch: Option<Patch> = None;
        let mut durable_end = Offset::ZERO;
        for entry in logged {
            let place = entry.place;
            if place.segment_base < first_base
                && !self.folder.logs.contains_key(&place.segment_base)
            {
                continue;
            }
            let position = u64::from(place.position);
            match entry.kind {
                EntryKind::Inline(batches) => {
                    let Some(end) = end_offset(&batches) else {
                        let reason = "the commit log holds something that is no batch for there";
                        return Err(self.corrupt(place.segment_base, position, reason));
                    };
                    if end <= from {
                        continue;
                    }
                    durable_end = durable_end.max(end);
                    let goes_on = patch.as_mut().is_some_and(|patch| {
                        patch.segment_base == place.segment_base
                            && patch.overlay(position, &batches)
                    });
                    if !goes_on {
                        let next = Patch {
                            segment_base: place.segment_base,
                            start: position,
                            bytes: batches.to_vec(),
                        };
                        self.put(patch.replace(next)).await?;
                    }
                }
                EntryKind::Reference(reference) => {
                    if reference.end > from {
                        durable_end = durable_end.max(reference.end);
                        self.references.push_back(reference);
                    }
                }
                EntryKind::Truncation { end } => {
                    self.put(patch.take()).await?;
                    self.truncate(place.segment_base, position).await?;
                    self.references.retain(|reference| reference.end <= end);
                    self.durable_offset = self.durable_offset.min(end);
                    durable_end = durable_end.min(end);
                    from = from.min(end);
                }
                // Those were taken out when the logs were read.
                EntryKind::Deletion | EntryKind::Move { .. } => {}
            }
        }
        self.put(patch).await?;
        self.durable_offset = self.durable_offset.max(durable_end);
        Ok(())
    }

    /// Writes a patch into its segment, which is made where it is missing, and flushes it.
    async fn put(&mut self, patch: Option<Patch>) -> Result<(), OpenError> {
        let Some(patch) = patch else { return Ok(()) };
        let disk = &self.core.disk;
        let path = self.path(patch.segment_base, FileKind::Log);
        let known = self.folder.logs.get(&patch.segment_base).copied();
        let file = self.io(disk.open(&path, OpenMode::Create).await)?;
        let size_bytes = known.unwrap_or(0);
        let end = patch.start + patch.bytes.len() as u64;
        let first_block = patch.start - patch.start % BLOCK;
        let end_block = end.next_multiple_of(BLOCK);
        let mut blocks = vec![0; (patch.start - first_block) as usize];
        // What is in the first block before the patch, and in the last one behind it, stays.
        if !blocks.is_empty() && size_bytes > first_block {
            let head = self.io(file.read_at(first_block, blocks.len()).await)?;
            blocks[..head.len()].copy_from_slice(&head);
        }
        blocks.extend_from_slice(&patch.bytes);
        let tail_bytes = (end_block - end) as usize;
        if size_bytes > end && tail_bytes > 0 {
            let tail = self.io(file.read_at(end, tail_bytes).await)?;
            blocks.extend_from_slice(&tail);
        }
        blocks.resize((end_block - first_block) as usize, 0);
        let mut position = first_block;
        for piece in blocks.chunks(WRITE_BYTES) {
            let mut buffer = file.allocate(piece.len());
            buffer.copy_from_slice(piece);
            self.io(file.write_at(Rc::new(buffer), position).await)?;
            position += piece.len() as u64;
        }
        self.io(file.sync_data().await)?;
        if known.is_none() {
            self.io(disk.sync_dir(self.dir).await)?;
            if let Some(parent) = self.dir.parent() {
                self.io(disk.sync_dir(parent).await)?;
            }
        }
        self.folder
            .logs
            .insert(patch.segment_base, size_bytes.max(end_block));
        self.report.applied_bytes += patch.bytes.len() as u64;
        Ok(())
    }

    /// Ends the log at a position of a segment.
    async fn truncate(&mut self, segment_base: Offset, position: u64) -> Result<(), OpenError> {
        let disk = &self.core.disk;
        let later: Vec<Offset> = self
            .folder
            .logs
            .range(segment_base.next()..)
            .map(|(base, _)| *base)
            .collect();
        for base in later {
            self.io(disk.remove_file(&self.path(base, FileKind::Log)).await)?;
            self.folder.logs.remove(&base);
        }
        if let Some(size_bytes) = self.folder.logs.get_mut(&segment_base)
            && *size_bytes > position
        {
            *size_bytes = position;
            let path = self.path(segment_base, FileKind::Log);
            let file = self.io(disk.open(&path, OpenMode::Existing).await)?;
            self.io(file.truncate(position).await)?;
            self.io(file.sync_data().await)?;
        }
        self.io(disk.sync_dir(self.dir).await)
    }
}

/// The offset behind the last of whole batches.
fn end_offset(batches: &[u8]) -> Option<Offset> {
    let mut rest = batches;
    let mut end = None;
    while !rest.is_empty() {
        let batch = BatchView::header(rest).ok()?;
        end = Some(batch.last_offset().next());
        rest = rest.get(batch.len()..)?;
    }
    end
}

/// Compares a scanned batch with what the commit log says of it.
pub(super) fn compare_reference(
    references: &mut VecDeque<Reference>,
    checksum: &mut Option<HeadersChecksum>,
    batch: &BatchView<'_>,
) -> Result<(), String> {
    while references
        .front()
        .is_some_and(|reference| reference.end <= batch.base_offset())
    {
        references.pop_front();
        *checksum = None;
    }
    let Some(reference) = references.front() else {
        return Ok(());
    };
    if reference.from == batch.base_offset() {
        *checksum = Some(HeadersChecksum::default());
    }
    let Some(running) = checksum else {
        return Ok(());
    };
    running.add(batch.bytes());
    if batch.last_offset().next() == reference.end && running.value() != reference.headers_checksum
    {
        return Err(format!(
            "offsets {} to {} are not what was acknowledged",
            reference.from,
            batch.last_offset()
        ));
    }
    Ok(())
}
