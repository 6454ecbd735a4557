//! One partition's log: batches appended at its end, made durable by its writer, read by offset.
//!
//! ```text
//!   log start      flushed            written        durable        log end
//!      |              |                  |              |              |
//!      [== segments, flushed ==][= written =][= pending in memory ========]
//!                                            [= commit log =][= unlogged =]
//!                           [--------------- tail cache -----------------]
//! ```
//! `log start <= flushed <= written <= log end`. An append places a batch in memory at once, and
//! then goes one of two ways:
//! - *inline*: the core's commit log takes the batch, and its flush makes it durable. The writer
//!   puts it into the segment later, in whole blocks, without a flush of its own.
//! - *direct*: where much is waiting, the writer puts all that is pending into the segment at once
//!   and flushes it; the commit log takes a reference.
//!
//! The durable offset is what acknowledgements and reads go by. A log without a commit log, or one
//! whose `flush.messages` relaxes flushing, has the writer alone.
//!
//! Everything of a log happens on its core; nothing is borrowed over an await.

mod append;
mod lifecycle;
mod member;
mod reader;
mod recovery;
mod scan;
mod segment;
mod times;
mod writer;

#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::task::Waker;

use super::budget::Budget;
use super::checkpoint::PartitionCheckpoint;
use super::commit::CommitLog;
use super::commit::format::{Entry, EntryPlace, Reference};
use super::derived::DerivedState;
use super::error::{LogError, OpenError};
use super::tail::{TailCache, TailEntry};
use super::waiters::Waiters;
use crate::base::limits::DISK_BLOCK_BYTES;
use crate::base::{Offset, PartitionIndex, TimestampMs, TopicId};
use crate::io::disk::{Disk, Spawn};
use crate::io::local::Semaphore;
use segment::Segment;

pub use append::AppendBatch;
pub use lifecycle::{SegmentInfo, remove_doomed_dirs};
pub use reader::ReadOutcome;
pub use recovery::{RecoveryReport, keep_logged};
pub use times::TimestampedOffset;

const BLOCK: u64 = DISK_BLOCK_BYTES as u64;

/// What the logs of one core share.
pub struct CoreStorage<D: Disk> {
    pub disk: D,
    pub spawn: Spawn,
    /// The newest batches.
    pub tail: TailCache,
    /// Open segment files; the weight is one each.
    pub files: Budget,
    /// Indexes of rolled segments; the weight is in bytes.
    pub indexes: Budget,
    commit_log: RefCell<Option<Rc<CommitLog<D>>>>,
    /// Logs that put into their segments what is in the commit log, at the same time.
    staging: Semaphore,
    /// Bytes that writes into segments may have in flight.
    in_flight: Semaphore,
    /// Appends stop where less than this is free on the device; 0 is no limit.
    reserve_bytes: Cell<u64>,
    is_short_of_space: Cell<bool>,
    /// A promise that is broken on purpose, so that tests show that this is noticed.
    #[cfg(test)]
    flaw: Cell<Flaw>,
}

/// See [`CoreStorage`].
#[cfg(test)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Flaw {
    #[default]
    None,
    /// A direct write leaves out what is pending and in the commit log only.
    DirectWithoutPending,
    /// A direct append is acknowledged when the commit log is flushed, its segment not.
    DirectWithoutFlush,
    /// A commit file is used again although its entries are in no flushed segment.
    ReleasedTooEarly,
}

/// A device has use for a few writes in flight beside the commit log's.
const STAGED_AT_A_TIME: usize = 4;

/// What keeps a device busy. More would make the commit log's writes wait behind it.
const IN_FLIGHT_BYTES_MAX: usize = 4 << 20;

/// Of a file system, a reserve takes at most one part in so many.
const RESERVE_PART: u64 = 8;

impl<D: Disk> CoreStorage<D> {
    /// `tail_bytes_max` and `index_bytes_max` bound the memory for the newest batches and for
    /// indexes of rolled segments, `open_files_max` the file descriptors.
    pub fn new(
        disk: D,
        spawn: Spawn,
        tail_bytes_max: usize,
        index_bytes_max: usize,
        open_files_max: usize,
    ) -> Rc<Self> {
        Rc::new(Self {
            disk,
            spawn,
            tail: TailCache::new(tail_bytes_max),
            files: Budget::new(open_files_max),
            indexes: Budget::new(index_bytes_max),
            commit_log: RefCell::new(None),
            staging: Semaphore::new(STAGED_AT_A_TIME),
            in_flight: Semaphore::new(IN_FLIGHT_BYTES_MAX),
            reserve_bytes: Cell::new(0),
            is_short_of_space: Cell::new(false),
            #[cfg(test)]
            flaw: Cell::default(),
        })
    }

