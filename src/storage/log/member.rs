//! A log as a member of its core's commit log.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::rc::Rc;

use super::{CommitState, Condition, LogIdentity, LogInner, LogState, Mark, Pending, Route};
use crate::base::{LeaderEpoch, Offset};
use crate::io::disk::{Disk, DiskFile};
use crate::storage::batch_view::BatchView;
use crate::storage::commit::format::{Entry, EntryKind, EntryPlace, HeadersChecksum, Reference};
use crate::storage::commit::log::Ack;
use crate::storage::commit::{CommitMember, Group};
use crate::storage::derived::DerivedState;
use crate::storage::tail::TailEntry;

/// A log goes back to the inline way where less waits than this part of what made it leave it.
const LEAVE_DIRECT_PART: usize = 2;

/// So many pending bytes are logged once more rather than written, when their commit file is to be
/// free: a write and a flush for a few kibibytes cost more than the bytes do.
const LOGGED_AGAIN_BYTES_MAX: usize = 8 << 10;

impl<D: Disk, S: DerivedState> LogInner<D, S> {
    /// Back to the inline way, once nothing is left to be written directly: what is pending and not
    /// logged, also since before there was a commit log or while the flush rule was relaxed, goes to
    /// the commit log, or directly where the batches before it did not. True where the writer is to
    /// look again.
    pub(super) fn leave_direct_route(self: &Rc<Self>) -> bool {
        let mut state = self.state.borrow_mut();
        let Some(commit_log) = self.core.commit_log() else {
            return false;
        };
        if state.condition != Condition::Open {
            return false;
        }
        let is_due = state.commit.unlogged_count > 0 && state.is_strict() && !state.drains;
        if is_due && state.commit.has_unlogged_writes {
            state.commit.route = Route::Direct;
            return true;
        }
        let was_direct = std::mem::replace(&mut state.commit.route, Route::Inline) == Route::Direct;
        let submits = is_due && !std::mem::replace(&mut state.commit.is_waiting, true);
        drop(state);
        if submits {
            commit_log.submit(self.clone());
        }
        was_direct
    }

    /// A direct write is flushed: the commit log is to know.
    pub(super) fn note_flushed_reference(
        self: &Rc<Self>,
        mark: Mark,
        reference: Option<(EntryPlace, Reference)>,
    ) {
        let (commit_log, submits) = {
            let mut state = self.state.borrow_mut();
            let written = state.written.offset;
            state.commit.note_flushed(mark.offset, written);
            let (Some(commit_log), Some(reference)) = (self.core.commit_log(), reference) else {
                return;
            };
            state.commit.references.push_back(reference);
            let submits = !std::mem::replace(&mut state.commit.is_waiting, true);
            (commit_log, submits)
        };
        if submits {
            commit_log.submit(self.clone());
        }
    }

    /// Logs that the log is gone, whatever the commit log holds of it. Resolves when that is flushed.
    pub(super) async fn log_deletion(&self) -> io::Result<()> {
        let Some(commit_log) = self.core.commit_log() else {
            return Ok(());
        };
        let entry = Entry {
            place: place(self.identity, LeaderEpoch::UNKNOWN, Offset::ZERO, 0),
            kind: EntryKind::Deletion,
        };
        commit_log.log_control(entry).await
    }

    fn place(&self, batch: &TailEntry, segment_base: Offset, position: u64) -> EntryPlace {
        place(self.identity, leader_epoch(batch), segment_base, position)
    }

    /// An entry of a pending batch.
    fn inline_entry(&self, pending: &Pending<D::File>) -> Option<Entry> {
        Some(Entry {
            place: self.place(&pending.entry, pending.segment.base, pending.position),
            kind: EntryKind::Inline(pending.entry.bytes()?),
        })
    }

