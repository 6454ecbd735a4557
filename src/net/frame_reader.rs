//! Cuts a stream into frames: four bytes of length (big-endian, not counting themselves), then
//! that many bytes (Kafka protocol, "common request and response structure").

use std::io;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Buf, BytesMut};

use crate::base::limits::{
    FRAME_BUDGET_WAIT_MS_MAX, FRAME_CHARGE_BYTES, SMALL_FRAME_BYTES_MAX, SOCKET_READ_BYTES_MAX,
    SOCKET_READ_BYTES_MIN,
};
use crate::io::executor;
use crate::io::local::{Permit, Semaphore};
use crate::io::socket::Socket;

/// Why no further frame can be read. The connection is closed in every case.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    #[error("the peer closed the connection")]
    Closed,
    #[error("the peer closed the connection in the middle of a request")]
    ClosedInFrame,
    #[error(
        "a request announces {announced} bytes, but 0 to {max} are allowed \
         (socket.request.max.bytes); is the client speaking Kafka's protocol without TLS?"
    )]
    Length { announced: i32, max: usize },
    #[error(
        "no network memory came free for a request of {bytes} bytes within {FRAME_BUDGET_WAIT_MS_MAX} ms; \
         send less at a time or raise ringmain.network.memory.bytes"
    )]
    NoMemory { bytes: usize },
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A request as it came, without its length prefix, and its share of the network-in budget, which
/// is given back when the frame is dropped.
#[derive(Debug)]
pub struct Frame {
    pub bytes: BytesMut,
    pub permits: Vec<Permit>,
}

/// The reading half of a connection.
pub struct FrameReader {
    socket: Rc<Socket>,
    buffer: BytesMut,
    read_bytes: usize,
    frame_bytes_max: usize,
    budget: Semaphore,
}

impl FrameReader {
    /// `budget` counts bytes of the whole core.
    pub fn new(socket: Rc<Socket>, frame_bytes_max: usize, budget: Semaphore) -> Self {
        Self {
            socket,
            buffer: BytesMut::new(),
            read_bytes: SOCKET_READ_BYTES_MIN,
            frame_bytes_max,
            budget,
        }
    }

    /// The next frame, whole.
    pub async fn next(&mut self) -> Result<Frame, FrameError> {
        let len = self.read_length().await?;
        if len <= SMALL_FRAME_BYTES_MAX {
            self.read_small(len).await
        } else {
            self.read_large(len).await
        }
    }

    async fn read_length(&mut self) -> Result<usize, FrameError> {
        while self.buffer.len() < 4 {
            let started = !self.buffer.is_empty();
            match self.fill().await? {
                0 if started => return Err(FrameError::ClosedInFrame),
                0 => return Err(FrameError::Closed),
                _ => {}
            }
        }
        let announced = self.buffer.get_i32();
        match usize::try_from(announced) {
            Ok(len) if len <= self.frame_bytes_max => Ok(len),
            _ => Err(FrameError::Length {
                announced,
                max: self.frame_bytes_max,
            }),
        }
    }

    async fn read_small(&mut self, len: usize) -> Result<Frame, FrameError> {
        while self.buffer.len() < len {
            if self.fill().await? == 0 {
                return Err(FrameError::ClosedInFrame);
            }
        }
        Ok(Frame {
            bytes: self.buffer.split_to(len),
            permits: Vec::new(),
        })
    }

    /// One read into the shared buffer; its size follows what the connection sends.
    async fn fill(&mut self) -> io::Result<usize> {
        let count = self
            .socket
            .read_into(&mut self.buffer, self.read_bytes)
            .await?;
        if count == self.read_bytes {
            self.read_bytes = (self.read_bytes * 2).min(SOCKET_READ_BYTES_MAX);
        } else if count < self.read_bytes / 4 {
            self.read_bytes = (self.read_bytes / 2).max(SOCKET_READ_BYTES_MIN);
        }
        Ok(count)
    }

    /// Reads straight into a buffer of the frame's size, charging the budget as bytes come.
    async fn read_large(&mut self, len: usize) -> Result<Frame, FrameError> {
        let mut charge = FrameCharge::new(&self.budget, len);
        charge.cover(self.buffer.len().min(len)).await?;
        // Reserving all at once is no promise of memory: pages are touched as bytes arrive, and
        // those were charged.
        let mut bytes = BytesMut::with_capacity(len);
        let buffered = self.buffer.len().min(len);
        bytes.extend_from_slice(&self.buffer[..buffered]);
        self.buffer.advance(buffered);
        while bytes.len() < len {
            let left = charge.cover(bytes.len() + 1).await? - bytes.len();
            if self.socket.read_into(&mut bytes, left).await? == 0 {
                return Err(FrameError::ClosedInFrame);
            }
        }
        // After a large frame comes another, mostly: its start is copied, so little of it should be
        // read along with its length.
        self.read_bytes = SOCKET_READ_BYTES_MIN;
        Ok(Frame {
            bytes,
            permits: charge.permits,
        })
    }
}

/// A large frame's growing share of the budget.
struct FrameCharge<'a> {
    budget: &'a Semaphore,
    permits: Vec<Permit>,
    covered: usize,
    len: usize,
}

impl<'a> FrameCharge<'a> {
    fn new(budget: &'a Semaphore, len: usize) -> Self {
        Self {
            budget,
            permits: Vec::new(),
            covered: 0,
            len,
        }
    }

    /// Waits until at least `bytes` of the frame are charged; returns how many are.
    async fn cover(&mut self, bytes: usize) -> Result<usize, FrameError> {
        while self.covered < bytes {
            // Steps double, so that a large frame costs few of them.
            let step = self
                .covered
                .max(FRAME_CHARGE_BYTES)
                .min(self.len - self.covered);
            self.permits.push(self.acquire(step).await?);
            self.covered += step;
        }
        Ok(self.covered)
    }

    async fn acquire(&self, bytes: usize) -> Result<Permit, FrameError> {
        if let Some(permit) = self.budget.try_acquire(bytes) {
            return Ok(permit);
        }
        let wait = Duration::from_millis(FRAME_BUDGET_WAIT_MS_MAX);
        executor::timeout(wait, self.budget.acquire(bytes))
            .await
            .map_err(|_| FrameError::NoMemory { bytes: self.len })
    }
}
