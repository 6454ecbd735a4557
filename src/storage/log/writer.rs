//! The writer of a log: a task that runs only while there is work.
//!
//! ```text
//!   write 1 | flush 1        | flush 2   | flush 3
//!           | write 2  | wait| write 3   |
//!                        acknowledge 1   acknowledge 2, 3
//! ```
//! On the direct way the next write begins while the flush of the former runs, if it is a large one:
//! a small one waits for more and saves a flush. Writes never overlap
//! each other, so two that touch the same block are never in flight together; a flush begins only
//! when the write that it covers is complete and the flush before it has ended, so acknowledgements
//! are in order.
//!
//! What is in the commit log is only *staged*: written in whole blocks, without a flush, when enough
//! is there. What is left of the last block stays pending and in the commit log.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::Poll;

use bytes::Bytes;
use futures_lite::future::zip;

use super::member::ReferenceBuilder;
use super::segment::{OpenFile, Segment};
use super::{BLOCK, Condition, LogInner, LogState, Mark, Route};
use crate::base::Offset;
use crate::base::limits::DISK_BLOCK_BYTES;
use crate::io::disk::{Disk, DiskFile, OpenMode};
use crate::storage::commit::format::{EntryPlace, Reference};
use crate::storage::derived::DerivedState;
use crate::storage::tail::TailEntry;

/// Writes and flushes until nothing is pending.
pub(super) async fn run_writer<D: Disk, S: DerivedState>(inner: Rc<LogInner<D, S>>) {
    let result = loop {
        let result = inner.write_pending().await;
        let mut state = inner.state.borrow_mut();
        if result.is_err() || state.condition != Condition::Full {
            break result;
        }
        // Nothing is left that needed the space that was missing.
        state.condition = Condition::Open;
    };
    let is_news = {
        let mut state = inner.state.borrow_mut();
        state.writer_runs = false;
        state.writer_waker = None;
        let fills = matches!(&result, Err(error) if is_full(error));
        let is_news = fills && state.condition == Condition::Open;
        if is_news {
            state.condition = Condition::Full;
        }
        is_news
    };
    match result {
        Ok(()) => {}
        Err(error) if is_full(&error) => {
            if is_news {
                tracing::warn!(dir = %inner.dir.display(), %error, "no space for the log; it is written when there is");
            }
            inner.durable_waiters.wake_all();
        }
        Err(error) => inner.fail(&error),
    }
    inner.progress_waiters.wake_all();
}

pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// Batches of one segment that one write takes, or what is missing of them.
struct Group<F: DiskFile> {
    segment: Rc<Segment<F>>,
    /// Each with its position in the file.
    entries: Vec<(Rc<TailEntry>, u64)>,
    /// Where the bytes of the write begin and end in the file.
    start: u64,
    end: u64,
}

impl<F: DiskFile> Group<F> {
    /// The group's blocks as they lie in memory, where all of its batches are laid out in whole
    /// blocks, and what is in the last, partly filled one. A block that two batches share is in
    /// both of their memories; the later one has all of it.
    fn placed_blocks(&self) -> Option<(Vec<Bytes>, Vec<u8>)> {
        let (_, last_position) = self.entries.last()?;
        let mut pieces = Vec::with_capacity(self.entries.len());
        let mut last_block = Vec::new();
        let mut at = self.start - self.start % BLOCK;
        for (entry, position) in &self.entries {
            let blocks = entry.blocks()?;
            let first_block = position - position % BLOCK;
            let in_blocks = |position: u64| position.checked_sub(first_block).map(|at| at as usize);
            let entry_end = position + entry.len as u64;
            let end = if position == last_position {
                let whole_end = self.end - self.end % BLOCK;
                let used = in_blocks(whole_end)?..in_blocks(self.end)?;
                last_block = blocks.get(used)?.to_vec();
                self.end.next_multiple_of(BLOCK)
            } else {
                entry_end - entry_end % BLOCK
            };
            let taken = in_blocks(at)?..in_blocks(end)?;
            blocks.get(taken.clone())?;
            pieces.push(blocks.slice(taken));
            at = end;
        }
        Some((pieces, last_block))
    }
}

