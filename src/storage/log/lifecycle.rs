//! A log's checkpoints, its deletion from the front, its end.

use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::segment::Segment;
use super::{Condition, Log, LogInner, LogState};
use crate::base::{FilePosition, Offset, TimestampMs};
use crate::io::disk::{Disk, DiskFile, OpenMode};
use crate::storage::checkpoint::PartitionCheckpoint;
use crate::storage::derived::DerivedState;
use crate::storage::error::LogError;
use crate::storage::index::SegmentIndex;
use crate::storage::names::{FileKind, file_name};
use crate::storage::partition_files::replace_file;

/// A snapshot of at most so many bytes is kept in the checkpoint; a larger one gets a file.
const EMBEDDED_SNAPSHOT_BYTES_MAX: usize = 16 << 10;

/// Snapshot files that are kept.
const SNAPSHOTS_KEPT: usize = 2;

/// The active segment's index files are brought up to date at a checkpoint when they are so many
/// bytes of log behind: recovery then reads no more than that to mend them.
const INDEX_BEHIND_BYTES_MAX: u64 = 8 << 20;

/// The longest name that file systems take, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// How the names of folders that are being deleted end.
const DOOMED_SUFFIX: &str = "-delete";

/// A segment as retention sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentInfo {
    pub base: Offset,
    /// The offset after its last record.
    pub end: Offset,
    pub size_bytes: u64,
    pub is_active: bool,
    /// Of its records; unknown while a rolled segment's index is not loaded.
    pub max_timestamp: Option<TimestampMs>,
}

pub(super) fn embedded_snapshot(offset: Offset, snapshot: Vec<u8>) -> Option<(Offset, Vec<u8>)> {
    (snapshot.len() <= EMBEDDED_SNAPSHOT_BYTES_MAX).then_some((offset, snapshot))
}

impl<D: Disk, S: DerivedState> Log<D, S> {
    /// Flushes what was appended so far, saves the derived state, and says from where recovery may
    /// begin once the answer is on stable media. Where the log cannot flush now, the answer is the
    /// former checkpoint.
    pub async fn checkpoint(&self) -> PartitionCheckpoint {
        let inner = &self.inner;
        let known = {
            let state = inner.state.borrow();
            let known = &state.last_checkpoint;
            let says_all = known.durable_offset == state.log_end
                && known.log_start == state.log_start
                && known.flushed_offset == state.written.offset;
            says_all.then(|| known.clone())
        };
        if let Some(known) = known {
            return known;
        }
        match self.new_checkpoint().await {
            Ok(checkpoint) => {
                inner.state.borrow_mut().last_checkpoint = checkpoint.clone();
                checkpoint
            }
            Err(error) => {
                tracing::warn!(dir = %inner.dir.display(), %error, "no new checkpoint");
                let mut state = inner.state.borrow_mut();
                // Deletion goes on all the same.
                state.last_checkpoint.log_start = state.log_start;
                state.last_checkpoint.clone()
            }
        }
    }

    /// The last known checkpoint, without any work: for a log that could not be closed.
    pub fn last_checkpoint(&self) -> PartitionCheckpoint {
        self.inner.state.borrow().last_checkpoint.clone()
    }

    async fn new_checkpoint(&self) -> io::Result<PartitionCheckpoint> {
        let inner = &self.inner;
        let (end, snapshot) = {
            let end = inner.state.borrow().log_end;
            (end, inner.derived.borrow().encode_snapshot())
        };
        let embedded = if self.secure(end).await? {
            let embedded = embedded_snapshot(end, snapshot.clone());
            if embedded.is_none() {
                inner.save_snapshot(end, &snapshot).await?;
            }
            embedded
        } else {
            // The former one is of what is durable.
            inner.state.borrow().last_checkpoint.snapshot.clone()
        };
        let (active, mark, durable) = {
            let state = inner.state.borrow();
            // What a relaxed flush rule acknowledged may not be on stable media yet.
            let durable = if state.is_strict() && !state.commit.has_unlogged_writes {
                state.durable.max(state.flushed.offset)
            } else {
                state.flushed.offset
            };
            (state.active().clone(), state.flushed, durable)
        };
        if mark.segment_base == active.base
            && mark.position.saturating_sub(active.index_saved_bytes.get())
                >= INDEX_BEHIND_BYTES_MAX
        {
            let index = active.index.borrow().clone();
            if let Some(index) = index {
                inner
                    .save_index(&active, &index, mark.position, mark.offset)
                    .await?;
            }
        }
        Ok(PartitionCheckpoint {
            log_start: inner.state.borrow().log_start,
            durable_offset: durable,
            segment_base: mark.segment_base,
            position: FilePosition(mark.position),
            flushed_offset: mark.offset,
            snapshot: embedded,
        })
    }

