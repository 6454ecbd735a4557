//! The running commit log: groups formed from what its members have, written, flushed, answered;
//! files emptied and used again.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;

use futures_lite::future::yield_now;

use super::files;
use super::format::{Entry, FileHeader, GROUP_HEADER_BYTES, encode_group};
use crate::base::Offset;
use crate::base::limits::DISK_BLOCK_BYTES;
use crate::io::disk::{Disk, DiskFile, Spawn};
use crate::io::local::{Gate, Notify, OneshotSender, oneshot};

#[cfg(test)]
mod tests;

const BLOCK: u64 = DISK_BLOCK_BYTES as u64;

/// What a group takes at most, in bytes: what arrives during one flush seldom is more, and a large
/// group would make small appends wait for its write.
const GROUP_BYTES_MAX: usize = 1 << 20;

/// Members that are emptied at the same time.
const RELEASED_AT_A_TIME: usize = 4;

/// Work that runs on the log's executor.
pub type LocalResult<T> = Pin<Box<dyn Future<Output = io::Result<T>>>>;

/// A partition's log, as its core's commit log sees it.
pub trait CommitMember {
    /// Moves what waits into the group, in order. True where there is more than fits.
    fn fill(self: Rc<Self>, group: &mut Group) -> bool;
    /// What it put into a group is flushed.
    fn committed(self: Rc<Self>, ack: Ack);
    /// The commit log failed: nothing is acknowledged any more.
    fn commit_failed(&self, error: &io::Error);
    /// What it wants to log waits for space on the device, and may do so for long.
    fn out_of_space(&self);
    /// What it wants to log once more finds no room: its segment has to take it.
    fn no_room(self: Rc<Self>);
    /// Resolves when no entry of the file `number`, or of one before it, is needed any more.
    fn release(self: Rc<Self>, number: u64) -> LocalResult<()>;
}

/// What a member hears when its group is flushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ack {
    /// All its batches below the offset are durable.
    Durable(Offset),
    /// Its pending batches below the offset were logged once more, the last ones in that file.
    LoggedAgain { end: Offset, file_number: u64 },
}

/// What is written and flushed together.
pub struct Group {
    entries: Vec<Entry>,
    len: usize,
    len_max: usize,
    file_number: u64,
    acks: Vec<(Rc<dyn CommitMember>, Ack)>,
    controls: Vec<OneshotSender<()>>,
    newcomers: Vec<Rc<dyn CommitMember>>,
}

impl Group {
    fn new(file_number: u64, len_max: usize) -> Self {
        Self {
            entries: Vec::new(),
            len: GROUP_HEADER_BYTES,
            len_max,
            file_number,
            acks: Vec::new(),
            controls: Vec::new(),
            newcomers: Vec::new(),
        }
    }

    /// The file that the group goes to.
    pub fn file_number(&self) -> u64 {
        self.file_number
    }

    /// Takes an entry, or gives it back where there is no room.
    ///
    /// # Errors
    /// The group is full.
    pub fn push(&mut self, entry: Entry) -> Result<(), Entry> {
        let len = entry.encoded_len();
        if self.len + len > self.len_max {
            return Err(entry);
        }
        self.len += len;
        self.entries.push(entry);
        Ok(())
    }

    pub fn acknowledge(&mut self, member: Rc<dyn CommitMember>, ack: Ack) {
        self.acks.push((member, ack));
    }

    /// The member has batches in this file, and had none before: it is asked to release them.
    pub fn join_file(&mut self, member: Rc<dyn CommitMember>) {
        self.newcomers.push(member);
    }
}

/// A file in use, and who has entries in it.
struct FileInUse {
    number: u64,
    /// Of its last group; 0 while there is none.
    last_sequence: u64,
    members: Vec<Rc<dyn CommitMember>>,
}

struct State {
    /// Members that have something to log, each at most once.
    waiting: VecDeque<Rc<dyn CommitMember>>,
    controls: VecDeque<(Entry, OneshotSender<()>)>,
    /// Oldest first; the last one is written.
    files: VecDeque<FileInUse>,
    /// Where the next group goes in the last file.
    position: u64,
    next_sequence: u64,
    flushed_sequence: u64,
    runs: bool,
    is_releasing: bool,
    /// The last attempt to free a file failed.
    release_failed: bool,
    is_stopping: bool,
    has_failed: bool,
}

/// What a core does before a file is used again: a checkpoint that says that groups up to the given
/// one are not needed.
pub type BeforeReuse = Box<dyn Fn(u64) -> LocalResult<()>>;