/// A write that is complete.
struct Written<F: DiskFile> {
    file: Rc<OpenFile<F>>,
    mark: Mark,
    /// What the commit log is to know when it is flushed.
    reference: Option<(EntryPlace, Reference)>,
}

impl<D: Disk, S: DerivedState> LogInner<D, S> {
    async fn write_pending(self: &Rc<Self>) -> io::Result<()> {
        let mut unflushed: Option<Written<D::File>> = None;
        loop {
            let Some(written) = unflushed.take() else {
                let is_staging = self.state.borrow().is_staging(self.has_commit_log());
                // Many logs have enough to stage at the same moment: they take turns, so that the
                // commit log's flushes need not wait behind all of them.
                let _turn = match is_staging {
                    true => Some(self.core.staging.acquire(1).await),
                    false => None,
                };
                if let Some(segment) = self.segment_to_finish() {
                    self.finish_segment(&segment).await?;
                } else if let Some(group) = self.take_group() {
                    unflushed = self.write_group(group).await?;
                } else if let Some(mark) = self.requested_flush() {
                    unflushed = Some(Written {
                        file: self.open_active(mark).await?,
                        mark,
                        reference: None,
                    });
                } else if !self.leave_direct_route() {
                    return Ok(());
                }
                continue;
            };
            let flushed = Cell::new(false);
            let flush = async {
                let result = self.flush(&written).await;
                flushed.set(true);
                if result.is_ok() {
                    self.note_flushed(written.mark);
                    self.note_flushed_reference(written.mark, written.reference);
                }
                result
            };
            let write_next = async {
                match self.next_group(&flushed).await {
                    Some(group) => self.write_group(group).await,
                    None => Ok(None),
                }
            };
            // A failed flush outweighs a failed write: it is for good.
            let (flush_result, write_result) = zip(flush, write_next).await;
            flush_result?;
            unflushed = write_result?;
        }
    }

    async fn flush(&self, written: &Written<D::File>) -> io::Result<()> {
        #[cfg(test)]
        if self.core.flaw.get() == super::Flaw::DirectWithoutFlush && written.reference.is_some() {
            return Ok(());
        }
        written.file.file.sync_data().await
    }

    /// The segment that is written whole and has a successor with batches.
    fn segment_to_finish(&self) -> Option<Rc<Segment<D::File>>> {
        let state = self.state.borrow();
        let next = state.pending.front()?.segment.base;
        if next == state.written.segment_base {
            return None;
        }
        state
            .segments
            .iter()
            .find(|segment| segment.base == state.written.segment_base)
            .cloned()
    }

    /// The next batches of the segment being written, where they are to be written now.
    fn take_group(&self) -> Option<Group<D::File>> {
        let has_commit_log = self.has_commit_log();
        let mut state = self.state.borrow_mut();
        if matches!(state.condition, Condition::Failed(_)) {
            return None;
        }
        let segment = state.pending.front()?.segment.clone();
        if segment.base != state.written.segment_base {
            return None;
        }
        let is_staging = state.is_staging(has_commit_log);
        if has_commit_log && !is_staging && state.little_is_direct() {
            return None;
        }
        // A commit file must be flushed before the segment may rely on it.
        let below = if is_staging {
            state.durable
        } else {
            Offset(i64::MAX)
        };
        let config = &state.config;
        let (write_bytes_max, gathered_bytes_max) = (
            config.write_bytes_max as u64,
            config.gathered_bytes_max as u64,
        );
        let start = segment.staged_bytes.get();
        let mut group = Group {
            segment,
            entries: Vec::new(),
            start,
            end: start,
        };
        for next in &state.pending {
            let end = next.end_position();
            let bytes_max = if next.entry.is_placed() {
                gathered_bytes_max
            } else {
                write_bytes_max
            };
            if next.segment.base != group.segment.base
                || next.entry.last_offset >= below
                || (!group.entries.is_empty() && end - start > bytes_max)
            {
                break;
            }
            group.entries.push((next.entry.clone(), next.position));
            group.end = end;
        }
        let is_active = state.active().base == group.segment.base;
        if is_staging && is_active && !state.commit.stages_all {
            group.end -= group.end % BLOCK;
            let has_enough = group.end >= start + state.config.stage_bytes_min as u64;
            let is_wanted = state.commit.stage_through.is_some() && group.end > start;
            if !has_enough && !is_wanted {
                state.commit.stage_through = None;
                return None;
            }
        }
        (!group.entries.is_empty()).then_some(group)
    }

