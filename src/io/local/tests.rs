use super::*;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

use proptest::prelude::*;

#[derive(Default)]
struct Counter(AtomicUsize);

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A task of the test: counts how often it was woken and holds wakers like a real one.
struct Sleeper {
    counter: Arc<Counter>,
    waker: Waker,
}

impl Sleeper {
    fn new() -> Self {
        let counter = Arc::new(Counter::default());
        let waker = counter.clone().into();
        Self { counter, waker }
    }

    fn poll<F: Future>(&self, future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(&self.waker))
    }

    fn wakes(&self) -> usize {
        self.counter.0.load(Ordering::Relaxed)
    }

    /// Wakers of this task that somebody still holds, beside our own.
    fn wakers_held(&self) -> usize {
        Arc::strong_count(&self.counter) - 2
    }
}

#[test]
fn oneshot_delivers_to_a_waiting_receiver() {
    let sleeper = Sleeper::new();
    let (sender, receiver) = oneshot();
    let mut receiver = pin!(receiver);
    assert_eq!(sleeper.poll(receiver.as_mut()), Poll::Pending);
    assert_eq!(sleeper.wakes(), 0);
    assert_eq!(sender.send(7), Ok(()));
    assert_eq!(sleeper.wakes(), 1);
    assert_eq!(sleeper.poll(receiver.as_mut()), Poll::Ready(Ok(7)));
}

#[test]
fn oneshot_tells_the_receiver_that_the_sender_was_dropped() {
    let sleeper = Sleeper::new();
    let (sender, receiver) = oneshot::<u8>();
    let mut receiver = pin!(receiver);
    assert_eq!(sleeper.poll(receiver.as_mut()), Poll::Pending);
    drop(sender);
    assert_eq!(sleeper.wakes(), 1);
    assert_eq!(sleeper.poll(receiver.as_mut()), Poll::Ready(Err(Abandoned)));
}

#[test]
fn oneshot_gives_the_value_back_when_the_receiver_is_gone_and_keeps_no_waker() {
    let sleeper = Sleeper::new();
    let (sender, receiver) = oneshot();
    let mut receiver = Box::pin(receiver);
    assert_eq!(sleeper.poll(receiver.as_mut()), Poll::Pending);
    assert_eq!(sleeper.wakers_held(), 1);
    assert!(!sender.is_abandoned());
    drop(receiver);
    assert_eq!(sleeper.wakers_held(), 0);
    assert!(sender.is_abandoned());
    assert_eq!(sender.send(1), Err(1));
}

#[test]
fn a_ring_between_creation_and_first_poll_is_not_missed() {
    let sleeper = Sleeper::new();
    let notify = Notify::new();
    let mut before = pin!(notify.notified());
    notify.notify_all();
    let mut after = pin!(notify.notified());
    assert_eq!(sleeper.poll(before.as_mut()), Poll::Ready(()));
    assert_eq!(sleeper.poll(after.as_mut()), Poll::Pending);
}

#[test]
fn a_ring_wakes_every_waiter_once() {
    let notify = Notify::new();
    let sleepers: Vec<_> = (0..100).map(|_| Sleeper::new()).collect();
    let mut waits: Vec<_> = sleepers
        .iter()
        .map(|_| Box::pin(notify.notified()))
        .collect();
    for (sleeper, wait) in sleepers.iter().zip(&mut waits) {
        assert_eq!(sleeper.poll(wait.as_mut()), Poll::Pending);
        assert_eq!(sleeper.poll(wait.as_mut()), Poll::Pending);
    }
    assert_eq!(notify.waiters(), 100);
    notify.notify_all();
    assert_eq!(notify.waiters(), 0);
    for (sleeper, wait) in sleepers.iter().zip(&mut waits) {
        assert_eq!(sleeper.wakes(), 1);
        assert_eq!(sleeper.poll(wait.as_mut()), Poll::Ready(()));
    }
}

#[test]
fn a_dropped_wait_takes_its_own_waker_and_no_other() {
    let notify = Notify::new();
    let (early, late) = (Sleeper::new(), Sleeper::new());
    let mut rung = Box::pin(notify.notified());
    assert_eq!(early.poll(rung.as_mut()), Poll::Pending);
    notify.notify_all();
    // The next waiter gets the slot that the first one had before the ring.
    let mut waiting = Box::pin(notify.notified());
    assert_eq!(late.poll(waiting.as_mut()), Poll::Pending);
    drop(rung);
    assert_eq!(notify.waiters(), 1);
    assert_eq!(late.wakers_held(), 1);
    drop(waiting);
    assert_eq!(notify.waiters(), 0);
    assert_eq!(late.wakers_held(), 0);
}

#[test]
fn a_gate_that_closes_before_the_waiter_runs_keeps_it_waiting() {
    let sleeper = Sleeper::new();
    let gate = Gate::closed();
    let mut pass = pin!(gate.pass());
    assert_eq!(sleeper.poll(pass.as_mut()), Poll::Pending);
    gate.open();
    gate.close();
    assert_eq!(sleeper.wakes(), 1);
    assert_eq!(sleeper.poll(pass.as_mut()), Poll::Pending);
    gate.open();
    assert_eq!(sleeper.wakes(), 2);
    assert_eq!(sleeper.poll(pass.as_mut()), Poll::Ready(()));
    assert!(gate.is_open());
}

