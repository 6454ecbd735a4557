//! Calls between shards. Each shard has two channels: one for requests, bounded, and one for
//! answers.
//!
//! A caller holds one of [`CALLS_IN_FLIGHT_MAX`] permits per callee from the request to the answer,
//! so the request channel never overflows: a busy callee shows as waiting callers. Answers need no
//! bound of their own: each belongs to a permit, or to a parked fetch. That is also why two shards
//! cannot block each other: whoever answers never waits.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use slab::Slab;

use super::messages::{Answer, Call, CallReply, Request, WatchId};
use crate::base::ShardId;
use crate::base::limits::CALLS_IN_FLIGHT_MAX;
use crate::io::local::{Gate, OneshotSender, Permit, Semaphore, oneshot};

/// The shard called is gone: the process is stopping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the broker is stopping")]
pub struct Stopping;

/// The senders to one shard.
#[derive(Debug, Clone)]
pub struct Address {
    requests: flume::Sender<Request>,
    answers: flume::Sender<Answer>,
}

impl Address {
    /// Control messages (images, stop) come from outside of the shards and have room of their own.
    pub async fn send_control(&self, request: Request) -> Result<(), Stopping> {
        self.requests
            .send_async(request)
            .await
            .map_err(|_| Stopping)
    }

    pub fn answer(&self, answer: Answer) {
        // A caller that is gone needs no answer.
        let _ = self.answers.send(answer);
    }

    /// Requests that wait, for the metrics.
    pub fn depth(&self) -> usize {
        self.requests.len() + self.answers.len()
    }
}

/// The receiving ends of one shard.
#[derive(Debug)]
pub struct Inbox {
    pub requests: flume::Receiver<Request>,
    pub answers: flume::Receiver<Answer>,
}

/// Makes the channels of `shard_count` shards.
pub fn mailboxes(shard_count: usize) -> (Vec<Address>, Vec<Inbox>) {
    const CONTROL_MESSAGES_MAX: usize = 64;
    let capacity = CALLS_IN_FLIGHT_MAX * shard_count + CONTROL_MESSAGES_MAX;
    (0..shard_count)
        .map(|_| {
            let (request_sender, requests) = flume::bounded(capacity);
            let (answer_sender, answers) = flume::unbounded();
            (
                Address {
                    requests: request_sender,
                    answers: answer_sender,
                },
                Inbox { requests, answers },
            )
        })
        .unzip()
}

/// One shard's way to the others.
pub struct Router {
    shard: ShardId,
    addresses: Vec<Address>,
    permits: Vec<Semaphore>,
    /// The permit stays with the call until its answer, even if the caller gives up.
    waiting: RefCell<Slab<(OneshotSender<CallReply>, Permit)>>,
    parked: RefCell<std::collections::HashMap<WatchId, Rc<Gate>>>,
    next_watch: Cell<u64>,
}

impl Router {
    pub fn new(shard: ShardId, addresses: Vec<Address>) -> Self {
        let permits = addresses
            .iter()
            .map(|_| Semaphore::new(CALLS_IN_FLIGHT_MAX))
            .collect();
        Self {
            shard,
            addresses,
            permits,
            waiting: RefCell::default(),
            parked: RefCell::default(),
            next_watch: Cell::new(0),
        }
    }

    pub fn shard(&self) -> ShardId {
        self.shard
    }

    pub fn shard_count(&self) -> u16 {
        u16::try_from(self.addresses.len()).expect("there are at most 65,535 cores")
    }

    pub fn address(&self, shard: ShardId) -> &Address {
        &self.addresses[usize::from(shard.0)]
    }

    /// Sends a call to another shard. Resolves when it is in the callee's mailbox, in the order of
    /// the calls to that shard; the future returned resolves with the reply.
    pub async fn call(
        &self,
        to: ShardId,
        call: Call,
    ) -> Result<impl Future<Output = Result<CallReply, Stopping>> + 'static, Stopping> {
        let permit = self.permits[usize::from(to.0)].acquire(1).await;
        let (sender, receiver) = oneshot();
        let call_id = self.waiting.borrow_mut().insert((sender, permit));
        let request = Request::Call {
            from: self.shard,
            call_id,
            call,
        };
        if self.address(to).requests.try_send(request).is_err() {
            drop(self.waiting.borrow_mut().remove(call_id));
            return Err(Stopping);
        }
        Ok(async move { receiver.await.map_err(|_| Stopping) })
    }

    /// Handles what came in for this shard's own calls.
    pub fn accept(&self, answer: Answer) {
        match answer {
            Answer::Reply { call_id, reply } => {
                let sender = self.waiting.borrow_mut().try_remove(call_id);
                if let Some((sender, _permit)) = sender {
                    // The caller may have gone meanwhile; then nobody needs the reply.
                    let _ = sender.send(reply);
                }
            }
            Answer::Wake(watch) => self.wake(watch),
        }
    }

    /// Registers a parked fetch. The gate opens at the first wake-up.
    pub fn park(&self) -> (WatchId, Rc<Gate>) {
        let id = WatchId(self.next_watch.get());
        self.next_watch.set(id.0 + 1);
        let event = Rc::new(Gate::closed());
        self.parked.borrow_mut().insert(id, Rc::clone(&event));
        (id, event)
    }

    pub fn unpark(&self, watch: WatchId) {
        self.parked.borrow_mut().remove(&watch);
    }

    pub fn parked_count(&self) -> usize {
        self.parked.borrow().len()
    }

    pub fn wake(&self, watch: WatchId) {
        if let Some(event) = self.parked.borrow().get(&watch) {
            event.open();
        }
    }
}