    /// The next group, as soon as there is a large one; nothing when `flushed` is set before.
    async fn next_group(&self, flushed: &Cell<bool>) -> Option<Group<D::File>> {
        poll_fn(|context| {
            let is_large = {
                let state = self.state.borrow();
                state.pending_bytes >= state.config.ahead_bytes_min
            };
            if is_large && let Some(group) = self.take_group() {
                return Poll::Ready(Some(group));
            }
            if flushed.get() {
                return Poll::Ready(None);
            }
            self.state.borrow_mut().writer_waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Writes a group, whose batches are pending until then. Resolves with what is to be flushed
    /// now, if anything.
    async fn write_group(
        self: &Rc<Self>,
        group: Group<D::File>,
    ) -> io::Result<Option<Written<D::File>>> {
        let file = self.write_blocks(&group).await?;
        Ok(self.note_written(&group, file))
    }

    async fn write_blocks(&self, group: &Group<D::File>) -> io::Result<Rc<OpenFile<D::File>>> {
        let segment = &group.segment;
        let file = self.open_for_writing(segment).await?;
        let first_block = group.start - group.start % BLOCK;
        let end_block = group.end.next_multiple_of(BLOCK);
        self.preallocate(segment, &file.file, end_block).await?;
        let in_flight = &self.core.in_flight;
        let write_bytes = (end_block - first_block) as usize;
        let _turn = in_flight
            .acquire(write_bytes.min(in_flight.capacity()))
            .await;
        let last_block = match group.placed_blocks() {
            Some((pieces, last_block)) => {
                file.file.write_pieces_at(pieces, first_block).await?;
                last_block
            }
            None => self.write_copied(group, &file.file, first_block).await?,
        };
        if end_block > segment.allocated_bytes.get() {
            segment.allocated_bytes.set(end_block);
        }
        self.state.borrow_mut().tail_block = Some(last_block);
        Ok(file)
    }

    /// Writes the group from a buffer of its own; returns what is in the last, partly filled block.
    async fn write_copied(
        &self,
        group: &Group<D::File>,
        file: &D::File,
        first_block: u64,
    ) -> io::Result<Vec<u8>> {
        let head_bytes = (group.start - first_block) as usize;
        let head = self.tail_block(file, first_block, head_bytes).await?;
        let used_bytes = (group.end - first_block) as usize;
        let write_bytes = used_bytes.next_multiple_of(DISK_BLOCK_BYTES);
        let mut buffer = file.allocate(write_bytes);
        let mut at = head_bytes;
        buffer[..head_bytes].copy_from_slice(&head);
        for (entry, position) in &group.entries {
            // An entry keeps its bytes until it is written.
            let bytes = entry.bytes().ok_or(io::ErrorKind::InvalidData)?;
            let skip = group.start.saturating_sub(*position) as usize;
            let missing = bytes.get(skip..).unwrap_or_default();
            let taken = &missing[..missing.len().min(used_bytes - at)];
            buffer[at..at + taken.len()].copy_from_slice(taken);
            #[cfg(test)]
            self.leave_out(entry, &mut buffer[at..at + taken.len()]);
            at += taken.len();
        }
        buffer[used_bytes..].fill(0);
        let buffer = Rc::new(buffer);
        file.write_at(buffer.clone(), first_block).await?;
        let kept_from = used_bytes - used_bytes % DISK_BLOCK_BYTES;
        Ok(buffer[kept_from..used_bytes].to_vec())
    }

    #[cfg(test)]
    fn leave_out(&self, entry: &TailEntry, bytes: &mut [u8]) {
        let state = self.state.borrow();
        if self.core.flaw.get() == super::Flaw::DirectWithoutPending
            && state.commit.route == Route::Direct
            && entry.base_offset < state.commit.logged
        {
            bytes.fill(0);
        }
    }

    /// The bytes before the write in its first block: remembered, or read after a restart.
    async fn tail_block(
        &self,
        file: &D::File,
        first_block: u64,
        head_bytes: usize,
    ) -> io::Result<Vec<u8>> {
        let known = self.state.borrow_mut().tail_block.clone();
        if let Some(known) = known
            && known.len() == head_bytes
        {
            return Ok(known);
        }
        if head_bytes == 0 {
            return Ok(Vec::new());
        }
        let head = file.read_at(first_block, head_bytes).await?;
        if head.len() < head_bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(head.to_vec())
    }

    /// The segment's file, made where it is missing. The new entry is durable, and so is the
    /// snapshot that belongs to it, before anything is written.
    async fn open_for_writing(
        &self,
        segment: &Rc<Segment<D::File>>,
    ) -> io::Result<Rc<OpenFile<D::File>>> {
        let core = &self.core;
        if segment.exists.get() {
            return segment
                .open(&core.disk, &self.dir, OpenMode::Existing, &core.files)
                .await;
        }
        let snapshot = segment.snapshot.borrow().clone();
        if let Some(snapshot) = snapshot.filter(|snapshot| !snapshot.is_empty()) {
            self.save_snapshot(segment.base, &snapshot).await?;
        }
        segment.snapshot.borrow_mut().take();
        let file = segment
            .open(&core.disk, &self.dir, OpenMode::Create, &core.files)
            .await?;
        core.disk.sync_dir(&self.dir).await?;
        if Some(segment.base) == self.first_base()
            && let Some(parent) = self.dir.parent()
        {
            // The first file of a log also makes its folder durable, so that making a folder needs
            // no flush.
            core.disk.sync_dir(parent).await?;
        }
        segment.exists.set(true);
        Ok(file)
    }

    fn has_commit_log(&self) -> bool {
        self.core.commit_log().is_some()
    }

    fn first_base(&self) -> Option<Offset> {
        self.state.borrow().segments.front().map(|first| first.base)
    }

    pub(super) async fn open_active(&self, mark: Mark) -> io::Result<Rc<OpenFile<D::File>>> {
        let segment = {
            let state = self.state.borrow();
            state
                .segments
                .iter()
                .find(|segment| segment.base == mark.segment_base)
                .cloned()
        };
        match segment {
            Some(segment) => self.open_for_writing(&segment).await,
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Extends the file ahead of the writes, so that few of them change its size.
    async fn preallocate(
        &self,
        segment: &Segment<D::File>,
        file: &D::File,
        end: u64,
    ) -> io::Result<()> {
        let allocated_bytes = segment.allocated_bytes.get();
        if end <= allocated_bytes {
            return Ok(());
        }
        let wanted = {
            let config = &self.state.borrow().config;
            let step = end.clamp(
                config.preallocate_bytes_min,
                config
                    .preallocate_bytes_max
                    .max(config.preallocate_bytes_min),
            );
            let limit = config.segment_bytes.next_multiple_of(BLOCK);
            (end + step).next_multiple_of(BLOCK).min(limit).max(end)
        };
        // Near the end of the device, only what this write needs.
        let is_short = self
            .core
            .check_space(&self.dir, wanted - allocated_bytes)
            .await;
        let wanted = if is_short { end } else { wanted };
        match file.preallocate(wanted).await {
            Ok(()) => {
                segment.allocated_bytes.set(wanted);
                Ok(())
            }
            // The write itself may still find room; a file system without the call has it do so.
            Err(error) if is_full(&error) || error.kind() == io::ErrorKind::Unsupported => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn note_written(
        self: &Rc<Self>,
        group: &Group<D::File>,
        file: Rc<OpenFile<D::File>>,
    ) -> Option<Written<D::File>> {
        let has_commit_log = self.core.commit_log().is_some();
        let mut state = self.state.borrow_mut();
        let segment = &group.segment;
        segment.staged_bytes.set(group.end);
        let mut records = 0;
        let mut reference = ReferenceBuilder::default();
        while let Some(next) = state.pending.front()
            && next.segment.base == segment.base
            && next.end_position() <= group.end
        {
            let (entry, position) = (next.entry.clone(), next.position);
            state.pending.pop_front();
            let end = entry.last_offset.next();
            state.pending_bytes -= entry.len;
            if entry.base_offset >= state.commit.logged && state.commit.unlogged_count > 0 {
                state.commit.unlogged_count -= 1;
                state.commit.unlogged_bytes -= entry.len;
                reference.add(&entry, position);
            }
            entry.mark_written();
            records += (entry.last_offset.0 - entry.base_offset.0) as u64 + 1;
            segment.written_bytes.set(position + entry.len as u64);
            state.written = Mark {
                offset: end,
                segment_base: segment.base,
                position: position + entry.len as u64,
            };
        }
        let mark = state.written;
        state.records_since_flush += records;
        if state.condition == Condition::Full {
            state.condition = Condition::Open;
        }
        let reference = reference.finish(self.identity, segment.base);
        let is_alone = !has_commit_log || !state.is_strict();
        let is_relaxed = !state.is_strict() && !state.drains;
        // The write may have begun when there was no commit log, or under another flush rule.
        let is_unlogged = reference.is_some();
        let is_direct =
            !is_alone && !state.drains && (is_unlogged || state.commit.route == Route::Direct);
        if is_direct {
            state.commit.route = Route::Direct;
        } else {
            state.commit.has_unlogged_writes |= is_unlogged;
        }
        let flush_due = is_direct || (is_alone && state.is_flush_due());
        let moves = is_relaxed && mark.offset > state.durable;
        if moves {
            state.durable = mark.offset;
        }
        let reference = reference.filter(|_| state.is_strict() && !state.drains);
        drop(state);
        self.core.tail.evict();
        self.progress_waiters.wake_all();
        if moves {
            self.durable_waiters.wake_through(mark.offset.0);
            (self.events.on_durable)(mark.offset);
        }
        flush_due.then_some(Written {
            file,
            mark,
            reference,
        })
    }

    fn note_flushed(&self, mark: Mark) {
        let durable = {
            let mut state = self.state.borrow_mut();
            state.flushed = mark;
            if state.written.offset == mark.offset {
                state.records_since_flush = 0;
            }
            let is_alone = self.core.commit_log().is_none() || state.drains;
            let moves = is_alone && mark.offset > state.durable;
            if moves {
                state.durable = mark.offset;
            }
            moves
        };
        self.progress_waiters.wake_all();
        if durable {
            self.durable_waiters.wake_through(mark.offset.0);
            (self.events.on_durable)(mark.offset);
        }
    }

    /// What is written and unflushed, when a flush is wanted now.
    fn requested_flush(&self) -> Option<Mark> {
        let has_commit_log = self.core.commit_log().is_some();
        let state = self.state.borrow();
        let is_alone = !has_commit_log || !state.is_strict();
        let is_due =
            state.flushed.offset < state.flush_wanted || (is_alone && state.is_flush_due());
        (is_due && state.flushed.offset < state.written.offset).then_some(state.written)
    }

    /// Trims a segment that is written whole to its true end and flushes it; its indexes follow in
    /// the background. Only then may its successor get a file: so the existence of a segment's
    /// file says that all before it is durable.
    async fn finish_segment(self: &Rc<Self>, segment: &Rc<Segment<D::File>>) -> io::Result<()> {
        let size_bytes = segment.size_bytes.get();
        let next = self
            .state
            .borrow()
            .pending
            .front()
            .map(|next| next.segment.clone());
        let Some(next) = next else { return Ok(()) };
        if segment.exists.get() {
            let file = self.open_for_writing(segment).await?;
            if segment.allocated_bytes.get() != size_bytes {
                file.file.truncate(size_bytes).await?;
                segment.allocated_bytes.set(size_bytes);
            }
            file.file.sync_data().await?;
        }
        let end = next.base;
        self.note_flushed(Mark {
            offset: end,
            segment_base: segment.base,
            position: size_bytes,
        });
        {
            let mut state = self.state.borrow_mut();
            let begun = Mark {
                offset: end,
                segment_base: end,
                position: 0,
            };
            state.written = begun;
            state.flushed = begun;
            state.commit.note_flushed(end, end);
            state.tail_block = None;
        }
        self.save_index_in_background(segment.clone());
        Ok(())
    }
}

impl<F: DiskFile> LogState<F> {
    /// Whether what is written next is in the commit log already.
    fn is_staging(&self, has_commit_log: bool) -> bool {
        has_commit_log && self.is_strict() && !self.drains && self.commit.route == Route::Inline
    }

    fn is_flush_due(&self) -> bool {
        self.is_strict() || self.records_since_flush >= self.config.flush_messages
    }
}