#[test]
fn permits_are_handed_out_in_the_order_of_asking() {
    let semaphore = Semaphore::new(10);
    let sleeper = Sleeper::new();
    let held = semaphore.try_acquire(8).expect("8 of 10 are free");
    let mut large = Box::pin(semaphore.acquire(5));
    let mut small = Box::pin(semaphore.acquire(1));
    assert!(sleeper.poll(large.as_mut()).is_pending());
    assert!(sleeper.poll(small.as_mut()).is_pending());
    assert!(semaphore.try_acquire(1).is_none(), "nobody overtakes");
    drop(held);
    let Poll::Ready(large) = sleeper.poll(large.as_mut()) else {
        panic!("5 of 10 are free");
    };
    assert_eq!(large.count(), 5);
    assert!(sleeper.poll(small.as_mut()).is_ready());
}

#[test]
fn a_wish_beyond_the_capacity_is_granted_when_all_is_free() {
    let semaphore = Semaphore::new(10);
    let sleeper = Sleeper::new();
    let held = semaphore.try_acquire(1).expect("10 are free");
    let mut huge = Box::pin(semaphore.acquire(1_000));
    assert!(sleeper.poll(huge.as_mut()).is_pending());
    drop(held);
    assert_eq!(sleeper.wakes(), 1);
    let Poll::Ready(huge) = sleeper.poll(huge.as_mut()) else {
        panic!("all are free");
    };
    assert_eq!((huge.count(), semaphore.free()), (10, 0));
}

#[test]
fn a_dropped_request_returns_its_grant_and_lets_the_next_one_through() {
    let semaphore = Semaphore::new(10);
    let sleeper = Sleeper::new();
    let held = semaphore.try_acquire(9).expect("10 are free");
    let mut front = Box::pin(semaphore.acquire(5));
    let mut behind = Box::pin(semaphore.acquire(1));
    assert!(sleeper.poll(front.as_mut()).is_pending());
    assert!(sleeper.poll(behind.as_mut()).is_pending());
    drop(front); // waiting: now one permit is enough for the one behind
    assert_eq!(sleeper.wakes(), 1);
    drop(behind); // granted, never polled again
    assert_eq!((semaphore.free(), semaphore.waiters()), (1, 0));
    drop(held);
    assert_eq!(semaphore.free(), 10);
    assert_eq!(sleeper.wakers_held(), 0);
}

#[test]
fn a_permit_shrinks_to_what_was_used() {
    let semaphore = Semaphore::new(10);
    let mut permit = semaphore.try_acquire(10).expect("10 are free");
    permit.shrink_to(3);
    assert_eq!((permit.count(), semaphore.free()), (3, 7));
    permit.shrink_to(5);
    assert_eq!((permit.count(), semaphore.free()), (3, 7));
}

proptest! {
    /// Whatever is asked, polled and dropped in whatever order: permits are conserved, grants
    /// follow the queue, and at the end all permits and wakers are back.
    #[test]
    fn permits_are_conserved(steps in prop::collection::vec((0_u8..3, 0_usize..12, 0_usize..8), 1..60)) {
        let semaphore = Semaphore::new(10);
        let sleeper = Sleeper::new();
        let mut asking: Vec<Pin<Box<Acquire>>> = Vec::new();
        let mut held: Vec<Permit> = Vec::new();
        for (action, amount, which) in steps {
            match action {
                0 => {
                    let mut request = Box::pin(semaphore.acquire(amount));
                    match sleeper.poll(request.as_mut()) {
                        Poll::Ready(permit) => held.push(permit),
                        Poll::Pending => asking.push(request),
                    }
                }
                1 if !held.is_empty() => drop(held.swap_remove(which % held.len())),
                2 if !asking.is_empty() => drop(asking.remove(which % asking.len())),
                _ => {}
            }
            // The first that is still waiting bars everybody behind it.
            let mut barred = false;
            let mut still_asking = Vec::new();
            for mut request in asking {
                match sleeper.poll(request.as_mut()) {
                    Poll::Ready(permit) => {
                        prop_assert!(!barred, "overtook a waiting request");
                        held.push(permit);
                    }
                    Poll::Pending => {
                        barred = true;
                        still_asking.push(request);
                    }
                }
            }
            asking = still_asking;
            let out: usize = held.iter().map(Permit::count).sum();
            prop_assert_eq!(out + semaphore.free(), 10);
            if let Some(first) = asking.first() {
                prop_assert!(first.wanted > semaphore.free(), "free permits, yet the first waits");
            }
        }
        drop(asking);
        drop(held);
        prop_assert_eq!(semaphore.free(), 10);
        prop_assert_eq!(sleeper.wakers_held(), 0);
    }
}
