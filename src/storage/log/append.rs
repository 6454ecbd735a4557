//! Appending: the batch is in memory and in its place when the call returns.

use std::rc::Rc;

use bytes::Bytes;

use super::segment::Segment;
use super::writer::run_writer;
use super::{BLOCK, Condition, Log, LogInner, LogState, Pending, Route};
use crate::base::{LeaderEpoch, Offset, TimestampMs};
use crate::io::disk::{Disk, DiskFile};
use crate::storage::derived::DerivedState;
use crate::storage::error::{AppendError, LogError};
use crate::storage::index::IndexedBatch;
use crate::storage::tail::BatchMemory;

/// One batch, validated, with its base offset and leader epoch set in its bytes.
#[derive(Debug, Clone)]
pub struct AppendBatch {
    pub bytes: Bytes,
    pub base_offset: Offset,
    pub last_offset: Offset,
    pub max_timestamp: TimestampMs,
    pub leader_epoch: LeaderEpoch,
}

impl<D: Disk, S: DerivedState> Log<D, S> {
    /// Places a batch at the log's end, in memory, and has the writer make it durable. To be
    /// called before the batch is applied to the derived state, of which a roll takes a snapshot.
    ///
    /// # Errors
    /// Nothing changed: the batch does not continue the log or is too large, the device is full
    /// (retriable), or the log takes nothing more.
    pub fn append(&self, batch: AppendBatch, now: TimestampMs) -> Result<(), AppendError> {
        let inner = &self.inner;
        let mut state = inner.state.borrow_mut();
        if state.condition == Condition::Full {
            // An append that is refused is also the occasion to try again.
            drop(state);
            self.retry_writes();
            state = inner.state.borrow_mut();
        }
        state.check_condition()?;
        if inner.core.refuses_appends() {
            return Err(LogError::StorageFull.into());
        }
        if batch.base_offset != state.log_end || batch.last_offset < batch.base_offset {
            return Err(AppendError::OutOfOrder {
                expected: state.log_end,
                base_offset: batch.base_offset,
                last_offset: batch.last_offset,
            });
        }
        let len = batch.bytes.len();
        if len as u64 > state.config.segment_bytes.min(i32::MAX as u64) {
            return Err(AppendError::TooLarge {
                len,
                segment_bytes: state.config.segment_bytes,
            });
        }
        if state.must_roll(&batch, now) {
            let segment = Segment::new(state.log_end, now);
            *segment.snapshot.borrow_mut() = Some(inner.derived.borrow().encode_snapshot());
            state.segments.push_back(Rc::new(segment));
        }
        let segment = state.active().clone();
        let position = segment.size_bytes.get();
        if let Some(index) = &mut *segment.index.borrow_mut() {
            index.note(
                IndexedBatch {
                    last_offset: batch.last_offset,
                    position,
                    len,
                    max_timestamp: batch.max_timestamp,
                },
                state.config.index_interval_bytes,
            );
        }
        segment.size_bytes.set(position + len as u64);
        let head = if len >= state.config.placed_bytes_min {
            state.block_head(segment.base, position)
        } else {
            None
        };
        let tail = &inner.core.tail;
        let memory = match head {
            Some(head) => BatchMemory::placed(tail.pool(), &head, &batch.bytes),
            None => BatchMemory::copied(&batch.bytes),
        };
        let entry = tail.insert(batch.base_offset, batch.last_offset, memory);
        state.drop_evicted();
        state.tail.push_back(entry.clone());
        state.pending.push_back(Pending {
            entry,
            segment,
            position,
            logged_in: 0,
        });
        state.pending_bytes += len;
        state.log_end = batch.last_offset.next();
        let commit_log = inner.core.commit_log();
        let inline_bytes_max = commit_log
            .as_ref()
            .map_or(usize::MAX, |log| log.inline_bytes_max());
        let route = state.note_unlogged(len, inline_bytes_max);
        if let Some(commit_log) = commit_log
            && route == Route::Inline
        {
            let submits = !std::mem::replace(&mut state.commit.is_waiting, true);
            drop(state);
            if submits {
                commit_log.submit(inner.clone());
            }
            return Ok(());
        }
        drop(state);
        inner.wake_writer();
        Ok(())
    }

    /// Tries to write what is pending since the device was full.
    pub fn retry_writes(&self) {
        let inner = &self.inner;
        if inner.state.borrow().condition == Condition::Full {
            inner.wake_writer();
        }
    }
}

impl<D: Disk, S: DerivedState> LogInner<D, S> {
    /// Has the writer look for work.
    pub(super) fn wake_writer(self: &Rc<Self>) {
        let waker = {
            let mut state = self.state.borrow_mut();
            if !std::mem::replace(&mut state.writer_runs, true) {
                drop(state);
                (self.core.spawn)(Box::pin(run_writer(self.clone())));
                return;
            }
            state.writer_waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<F: DiskFile> LogState<F> {
    /// Kafka's rules for a new segment.
    fn must_roll(&self, batch: &AppendBatch, now: TimestampMs) -> bool {
        let segment = self.active();
        let size_bytes = segment.size_bytes.get();
        if size_bytes == 0 {
            return false;
        }
        let index = segment.index.borrow();
        let Some(index) = index.as_ref() else {
            return true;
        };
        let first = index.first_timestamp().filter(|timestamp| timestamp.0 >= 0);
        let age_ms = match first {
            Some(first) => batch.max_timestamp.0.saturating_sub(first.0),
            None => now.0.saturating_sub(segment.created.0),
        };
        let relative = batch.last_offset.0.saturating_sub(segment.base.0);
        size_bytes + batch.bytes.len() as u64 > self.config.segment_bytes.min(i32::MAX as u64)
            || age_ms > self.config.segment_ms
            || index.is_full(self.config.segment_index_bytes)
            || relative > i64::from(i32::MAX)
    }

    /// What the segment has before `position` in the block of it, where memory holds that: the end
    /// of the last batches.
    fn block_head(&self, segment_base: Offset, position: u64) -> Option<Vec<u8>> {
        let mut missing = (position % BLOCK) as usize;
        let mut pieces = Vec::new();
        for entry in self.tail.iter().rev() {
            if missing == 0 {
                break;
            }
            if entry.base_offset < segment_base {
                return None;
            }
            let bytes = entry.bytes()?;
            let taken = bytes.len().min(missing);
            pieces.push(bytes.slice(bytes.len() - taken..));
            missing -= taken;
        }
        pieces.reverse();
        (missing == 0).then(|| pieces.concat())
    }

    /// Forgets the entries at the front that the cache has evicted.
    pub(super) fn drop_evicted(&mut self) {
        while self.tail.front().is_some_and(|entry| entry.is_evicted()) {
            self.tail.pop_front();
        }
    }
}
