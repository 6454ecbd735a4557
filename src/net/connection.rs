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
use crate::base::limits::{
    GATHERED_REPLY_BYTES_MAX, IN_FLIGHT_REQUESTS_MAX, UNSENT_REPLY_BYTES_MAX,
};
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
    /// start; what remains of this one is in [`Started::Pending`].
    async fn start(&self, context: &ConnectionContext, frame: Frame) -> Started<F::Shared>;
    /// Bytes that were received and sent, for the metrics.
    fn count_bytes(&self, received: u64, sent: u64);
}

/// Serves a connection until either side ends it; returns why.
pub async fn serve_connection<F: DiskFile, S: Service<F>>(
    socket: Rc<Socket>,
    service: Rc<S>,
    frame_bytes_max: usize,
    budget: Semaphore,
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
    let mut reader = FrameReader::new(Rc::clone(&socket), frame_bytes_max, budget);
    let end = loop {
        outbound.wait_for_room().await;
        let frame = match reader.next().await {
            Ok(frame) => frame,
            Err(end) => break end,
        };
        service.count_bytes(frame.bytes.len() as u64 + 4, 0);
        let started = service.start(&context, frame).await;
        outbound.push(started);
    };
    // What was started goes on (acks=0 counts), but nobody reads replies any more: a parked fetch
    // must not keep the connection for its whole wait.
    outbound.finish();
    socket.shutdown();
    writer.cancel().await;
    end
}

/// Started requests in order, between the two tasks.
struct Outbound<F: DiskFile> {
    queue: RefCell<VecDeque<Started<F::Shared>>>,
    unsent_bytes: Cell<usize>,
    finished: Cell<bool>,
    added: Notify,
    taken: Notify,
}

impl<F: DiskFile> Default for Outbound<F> {
    fn default() -> Self {
        Self {
            queue: RefCell::default(),
            unsent_bytes: Cell::new(0),
            finished: Cell::new(false),
            added: Notify::new(),
            taken: Notify::new(),
        }
    }
}

impl<F: DiskFile> Outbound<F> {
    fn push(&self, started: Started<F::Shared>) {
        if let Started::Done(Outcome::Reply(reply)) = &started {
            self.unsent_bytes
                .set(self.unsent_bytes.get() + reply.memory_bytes());
        }
        self.queue.borrow_mut().push_back(started);
        self.added.notify_all();
    }

    fn finish(&self) {
        self.finished.set(true);
        self.added.notify_all();
    }

    async fn wait_for_room(&self) {
        while !self.finished.get()
            && (self.queue.borrow().len() >= IN_FLIGHT_REQUESTS_MAX
                || self.unsent_bytes.get() >= UNSENT_REPLY_BYTES_MAX)
        {
            self.taken.notified().await;
        }
    }

    /// The oldest request's outcome, or none when the connection has ended.
    async fn next(&self) -> Option<Outcome<F::Shared>> {
        loop {
            let started = self.queue.borrow_mut().pop_front();
            match started {
                Some(Started::Done(outcome)) => return Some(self.taken_out(outcome)),
                Some(Started::Pending(pending)) => return Some(pending.await),
                None if self.finished.get() => return None,
                None => self.added.notified().await,
            }
        }
    }

    /// The oldest request's outcome, where it is there already.
    async fn next_ready(&self) -> Option<Outcome<F::Shared>> {
        let started = self.queue.borrow_mut().pop_front()?;
        let mut pending = match started {
            Started::Done(outcome) => return Some(self.taken_out(outcome)),
            Started::Pending(pending) => pending,
        };
        let outcome = poll_once(&mut pending).await;
        if outcome.is_none() {
            self.queue
                .borrow_mut()
                .push_front(Started::Pending(pending));
        }
        outcome
    }

    fn taken_out(&self, outcome: Outcome<F::Shared>) -> Outcome<F::Shared> {
        if let Outcome::Reply(reply) = &outcome {
            let unsent_bytes = self.unsent_bytes.get() - reply.memory_bytes();
            self.unsent_bytes.set(unsent_bytes);
        }
        outcome
    }

    /// The outcomes that are there, as one reply, and why the connection is to be closed then.
    async fn gather(&self, first: Outcome<F::Shared>) -> (Reply<F::Shared>, Option<String>) {
        let mut gathered = Reply { pieces: Vec::new() };
        let mut gathered_bytes = 0;
        let mut next = Some(first);
        while let Some(outcome) = next {
            match outcome {
                Outcome::Reply(mut reply) => {
                    gathered_bytes += reply.len();
                    gathered.pieces.append(&mut reply.pieces);
                }
                Outcome::Nothing => {}
                Outcome::Close(reason) => return (gathered, Some(reason)),
            }
            if gathered_bytes >= GATHERED_REPLY_BYTES_MAX {
                break;
            }
            next = self.next_ready().await;
        }
        (gathered, None)
    }
}

async fn write_replies<F: DiskFile, S: Service<F>>(
    socket: Rc<Socket>,
    outbound: Rc<Outbound<F>>,
    service: Rc<S>,
) {
    while let Some(outcome) = outbound.next().await {
        // A flush makes many replies ready at once: one system call sends them.
        let (reply, close) = outbound.gather(outcome).await;
        let failure = match reply::send::<F>(&socket, reply).await {
            Ok(sent_bytes) => {
                service.count_bytes(0, sent_bytes);
                close
            }
            Err(error) => Some(error.to_string()),
        };
        outbound.taken.notify_all();
        if let Some(reason) = failure {
            debug!(peer = %socket.peer(), reason, "closing a connection");
            outbound.finish();
            socket.shutdown();
            return;
        }
    }
}
