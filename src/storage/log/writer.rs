//! The writer of a log: a task that runs only while there is work.
//!
//! ```text
//!   write 1 | flush 1        | flush 2   | flush 3
//!           | write 2  | wait| write 3   |
//!                        acknowledge 1   acknowledge 2, 3
//! ```
//! The next write begins while the flush of the former runs. Writes never overlap each other, so
//! two that touch the same block are never in flight together; a flush begins only when the write
//! that it covers is complete and the flush before it has ended, so acknowledgements are in order.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::Poll;

use futures_lite::future::zip;

use super::segment::{OpenFile, Segment};
use super::{Condition, LogInner, LogState, Mark};
use crate::base::Offset;
use crate::base::limits::DISK_BLOCK_BYTES;
use crate::io::disk::{Disk, DiskFile, OpenMode};
use crate::storage::derived::DerivedState;
use crate::storage::tail::TailEntry;

const BLOCK: u64 = DISK_BLOCK_BYTES as u64;

/// Writes and flushes until nothing is pending.
pub(super) async fn run_writer<D: Disk, S: DerivedState>(inner: Rc<LogInner<D, S>>) {
    let result = inner.write_pending().await;
    {
        let mut state = inner.state.borrow_mut();
        state.writer_runs = false;
        state.writer_waker = None;
        if let Err(error) = &result
            && is_full(error)
            && state.condition == Condition::Open
        {
            state.condition = Condition::Full;
        }
    }
    match result {
        Ok(()) => {}
        Err(error) if is_full(&error) => {
            tracing::warn!(dir = %inner.dir.display(), %error, "no space for the log; it is written when there is");
            inner.durable_waiters.wake_all();
        }
        Err(error) => inner.fail(&error),
    }
    inner.progress_waiters.wake_all();
}

fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// Batches of one segment that one write takes.
struct Group<F: DiskFile> {
    segment: Rc<Segment<F>>,
    entries: Vec<Rc<TailEntry>>,
    bytes: usize,
}

/// A write that is complete.
struct Written<F: DiskFile> {
    file: Rc<OpenFile<F>>,
    mark: Mark,
}

