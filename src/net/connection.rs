//! One connection: a task that reads and starts requests, and a task that sends their replies in
//! the same order.
//!
//! ```text
//!   socket -> FrameReader -> Service::start -> queue of outcomes -> reply::send -> socket
//!             (reader task)   in order          (writer task, in order)
//! ```

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;

use futures_lite::future::poll_once;
use tracing::debug;

use super::frame_reader::{Frame, FrameError, FrameReader};
use super::reply::{self, Reply};
use super::unsent::{ConnectionUnsent, CoreUnsent, ReplyCharge};
use crate::base::limits::{GATHERED_REPLY_BYTES_MAX, IN_FLIGHT_REQUESTS_MAX};
use crate::io::disk::DiskFile;
use crate::io::executor;
use crate::io::local::{Notify, Semaphore};
use crate::io::socket::Socket;

/// Who is at the other end.
#[derive(Debug, Clone)]
pub struct ConnectionContext {
    pub peer: SocketAddr,
    /// On whose behalf requests run. Only the anonymous principal exists without authentication.
    pub principal: Rc<str>,
}

/// What a request came to.
#[derive(Debug)]
pub enum Outcome<S> {
    Reply(Reply<S>),
    /// The request wants no reply (Produce with acks=0).
    Nothing,
    /// The connection cannot go on.
    Close(String),
}

/// A request that was started: its outcome is there, or on its way.
pub enum Started<S> {
    Done(Outcome<S>),
    Pending(Pin<Box<dyn Future<Output = Outcome<S>>>>),
}

/// Answers requests. The futures run on the connection's executor.
#[allow(async_fn_in_trait)] // stays on one thread
pub trait Service<F: DiskFile>: 'static {
    /// Called in the order of the requests, one at a time. Returns as soon as the next request may
    /// start; what remains of this one is in [`Started::Pending`]. A reply that may be large and is
    /// there before it is asked for tells `charge` its size.
    async fn start(
        &self,
        context: &ConnectionContext,
        frame: Frame,
        charge: &Rc<ReplyCharge>,
    ) -> Started<F::Shared>;
    /// Bytes that were received and sent, for the metrics.
    fn count_bytes(&self, received: u64, sent: u64);
}

/// After so many bytes of requests other connections get their turn. Some milliseconds' worth of a fast
/// client's bytes are in its socket's buffer: without turns, that is how long they would wait.
const TURN_BYTES: usize = 512 << 10;

/// Serves a connection until either side ends it; returns why.
pub async fn serve_connection<F: DiskFile, S: Service<F>>(
    socket: Rc<Socket>,
    service: Rc<S>,
    frame_bytes_max: usize,
    budget: Semaphore,
    core_unsent: Rc<CoreUnsent>,
) -> FrameError {
    let context = ConnectionContext {
        peer: socket.peer(),
        principal: "User:ANONYMOUS".into(),
    };
    let outbound = Rc::new(Outbound::<F>::default());
    let writer = executor::spawn_local(write_replies(
        Rc::clone(&socket),
        Rc::clone(&outbound),
        Rc::clone(&service),
    ));
    let unsent = ConnectionUnsent::new(core_unsent);
    let mut reader = FrameReader::new(Rc::clone(&socket), frame_bytes_max, budget);
    let mut turn_bytes = 0;
    let end = loop {
        if turn_bytes >= TURN_BYTES {
            turn_bytes = 0;
            executor::yield_to_ring().await;
        }
        outbound.wait_for_room(&unsent).await;
        let frame = match reader.next().await {
            Ok(frame) => frame,
            Err(end) => break end,
        };
        turn_bytes += frame.bytes.len();
        service.count_bytes(frame.bytes.len() as u64 + 4, 0);
        let charge = Rc::new(unsent.charge());
        let started = service.start(&context, frame, &charge).await;
        outbound.push(Queued { started, charge });
    };
    // What was started goes on (acks=0 counts), but nobody reads replies any more: a parked fetch
    // must not keep the connection for its whole wait.
    outbound.finish();
    socket.shutdown();
    writer.cancel().await;
    end
}

/// A started request and what its reply is charged with.
struct Queued<S> {
    started: Started<S>,
    charge: Rc<ReplyCharge>,
}

/// Replies that are sent together, with what they are charged with.
struct Batch<S> {
    reply: Reply<S>,
    charges: Vec<Rc<ReplyCharge>>,
    /// Why the connection is to be closed then.
    close: Option<String>,
}