    /// Logs pending batches once more. True where there is more than fits.
    fn fill_again(self: &Rc<Self>, state: &mut LogState<D::File>, group: &mut Group) -> bool {
        let Some(below) = state.commit.log_again else {
            return false;
        };
        let mut end = None;
        let mut has_more = false;
        for pending in &mut state.pending {
            if pending.entry.base_offset >= below {
                break;
            }
            if pending.logged_in == group.file_number() {
                continue;
            }
            let Some(entry) = self.inline_entry(pending) else {
                continue;
            };
            if group.push(entry).is_err() {
                has_more = true;
                break;
            }
            pending.logged_in = group.file_number();
            end = Some(pending.entry.last_offset.next());
        }
        if let Some(end) = end {
            self.note_in_file(state, group, end);
        }
        if !has_more {
            state.commit.log_again = None;
            // What was written since it was pending is not logged again: it must be flushed.
            state.commit.again_from = state.written.offset.min(below);
            state.flush_wanted = state.flush_wanted.max(state.commit.again_from);
            let file_number = group.file_number();
            let ack = Ack::LoggedAgain {
                end: below,
                file_number,
            };
            group.acknowledge(self.clone(), ack);
        }
        has_more
    }

    fn note_in_file(
        self: &Rc<Self>,
        state: &mut LogState<D::File>,
        group: &mut Group,
        end: Offset,
    ) {
        let number = group.file_number();
        match state.commit.files.back_mut() {
            Some((last, known_end)) if *last == number => *known_end = end.max(*known_end),
            _ => {
                state.commit.files.push_back((number, end));
                group.join_file(self.clone());
            }
        }
    }

    fn needs_staging(&self, state: &LogState<D::File>) -> bool {
        let Some(first) = state.pending.front() else {
            return false;
        };
        let logged_bytes = state.pending_bytes - state.commit.unlogged_bytes;
        state.commit.route == Route::Inline
            && (logged_bytes >= state.config.stage_bytes_min
                || (first.segment.base != state.active().base && logged_bytes > 0))
    }

    /// Sees to it that nothing of the commit file is needed: what is much goes to the segment, what
    /// is little is logged once more.
    async fn release_file(self: Rc<Self>, number: u64) -> io::Result<()> {
        #[cfg(test)]
        if self.core.flaw.get() == super::Flaw::ReleasedTooEarly {
            return Ok(());
        }
        let Some(end) = self.end_in_files(number) else {
            return Ok(());
        };
        // Its last group may be in flight still.
        self.wait_for(|state| state.is_closed() || state.durable >= end)
            .await?;
        self.stage_through(end).await?;
        let is_pending = {
            let mut state = self.state.borrow_mut();
            let written = state.written.offset.min(end);
            state.flush_wanted = state.flush_wanted.max(written);
            let first = state.pending.front();
            let is_pending = first.is_some_and(|first| first.entry.base_offset < end);
            if is_pending {
                state.commit.log_again = Some(end);
            }
            is_pending
        };
        self.wake_writer();
        if is_pending {
            self.submit_again();
        }
        self.wait_for(|state| {
            // In a later file than this one.
            let (again_end, again_in) = state.commit.logged_again;
            let is_again = again_end >= end
                && again_in > number
                && state.flushed.offset >= state.commit.again_from;
            state.is_closed() || state.flushed.offset >= end || is_again
        })
        .await?;
        let mut state = self.state.borrow_mut();
        state.commit.stages_all = false;
        while state
            .commit
            .files
            .front()
            .is_some_and(|(file, _)| *file <= number)
        {
            state.commit.files.pop_front();
        }
        Ok(())
    }

    /// Where the batches end that are in commit files up to `number`.
    fn end_in_files(&self, number: u64) -> Option<Offset> {
        let state = self.state.borrow();
        let files = state.commit.files.iter();
        files
            .filter(|(file, _)| *file <= number)
            .map(|(_, end)| *end)
            .max()
    }

    /// Puts whole blocks of what is durable below `end` into the segment, where it is much.
    async fn stage_through(self: &Rc<Self>, end: Offset) -> io::Result<()> {
        {
            let mut state = self.state.borrow_mut();
            let pending = state.pending.iter();
            let bytes: usize = pending
                .take_while(|pending| pending.entry.base_offset < end)
                .map(|pending| pending.entry.len)
                .sum();
            if bytes <= LOGGED_AGAIN_BYTES_MAX {
                return Ok(());
            }
            state.commit.stage_through = Some(end);
        }
        self.wake_writer();
        self.wait_for(|state| {
            state.is_closed() || state.commit.stage_through.is_none() || state.written.offset >= end
        })
        .await
    }