    /// Keeps so much of the device free of appends, in bytes, or an eighth of it where that is less:
    /// what is in the commit log must find room in the segments, and checkpoints and deletions must
    /// go on, when the device is full.
    pub fn set_reserve(&self, bytes: u64) {
        self.reserve_bytes.set(bytes);
    }

    /// Looks how much is free, less `wanted_bytes` that the caller is about to take. True where
    /// that leaves less than the reserve: appends are refused until another look finds more.
    pub async fn check_space(&self, path: &Path, wanted_bytes: u64) -> bool {
        let reserve_bytes = self.reserve_bytes.get();
        if reserve_bytes == 0 {
            return false;
        }
        // A file system that does not tell is taken for one that has room.
        let Ok(space) = self.disk.space(path).await else {
            return false;
        };
        let reserve_bytes = reserve_bytes.min(space.total_bytes / RESERVE_PART);
        let is_short = space.free_bytes.saturating_sub(wanted_bytes) < reserve_bytes;
        if is_short != self.is_short_of_space.replace(is_short) {
            if is_short {
                tracing::warn!(
                    free_bytes = space.free_bytes,
                    reserve_bytes,
                    "the disk is nearly full: appends are refused until there is space"
                );
            } else {
                tracing::info!(
                    free_bytes = space.free_bytes,
                    "there is space again: appends are taken"
                );
            }
        }
        is_short
    }

    /// Whether appends are refused at present, because the device or the commit log is full.
    fn refuses_appends(&self) -> bool {
        self.is_short_of_space.get()
            || self
                .commit_log
                .borrow()
                .as_ref()
                .is_some_and(|commit_log| commit_log.is_out_of_space())
    }

    /// Small appends go to this commit log from now on.
    pub fn set_commit_log(&self, commit_log: Rc<CommitLog<D>>) {
        *self.commit_log.borrow_mut() = Some(commit_log);
    }

    pub fn commit_log(&self) -> Option<Rc<CommitLog<D>>> {
        self.commit_log.borrow().clone()
    }
}

/// A log's settings; they may change while it is open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    /// `segment.bytes`: a segment is rolled before it would grow beyond.
    pub segment_bytes: u64,
    /// `segment.ms`: a segment is rolled when its first batch is older, by record time.
    pub segment_ms: i64,
    /// `index.interval.bytes`.
    pub index_interval_bytes: u64,
    /// `segment.index.bytes`: a segment is rolled when one of its indexes is as large.
    pub segment_index_bytes: usize,
    /// Files grow by their own size at a time, at least by the first and at most by the second,
    /// in bytes: a small partition stays small and a busy one seldom changes its size.
    pub preallocate_bytes_min: u64,
    pub preallocate_bytes_max: u64,
    /// What one write takes at most, in bytes (a larger batch goes alone).
    pub write_bytes_max: usize,
    /// The same where the batches are written from where they lie, in bytes.
    pub gathered_bytes_max: usize,
    /// A write of so many bytes begins although the flush before it runs.
    pub ahead_bytes_min: usize,
    /// Beyond so many unwritten bytes [`Log::wait_for_room`] waits.
    pub pending_bytes_max: usize,
    /// `flush.messages`: a flush is due after so many records. One: before each acknowledgement.
    /// More: an acknowledgement means that the device has the write.
    pub flush_messages: u64,
    /// Where so many bytes wait for the commit log, they go directly to the segment.
    pub direct_bytes_min: usize,
    /// A batch of so many bytes is laid out in whole blocks, to be written without another copy. The
    /// blocks of a smaller one would be much larger than itself.
    pub placed_bytes_min: usize,
    /// What is pending is put into the segment in pieces of at least so many bytes.
    pub stage_bytes_min: usize,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            segment_bytes: 1 << 30,
            segment_ms: 7 * 24 * 60 * 60 * 1000,
            index_interval_bytes: 4096,
            segment_index_bytes: 10 << 20,
            preallocate_bytes_min: 64 << 10,
            preallocate_bytes_max: 64 << 20,
            // With the block that is repeated before it, a write fits a buffer of 1 MiB: such
            // writes cost a quarter less than those that just exceed a power of two.
            write_bytes_max: (1 << 20) - DISK_BLOCK_BYTES,
            gathered_bytes_max: 2 << 20,
            ahead_bytes_min: 1 << 20,
            pending_bytes_max: 8 << 20,
            flush_messages: 1,
            direct_bytes_min: 128 << 10,
            placed_bytes_min: 32 << 10,
            stage_bytes_min: 32 << 10,
        }
    }
}

/// Whom a log tells; both are called on its core, outside of any borrow.
pub struct LogEvents {
    /// The durable offset moved to the given one.
    pub on_durable: Box<dyn Fn(Offset)>,
    /// A write or a flush failed: nothing is acknowledged any more, and the process must end so
    /// that recovery decides what is on the device.
    pub on_failed: Box<dyn Fn(&str)>,
}