/// The commit log of one core.
pub struct CommitLog<D: Disk> {
    files: Vec<Rc<D::File>>,
    file_bytes: u64,
    group_bytes_max: usize,
    generation: u64,
    spawn: Spawn,
    before_reuse: BeforeReuse,
    state: RefCell<State>,
    /// Rings when a file became free.
    freed: Notify,
    /// Open while no group is written.
    idle: Gate,
    counters: Counters,
}

/// Since the start.
#[derive(Debug, Default)]
pub struct Counters {
    pub groups: Cell<u64>,
    /// Bytes of groups, padding included.
    pub bytes: Cell<u64>,
}

/// A group that the device has.
struct Written {
    file: usize,
    sequence: u64,
    acks: Vec<(Rc<dyn CommitMember>, Ack)>,
    controls: Vec<OneshotSender<()>>,
}

impl<D: Disk> CommitLog<D> {
    /// Prepares the files in the core's folder, which must exist. All that their former entries
    /// say must be in flushed segments and in a checkpoint.
    ///
    /// # Errors
    /// The device failed or is full.
    pub async fn start(
        disk: &D,
        spawn: Spawn,
        core_dir: &Path,
        header: FileHeader,
        bytes: u64,
        before_reuse: BeforeReuse,
    ) -> io::Result<Rc<Self>> {
        let file_bytes = bytes / files::FILE_COUNT as u64;
        let file_bytes = file_bytes - file_bytes % BLOCK;
        let files = files::prepare(disk, core_dir, header, file_bytes).await?;
        let group_bytes_max = GROUP_BYTES_MAX.min(file_bytes as usize / 2);
        Ok(Rc::new(Self {
            files,
            file_bytes,
            group_bytes_max,
            generation: header.generation,
            spawn,
            before_reuse,
            state: RefCell::new(State {
                waiting: VecDeque::new(),
                controls: VecDeque::new(),
                files: VecDeque::from([FileInUse {
                    number: 1,
                    last_sequence: 0,
                    members: Vec::new(),
                }]),
                position: BLOCK,
                next_sequence: 1,
                flushed_sequence: 0,
                runs: false,
                is_releasing: false,
                release_failed: false,
                is_stopping: false,
                has_failed: false,
            }),
            freed: Notify::new(),
            idle: Gate::opened(),
            counters: Counters::default(),
        }))
    }

    /// The largest batch that an inline entry takes, in bytes.
    pub fn inline_bytes_max(&self) -> usize {
        self.group_bytes_max / 2
    }

    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Bytes of commit files that are in use.
    pub fn used_bytes(&self) -> u64 {
        let state = self.state.borrow();
        (state.files.len() as u64 - 1) * self.file_bytes + state.position
    }

    /// The member has something to log. It calls again only after its `fill`.
    pub fn submit(self: &Rc<Self>, member: Rc<dyn CommitMember>) {
        if self.state.borrow().has_failed {
            member.commit_failed(&io::Error::other("the commit log failed before"));
            return;
        }
        self.state.borrow_mut().waiting.push_back(member);
        self.wake();
    }

    /// Logs an entry of no batch. Resolves when it is flushed.
    ///
    /// # Errors
    /// The commit log failed before.
    pub async fn log_control(self: &Rc<Self>, entry: Entry) -> io::Result<()> {
        let (sender, receiver) = oneshot();
        self.state.borrow_mut().controls.push_back((entry, sender));
        self.wake();
        receiver.await.map_err(io::Error::other)
    }

    fn wake(self: &Rc<Self>) {
        {
            let mut state = self.state.borrow_mut();
            if state.has_failed {
                state.controls.clear();
                return;
            }
            if std::mem::replace(&mut state.runs, true) {
                return;
            }
        }
        self.idle.close();
        (self.spawn)(Box::pin(self.clone().run()));
    }

    async fn run(self: Rc<Self>) {
        if let Err(error) = self.write_groups().await {
            let waiting: Vec<_> = {
                let mut state = self.state.borrow_mut();
                state.has_failed = true;
                state.controls.clear();
                let waiting: Vec<_> = state.waiting.drain(..).collect();
                // They stay in their files: without them a release would take those for free.
                let in_files = state.files.iter().flat_map(|file| &file.members);
                in_files.cloned().chain(waiting).collect()
            };
            tracing::error!(%error, "the commit log failed");
            for member in waiting {
                member.commit_failed(&error);
            }
        }
        self.state.borrow_mut().runs = false;
        self.idle.open();
    }