    /// Resolves when records below `end` are on stable media, in the segments or in the commit log,
    /// and all that the segments have is flushed. False where the commit log has no room for the
    /// records now: it gets some when there is a checkpoint, so that this must not wait for it.
    async fn secure(&self, end: Offset) -> io::Result<bool> {
        let inner = &self.inner;
        let commit_log = inner.core.commit_log();
        // The flush rule may change meanwhile.
        let was_strict = inner.state.borrow().is_strict();
        if commit_log.is_none() || !was_strict {
            self.want_flush(end);
        }
        inner
            .wait_for(|state| {
                let logs = commit_log.as_ref();
                let logs = logs.filter(|_| was_strict || state.is_strict());
                let is_enough =
                    logs.is_some_and(|log| state.durable >= end || log.is_short_of_room());
                state.flushed.offset >= end || is_enough
            })
            .await?;
        let (written, is_durable) = {
            let state = inner.state.borrow();
            (state.written.offset, state.durable >= end)
        };
        self.flush_through(written)
            .await
            .map_err(io::Error::other)?;
        Ok(is_durable)
    }

    /// Asks for a flush of what is appended, for a log whose `flush.messages` relaxes it.
    pub fn request_flush(&self) {
        let end = self.inner.state.borrow().log_end;
        self.want_flush(end);
    }

    fn want_flush(&self, end: Offset) {
        let inner = &self.inner;
        {
            let mut state = inner.state.borrow_mut();
            if state.flushed.offset >= end || state.condition != Condition::Open {
                return;
            }
            state.flush_wanted = state.flush_wanted.max(end);
        }
        inner.wake_writer();
    }

    /// Resolves when records below `end` are flushed in their segments, whatever the flush rule.
    /// The writer must be about to write them: they are not left to the commit log.
    ///
    /// # Errors
    /// As [`wait_durable`](Self::wait_durable).
    pub async fn flush_through(&self, end: Offset) -> Result<(), LogError> {
        self.want_flush(end);
        self.inner
            .progress_waiters
            .wait(0, || {
                let state = self.inner.state.borrow();
                if state.flushed.offset >= end {
                    return Some(Ok(()));
                }
                state.check_condition().err().map(Err)
            })
            .await
    }

    /// The log's segments, oldest first.
    pub fn segments(&self) -> Vec<SegmentInfo> {
        let state = self.inner.state.borrow();
        let segments = &state.segments;
        segments
            .iter()
            .enumerate()
            .map(|(nth, segment)| {
                let next = segments.get(nth + 1);
                SegmentInfo {
                    base: segment.base,
                    end: next.map_or(state.log_end, |next| next.base),
                    size_bytes: segment.size_bytes.get(),
                    is_active: next.is_none(),
                    max_timestamp: segment
                        .with_index(|index| index.max_timestamp())
                        .flatten()
                        .map(|(timestamp, _)| timestamp),
                }
            })
            .collect()
    }

    /// Moves the log's start up to `offset`, at most to the durable offset; returns where it is.
    /// The caller makes a [`checkpoint`](Self::checkpoint) durable before it answers, and before
    /// [`remove_old_segments`](Self::remove_old_segments).
    pub fn advance_log_start(&self, offset: Offset) -> Offset {
        let mut state = self.inner.state.borrow_mut();
        let new_start = offset.min(state.durable);
        state.log_start = state.log_start.max(new_start);
        state.log_start
    }

    /// Removes the segments that lie whole below the log start, oldest first; returns how many.
    /// The active segment stays, and so does what recovery replays behind the newest snapshot of the
    /// derived state.
    ///
    /// # Errors
    /// The device failed; what is left is removed at the next call or at the next start.
    pub async fn remove_old_segments(&self) -> io::Result<usize> {
        let inner = &self.inner;
        let mut removed = 0;
        loop {
            let segment = {
                let mut state = inner.state.borrow_mut();
                let below = state.log_start.min(state.flushed.offset);
                let below = below.min(state.snapshot_end());
                let lies_below = state.segments.get(1).is_some_and(|next| next.base <= below);
                let is_finished = state.segments.front().is_some_and(|first| {
                    first.base < state.flushed.segment_base && !first.is_saving.get()
                });
                if !(lies_below && is_finished) {
                    break;
                }
                state.segments.pop_front()
            };
            let Some(segment) = segment else { break };
            segment.doom().await;
            for kind in [FileKind::Log, FileKind::OffsetIndex, FileKind::TimeIndex] {
                remove_if_there(&inner.core.disk, inner.dir.join(segment.file_name(kind))).await?;
            }
            removed += 1;
        }
        if removed > 0 {
            inner.core.disk.sync_dir(&inner.dir).await?;
        }
        Ok(removed)
    }

