//! Waiting between tasks of one executor: a reply slot, a bell that many wait for, a gate, and
//! permits. Nothing here knows a runtime, an atomic or a lock.
//!
//! Every future may be dropped at any point: it then takes its waker with it and gives back what
//! it had been granted. A waiter registers one waker and replaces it when polled again, so that
//! the number of wakers is the number of waiting tasks.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use slab::Slab;

#[cfg(test)]
mod tests;

// --- oneshot ---------------------------------------------------------------------------------

/// A slot for one value: the sender fills it, the receiver awaits it.
pub fn oneshot<T>() -> (OneshotSender<T>, OneshotReceiver<T>) {
    let slot = Rc::new(RefCell::new(Slot {
        value: None,
        waker: None,
        sender_alive: true,
        receiver_alive: true,
    }));
    (OneshotSender(slot.clone()), OneshotReceiver(slot))
}

#[derive(Debug)]
struct Slot<T> {
    value: Option<T>,
    waker: Option<Waker>,
    sender_alive: bool,
    receiver_alive: bool,
}

/// The sender was dropped without sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the task that owed the answer ended without giving one")]
pub struct Abandoned;

#[derive(Debug)]
pub struct OneshotSender<T>(Rc<RefCell<Slot<T>>>);

impl<T> OneshotSender<T> {
    /// Fills the slot and wakes the receiver.
    ///
    /// # Errors
    /// Gives the value back when the receiver is gone.
    pub fn send(self, value: T) -> Result<(), T> {
        let mut slot = self.0.borrow_mut();
        if !slot.receiver_alive {
            return Err(value);
        }
        slot.value = Some(value);
        Ok(()) // Drop wakes
    }

    /// Nobody waits any more: the work for the answer can be skipped.
    pub fn is_abandoned(&self) -> bool {
        !self.0.borrow().receiver_alive
    }
}

impl<T> Drop for OneshotSender<T> {
    fn drop(&mut self) {
        let waker = {
            let mut slot = self.0.borrow_mut();
            slot.sender_alive = false;
            slot.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Resolves to the value, or to [`Abandoned`].
#[derive(Debug)]
pub struct OneshotReceiver<T>(Rc<RefCell<Slot<T>>>);

impl<T> OneshotReceiver<T> {
    /// The value, if it is there already.
    pub fn try_take(&mut self) -> Option<T> {
        self.0.borrow_mut().value.take()
    }
}

impl<T> Future for OneshotReceiver<T> {
    type Output = Result<T, Abandoned>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut slot = self.0.borrow_mut();
        if let Some(value) = slot.value.take() {
            return Poll::Ready(Ok(value));
        }
        if !slot.sender_alive {
            return Poll::Ready(Err(Abandoned));
        }
        store_waker(&mut slot.waker, context);
        Poll::Pending
    }
}

impl<T> Drop for OneshotReceiver<T> {
    fn drop(&mut self) {
        // The value is dropped outside the borrow: its own drop may reach for the sender.
        let _value = {
            let mut slot = self.0.borrow_mut();
            slot.receiver_alive = false;
            slot.waker = None;
            slot.value.take()
        };
    }
}

// --- Notify ----------------------------------------------------------------------------------

/// A bell: [`notify_all`](Notify::notify_all) completes every [`Notified`] made before it.
///
/// A `Notified` counts from its creation, not from its first poll, so that a check between the
/// two cannot miss a ring:
///
/// ```text
/// loop {
///     let rung = notify.notified();
///     if condition() { break; }
///     rung.await;
/// }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Notify(Rc<Bell>);

#[derive(Debug, Default)]
struct Bell {
    rings: Cell<u64>,
    waiters: RefCell<Slab<Waker>>,
}

impl Notify {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn notified(&self) -> Notified {
        Notified {
            rings_before: self.0.rings.get(),
            bell: self.0.clone(),
            key: None,
        }
    }

    pub fn notify_all(&self) {
        self.0.rings.set(self.0.rings.get().wrapping_add(1));
        let mut woken = std::mem::take(&mut *self.0.waiters.borrow_mut());
        for waker in woken.drain() {
            waker.wake();
        }
        // Give the allocation back to the bell, unless a woken task registered meanwhile.
        let mut waiters = self.0.waiters.borrow_mut();
        if waiters.is_empty() {
            *waiters = woken;
        }
    }

    /// How many tasks wait.
    pub fn waiters(&self) -> usize {
        self.0.waiters.borrow().len()
    }
}

#[derive(Debug)]
pub struct Notified {
    bell: Rc<Bell>,
    rings_before: u64,
    key: Option<usize>,
}

impl Notified {
    pub fn is_rung(&self) -> bool {
        self.bell.rings.get() != self.rings_before
    }
}

impl Future for Notified {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.is_rung() {
            self.key = None; // the ring took the waker out
            return Poll::Ready(());
        }
        let bell = self.bell.clone();
        let mut waiters = bell.waiters.borrow_mut();
        match self.key.and_then(|key| waiters.get_mut(key)) {
            Some(waker) => waker.clone_from(context.waker()),
            None => self.key = Some(waiters.insert(context.waker().clone())),
        }
        Poll::Pending
    }
}

impl Drop for Notified {
    fn drop(&mut self) {
        // After a ring the key belongs to nobody, or already to somebody else.
        if !self.is_rung()
            && let Some(key) = self.key
        {
            self.bell.waiters.borrow_mut().try_remove(key);
        }
    }
}

// --- Gate ------------------------------------------------------------------------------------

/// A door that is open or closed; [`pass`](Gate::pass) waits while it is closed.
#[derive(Debug, Clone)]
pub struct Gate {
    open: Rc<Cell<bool>>,
    moved: Notify,
}

impl Gate {
    pub fn opened() -> Self {
        Self::with(true)
    }

