//! From a file to a socket without a copy through user space:
//!
//! ```text
//!   file --splice in the side ring--> pipe --splice inline--> socket
//!          may wait for the device           never waits: the socket is non-blocking
//! ```
//!
//! Several pipes take turns, so that the device works while the socket drains. Bytes pass through
//! the page cache and are dropped from it behind the reader: catching up with a large log neither
//! fills the memory nor evicts what others need, and the same few pages are used again and again.
//!
//! Segments are written directly, past the page cache. A cached page is never older than the write
//! that made its bytes visible: the kernel drops the pages of a range when a direct write to it is
//! complete, held by a pipe or not, and before that write resolves. (A pipe keeps the page that it
//! has, whose visible bytes are the same.)

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;

use rustix::event::PollFlags;
use rustix::fs::Advice;

use super::executor::{self, Task};
use super::pipe::Pipe;
use super::side_ring::{self, SideRing};
use super::socket::Socket;
use crate::base::limits::{
    CACHED_BEHIND_READER_BYTES, DISK_BLOCK_BYTES, PIPE_BYTES, PIPES_PER_REPLY_MAX,
    SPLICED_AT_ONCE_BYTES_MAX,
};

#[cfg(test)]
mod tests;

/// A file's descriptor that reads through the page cache.
#[derive(Debug, Clone)]
pub struct SpliceSource(Arc<OwnedFd>);

impl SpliceSource {
    pub fn new(descriptor: OwnedFd) -> Self {
        Self(Arc::new(descriptor))
    }
}

impl AsFd for SpliceSource {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Bytes of a file that fit a pipe.
#[derive(Debug, Clone)]
struct Part {
    source: SpliceSource,
    position: u64,
    len: usize,
}

/// A pipe with so many bytes of a part in it.
type Filled = io::Result<(Pipe, usize)>;

/// Sends stretches of files in the order in which they were planned. It reads ahead from the
/// moment of the first one's turn, beyond its end too.
///
/// Dropped in the middle, it closes the pipes that are not empty.
#[derive(Default)]
pub struct Splicer {
    planned: VecDeque<Part>,
    filling: VecDeque<(Part, Task<Filled>)>,
}

impl Splicer {
    /// Plans a stretch behind those that were planned before.
    pub fn plan(&mut self, source: &SpliceSource, position: u64, len: u64) {
        let block = DISK_BLOCK_BYTES as u64;
        let end = position.saturating_add(len);
        let mut position = position;
        while position < end {
            // A pipe holds pages: a part that begins within one has less room.
            let room = PIPE_BYTES as u64 - position % block;
            let len = room.min(end - position);
            self.planned.push_back(Part {
                source: source.clone(),
                position,
                len: len as usize,
            });
            position += len;
        }
    }

    /// Sends a planned stretch of `len` bytes, the next one. Returns how many bytes of it were sent:
    /// fewer where no pipe can be had; the rest is no longer planned then.
    ///
    /// # Errors
    /// The connection broke, or the file is shorter than the stretch: the stream is in the middle
    /// of a frame.
    pub async fn send(&mut self, socket: &Rc<Socket>, len: u64) -> io::Result<u64> {
        let Ok(ring) = side_ring::current() else {
            self.forget(len);
            return Ok(0);
        };
        let mut sent = 0;
        while sent < len {
            self.read_ahead(&ring);
            let Some((part, filled)) = self.filling.pop_front() else {
                self.forget(len - sent);
                break;
            };
            let part_len = part.len as u64;
            let more = sent + part_len < len;
            send_part(&ring, socket, part, filled.await?, more).await?;
            sent += part_len;
        }
        Ok(sent)
    }

    /// Starts reading what is planned as far as there are pipes.
    fn read_ahead(&mut self, ring: &Rc<SideRing>) {
        while self.filling.len() < PIPES_PER_REPLY_MAX
            && !self.planned.is_empty()
            && let Some(pipe) = Pipe::take()
            && let Some(part) = self.planned.pop_front()
        {
            let filling = fill(Rc::clone(ring), part.clone(), pipe);
            self.filling
                .push_back((part, executor::spawn_local(filling)));
        }
    }

    /// Takes the next `len` bytes out of the plan.
    fn forget(&mut self, len: u64) {
        let mut left = len;
        while left > 0
            && let Some(part) = self.planned.pop_front()
        {
            left = left.saturating_sub(part.len as u64);
        }
    }
}

/// Sends a part whose beginning is in the pipe.
async fn send_part(
    ring: &Rc<SideRing>,
    socket: &Rc<Socket>,
    mut part: Part,
    filled: (Pipe, usize),
    more: bool,
) -> io::Result<()> {
    let (mut pipe, mut filled) = filled;
    loop {
        part.position += filled as u64;
        part.len -= filled;
        drain(ring, socket, &pipe, filled, more || part.len > 0).await?;
        if part.len == 0 {
            break;
        }
        (pipe, filled) = fill(Rc::clone(ring), part.clone(), pipe).await?;
    }
    // After an error the pipe is not empty and is closed instead.
    pipe.put_back();
    drop_behind(ring, part.source, part.position);
    Ok(())
}

/// Brings a part of a file, or its beginning, into the empty pipe. Returns how many bytes.
async fn fill(ring: Rc<SideRing>, part: Part, pipe: Pipe) -> Filled {
    let len = u32::try_from(part.len).unwrap_or(u32::MAX);
    let moved = ring
        .splice(part.source, Some(part.position), pipe.writer(), len)
        .await?;
    if moved == 0 {
        return Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "a segment file ends before the position that its partition made visible",
        ));
    }
    Ok((pipe, moved.min(part.len)))
}

/// Moves `len` bytes from the pipe to the socket, waiting while the socket takes none.
async fn drain(
    ring: &Rc<SideRing>,
    socket: &Rc<Socket>,
    pipe: &Pipe,
    len: usize,
    more: bool,
) -> io::Result<()> {
    let reader = pipe.reader();
    let mut left = len;
    while left > 0 {
        let at_once = left.min(SPLICED_AT_ONCE_BYTES_MAX);
        match socket.splice_from(&reader, at_once, more || at_once < left) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(sent) => {
                left = left.saturating_sub(sent);
                // A fast peer's socket is always writable: let the ring and the others have a turn.
                executor::yield_to_ring().await;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                ring.poll(Rc::clone(socket), PollFlags::OUT).await?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Lets the page cache forget what lies some way before `position`: the socket holds pages until
/// the peer has them. What a reader of the same file shares with others, these read again.
fn drop_behind(ring: &Rc<SideRing>, source: SpliceSource, position: u64) {
    let Some(end) = position.checked_sub(CACHED_BEHIND_READER_BYTES) else {
        return;
    };
    // Some more than the last part, for pages that were in use the last time.
    let start = end.saturating_sub(4 * CACHED_BEHIND_READER_BYTES);
    let ring = Rc::clone(ring);
    executor::spawn_local(async move {
        // Advice only.
        let _ = ring
            .advise(source, start, end - start, Advice::DontNeed)
            .await;
    })
    .detach();
}