    /// Flushes the log, trims it to its true end and saves its indexes and its derived state. The
    /// log takes nothing more and may be dropped; the returned checkpoint describes its end.
    ///
    /// # Errors
    /// Something could not be written; recovery will find the log as after a crash.
    pub async fn close(&self) -> io::Result<PartitionCheckpoint> {
        let inner = &self.inner;
        let end = {
            let mut state = inner.state.borrow_mut();
            state.drains = true;
            state.log_end
        };
        self.flush_through(end).await.map_err(io::Error::other)?;
        inner.stop().await;
        let (active, end, mark, is_written) = {
            let state = inner.state.borrow();
            let is_written = state.pending.is_empty() && state.written.offset == state.log_end;
            (
                state.active().clone(),
                state.log_end,
                state.written,
                is_written,
            )
        };
        if !is_written {
            return Err(io::Error::other("the last appends could not be written"));
        }
        let size_bytes = active.size_bytes.get();
        if active.exists.get() {
            // Appends may have come while the flush above ran, and the flush rule may be relaxed.
            if inner.state.borrow().flushed != mark {
                let open = inner.open_active(mark).await?;
                open.file.sync_data().await?;
                inner.state.borrow_mut().flushed = mark;
            }
            if active.allocated_bytes.get() != size_bytes {
                let open = active
                    .open(
                        &inner.core.disk,
                        &inner.dir,
                        OpenMode::Existing,
                        &inner.core.files,
                    )
                    .await?;
                open.file.truncate(size_bytes).await?;
                open.file.sync_data().await?;
                active.allocated_bytes.set(size_bytes);
            }
            let index = active.index.borrow_mut().take();
            if let Some(mut index) = index
                && active.index_saved_bytes.get() < size_bytes
            {
                index.note_time();
                inner.save_index(&active, &index, size_bytes, end).await?;
            }
        }
        let snapshot = inner.derived.borrow().encode_snapshot();
        let has_changed = inner.state.borrow().last_checkpoint.durable_offset != end;
        let embedded = embedded_snapshot(end, snapshot.clone());
        if (has_changed || embedded.is_none()) && !snapshot.is_empty() {
            inner.save_snapshot(end, &snapshot).await?;
        }
        active.close();
        let mut state = inner.state.borrow_mut();
        let mark = state.flushed;
        state.last_checkpoint = PartitionCheckpoint {
            log_start: state.log_start,
            durable_offset: mark.offset,
            segment_base: mark.segment_base,
            position: FilePosition(mark.position),
            flushed_offset: mark.offset,
            snapshot: embedded,
        };
        Ok(state.last_checkpoint.clone())
    }

    /// Stops the log and removes its folder: [`retire`](Self::retire), then the files.
    ///
    /// # Errors
    /// The device failed.
    pub async fn delete(&self) -> io::Result<()> {
        let doomed = self.retire().await?;
        self.inner.core.disk.remove_dir_all(&doomed).await
    }

    /// Stops the log, has the commit log forget it, and renames its folder to `….<uuid>-delete`, as
    /// Kafka does. When it resolves, that is durable and the folder's name is free for another topic; the returned folder is to
    /// be removed. [`remove_doomed_dirs`] removes what a crash leaves behind.
    ///
    /// # Errors
    /// The device failed.
    pub async fn retire(&self) -> io::Result<PathBuf> {
        let inner = &self.inner;
        inner.stop().await;
        let segments: Vec<_> = {
            let mut state = inner.state.borrow_mut();
            for entry in state.tail.drain(..) {
                inner.core.tail.release(&entry);
            }
            state.clear_pending();
            state.segments.iter().cloned().collect()
        };
        inner.log_deletion().await?;
        for segment in segments {
            segment.doom().await;
        }
        let disk = &inner.core.disk;
        let doomed = doomed_dir(&inner.dir, uuid::Uuid::new_v4());
        disk.rename(&inner.dir, &doomed).await?;
        if let Some(parent) = inner.dir.parent() {
            disk.sync_dir(parent).await?;
        }
        Ok(doomed)
    }
}

/// Removes folders whose deletion was interrupted, for the start; returns their names.
///
/// # Errors
/// The data directory cannot be read, or a folder not be removed.
pub async fn remove_doomed_dirs<D: Disk>(disk: &D, data_dir: &Path) -> io::Result<Vec<String>> {
    let mut doomed = disk.list_dir(data_dir).await?;
    doomed.retain(|name| name.ends_with(DOOMED_SUFFIX));
    for name in &doomed {
        disk.remove_dir_all(&data_dir.join(name)).await?;
    }
    Ok(doomed)
}