    /// Groups are written and flushed one behind the other: the next one is what arrived during the
    /// last flush.
    async fn write_groups(self: &Rc<Self>) -> io::Result<()> {
        loop {
            // All that can run now runs first: what it appends is in this group.
            yield_now().await;
            let Some(group) = self.next_group().await else {
                return Ok(());
            };
            let written = self.write(group).await?;
            let file = self.files.get(written.file);
            file.ok_or(io::ErrorKind::NotFound)?.sync_data().await?;
            self.note_flushed(written);
        }
    }

    /// The next group, as soon as a file has room for it; nothing where there is none.
    async fn next_group(self: &Rc<Self>) -> Option<Group> {
        loop {
            let has_work = {
                let state = self.state.borrow();
                !state.waiting.is_empty() || !state.controls.is_empty()
            };
            if !has_work || !self.make_room().await {
                return None;
            }
            let group = self.form_group();
            // Nothing where every member that waited went another way.
            if !group.entries.is_empty() || !group.acks.is_empty() {
                return Some(group);
            }
        }
    }

    fn form_group(&self) -> Group {
        let mut state = self.state.borrow_mut();
        let number = state.files.back().map_or(1, |file| file.number);
        let mut group = Group::new(number, self.group_bytes_max);
        while let Some((entry, done)) = state.controls.pop_front() {
            match group.push(entry) {
                Ok(()) => group.controls.push(done),
                Err(entry) => {
                    state.controls.push_front((entry, done));
                    break;
                }
            }
        }
        while let Some(member) = state.waiting.pop_front() {
            // A member may submit itself again meanwhile.
            drop(state);
            let has_more = Rc::clone(&member).fill(&mut group);
            state = self.state.borrow_mut();
            if has_more {
                state.waiting.push_front(member);
                break;
            }
        }
        group
    }

    /// Moves on to a free file where the present one may not hold a group, and waits for one. False
    /// where none will come: the log is being closed.
    async fn make_room(self: &Rc<Self>) -> bool {
        loop {
            let freed = self.freed.notified();
            let members: Vec<_> = {
                let mut state = self.state.borrow_mut();
                if self.has_room(&state) {
                    return true;
                }
                if state.files.len() < self.files.len() {
                    let number = state.files.back().map_or(1, |file| file.number + 1);
                    state.files.push_back(FileInUse {
                        number,
                        last_sequence: 0,
                        members: Vec::new(),
                    });
                    state.position = BLOCK;
                    drop(state);
                    self.start_releasing();
                    return true;
                }
                if state.is_stopping {
                    let members: Vec<_> = state.waiting.drain(..).collect();
                    state.controls.clear();
                    drop(state);
                    // A release may wait for what they wanted to log once more.
                    for member in members {
                        member.no_room();
                    }
                    return false;
                }
                state.waiting.iter().cloned().collect()
            };
            for member in members {
                member.no_room();
            }
            self.start_releasing();
            freed.await;
        }
    }

    fn has_room(&self, state: &State) -> bool {
        state.position + self.group_bytes_max as u64 <= self.file_bytes
    }

    /// Whether groups wait for a file to become free.
    pub fn is_short_of_room(&self) -> bool {
        let state = self.state.borrow();
        state.files.len() == self.files.len() && !self.has_room(&state)
    }

    /// Whether groups wait for a file that cannot become free at present.
    pub fn is_out_of_space(&self) -> bool {
        self.state.borrow().release_failed && self.is_short_of_room()
    }

    fn tell_those_who_wait(&self) {
        if !self.is_out_of_space() {
            return;
        }
        let waiting: Vec<_> = self.state.borrow().waiting.iter().cloned().collect();
        for member in waiting {
            member.out_of_space();
        }
    }

    fn physical(&self, number: u64) -> usize {
        (number % self.files.len() as u64) as usize
    }

    async fn write(&self, group: Group) -> io::Result<Written> {
        let padded = group.len.next_multiple_of(DISK_BLOCK_BYTES);
        let file_index = self.physical(group.file_number);
        if group.entries.is_empty() {
            // What it answers for was in earlier groups.
            let sequence = self.state.borrow().next_sequence - 1;
            return Ok(Written {
                file: file_index,
                sequence,
                acks: group.acks,
                controls: group.controls,
            });
        }
        let (sequence, flushed, position) = {
            let mut state = self.state.borrow_mut();
            let sequence = state.next_sequence;
            let position = state.position;
            state.next_sequence += 1;
            state.position += padded as u64;
            if let Some(file) = state.files.back_mut() {
                file.members.extend(group.newcomers);
                file.last_sequence = sequence;
            }
            (sequence, state.flushed_sequence, position)
        };
        let file = self.files.get(file_index).ok_or(io::ErrorKind::NotFound)?;
        let mut buffer = file.allocate(padded);
        encode_group(
            &mut buffer,
            self.generation,
            sequence,
            flushed,
            group.entries.iter(),
        );
        file.write_at(Rc::new(buffer), position).await?;
        self.counters.groups.set(self.counters.groups.get() + 1);
        self.counters
            .bytes
            .set(self.counters.bytes.get() + padded as u64);
        Ok(Written {
            file: file_index,
            sequence,
            acks: group.acks,
            controls: group.controls,
        })
    }

