//! A second ring of an executor, for the operations that the runtime lacks: splices, waiting for a
//! descriptor, vectored writes.
//!
//! ```text
//!   Operation --submit--> ring --completion--> eventfd --the runtime's own read--> reaper --wake-->
//! ```
//!
//! An operation may be dropped at any point. What the kernel may touch (memory, descriptors) is
//! owned by the operation; dropped before its end, the operation is cancelled and leaves all that
//! to the ring, which frees it at the completion and not before.
//!
//! The ring is made when it is first used. It ends with its executor: see [`end`].
#![allow(unsafe_code)]

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use glommio::io::BufferedFile;
use io_uring::types::{CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};
use rustix::event::{EventfdFlags, PollFlags};
use slab::Slab;

use super::executor;
use super::local::{Notify, Permit, Semaphore};

#[cfg(test)]
mod tests;

/// Operations in flight, and entries of the submission ring. More wait for their turn.
const OPERATIONS_MAX: u32 = 256;

/// Completions without an operation: those of cancellations.
const NO_OPERATION: u64 = u64::MAX;

/// How long the ring's end waits for operations that it has cancelled. The memory of those that
/// are not over then is never freed.
const END_WAIT: Duration = Duration::from_secs(2);

thread_local! {
    static CURRENT: RefCell<Option<Rc<SideRing>>> = const { RefCell::new(None) };
    static HAS_ENDED: Cell<bool> = const { Cell::new(false) };
}

/// The ring of this executor. Call it only inside one.
///
/// # Errors
/// The ring cannot be made: no descriptors or no memory are left, or the executor is ending.
pub fn current() -> io::Result<Rc<SideRing>> {
    if HAS_ENDED.get() {
        return Err(io::Error::other("the executor is ending"));
    }
    let known = CURRENT.with_borrow(Clone::clone);
    if let Some(ring) = known.filter(|ring| ring.is_reaped.get()) {
        return Ok(ring);
    }
    let ring = SideRing::new()?;
    ring.is_reaped.set(true);
    executor::spawn_local(reap(Rc::clone(&ring))).detach();
    // The former one belonged to an executor that this thread ran before.
    let _former = CURRENT.replace(Some(Rc::clone(&ring)));
    Ok(ring)
}

/// Ends the ring of this executor, if there is one: tasks that wait for it are dropped, and what
/// they had in flight is cancelled. Called when the executor's work is done.
pub(super) async fn end() {
    const PAUSE: Duration = Duration::from_millis(1);

    HAS_ENDED.set(true);
    let Some(ring) = CURRENT.take() else { return };
    // A task that waits for the ring keeps the ring, which has the task's waker: without its
    // wakers, nothing keeps such a task.
    ring.drop_wakers();
    executor::yield_now().await;
    let deadline = Instant::now() + END_WAIT;
    while ring.has_abandoned() && Instant::now() < deadline {
        executor::sleep(PAUSE).await;
    }
    ring.ends.set(true);
    let one = 1_u64.to_ne_bytes();
    while ring.is_reaped.get() {
        let ended = ring.reaper_ended.notified();
        if rustix::io::write(&ring.eventfd, &one).is_err() {
            return;
        }
        ended.await;
    }
}

/// Memory that stays where it is while its owner is moved.
///
/// # Safety
/// Until the value is dropped or accessed mutably, the pointer and the length stay the same and
/// valid for reads, wherever the value is moved.
pub unsafe trait StableBytes: 'static {
    fn stable_bytes(&self) -> (*const u8, usize);
}

/// The same for memory that may be written.
///
/// # Safety
/// As [`StableBytes`], valid for writes.
pub unsafe trait StableBytesMut: StableBytes {
    fn stable_bytes_mut(&mut self) -> (*mut u8, usize);
}

// SAFETY: the bytes are on the heap; moving the owner does not move them.
unsafe impl StableBytes for Vec<u8> {
    fn stable_bytes(&self) -> (*const u8, usize) {
        (self.as_ptr(), self.len())
    }
}

// SAFETY: as above, and a vector's bytes are its own.
unsafe impl StableBytesMut for Vec<u8> {
    fn stable_bytes_mut(&mut self) -> (*mut u8, usize) {
        (self.as_mut_ptr(), self.len())
    }
}

// SAFETY: the bytes are on the heap or static, and immutable.
unsafe impl StableBytes for Bytes {
    fn stable_bytes(&self) -> (*const u8, usize) {
        (self.as_ptr(), self.len())
    }
}

// SAFETY: the value itself does not move while it is shared, so that its bytes do not either.
unsafe impl<T: StableBytes> StableBytes for Rc<T> {
    fn stable_bytes(&self) -> (*const u8, usize) {
        (**self).stable_bytes()
    }
}