impl Default for LogEvents {
    fn default() -> Self {
        Self {
            on_durable: Box::new(|_| {}),
            on_failed: Box::new(|_| {}),
        }
    }
}

/// Whose log it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogIdentity {
    pub topic_id: TopicId,
    pub partition: PartitionIndex,
    /// Greater with each run of the process and each move of the partition.
    pub ownership: u64,
}

/// What a log is opened with.
pub struct LogSetup<S> {
    pub identity: LogIdentity,
    /// The partition's folder, which must exist; the first append makes it durable.
    pub dir: PathBuf,
    pub config: LogConfig,
    /// Where recovery begins; without one, everything is scanned.
    pub checkpoint: Option<PartitionCheckpoint>,
    /// What the commit logs hold of the partition, in order.
    pub logged: Vec<Entry>,
    pub derived: Rc<RefCell<S>>,
    pub events: LogEvents,
}

/// An open log. Clones are the same log.
pub struct Log<D: Disk, S: DerivedState> {
    inner: Rc<LogInner<D, S>>,
}

impl<D: Disk, S: DerivedState> Clone for Log<D, S> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
        }
    }
}

struct LogInner<D: Disk, S: DerivedState> {
    core: Rc<CoreStorage<D>>,
    identity: LogIdentity,
    dir: PathBuf,
    derived: Rc<RefCell<S>>,
    events: LogEvents,
    report: RecoveryReport,
    state: RefCell<LogState<D::File>>,
    /// Tasks that wait for a durable offset.
    durable_waiters: Rc<Waiters>,
    /// Tasks that wait for room, or for the writer to be idle.
    progress_waiters: Rc<Waiters>,
}

/// Whether a log takes appends.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Condition {
    Open,
    /// The device is full; pending batches wait for space.
    Full,
    Failed(String),
    Closed,
}

/// A place that a write or flush has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    offset: Offset,
    segment_base: Offset,
    position: u64,
}

/// A batch of which the segment's file does not have all bytes yet.
struct Pending<F: crate::io::disk::DiskFile> {
    entry: Rc<TailEntry>,
    segment: Rc<Segment<F>>,
    /// In the segment's file.
    position: u64,
    /// The number of the commit file that has it; 0 is none.
    logged_in: u64,
}

impl<F: crate::io::disk::DiskFile> Pending<F> {
    fn end_position(&self) -> u64 {
        self.position + self.entry.len as u64
    }
}

/// The way that appends take to stable media.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Route {
    Inline,
    Direct,
}

/// A log's part in the commit log of its core.
struct CommitState {
    route: Route,
    /// Batches below it are in the commit log, or were flushed in their segment.
    logged: Offset,
    /// The batches from `logged` on: the last ones that are pending.
    unlogged_count: usize,
    unlogged_bytes: usize,
    /// Flushed in their segments, to be logged.
    references: VecDeque<(EntryPlace, Reference)>,
    /// Whether the commit log knows that there is something.
    is_waiting: bool,
    /// Which commit files hold batches of the log, and up to which offset; oldest first.
    files: VecDeque<(u64, Offset)>,
    /// Pending batches below it are to be logged once more, so that an older file is free.
    log_again: Option<Offset>,
    /// Up to where that was done, and in which file.
    logged_again: (Offset, u64),
    /// Where that began: what is below must be flushed.
    again_from: Offset,
    /// What is durable below it is to be put into the segment, however little it is.
    stage_through: Option<Offset>,
    /// Staging takes the last block too, however little is in it.
    stages_all: bool,
    /// Batches were written that the commit log has not: the next ones go directly too.
    has_unlogged_writes: bool,
}

struct LogState<F: crate::io::disk::DiskFile> {
    config: LogConfig,
    condition: Condition,
    /// By base offset; the last one is active. Never empty.
    segments: VecDeque<Rc<Segment<F>>>,
    log_start: Offset,
    log_end: Offset,
    durable: Offset,
    /// Up to the last batch of which the device has all bytes.
    written: Mark,
    flushed: Mark,
    pending: VecDeque<Pending<F>>,
    pending_bytes: usize,
    commit: CommitState,
    tail: VecDeque<Rc<TailEntry>>,
    /// The bytes of the last, partly filled block that was written, to be repeated by the next
    /// write; nothing where they must be read first.
    tail_block: Option<Vec<u8>>,
    writer_runs: bool,
    writer_waker: Option<Waker>,
    /// Tasks of this log beside the writer.
    background_tasks: usize,
    records_since_flush: u64,
    /// A flush is due whatever the rule where less than this is flushed.
    flush_wanted: Offset,
    /// The log is being closed: all that is pending goes to the segment.
    drains: bool,
    /// Offsets of the snapshot files, ascending.
    snapshots: Vec<Offset>,
    /// What [`Log::checkpoint`] last returned.
    last_checkpoint: PartitionCheckpoint,
}