    fn note_flushed(&self, written: Written) {
        {
            let mut state = self.state.borrow_mut();
            state.flushed_sequence = state.flushed_sequence.max(written.sequence);
        }
        for (member, ack) in written.acks {
            member.committed(ack);
        }
        for done in written.controls {
            // Whoever asked may have gone.
            let _ = done.send(());
        }
    }

    // --- files are used again -----------------------------------------------------------------

    fn start_releasing(self: &Rc<Self>) {
        {
            let mut state = self.state.borrow_mut();
            if state.files.len() < 2
                || state.is_stopping
                || state.has_failed
                || std::mem::replace(&mut state.is_releasing, true)
            {
                return;
            }
        }
        let this = self.clone();
        (self.spawn)(Box::pin(async move {
            let result = this.release_files().await;
            let (is_stopping, is_news) = {
                let mut state = this.state.borrow_mut();
                state.is_releasing = false;
                let failed_before = std::mem::replace(&mut state.release_failed, result.is_err());
                (state.is_stopping, result.is_err() && !failed_before)
            };
            if let Err(error) = &result {
                // Tried again by `retry`; until then appends may have to wait.
                if is_news {
                    tracing::warn!(%error, "a commit file cannot be used again yet");
                }
                this.tell_those_who_wait();
            }
            if result.is_ok() || is_stopping {
                this.freed.notify_all();
            }
        }));
    }

    /// Tries again to free files, where that failed before.
    pub fn retry(self: &Rc<Self>) {
        let all_are_used = self.state.borrow().files.len() == self.files.len();
        if all_are_used {
            self.start_releasing();
        }
    }

    /// Empties all files but the one that is written.
    async fn release_files(self: &Rc<Self>) -> io::Result<()> {
        loop {
            let (number, last_sequence, members) = {
                let state = self.state.borrow();
                if state.files.len() < 2 {
                    return Ok(());
                }
                let Some(oldest) = state.files.front() else {
                    return Ok(());
                };
                (oldest.number, oldest.last_sequence, oldest.members.clone())
            };
            let mut failure = None;
            for some in members.chunks(RELEASED_AT_A_TIME) {
                for result in self.release_some(some, number).await {
                    failure = failure.or(result.err());
                }
                yield_now().await;
            }
            let is_stopping = self.state.borrow().is_stopping;
            let result = match failure {
                None if is_stopping => return Ok(()),
                None => (self.before_reuse)(last_sequence).await,
                Some(error) => Err(error),
            };
            result?;
            self.state.borrow_mut().files.pop_front();
            self.freed.notify_all();
        }
    }

    async fn release_some(
        &self,
        members: &[Rc<dyn CommitMember>],
        number: u64,
    ) -> Vec<io::Result<()>> {
        let mut answers = Vec::with_capacity(members.len());
        for member in members {
            let (sender, receiver) = oneshot();
            let released = Rc::clone(member).release(number);
            (self.spawn)(Box::pin(async move {
                let _ = sender.send(released.await);
            }));
            answers.push(receiver);
        }
        let mut results = Vec::with_capacity(answers.len());
        for answer in answers {
            results.push(
                answer
                    .await
                    .map_err(io::Error::other)
                    .and_then(|result| result),
            );
        }
        results
    }

    /// Lets no file become free any more. When it resolves, no checkpoint is asked for either. The
    /// members are to be closed then.
    pub async fn stop(&self) {
        loop {
            let ended = self.freed.notified();
            {
                let mut state = self.state.borrow_mut();
                state.is_stopping = true;
                if !state.is_releasing {
                    break;
                }
            }
            ended.await;
        }
        // A group may wait for room.
        self.freed.notify_all();
    }

    /// Waits until nothing is written, and makes the files say that they hold nothing. To be called
    /// when all members are closed and their last checkpoint is durable.
    ///
    /// # Errors
    /// The device failed; the next start reads the entries and finds them in the segments.
    pub async fn close(&self, disk: &D, core_dir: &Path, header: FileHeader) -> io::Result<()> {
        self.idle.pass().await;
        files::prepare(disk, core_dir, header, self.file_bytes).await?;
        Ok(())
    }
}
