//! Opening a log: what a stop or a crash left becomes a log whose every batch is whole.
//!
//! | found | done |
//! |---|---|
//! | nothing, and nothing was promised | an empty log |
//! | batches up to the end of the file | the log, its end scanned from the checkpoint on |
//! | zeros after the last batch | reserved space: trimmed |
//! | the commit log ahead of the segment | its batches are put into their places first |
//! | entries of commit logs kept by a start that could not open it | put into their places as well |
//! | a bad batch in the last segment, at or above the durable offset | a torn tail: cut, and said |
//! | a bad batch below the durable offset, or before a later segment | damage: offline |
//! | a missing file, or one shorter than the durable position | damage: offline |
//! | an index missing, malformed, behind or ahead | mended from the log |
//! | a snapshot missing or malformed | the state is replayed from an older one, or from the start |
//! | no checkpoint | all is scanned |
//! | segments below the log start | a deletion that was interrupted: finished, as far as a snapshot goes |
//! | no snapshot at or behind the first batch | the state of what is left, from the first batch on |
//!
//! A segment gets its file only when all before it is flushed and trimmed; so a bad batch in a
//! segment that has a successor is damage even without a checkpoint.

mod derived;
mod indexes;
mod kept;
mod logged;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use self::kept::KEPT_ENTRIES;
pub use self::kept::keep_logged;
use self::logged::compare_reference;
use super::scan::{Found, Scanner};
use super::segment::Segment;
use super::{
    CommitState, Condition, CoreStorage, Log, LogConfig, LogInner, LogSetup, LogState, Mark,
};
use crate::base::{FilePosition, Offset, TimestampMs};
use crate::io::disk::{Disk, DiskFile, OpenMode};
use crate::storage::batch_view::{BatchFault, BatchView};
use crate::storage::checkpoint::PartitionCheckpoint;
use crate::storage::commit::format::{Entry, HeadersChecksum, Reference};
use crate::storage::derived::DerivedState;
use crate::storage::error::OpenError;
use crate::storage::index::{IndexedBatch, SegmentIndex};
use crate::storage::names::{FileKind, file_name, parse_file_name};

/// What opening a log took.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Bytes of batches that came from the commit log.
    pub applied_bytes: u64,
    /// Bytes of batches whose checksums were verified.
    pub scanned_bytes: u64,
    /// A torn tail that was cut: the offset at which the log ends now, where in its last file, and
    /// why.
    pub cut: Option<(Offset, FilePosition, BatchFault)>,
    /// Segments whose indexes were made anew.
    pub rebuilt_indexes: usize,
    /// Segments below the log start that were removed.
    pub removed_segments: usize,
    /// The offset from which the derived state was replayed.
    pub replayed_from: Offset,
}

/// A partition's folder, sorted.
#[derive(Default)]
struct Folder {
    /// Sizes in bytes by base offset.
    logs: BTreeMap<Offset, u64>,
    offset_indexes: BTreeSet<Offset>,
    time_indexes: BTreeSet<Offset>,
    snapshots: BTreeSet<Offset>,
    has_kept_entries: bool,
}

impl Folder {
    async fn list<D: Disk>(disk: &D, dir: &Path) -> io::Result<Self> {
        let mut folder = Self::default();
        for (name, size_bytes) in disk.list_files(dir).await? {
            match parse_file_name(&name) {
                Some((offset, FileKind::Log)) => {
                    folder.logs.insert(offset, size_bytes);
                }
                Some((offset, FileKind::OffsetIndex)) => {
                    folder.offset_indexes.insert(offset);
                }
                Some((offset, FileKind::TimeIndex)) => {
                    folder.time_indexes.insert(offset);
                }
                Some((offset, FileKind::Snapshot)) => {
                    folder.snapshots.insert(offset);
                }
                None => folder.has_kept_entries |= name == KEPT_ENTRIES,
            }
        }
        Ok(folder)
    }

    fn has_indexes(&self, base: Offset) -> bool {
        self.offset_indexes.contains(&base) && self.time_indexes.contains(&base)
    }
}

/// Where the scan for the end of the log begins.
#[derive(Debug, Clone, Copy)]
struct Start {
    segment_base: Offset,
    position: u64,
    offset: Offset,
}