impl<D: Disk, S: DerivedState> LogInner<D, S> {
    async fn write_pending(self: &Rc<Self>) -> io::Result<()> {
        let mut unflushed: Option<Written<D::File>> = None;
        loop {
            let Some(written) = unflushed.take() else {
                if let Some(segment) = self.segment_to_finish() {
                    self.finish_segment(&segment).await?;
                } else if let Some(group) = self.take_group() {
                    unflushed = self.write_group(group).await?;
                } else if let Some(mark) = self.requested_flush() {
                    unflushed = Some(Written {
                        file: self.open_active(mark).await?,
                        mark,
                    });
                } else {
                    return Ok(());
                }
                continue;
            };
            let flushed = Cell::new(false);
            let flush = async {
                let result = written.file.file.sync_data().await;
                flushed.set(true);
                if result.is_ok() {
                    self.note_flushed(written.mark);
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

    /// The next batches of the segment being written.
    fn take_group(&self) -> Option<Group<D::File>> {
        let mut state = self.state.borrow_mut();
        if matches!(state.condition, Condition::Failed(_)) {
            return None;
        }
        let write_bytes_max = state.config.write_bytes_max;
        let segment = state.pending.front()?.segment.clone();
        if segment.base != state.written.segment_base {
            return None;
        }
        let mut group = Group {
            segment,
            entries: Vec::new(),
            bytes: 0,
        };
        while let Some(next) = state.pending.front() {
            let len = next.entry.len;
            if next.segment.base != group.segment.base
                || (!group.entries.is_empty() && group.bytes + len > write_bytes_max)
            {
                break;
            }
            if let Some(next) = state.pending.pop_front() {
                group.entries.push(next.entry);
                group.bytes += len;
            }
        }
        Some(group)
    }

    /// The next group, as soon as there is one; nothing when `flushed` is set before.
    async fn next_group(&self, flushed: &Cell<bool>) -> Option<Group<D::File>> {
        poll_fn(|context| {
            if let Some(group) = self.take_group() {
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

    /// Writes a group; on failure its batches are pending again. Resolves with what is to be
    /// flushed now, if anything.
    async fn write_group(&self, group: Group<D::File>) -> io::Result<Option<Written<D::File>>> {
        match self.write_blocks(&group).await {
            Ok(file) => Ok(self.note_written(&group, file)),
            Err(error) => {
                let mut state = self.state.borrow_mut();
                for entry in group.entries.into_iter().rev() {
                    state.pending.push_front(super::Pending {
                        entry,
                        segment: group.segment.clone(),
                    });
                }
                Err(error)
            }
        }
    }

    async fn write_blocks(&self, group: &Group<D::File>) -> io::Result<Rc<OpenFile<D::File>>> {
        let segment = &group.segment;
        let file = self.open_for_writing(segment).await?;
        let start = segment.written_bytes.get();
        let first_block = start - start % BLOCK;
        let head_bytes = (start - first_block) as usize;
        let head = self.tail_block(&file.file, first_block, head_bytes).await?;
        let used_bytes = head_bytes + group.bytes;
        let write_bytes = used_bytes.next_multiple_of(DISK_BLOCK_BYTES);
        self.preallocate(segment, &file.file, first_block + write_bytes as u64)
            .await?;
        let mut buffer = file.file.allocate(write_bytes);
        let mut at = head_bytes;
        buffer[..head_bytes].copy_from_slice(&head);
        for entry in &group.entries {
            // An entry keeps its bytes until it is written.
            let bytes = entry.bytes().ok_or(io::ErrorKind::InvalidData)?;
            buffer[at..at + bytes.len()].copy_from_slice(&bytes);
            at += bytes.len();
        }
        buffer[used_bytes..].fill(0);
        let buffer = Rc::new(buffer);
        file.file.write_at(buffer.clone(), first_block).await?;
        let end_block = first_block + write_bytes as u64;
        if end_block > segment.allocated_bytes.get() {
            segment.allocated_bytes.set(end_block);
        }
        let kept_from = used_bytes - used_bytes % DISK_BLOCK_BYTES;
        self.state.borrow_mut().tail_block = Some(buffer[kept_from..used_bytes].to_vec());
        Ok(file)
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
        &self,
        group: &Group<D::File>,
        file: Rc<OpenFile<D::File>>,
    ) -> Option<Written<D::File>> {
        let mut state = self.state.borrow_mut();
        let segment = &group.segment;
        segment
            .written_bytes
            .set(segment.written_bytes.get() + group.bytes as u64);
        let mut records = 0;
        for entry in &group.entries {
            entry.mark_written();
            records += (entry.last_offset.0 - entry.base_offset.0) as u64 + 1;
        }
        let last = group.entries.last()?;
        let mark = Mark {
            offset: last.last_offset.next(),
            segment_base: segment.base,
            position: segment.written_bytes.get(),
        };
        state.written = mark;
        state.pending_bytes -= group.bytes;
        state.records_since_flush += records;
        if state.condition == Condition::Full {
            state.condition = Condition::Open;
        }
        let flush_due = state.is_flush_due();
        let strict = state.is_strict();
        drop(state);
        self.core.tail.evict();
        self.progress_waiters.wake_all();
        if !strict {
            self.durable_waiters.wake_through(mark.offset.0);
            (self.events.on_durable)(mark.offset);
        }
        flush_due.then_some(Written { file, mark })
    }

    fn note_flushed(&self, mark: Mark) {
        let strict = {
            let mut state = self.state.borrow_mut();
            state.flushed = mark;
            if state.written.offset == mark.offset {
                state.records_since_flush = 0;
                state.flush_requested = false;
            }
            state.is_strict()
        };
        self.progress_waiters.wake_all();
        if strict {
            self.durable_waiters.wake_through(mark.offset.0);
            (self.events.on_durable)(mark.offset);
        }
    }

    /// What is written and unflushed, when a flush is wanted now.
    fn requested_flush(&self) -> Option<Mark> {
        let state = self.state.borrow();
        (state.is_flush_due() && state.flushed.offset < state.written.offset)
            .then_some(state.written)
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
            state.tail_block = None;
        }
        self.save_index_in_background(segment.clone());
        Ok(())
    }
}

impl<F: DiskFile> LogState<F> {
    fn is_flush_due(&self) -> bool {
        self.is_strict()
            || self.flush_requested
            || self.records_since_flush >= self.config.flush_messages
    }
}