/// Gathered memory of a vectored write, as the kernel wants it.
struct Gathered<B> {
    buffers: Vec<B>,
    slices: Vec<libc::iovec>,
}

impl<B: StableBytes> Gathered<B> {
    fn new(buffers: Vec<B>) -> Self {
        let slice = |buffer: &B| {
            let (start, len) = buffer.stable_bytes();
            libc::iovec {
                iov_base: start.cast_mut().cast(),
                iov_len: len,
            }
        };
        let slices = buffers.iter().map(slice).collect();
        Self { buffers, slices }
    }
}

/// See the module.
pub struct SideRing {
    state: RefCell<State>,
    eventfd: OwnedFd,
    permits: Semaphore,
    /// The executor is ending: the reaper is to end too.
    ends: Cell<bool>,
    is_reaped: Cell<bool>,
    reaper_ended: Notify,
}

struct State {
    ring: IoUring,
    slots: Slab<Slot>,
}

enum Slot {
    Waiting(Option<Waker>),
    Done(i32),
    /// Nobody waits: the completion frees what the kernel may touch until then.
    Abandoned(Box<dyn Any>),
}

impl SideRing {
    fn new() -> io::Result<Rc<Self>> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_coop_taskrun()
            .build(OPERATIONS_MAX)?;
        // Blocking, so that the runtime's read waits in the kernel instead of failing.
        let eventfd = rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?;
        ring.submitter().register_eventfd(eventfd.as_raw_fd())?;
        Ok(Rc::new(Self {
            state: RefCell::new(State {
                ring,
                slots: Slab::new(),
            }),
            eventfd,
            permits: Semaphore::new(OPERATIONS_MAX as usize),
            ends: Cell::new(false),
            is_reaped: Cell::new(false),
            reaper_ended: Notify::new(),
        }))
    }

    /// Operations that the kernel has, abandoned ones included.
    pub fn in_flight(&self) -> usize {
        self.state.borrow().slots.len()
    }

    /// Resolves when one of `events`, an error or a hang-up is there; returns what is.
    pub async fn poll(
        self: &Rc<Self>,
        descriptor: impl AsFd + 'static,
        events: PollFlags,
    ) -> io::Result<PollFlags> {
        let fd = Fd(descriptor.as_fd().as_raw_fd());
        let entry = opcode::PollAdd::new(fd, u32::from(events.bits())).build();
        // SAFETY: the operation owns the descriptor and names no memory.
        let (result, _) = unsafe { self.run(entry, descriptor) }.await;
        // The kernel's answer is a mask of 16 bits.
        result.map(|mask| PollFlags::from_bits_retain(mask as u16))
    }

    /// Moves up to `len` bytes between a pipe and another descriptor, from `from_position` where
    /// the source is a file. Returns how many; zero is the end of the source.
    pub async fn splice(
        self: &Rc<Self>,
        from: impl AsFd + 'static,
        from_position: Option<u64>,
        to: impl AsFd + 'static,
        len: u32,
    ) -> io::Result<usize> {
        let position = match from_position {
            None => -1,
            Some(position) => to_file_offset(position)?,
        };
        let source = Fd(from.as_fd().as_raw_fd());
        let target = Fd(to.as_fd().as_raw_fd());
        let entry = opcode::Splice::new(source, position, target, -1, len)
            .flags(libc::SPLICE_F_MOVE)
            .build();
        // SAFETY: the operation owns both descriptors and names no memory.
        let (result, _) = unsafe { self.run(entry, (from, to)) }.await;
        result
    }

    /// Reads into the whole of `buffer`. Resolves with how many bytes came, and the buffer.
    pub async fn read_at<B: StableBytesMut>(
        self: &Rc<Self>,
        descriptor: impl AsFd + 'static,
        mut buffer: B,
        position: u64,
    ) -> (io::Result<usize>, B) {
        let (start, len) = buffer.stable_bytes_mut();
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        let fd = Fd(descriptor.as_fd().as_raw_fd());
        let entry = opcode::Read::new(fd, start, len).offset(position).build();
        // SAFETY: the operation owns the descriptor and the memory, which does not move.
        let (result, (_, buffer)) = unsafe { self.run(entry, (descriptor, buffer)) }.await;
        (result, buffer)
    }

    /// Writes the buffers, at most 1,024, one behind the other. Resolves when the device (the page
    /// cache, without O_DIRECT) has as many bytes as it returns, and gives the buffers back.
    pub async fn writev_at<B: StableBytes>(
        self: &Rc<Self>,
        descriptor: impl AsFd + 'static,
        buffers: Vec<B>,
        position: u64,
    ) -> (io::Result<usize>, Vec<B>) {
        let gathered = Gathered::new(buffers);
        let fd = Fd(descriptor.as_fd().as_raw_fd());
        let count = u32::try_from(gathered.slices.len()).unwrap_or(u32::MAX);
        let entry = opcode::Writev::new(fd, gathered.slices.as_ptr(), count)
            .offset(position)
            .build();
        // SAFETY: the operation owns the descriptor, the buffers and the list of them; none of
        // them moves.
        let (result, (_, gathered)) = unsafe { self.run(entry, (descriptor, gathered)) }.await;
        (result, gathered.buffers)
    }

    /// Tells the kernel how a part of a file will be used (posix_fadvise(2)).
    pub async fn advise(
        self: &Rc<Self>,
        descriptor: impl AsFd + 'static,
        position: u64,
        len: u64,
        advice: rustix::fs::Advice,
    ) -> io::Result<()> {
        let fd = Fd(descriptor.as_fd().as_raw_fd());
        let len = libc::off_t::try_from(len).unwrap_or(libc::off_t::MAX);
        let entry = opcode::Fadvise::new(fd, len, advice as i32)
            .offset(position)
            .build();
        // SAFETY: the operation owns the descriptor and names no memory.
        let (result, _) = unsafe { self.run(entry, descriptor) }.await;
        result.map(|_| ())
    }

    /// Submits `entry` and resolves to its result and to `kept`.
    ///
    /// # Safety
    /// `kept` owns all descriptors and all memory that the entry names, and neither changes its
    /// place when `kept` is moved.
    async unsafe fn run<T: 'static>(
        self: &Rc<Self>,
        entry: squeue::Entry,
        kept: T,
    ) -> (io::Result<usize>, T) {
        let permit = self.permits.acquire(1).await;
        Operation {
            ring: Rc::clone(self),
            key: self.submit(entry),
            kept: Some((kept, permit)),
        }
        .await
    }

    fn submit(&self, entry: squeue::Entry) -> usize {
        let mut state = self.state.borrow_mut();
        let key = state.slots.insert(Slot::Waiting(None));
        state.push(&entry.user_data(key as u64));
        key
    }

    fn drop_wakers(&self) {
        let take = |(_, slot): (usize, &mut Slot)| match slot {
            Slot::Waiting(waker) => waker.take(),
            Slot::Done(_) | Slot::Abandoned(_) => None,
        };
        let wakers: Vec<Waker> = {
            let mut state = self.state.borrow_mut();
            state.slots.iter_mut().filter_map(take).collect()
        };
        // Outside of the borrow: a task may be dropped with its waker.
        drop(wakers);
    }

    /// Whether the kernel has something that nobody waits for.
    fn has_abandoned(&self) -> bool {
        let state = self.state.borrow();
        let mut slots = state.slots.iter();
        slots.any(|(_, slot)| matches!(slot, Slot::Abandoned(_)))
    }

    /// Takes the completions that are there and wakes who waits for them.
    fn reap(&self) {
        let mut wakers = Vec::new();
        let mut garbage = Vec::new();
        self.state.borrow_mut().reap(&mut wakers, &mut garbage);
        // Outside of the borrow: both may reach for the ring.
        drop(garbage);
        for waker in wakers {
            waker.wake();
        }
    }
}