struct Recovery<'a, D: Disk, S: DerivedState> {
    core: &'a CoreStorage<D>,
    dir: &'a Path,
    config: &'a LogConfig,
    derived: &'a RefCell<S>,
    folder: Folder,
    /// Damage below it is not cut.
    durable_offset: Offset,
    /// Direct writes that the commit log knows, by offset, to be compared with what is there.
    references: VecDeque<Reference>,
    reference_checksum: Option<HeadersChecksum>,
    /// The derived state reflects all batches below.
    derived_from: Offset,
    report: RecoveryReport,
    /// Batches were found beyond the checkpoint.
    found_more: bool,
    /// The files of the active segment's index say something else than the log.
    index_is_stale: bool,
    now: TimestampMs,
}

pub(super) async fn open<D: Disk, S: DerivedState>(
    core: Rc<CoreStorage<D>>,
    setup: LogSetup<S>,
    now: TimestampMs,
) -> Result<Log<D, S>, OpenError> {
    let LogSetup {
        identity,
        dir,
        config,
        checkpoint,
        logged,
        derived,
        events,
    } = setup;
    let folder = Folder::list(&core.disk, &dir)
        .await
        .map_err(|source| OpenError::Io {
            dir: dir.clone(),
            source,
        })?;
    let mut recovery = Recovery {
        core: &core,
        dir: &dir,
        config: &config,
        derived: &derived,
        folder,
        durable_offset: checkpoint
            .as_ref()
            .map_or(Offset::ZERO, |checkpoint| checkpoint.durable_offset),
        references: VecDeque::new(),
        reference_checksum: None,
        derived_from: Offset(i64::MIN),
        report: RecoveryReport::default(),
        found_more: false,
        index_is_stale: false,
        now,
    };
    let recovered = recovery.recover(checkpoint.as_ref(), logged).await?;
    let report = recovery.report.clone();
    let snapshots = recovery.folder.snapshots.iter().copied().collect();
    let Recovered {
        segments,
        log_start,
        log_end,
    } = recovered;
    let active = segments.back().expect("recovery leaves a segment");
    let mark = Mark {
        offset: log_end,
        segment_base: active.base,
        position: active.size_bytes.get(),
    };
    let last_checkpoint = PartitionCheckpoint {
        log_start,
        durable_offset: log_end,
        segment_base: mark.segment_base,
        position: FilePosition(mark.position),
        flushed_offset: log_end,
        snapshot: super::lifecycle::embedded_snapshot(log_end, derived.borrow().encode_snapshot()),
    };
    let state = LogState {
        config,
        condition: Condition::Open,
        segments,
        log_start,
        log_end,
        durable: log_end,
        written: mark,
        flushed: mark,
        pending: VecDeque::new(),
        pending_bytes: 0,
        commit: CommitState::at(log_end),
        tail: VecDeque::new(),
        tail_block: None,
        writer_runs: false,
        writer_waker: None,
        background_tasks: 0,
        records_since_flush: 0,
        flush_wanted: Offset::ZERO,
        drains: false,
        snapshots,
        last_checkpoint,
    };
    Ok(Log {
        inner: Rc::new(LogInner {
            core,
            identity,
            dir,
            derived,
            events,
            report,
            state: RefCell::new(state),
            durable_waiters: Rc::default(),
            progress_waiters: Rc::default(),
        }),
    })
}

struct Recovered<F: DiskFile> {
    segments: VecDeque<Rc<Segment<F>>>,
    log_start: Offset,
    log_end: Offset,
}

