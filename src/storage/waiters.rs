//! Tasks that wait for a log to come to a place.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// Tasks in the order of what they wait for.
#[derive(Debug, Default)]
pub struct Waiters {
    state: RefCell<WaitersState>,
}

#[derive(Debug, Default)]
struct WaitersState {
    next_ticket: u64,
    wakers: BTreeMap<(i64, u64), Waker>,
}

impl Waiters {
    /// Resolves with the first answer of `check`, which is asked at once and again whenever the
    /// place `key` was reached.
    pub async fn wait<T>(self: &Rc<Self>, key: i64, mut check: impl FnMut() -> Option<T>) -> T {
        let ticket = {
            let mut state = self.state.borrow_mut();
            state.next_ticket += 1;
            state.next_ticket
        };
        let _registered = Registered {
            waiters: self,
            key: (key, ticket),
        };
        poll_fn(|context| match check() {
            Some(answer) => Poll::Ready(answer),
            None => {
                self.state
                    .borrow_mut()
                    .wakers
                    .insert((key, ticket), context.waker().clone());
                Poll::Pending
            }
        })
        .await
    }

    /// Wakes whoever waits for `key` or less.
    pub fn wake_through(&self, key: i64) {
        loop {
            let waker = {
                let mut state = self.state.borrow_mut();
                match state.wakers.first_key_value() {
                    Some((&(waiting_for, _), _)) if waiting_for <= key => state.wakers.pop_first(),
                    _ => None,
                }
            };
            match waker {
                Some((_, waker)) => waker.wake(),
                None => return,
            }
        }
    }

    pub fn wake_all(&self) {
        self.wake_through(i64::MAX);
    }
}

struct Registered<'a> {
    waiters: &'a Waiters,
    key: (i64, u64),
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.waiters.state.borrow_mut().wakers.remove(&self.key);
    }
}