/// The name of a folder that is being deleted, shortened to what file systems take.
fn doomed_dir(dir: &Path, id: uuid::Uuid) -> PathBuf {
    let suffix = format!(".{}{DOOMED_SUFFIX}", id.simple());
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    let mut kept = name.len().min(NAME_BYTES_MAX - suffix.len());
    while !name.is_char_boundary(kept) {
        kept -= 1;
    }
    dir.with_file_name(format!("{}{suffix}", &name[..kept]))
}

async fn remove_if_there<D: Disk>(disk: &D, path: PathBuf) -> io::Result<()> {
    match disk.remove_file(&path).await {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

impl<F: DiskFile> LogState<F> {
    fn is_idle(&self) -> bool {
        !self.writer_runs && self.background_tasks == 0
    }

    /// The batches below are in a snapshot that recovery finds.
    fn snapshot_end(&self) -> Offset {
        let embedded = self.last_checkpoint.snapshot.as_ref();
        let embedded = embedded.map_or(Offset::ZERO, |(offset, _)| *offset);
        self.snapshots
            .last()
            .map_or(embedded, |file| embedded.max(*file))
    }
}

impl<D: Disk, S: DerivedState> LogInner<D, S> {
    /// Takes no more appends and waits until no task of the log runs.
    async fn stop(&self) {
        {
            let mut state = self.state.borrow_mut();
            if matches!(state.condition, Condition::Open | Condition::Full) {
                state.condition = Condition::Closed;
            }
        }
        self.durable_waiters.wake_all();
        self.progress_waiters.wake_all();
        self.progress_waiters
            .wait(0, || self.state.borrow().is_idle().then_some(()))
            .await;
    }

    /// Saves a snapshot file, and removes those that are too old to be needed. Durable when it
    /// resolves.
    pub(super) async fn save_snapshot(&self, offset: Offset, snapshot: &[u8]) -> io::Result<()> {
        let name = file_name(offset, FileKind::Snapshot);
        replace_file(&self.core.disk, &self.dir, &name, snapshot).await?;
        let obsolete: Vec<Offset> = {
            let mut state = self.state.borrow_mut();
            if !state.snapshots.contains(&offset) {
                state.snapshots.push(offset);
                state.snapshots.sort();
            }
            let kept_from = state.snapshots.len().saturating_sub(SNAPSHOTS_KEPT);
            state.snapshots.drain(..kept_from).collect()
        };
        for offset in obsolete {
            let path = self.dir.join(file_name(offset, FileKind::Snapshot));
            remove_if_there(&self.core.disk, path).await?;
        }
        Ok(())
    }

    /// Writes the index files for what lies below a place of the segment. Durable when it
    /// resolves.
    pub(super) async fn save_index(
        &self,
        segment: &Segment<D::File>,
        index: &SegmentIndex,
        position_end: u64,
        offset_end: Offset,
    ) -> io::Result<()> {
        let disk = &self.core.disk;
        let path = |kind| self.dir.join(segment.file_name(kind));
        disk.write_file(
            &path(FileKind::OffsetIndex),
            &index.encode_offsets(position_end),
        )
        .await?;
        disk.write_file(&path(FileKind::TimeIndex), &index.encode_times(offset_end))
            .await?;
        disk.sync_dir(&self.dir).await?;
        segment.index_saved_bytes.set(position_end);
        Ok(())
    }

    /// Writes the index files of a rolled segment and lets go of its memory.
    pub(super) fn save_index_in_background(self: &Rc<Self>, segment: Rc<Segment<D::File>>) {
        let index = segment.index.borrow().clone();
        let Some(mut index) = index else { return };
        self.state.borrow_mut().background_tasks += 1;
        segment.is_saving.set(true);
        let inner = self.clone();
        (self.core.spawn)(Box::pin(async move {
            index.note_time();
            let size_bytes = segment.size_bytes.get();
            let end = inner.written_end(&segment);
            let saved = inner.save_index(&segment, &index, size_bytes, end).await;
            match saved {
                Ok(()) => {
                    segment.index.borrow_mut().take();
                    let weight = index.memory_bytes();
                    inner
                        .core
                        .indexes
                        .load(&segment.saved_index, Rc::new(index), weight);
                }
                Err(error) => {
                    // Recovery makes it anew; until then it stays in memory.
                    tracing::warn!(dir = %inner.dir.display(), base = %segment.base, %error, "the indexes of a segment could not be saved");
                    *segment.index.borrow_mut() = Some(index);
                }
            }
            segment.is_saving.set(false);
            inner.state.borrow_mut().background_tasks -= 1;
            inner.progress_waiters.wake_all();
        }));
    }
}