    pub fn closed() -> Self {
        Self::with(false)
    }

    fn with(open: bool) -> Self {
        Self {
            open: Rc::new(Cell::new(open)),
            moved: Notify::new(),
        }
    }

    pub fn open(&self) {
        self.open.set(true);
        self.moved.notify_all();
    }

    pub fn close(&self) {
        self.open.set(false);
    }

    pub fn is_open(&self) -> bool {
        self.open.get()
    }

    /// Resolves while the gate is open. A gate that closes again before the waiter runs keeps it
    /// waiting.
    pub async fn pass(&self) {
        while !self.open.get() {
            self.moved.notified().await;
        }
    }
}

// --- Semaphore -------------------------------------------------------------------------------

/// A stock of permits (bytes, requests, …), handed out in the order of asking: a large request
/// at the front is never overtaken by small ones behind it.
#[derive(Debug, Clone)]
pub struct Semaphore(Rc<Stock>);

#[derive(Debug)]
struct Stock {
    capacity: usize,
    free: Cell<usize>,
    queue: RefCell<VecDeque<Rc<Waiter>>>,
}

#[derive(Debug)]
struct Waiter {
    wanted: usize,
    granted: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Semaphore {
    pub fn new(capacity: usize) -> Self {
        Self(Rc::new(Stock {
            capacity,
            free: Cell::new(capacity),
            queue: RefCell::default(),
        }))
    }

    /// Resolves when `wanted` permits are held. A wish for more than there are in all is granted
    /// when all are free: one oversized request passes alone instead of never.
    pub fn acquire(&self, wanted: usize) -> Acquire {
        Acquire {
            stock: self.0.clone(),
            wanted: wanted.min(self.0.capacity),
            waiter: None,
        }
    }

    /// The permits at once, or `None` when there are too few or others wait for them.
    pub fn try_acquire(&self, wanted: usize) -> Option<Permit> {
        let wanted = wanted.min(self.0.capacity);
        self.0.take_now(wanted).then(|| Permit {
            stock: self.0.clone(),
            count: wanted,
        })
    }

    pub fn free(&self) -> usize {
        self.0.free.get()
    }

    pub fn capacity(&self) -> usize {
        self.0.capacity
    }

    /// How many tasks wait.
    pub fn waiters(&self) -> usize {
        self.0.queue.borrow().len()
    }
}

impl Stock {
    fn take_now(&self, wanted: usize) -> bool {
        if !self.queue.borrow().is_empty() || self.free.get() < wanted {
            return false;
        }
        self.free.set(self.free.get() - wanted);
        true
    }

    fn give_back(&self, count: usize) {
        let free = self.free.get() + count;
        assert!(free <= self.capacity, "more permits returned than exist");
        self.free.set(free);
        self.grant();
    }

    /// Grants from the front of the queue as far as the free permits reach.
    fn grant(&self) {
        loop {
            let waiter = {
                let mut queue = self.queue.borrow_mut();
                match queue.front() {
                    Some(waiter) if waiter.wanted <= self.free.get() => queue.pop_front(),
                    _ => None,
                }
            };
            let Some(waiter) = waiter else { return };
            self.free.set(self.free.get() - waiter.wanted);
            waiter.granted.set(true);
            let waker = waiter.waker.borrow_mut().take();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

/// Resolves to a [`Permit`].
#[derive(Debug)]
pub struct Acquire {
    stock: Rc<Stock>,
    wanted: usize,
    waiter: Option<Rc<Waiter>>,
}

impl Future for Acquire {
    type Output = Permit;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Permit> {
        match &self.waiter {
            Some(waiter) if waiter.granted.get() => self.waiter = None,
            Some(waiter) => {
                store_waker(&mut waiter.waker.borrow_mut(), context);
                return Poll::Pending;
            }
            None if self.stock.take_now(self.wanted) => {}
            None => {
                let waiter = Rc::new(Waiter {
                    wanted: self.wanted,
                    granted: Cell::new(false),
                    waker: RefCell::new(Some(context.waker().clone())),
                });
                self.stock.queue.borrow_mut().push_back(waiter.clone());
                self.waiter = Some(waiter);
                return Poll::Pending;
            }
        }
        Poll::Ready(Permit {
            stock: self.stock.clone(),
            count: self.wanted,
        })
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        let Some(waiter) = self.waiter.take() else {
            return;
        };
        if waiter.granted.get() {
            self.stock.give_back(waiter.wanted);
        } else {
            let mut queue = self.stock.queue.borrow_mut();
            queue.retain(|queued| !Rc::ptr_eq(queued, &waiter));
            drop(queue);
            // The next one may want less than this one did.
            self.stock.grant();
        }
    }
}

/// Permits held; dropping gives them back.
#[derive(Debug)]
#[must_use = "a permit that is dropped at once protects nothing"]
pub struct Permit {
    stock: Rc<Stock>,
    count: usize,
}

impl Permit {
    pub fn count(&self) -> usize {
        self.count
    }

    /// Gives back all but `count` permits; keeps what it has when that is less.
    pub fn shrink_to(&mut self, count: usize) {
        let surplus = self.count.saturating_sub(count);
        if surplus > 0 {
            self.count -= surplus;
            self.stock.give_back(surplus);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.stock.give_back(self.count);
    }
}

fn store_waker(place: &mut Option<Waker>, context: &Context<'_>) {
    match place {
        Some(waker) => waker.clone_from(context.waker()),
        None => *place = Some(context.waker().clone()),
    }
}