impl<D: Disk, S: DerivedState> Recovery<'_, D, S> {
    async fn recover(
        &mut self,
        checkpoint: Option<&PartitionCheckpoint>,
        logged: Vec<Entry>,
    ) -> Result<Recovered<D::File>, OpenError> {
        let first_base = self.folder.logs.keys().next().copied();
        let log_start = checkpoint.map_or(first_base.unwrap_or(Offset::ZERO), |checkpoint| {
            checkpoint.log_start
        });
        let snapshot_end = self.snapshot_end(checkpoint).unwrap_or(log_start);
        self.finish_deletion(log_start.min(snapshot_end)).await?;
        let flushed_offset = checkpoint.map_or(Offset::ZERO, |known| known.flushed_offset);
        let logged = self.with_kept(logged).await?;
        self.apply_logged(logged, flushed_offset, log_start).await?;
        let start = self.find_start(checkpoint, log_start)?;

        // What lies before the scan is trusted, once its indexes are there.
        let mut segments = VecDeque::new();
        let trusted: Vec<(Offset, u64)> = self
            .folder
            .logs
            .range(..start.segment_base)
            .map(|(base, size_bytes)| (*base, *size_bytes))
            .collect();
        for (nth, (base, size_bytes)) in trusted.iter().enumerate() {
            let segment = Rc::new(Segment::rolled(*base, self.now, *size_bytes));
            if !self.folder.has_indexes(*base) {
                let end = trusted
                    .get(nth + 1)
                    .map_or(start.segment_base, |(next, _)| *next);
                self.rebuild_rolled(&segment, end).await?;
            }
            segments.push_back(segment);
        }
        let scanned: Vec<(Offset, u64)> = self
            .folder
            .logs
            .range(start.segment_base..)
            .map(|(base, size_bytes)| (*base, *size_bytes))
            .collect();
        let mut index = SegmentIndex::new(start.segment_base);
        let mut first = None;
        if let Some((base, size_bytes)) = scanned.first().copied() {
            let segment = self.existing_segment(base, size_bytes);
            index = self.index_up_to(&segment, start).await?;
            first = Some(segment);
        }
        self.restore_derived(checkpoint, &segments, first.as_ref(), &index, start)
            .await?;

        let mut log_end = start.offset;
        for (nth, (base, size_bytes)) in scanned.iter().enumerate() {
            let segment = match first.take() {
                Some(segment) => segment,
                None => self.existing_segment(*base, *size_bytes),
            };
            let next = scanned.get(nth + 1).map(|(next, _)| *next);
            if nth > 0 {
                index = SegmentIndex::new(*base);
            }
            let from = if nth == 0 { start.position } else { 0 };
            log_end = self
                .scan_segment(&segment, &mut index, from, log_end, next)
                .await?;
            if next.is_some() {
                index.note_time();
                self.save_index(&segment, &index, log_end).await?;
                segment.index_saved_bytes.set(segment.size_bytes.get());
            } else {
                if self.index_is_stale {
                    self.save_index(&segment, &index, log_end).await?;
                    segment.index_saved_bytes.set(segment.size_bytes.get());
                }
                *segment.index.borrow_mut() = Some(index.clone());
            }
            segments.push_back(Rc::new(segment));
        }
        if log_end < self.durable_offset {
            let base = scanned.last().map_or(start.segment_base, |(base, _)| *base);
            let position = segments.back().map_or(0, |last| last.size_bytes.get());
            let reason = format!("the log ends at {log_end} there");
            return Err(self.corrupt(base, position, reason));
        }
        if scanned.is_empty() {
            segments.push_back(Rc::new(Segment::new(log_end, self.now)));
        }
        if checkpoint.is_none_or(|checkpoint| {
            checkpoint.position.0 == 0 || self.found_more || self.report.cut.is_some()
        }) && !scanned.is_empty()
        {
            // The entries of a file that is written from now on, and of its folder, must be durable:
            // a process that was killed may have left them otherwise.
            self.io(self.core.disk.sync_dir(self.dir).await)?;
            if let Some(parent) = self.dir.parent() {
                self.io(self.core.disk.sync_dir(parent).await)?;
            }
        }
        self.remove_stale_files(log_end).await?;
        self.remove_kept().await?;
        Ok(Recovered {
            segments,
            log_start: log_start.min(log_end),
            log_end,
        })
    }

    fn existing_segment(&self, base: Offset, size_bytes: u64) -> Segment<D::File> {
        let segment = Segment::rolled(base, self.now, size_bytes);
        segment.index_saved_bytes.set(0);
        segment
    }

    fn io<T>(&self, result: io::Result<T>) -> Result<T, OpenError> {
        result.map_err(|source| OpenError::Io {
            dir: self.dir.to_owned(),
            source,
        })
    }

    async fn open_segment(
        &self,
        segment: &Segment<D::File>,
    ) -> Result<Rc<super::segment::OpenFile<D::File>>, OpenError> {
        let opened = segment
            .open(
                &self.core.disk,
                self.dir,
                OpenMode::Existing,
                &self.core.files,
            )
            .await;
        self.io(opened)
    }

    fn corrupt(&self, base: Offset, position: u64, reason: impl ToString) -> OpenError {
        OpenError::Corrupt {
            file: self.path(base, FileKind::Log),
            position,
            durable_offset: self.durable_offset,
            reason: reason.to_string(),
        }
    }

    fn path(&self, offset: Offset, kind: FileKind) -> PathBuf {
        self.dir.join(file_name(offset, kind))
    }

    /// The base of the last segment that has a file. All before it is flushed.
    fn last_base(&self) -> Option<Offset> {
        self.folder.logs.keys().next_back().copied()
    }

    /// Where the newest snapshot stands that may be restored; nothing where there is none.
    fn snapshot_end(&self, checkpoint: Option<&PartitionCheckpoint>) -> Option<Offset> {
        let embedded = checkpoint.and_then(|checkpoint| checkpoint.snapshot.as_ref());
        let embedded = embedded.map(|(offset, _)| *offset);
        let end = self.last_base().unwrap_or(Offset::ZERO);
        let end = end.max(self.durable_offset);
        let file = self.folder.snapshots.range(..=end).next_back().copied();
        embedded.max(file)
    }

    /// Removes segments that lie whole below an offset, and indexes without a log.
    async fn finish_deletion(&mut self, below: Offset) -> Result<(), OpenError> {
        let mut removed = false;
        loop {
            let mut bases = self.folder.logs.keys().copied();
            let (Some(first), Some(second)) = (bases.next(), bases.next()) else {
                break;
            };
            if second > below {
                break;
            }
            self.io(self
                .core
                .disk
                .remove_file(&self.path(first, FileKind::Log))
                .await)?;
            self.folder.logs.remove(&first);
            self.report.removed_segments += 1;
            removed = true;
        }
        for kind in [FileKind::OffsetIndex, FileKind::TimeIndex] {
            let indexes = match kind {
                FileKind::OffsetIndex => &self.folder.offset_indexes,
                _ => &self.folder.time_indexes,
            };
            let orphans: Vec<Offset> = indexes
                .iter()
                .filter(|base| !self.folder.logs.contains_key(base))
                .copied()
                .collect();
            for base in orphans {
                self.io(self.core.disk.remove_file(&self.path(base, kind)).await)?;
                match kind {
                    FileKind::OffsetIndex => self.folder.offset_indexes.remove(&base),
                    _ => self.folder.time_indexes.remove(&base),
                };
                removed = true;
            }
        }
        if removed {
            self.io(self.core.disk.sync_dir(self.dir).await)?;
        }
        Ok(())
    }

    /// Where the scan begins, once it is sure that all before it is there.
    fn find_start(
        &self,
        checkpoint: Option<&PartitionCheckpoint>,
        log_start: Offset,
    ) -> Result<Start, OpenError> {
        let first_base = self.folder.logs.keys().next().copied();
        let Some(checkpoint) = checkpoint else {
            let base = first_base.unwrap_or(Offset::ZERO);
            return Ok(Start {
                segment_base: base,
                position: 0,
                offset: base,
            });
        };
        let mut start = Start {
            segment_base: checkpoint.segment_base,
            position: checkpoint.position.0,
            offset: checkpoint.flushed_offset,
        };
        // A log that could not make a new checkpoint keeps the former place in it, although the
        // segment has been deleted since.
        if let Some(first) = first_base.filter(|first| *first > start.segment_base)
            && start.offset <= first
            && first <= log_start
        {
            start = Start {
                segment_base: first,
                position: 0,
                offset: first,
            };
        }
        let size_bytes = self.folder.logs.get(&start.segment_base).copied();
        match size_bytes {
            None if start.position > 0 => {
                return Err(self.corrupt(start.segment_base, 0, "the file is missing"));
            }
            Some(size_bytes) if size_bytes < start.position => {
                return Err(self.corrupt(
                    start.segment_base,
                    size_bytes,
                    format!(
                        "the file ends there, {} bytes too early",
                        start.position - size_bytes
                    ),
                ));
            }
            _ => {}
        }
        if log_start < start.offset && first_base.is_none_or(|first| first > log_start) {
            return Err(self.corrupt(log_start, 0, "the file that holds this offset is missing"));
        }
        if size_bytes.is_none()
            && let Some(later) = self.folder.logs.range(start.segment_base..).next()
        {
            return Err(self.corrupt(
                start.segment_base,
                0,
                format!("the file is missing, and a later one begins at {}", later.0),
            ));
        }
        Ok(start)
    }

    /// Walks a segment from `position`, where `expected` is due, to its last whole batch, and cuts
    /// what follows. Returns the offset at which it ends.
    async fn scan_segment(
        &mut self,
        segment: &Segment<D::File>,
        index: &mut SegmentIndex,
        mut position: u64,
        mut expected: Offset,
        next: Option<Offset>,
    ) -> Result<Offset, OpenError> {
        if position == 0 && segment.base != expected {
            return Err(self.corrupt(
                segment.base,
                0,
                format!(
                    "the file begins at {} where {expected} was due",
                    segment.base
                ),
            ));
        }
        let size_bytes = segment.size_bytes.get();
        let mut fault = None;
        let from = position;
        if position < size_bytes {
            let open = self.open_segment(segment).await?;
            let mut scanner = Scanner::new(&open.file, size_bytes, Scanner::<D::File>::WALK_BYTES);
            loop {
                match self.io(scanner.batch_at(position, Some(expected)).await)? {
                    Found::Batch(batch) => {
                        index.note(indexed(&batch, position), self.config.index_interval_bytes);
                        position += batch.len() as u64;
                        expected = batch.last_offset().next();
                        {
                            let mut derived = self.derived.borrow_mut();
                            derived.scanned(&batch);
                            if batch.base_offset() >= self.derived_from {
                                derived.replay(&batch);
                            }
                        }
                        compare_reference(
                            &mut self.references,
                            &mut self.reference_checksum,
                            &batch,
                        )
                        .map_err(|reason| self.corrupt(segment.base, position, reason))?;
                    }
                    Found::End => break,
                    Found::Bad(found) => {
                        fault = Some((found, self.io(scanner.is_blank_at(position).await)?));
                        break;
                    }
                }
            }
        }
        self.report.scanned_bytes += position - from;
        self.found_more |= position > from;
        if let Some(next) = next
            && next != expected
        {
            let reason = fault.map_or_else(
                || format!("the log is at {expected} where the next file begins at {next}"),
                |(fault, _)| fault.to_string(),
            );
            return Err(self.corrupt(segment.base, position, reason));
        }
        if let Some((fault, is_blank)) = fault {
            if next.is_none() && expected < self.durable_offset {
                return Err(self.corrupt(segment.base, position, fault));
            }
            if !is_blank {
                tracing::warn!(
                    file = %self.path(segment.base, FileKind::Log).display(),
                    position, %fault, offset = %expected,
                    "cut a torn tail of {} bytes, which was never acknowledged", size_bytes - position
                );
                self.report.cut = Some((expected, FilePosition(position), fault));
            }
        }
        // A killed process may also have left a size that is not durable, and only the last segment
        // is looked at again.
        if position < size_bytes || position > from || next.is_some() {
            let open = self.open_segment(segment).await?;
            if position < size_bytes {
                self.io(open.file.truncate(position).await)?;
            }
            // After a killed process the batches may be on the device and not flushed.
            self.io(open.file.sync_data().await)?;
        }
        segment.size_bytes.set(position);
        segment.written_bytes.set(position);
        segment.staged_bytes.set(position);
        segment.allocated_bytes.set(position);
        Ok(expected)
    }

    /// Removes snapshots of what was cut, and the files of an index that may know it.
    async fn remove_stale_files(&mut self, log_end: Offset) -> Result<(), OpenError> {
        let stale: Vec<Offset> = self
            .folder
            .snapshots
            .range(log_end.next()..)
            .copied()
            .collect();
        for offset in &stale {
            self.io(self
                .core
                .disk
                .remove_file(&self.path(*offset, FileKind::Snapshot))
                .await)?;
            self.folder.snapshots.remove(offset);
        }
        if !stale.is_empty() {
            self.io(self.core.disk.sync_dir(self.dir).await)?;
        }
        Ok(())
    }
}

pub(super) fn indexed(batch: &BatchView<'_>, position: u64) -> IndexedBatch {
    IndexedBatch {
        last_offset: batch.last_offset(),
        position,
        len: batch.len(),
        max_timestamp: batch.max_timestamp(),
    }
}