impl<F: crate::io::disk::DiskFile> LogState<F> {
    fn active(&self) -> &Rc<Segment<F>> {
        self.segments.back().expect("a log has a segment")
    }

    fn is_strict(&self) -> bool {
        self.config.flush_messages <= 1
    }

    /// Forgets what is pending.
    fn clear_pending(&mut self) {
        self.pending.clear();
        self.pending_bytes = 0;
        self.commit.unlogged_count = 0;
        self.commit.unlogged_bytes = 0;
    }

    fn check_condition(&self) -> Result<(), LogError> {
        match &self.condition {
            Condition::Open => Ok(()),
            Condition::Full => Err(LogError::StorageFull),
            Condition::Failed(reason) => Err(LogError::Failed {
                reason: reason.clone(),
            }),
            Condition::Closed => Err(LogError::Closed),
        }
    }
}

impl<D: Disk, S: DerivedState> Log<D, S> {
    /// Opens a partition's log and recovers it. Nothing is created: the first segment's file
    /// comes with the first append.
    ///
    /// When it resolves, everything below the log's end is on stable media, and the derived state
    /// reflects it.
    ///
    /// # Errors
    /// Acknowledged records are damaged or missing, or the device failed.
    pub async fn open(
        core: Rc<CoreStorage<D>>,
        setup: LogSetup<S>,
        now: TimestampMs,
    ) -> Result<Self, OpenError> {
        recovery::open(core, setup, now).await
    }

    /// The end of the contiguous prefix that may be acknowledged: flushed, or, where
    /// `flush.messages` relaxes that, written.
    pub fn durable_offset(&self) -> Offset {
        self.inner.state.borrow().durable
    }

    /// The offset that the next record gets.
    pub fn log_end_offset(&self) -> Offset {
        self.inner.state.borrow().log_end
    }

    pub fn log_start_offset(&self) -> Offset {
        self.inner.state.borrow().log_start
    }

    /// Bytes that were appended and are not written yet.
    pub fn pending_bytes(&self) -> usize {
        self.inner.state.borrow().pending_bytes
    }

    /// What recovery did when the log was opened.
    pub fn recovery_report(&self) -> &RecoveryReport {
        &self.inner.report
    }

    pub fn dir(&self) -> &Path {
        &self.inner.dir
    }

    /// Takes new settings; they hold from the next append and write on.
    pub fn set_config(&self, config: LogConfig) {
        let changes_rule = {
            let mut state = self.inner.state.borrow_mut();
            let was_strict = state.is_strict();
            state.config = config;
            state.is_strict() != was_strict
        };
        if changes_rule {
            // What is pending may go another way now.
            self.inner.wake_writer();
        }
    }

    /// Resolves when records below `end` may be acknowledged.
    ///
    /// # Errors
    /// The device is full, which may pass, or the log failed or was closed before.
    pub async fn wait_durable(&self, end: Offset) -> Result<(), LogError> {
        self.inner
            .durable_waiters
            .wait(end.0, || {
                let state = self.inner.state.borrow();
                if state.durable >= end {
                    return Some(Ok(()));
                }
                if let Err(error) = state.check_condition() {
                    return Some(Err(error));
                }
                // What waits for the commit log may wait for long.
                let commit_log = self.inner.core.commit_log();
                let is_stuck = state.commit.is_waiting
                    && commit_log.is_some_and(|commit_log| commit_log.is_out_of_space());
                is_stuck.then_some(Err(LogError::StorageFull))
            })
            .await
    }

    /// Resolves when less than [`LogConfig::pending_bytes_max`] are pending.
    ///
    /// # Errors
    /// As [`wait_durable`](Self::wait_durable).
    pub async fn wait_for_room(&self) -> Result<(), LogError> {
        self.inner
            .progress_waiters
            .wait(0, || {
                let state = self.inner.state.borrow();
                if let Err(error) = state.check_condition() {
                    return Some(Err(error));
                }
                (state.pending_bytes < state.config.pending_bytes_max).then_some(Ok(()))
            })
            .await
    }
}

impl<D: Disk, S: DerivedState> LogInner<D, S> {
    /// Stops the log for good and tells whoever waits and the owner.
    fn fail(&self, error: &io::Error) {
        let reason = error.to_string();
        {
            let mut state = self.state.borrow_mut();
            if matches!(state.condition, Condition::Failed(_)) {
                return;
            }
            state.condition = Condition::Failed(reason.clone());
        }
        tracing::error!(dir = %self.dir.display(), %reason, "a write or flush failed; the log takes nothing more");
        self.durable_waiters.wake_all();
        self.progress_waiters.wake_all();
        (self.events.on_failed)(&reason);
    }
}