/// Started requests in order, between the two tasks.
struct Outbound<F: DiskFile> {
    queue: RefCell<VecDeque<Queued<F::Shared>>>,
    finished: Cell<bool>,
    added: Notify,
    taken: Notify,
}

impl<F: DiskFile> Default for Outbound<F> {
    fn default() -> Self {
        Self {
            queue: RefCell::default(),
            finished: Cell::new(false),
            added: Notify::new(),
            taken: Notify::new(),
        }
    }
}

impl<F: DiskFile> Outbound<F> {
    fn push(&self, queued: Queued<F::Shared>) {
        if let Started::Done(outcome) = &queued.started {
            settle(&queued.charge, outcome);
        }
        self.queue.borrow_mut().push_back(queued);
        self.added.notify_all();
    }

    fn finish(&self) {
        self.finished.set(true);
        self.added.notify_all();
    }

    async fn wait_for_room(&self, unsent: &ConnectionUnsent) {
        loop {
            let taken = self.taken.notified();
            if self.finished.get()
                || (self.queue.borrow().len() < IN_FLIGHT_REQUESTS_MAX && unsent.has_room())
            {
                return;
            }
            futures_lite::future::or(taken, unsent.changed()).await;
        }
    }

    /// The oldest request's outcome, or none when the connection has ended.
    async fn next(&self) -> Option<(Outcome<F::Shared>, Rc<ReplyCharge>)> {
        loop {
            let queued = self.queue.borrow_mut().pop_front();
            match queued {
                Some(Queued { started, charge }) => {
                    let outcome = match started {
                        Started::Done(outcome) => outcome,
                        Started::Pending(pending) => pending.await,
                    };
                    settle(&charge, &outcome);
                    return Some((outcome, charge));
                }
                None if self.finished.get() => return None,
                None => self.added.notified().await,
            }
        }
    }

    /// The oldest request's outcome, where it is there already.
    async fn next_ready(&self) -> Option<(Outcome<F::Shared>, Rc<ReplyCharge>)> {
        let Queued { started, charge } = self.queue.borrow_mut().pop_front()?;
        let mut pending = match started {
            Started::Done(outcome) => return Some((outcome, charge)),
            Started::Pending(pending) => pending,
        };
        match poll_once(&mut pending).await {
            Some(outcome) => {
                settle(&charge, &outcome);
                Some((outcome, charge))
            }
            None => {
                let started = Started::Pending(pending);
                let mut queue = self.queue.borrow_mut();
                queue.push_front(Queued { started, charge });
                None
            }
        }
    }

    /// The outcomes that are there, as one reply.
    async fn gather(&self, first: (Outcome<F::Shared>, Rc<ReplyCharge>)) -> Batch<F::Shared> {
        let mut batch = Batch {
            reply: Reply { pieces: Vec::new() },
            charges: Vec::new(),
            close: None,
        };
        let mut gathered_bytes = 0;
        let mut next = Some(first);
        while let Some((outcome, charge)) = next {
            match outcome {
                Outcome::Reply(mut reply) => {
                    gathered_bytes += reply.len();
                    batch.reply.pieces.append(&mut reply.pieces);
                    batch.charges.push(charge);
                }
                Outcome::Nothing => {}
                Outcome::Close(reason) => {
                    batch.close = Some(reason);
                    break;
                }
            }
            if gathered_bytes >= GATHERED_REPLY_BYTES_MAX {
                break;
            }
            next = self.next_ready().await;
        }
        batch
    }
}

fn settle<S>(charge: &ReplyCharge, outcome: &Outcome<S>) {
    charge.settle(match outcome {
        Outcome::Reply(reply) => reply.memory_bytes(),
        Outcome::Nothing | Outcome::Close(_) => 0,
    });
}

async fn write_replies<F: DiskFile, S: Service<F>>(
    socket: Rc<Socket>,
    outbound: Rc<Outbound<F>>,
    service: Rc<S>,
) {
    while let Some(outcome) = outbound.next().await {
        // A flush makes many replies ready at once: one system call sends them.
        let batch = outbound.gather(outcome).await;
        let failure = match reply::send::<F>(&socket, batch.reply).await {
            Ok(sent_bytes) => {
                service.count_bytes(0, sent_bytes);
                batch.close
            }
            Err(error) => Some(error.to_string()),
        };
        drop(batch.charges);
        outbound.taken.notify_all();
        if let Some(reason) = failure {
            debug!(peer = %socket.peer(), reason, "closing a connection");
            outbound.finish();
            socket.shutdown();
            return;
        }
    }
}