    fn submit_again(self: &Rc<Self>) {
        let Some(commit_log) = self.core.commit_log() else {
            return;
        };
        if commit_log.is_short_of_room() {
            self.clone().no_room();
            return;
        }
        let waits = std::mem::replace(&mut self.state.borrow_mut().commit.is_waiting, true);
        if !waits {
            commit_log.submit(self.clone());
        }
    }

    /// Resolves when `is_reached` holds.
    ///
    /// # Errors
    /// The log failed or the device is full before.
    pub(super) async fn wait_for(
        &self,
        is_reached: impl Fn(&LogState<D::File>) -> bool,
    ) -> io::Result<()> {
        self.progress_waiters
            .wait(0, || {
                let state = self.state.borrow();
                if is_reached(&state) {
                    return Some(Ok(()));
                }
                state
                    .check_condition()
                    .err()
                    .map(|error| Err(io::Error::other(error)))
            })
            .await
    }
}

impl<D: Disk, S: DerivedState> CommitMember for LogInner<D, S> {
    fn fill(self: Rc<Self>, group: &mut Group) -> bool {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        state.commit.is_waiting = false;
        if matches!(state.condition, Condition::Failed(_) | Condition::Closed) {
            return false;
        }
        let mut has_more = false;
        let mut durable = None;
        while let Some((place, reference)) = state.commit.references.pop_front() {
            let entry = Entry {
                place,
                kind: EntryKind::Reference(reference),
            };
            if group.push(entry).is_err() {
                state.commit.references.push_front((place, reference));
                has_more = true;
                break;
            }
            durable = Some(reference.end);
        }
        has_more = has_more || self.fill_again(state, group);
        if !has_more
            && state.commit.route == Route::Inline
            && !state.drains
            && state.is_strict()
            && !state.commit.has_unlogged_writes
            && state.commit.unlogged_count > 0
        {
            let first = state.pending.len() - state.commit.unlogged_count;
            let mut logged = 0;
            for pending in state.pending.range_mut(first..) {
                let Some(entry) = self.inline_entry(pending) else {
                    break;
                };
                if group.push(entry).is_err() {
                    has_more = true;
                    break;
                }
                pending.logged_in = group.file_number();
                logged += 1;
                state.commit.unlogged_bytes -= pending.entry.len;
                durable = Some(pending.entry.last_offset.next());
            }
            state.commit.unlogged_count -= logged;
            if let Some(end) = durable {
                state.commit.logged = state.commit.logged.max(end);
            }
        }
        if let Some(end) = durable {
            self.note_in_file(state, group, end);
            group.acknowledge(self.clone(), Ack::Durable(end));
        }
        // The commit log keeps a member that has more at the front of those that wait.
        state.commit.is_waiting = has_more;
        has_more
    }

    fn committed(self: Rc<Self>, ack: Ack) {
        let (moved, stages) = {
            let mut state = self.state.borrow_mut();
            let moved = match ack {
                Ack::Durable(end) if end > state.durable => {
                    state.durable = end;
                    Some(end)
                }
                Ack::Durable(_) => None,
                Ack::LoggedAgain { end, file_number } => {
                    state.commit.logged_again = (end, file_number);
                    None
                }
            };
            (moved, self.needs_staging(&state))
        };
        self.progress_waiters.wake_all();
        if let Some(end) = moved {
            self.durable_waiters.wake_through(end.0);
            (self.events.on_durable)(end);
        }
        if stages || matches!(ack, Ack::LoggedAgain { .. }) {
            self.wake_writer();
        }
    }

    fn out_of_space(&self) {
        self.durable_waiters.wake_all();
    }

    fn no_room(self: Rc<Self>) {
        // A checkpoint does not wait for what the commit log cannot take now.
        self.progress_waiters.wake_all();
        {
            let mut state = self.state.borrow_mut();
            let Some(end) = state.commit.log_again.take() else {
                return;
            };
            state.commit.stage_through = Some(end);
            state.commit.stages_all = true;
            state.flush_wanted = state.flush_wanted.max(end);
        }
        self.wake_writer();
    }