impl State {
    /// Puts an entry into the ring. The permits and the cancellations of their holders can fill it
    /// only while the kernel refuses to take entries, for want of memory; then this waits, with the
    /// whole executor.
    fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: who made the entry keeps what it names until its completion.
        while unsafe { self.ring.submission().push(entry) }.is_err() {
            if !self.submit() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        self.submit();
    }

    /// Hands the entries to the kernel; false where it does not take all of them now. The rest goes
    /// with the next call.
    fn submit(&mut self) -> bool {
        while let Err(error) = self.ring.submit() {
            if error.kind() != io::ErrorKind::Interrupted {
                return false;
            }
        }
        self.ring.submission().is_empty()
    }

    fn reap(&mut self, wakers: &mut Vec<Waker>, garbage: &mut Vec<Box<dyn Any>>) {
        loop {
            let slots = &mut self.slots;
            for completion in self.ring.completion() {
                // A cancellation's number is no slot's.
                let Ok(key) = usize::try_from(completion.user_data()) else {
                    continue;
                };
                let Some(slot) = slots.get_mut(key) else {
                    continue;
                };
                match std::mem::replace(slot, Slot::Done(completion.result())) {
                    Slot::Waiting(waker) => wakers.extend(waker),
                    Slot::Done(_) => {}
                    Slot::Abandoned(kept) => {
                        garbage.push(kept);
                        slots.remove(key);
                    }
                }
            }
            // The kernel keeps what does not fit until it is asked.
            if !self.ring.submission().cq_overflow() || !self.submit() {
                return;
            }
        }
    }
}

impl Drop for State {
    fn drop(&mut self) {
        if self.slots.is_empty() {
            return;
        }
        // Operations hold the ring, so all that are left are abandoned.
        self.submit();
        let end = Instant::now() + END_WAIT;
        let timeout = Timespec::new().sec(END_WAIT.as_secs());
        let _ = self
            .ring
            .submitter()
            .register_sync_cancel(Some(timeout), CancelBuilder::any());
        while !self.slots.is_empty() && Instant::now() < end {
            let pause = Timespec::new().nsec(10_000_000);
            let _ = self
                .ring
                .submitter()
                .submit_with_args(1, &SubmitArgs::new().timespec(&pause));
            self.reap(&mut Vec::new(), &mut Vec::new());
        }
        // The kernel may touch the rest still.
        std::mem::take(&mut self.slots)
            .into_iter()
            .for_each(std::mem::forget);
    }
}

/// An operation in flight.
struct Operation<T: 'static> {
    ring: Rc<SideRing>,
    key: usize,
    /// What the kernel may touch; nothing when the operation is over.
    kept: Option<(T, Permit)>,
}

// What it keeps is moved with it, never pinned: memory that the kernel knows is on the heap.
impl<T> Unpin for Operation<T> {}

impl<T: 'static> Future for Operation<T> {
    type Output = (io::Result<usize>, T);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.ring.reap();
        let ring = Rc::clone(&self.ring);
        let mut state = ring.state.borrow_mut();
        let result = match state.slots.get_mut(self.key) {
            Some(Slot::Done(result)) => *result,
            Some(Slot::Waiting(waker)) => {
                match waker {
                    Some(waker) => waker.clone_from(context.waker()),
                    None => *waker = Some(context.waker().clone()),
                }
                if !state.ring.submission().is_empty() && !state.submit() {
                    // The kernel did not take the entry yet: ask again.
                    context.waker().wake_by_ref();
                }
                return Poll::Pending;
            }
            Some(Slot::Abandoned(_)) | None => {
                unreachable!("an operation is abandoned only by its drop")
            }
        };
        state.slots.remove(self.key);
        drop(state);
        let (kept, _permit) = self
            .kept
            .take()
            .unwrap_or_else(|| unreachable!("polled after its end"));
        let result = usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result));
        Poll::Ready((result, kept))
    }
}

impl<T: 'static> Drop for Operation<T> {
    fn drop(&mut self) {
        let Some(kept) = self.kept.take() else { return };
        let mut state = self.ring.state.borrow_mut();
        match state.slots.get_mut(self.key) {
            Some(Slot::Done(_)) => {
                state.slots.remove(self.key);
                drop(state);
            }
            Some(slot) => {
                *slot = Slot::Abandoned(Box::new(kept));
                let cancel = opcode::AsyncCancel::new(self.key as u64)
                    .build()
                    .user_data(NO_OPERATION)
                    .flags(squeue::Flags::SKIP_SUCCESS);
                state.push(&cancel);
            }
            None => unreachable!("an operation has a slot until its end"),
        }
    }
}

/// Reads the eventfd through the runtime, which is how the executor learns of completions.
async fn reap(ring: Rc<SideRing>) {
    struct EndNotice(Rc<SideRing>);
    impl Drop for EndNotice {
        fn drop(&mut self) {
            self.0.is_reaped.set(false);
            self.0.reaper_ended.notify_all();
        }
    }
    const COUNTER_BYTES: usize = 8;

    let ring = EndNotice(ring);
    let file = match ring.0.eventfd.try_clone() {
        // SAFETY: the clone is owned and given up here.
        Ok(eventfd) => unsafe { BufferedFile::from_raw_fd(eventfd.into_raw_fd()) },
        Err(error) => {
            tracing::error!(%error, "the side ring has no descriptor for its eventfd");
            return;
        }
    };
    while !ring.0.ends.get() {
        if let Err(error) = file.read_at(0, COUNTER_BYTES).await {
            tracing::error!(%error, "the side ring's eventfd cannot be read");
            break;
        }
        ring.0.reap();
    }
    // It was only read.
    let _ = file.close().await;
}

fn to_file_offset(position: u64) -> io::Result<i64> {
    i64::try_from(position).map_err(|_| io::ErrorKind::InvalidInput.into())
}