    fn commit_failed(&self, error: &io::Error) {
        self.fail(error);
    }

    fn release(self: Rc<Self>, number: u64) -> Pin<Box<dyn Future<Output = io::Result<()>>>> {
        Box::pin(self.release_file(number))
    }
}

impl CommitState {
    /// Of a log that ends there and is flushed whole.
    pub(super) fn at(log_end: Offset) -> Self {
        Self {
            route: Route::Inline,
            logged: log_end,
            unlogged_count: 0,
            unlogged_bytes: 0,
            references: VecDeque::new(),
            is_waiting: false,
            files: VecDeque::new(),
            log_again: None,
            logged_again: (Offset::ZERO, 0),
            again_from: Offset::ZERO,
            stage_through: None,
            stages_all: false,
            has_unlogged_writes: false,
        }
    }

    /// The segment is flushed up to `flushed`, and written up to `written`.
    pub(super) fn note_flushed(&mut self, flushed: Offset, written: Offset) {
        self.logged = self.logged.max(flushed);
        if flushed == written {
            self.has_unlogged_writes = false;
        }
    }
}

impl<F: DiskFile> LogState<F> {
    fn is_closed(&self) -> bool {
        self.condition == Condition::Closed
    }

    /// Notes a batch that was appended, and says which way it takes.
    pub(super) fn note_unlogged(&mut self, len: usize, inline_bytes_max: usize) -> Route {
        let is_strict = self.is_strict();
        let commit = &mut self.commit;
        commit.unlogged_count += 1;
        commit.unlogged_bytes += len;
        let is_large =
            len > inline_bytes_max || commit.unlogged_bytes >= self.config.direct_bytes_min;
        if is_large || commit.has_unlogged_writes {
            commit.route = Route::Direct;
        }
        if is_strict {
            commit.route
        } else {
            Route::Direct
        }
    }

    /// Whether the log is on the direct way and what waits is better logged inline.
    pub(super) fn little_is_direct(&self) -> bool {
        let commit = &self.commit;
        commit.route == Route::Direct
            && !self.drains
            && self.is_strict()
            && !commit.has_unlogged_writes
            && commit.unlogged_bytes < self.config.direct_bytes_min / LEAVE_DIRECT_PART
    }
}

/// Collects what a [`Reference`] says of consecutive batches.
#[derive(Default)]
pub(super) struct ReferenceBuilder {
    first: Option<(Offset, u64, LeaderEpoch)>,
    end: Offset,
    len: u32,
    checksum: HeadersChecksum,
}

impl ReferenceBuilder {
    pub fn add(&mut self, batch: &TailEntry, position: u64) {
        if self.first.is_none() {
            self.first = Some((batch.base_offset, position, leader_epoch(batch)));
        }
        self.end = batch.last_offset.next();
        self.len += batch.len as u32;
        if let Some(bytes) = batch.bytes() {
            self.checksum.add(&bytes);
        }
    }

    /// Nothing where no batch was added.
    pub fn finish(
        self,
        identity: LogIdentity,
        segment_base: Offset,
    ) -> Option<(EntryPlace, Reference)> {
        let (from, position, epoch) = self.first?;
        let reference = Reference {
            from,
            end: self.end,
            len: self.len,
            headers_checksum: self.checksum.value(),
        };
        Some((place(identity, epoch, segment_base, position), reference))
    }
}

fn place(
    identity: LogIdentity,
    leader_epoch: LeaderEpoch,
    segment_base: Offset,
    position: u64,
) -> EntryPlace {
    EntryPlace {
        topic_id: identity.topic_id,
        partition: identity.partition,
        ownership: identity.ownership,
        leader_epoch,
        segment_base,
        // A segment is below 2 GiB: `Log::append` rolls before.
        position: u32::try_from(position).unwrap_or(u32::MAX),
    }
}

fn leader_epoch(batch: &TailEntry) -> LeaderEpoch {
    let bytes = batch.bytes();
    let header = bytes.as_deref().map(BatchView::header);
    header
        .and_then(Result::ok)
        .map_or(LeaderEpoch::UNKNOWN, |header| header.leader_epoch())
}
