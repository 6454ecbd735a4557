//! TCP on an executor: listeners that share a port, and streams that read into uninitialised
//! memory and write gathered pieces.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{BufMut, BytesMut};
use futures_lite::{AsyncRead, AsyncWrite};
use glommio::net::{TcpListener, TcpStream};
use rustix::net::{
    self, AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags, SocketType,
    ipproto,
};
use rustix::pipe::{SpliceFlags, splice};

use super::pipe::PipeReader;

/// Connections that the kernel may hold between two calls of `accept`.
const LISTEN_BACKLOG: i32 = 1024;

/// Picks a free port for port 0, and finds out whether a port is taken: listeners that share a
/// port (SO_REUSEPORT) would silently join another broker's.
///
/// Blocks, for up to two seconds where the port is taken: the kernel takes the rings of a killed
/// process apart after its end, and they hold its sockets until then.
pub fn probe_address(address: SocketAddr) -> io::Result<SocketAddr> {
    const PAUSE: Duration = Duration::from_millis(50);
    const TRIES: usize = 40;
    for _ in 1..TRIES {
        match std::net::TcpListener::bind(address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => std::thread::sleep(PAUSE),
            bound => return bound?.local_addr(),
        }
    }
    std::net::TcpListener::bind(address)?.local_addr()
}

/// A listening socket of one shard, not yet on its executor. All shards bind the same address;
/// the kernel spreads new connections over them.
#[derive(Debug)]
pub struct BoundListener(OwnedFd);

impl BoundListener {
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let family = if address.is_ipv6() {
            AddressFamily::INET6
        } else {
            AddressFamily::INET
        };
        let flags = SocketFlags::CLOEXEC;
        let socket = net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
        // Inherited by accepted connections, whose remains would otherwise keep a restarted
        // broker from its port.
        net::sockopt::set_socket_reuseaddr(&socket, true)?;
        net::sockopt::set_socket_reuseport(&socket, true)?;
        net::bind(&socket, &address)?;
        net::listen(&socket, LISTEN_BACKLOG)?;
        Ok(Self(socket))
    }

    /// Brings the listener to the executor that calls.
    pub fn into_listener(self) -> Listener {
        // SAFETY: the descriptor is owned by `self`, which gives it up here.
        Listener(unsafe { TcpListener::from_raw_fd(self.0.into_raw_fd()) })
    }
}

/// A listening socket on its executor.
#[derive(Debug)]
pub struct Listener(TcpListener);

impl Listener {
    /// The next connection. Fails with EMFILE and the like when the process is out of descriptors;
    /// the listener stays usable.
    pub async fn accept(&self) -> io::Result<Socket> {
        let stream = self.0.accept().await.map_err(io::Error::from)?;
        Socket::new(stream)
    }
}

/// A connected socket. Reading and writing may be awaited at the same time by two tasks, one each.
#[derive(Debug)]
pub struct Socket {
    stream: RefCell<TcpStream>,
    descriptor: std::os::fd::RawFd,
    peer: SocketAddr,
}

impl Socket {
    fn new(stream: TcpStream) -> io::Result<Self> {
        let peer = stream.peer_addr().map_err(io::Error::from)?;
        stream.set_nodelay(true).map_err(io::Error::from)?;
        let descriptor = stream.as_raw_fd();
        let socket = Self {
            stream: RefCell::new(stream),
            descriptor,
            peer,
        };
        // An accepted socket is blocking: raw calls on it would block the executor.
        rustix::io::ioctl_fionbio(socket.as_fd(), true)?;
        Ok(socket)
    }

    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Reads up to `limit` bytes behind the contents of `buffer`. Zero means that the peer sent
    /// its end. Never grows the buffer beyond `len + limit`.
    pub async fn read_into(&self, buffer: &mut BytesMut, limit: usize) -> io::Result<usize> {
        buffer.reserve(limit);
        poll_fn(|context| self.poll_read_into(context, buffer, limit)).await
    }

    fn poll_read_into(
        &self,
        context: &mut Context<'_>,
        buffer: &mut BytesMut,
        limit: usize,
    ) -> Poll<io::Result<usize>> {
        let spare = buffer.spare_capacity_mut();
        let spare_len = spare.len().min(limit);
        // SAFETY: the stream hands the slice to recv(2), which only writes to it; nothing reads
        // the uninitialised bytes.
        let spare =
            unsafe { std::slice::from_raw_parts_mut(spare.as_mut_ptr().cast::<u8>(), spare_len) };
        let mut stream = self.stream.borrow_mut();
        match Pin::new(&mut *stream).poll_read(context, spare) {
            Poll::Ready(Ok(count)) => {
                // SAFETY: recv(2) wrote `count` bytes, at most `spare_len`.
                unsafe { buffer.advance_mut(count) };
                Poll::Ready(Ok(count))
            }
            other => other,
        }
    }

    /// Writes all pieces, gathered into as few system calls as the kernel takes. Resolves when the
    /// kernel has the bytes.
    pub async fn write_all_gathered(&self, pieces: &[&[u8]]) -> io::Result<()> {
        let mut rest = GatherCursor { pieces, skip: 0 };
        while rest.advance(0) {
            match self.send_gathered(&rest) {
                Ok(sent) => {
                    rest.advance(sent);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let first = &rest.pieces[0][rest.skip..];
                    let sent = poll_fn(|context| self.poll_write(context, first)).await?;
                    rest.advance(sent);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn send_gathered(&self, rest: &GatherCursor<'_>) -> io::Result<usize> {
        const SLICES_MAX: usize = 64;
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let mut count = 0;
        for (slot, piece) in slices.iter_mut().zip(rest.pieces) {
            let skip = if count == 0 { rest.skip } else { 0 };
            *slot = IoSlice::new(&piece[skip..]);
            count += 1;
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let mut control = SendAncillaryBuffer::default();
        Ok(net::sendmsg(
            self.as_fd(),
            &slices[..count],
            &mut control,
            flags,
        )?)
    }

    fn poll_write(&self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.stream.borrow_mut()).poll_write(context, bytes)
    }

    /// Moves bytes of a pipe into the socket's queue without waiting. `more` follow soon.
    ///
    /// # Errors
    /// `WouldBlock` where the queue is full.
    pub fn splice_from(&self, pipe: &PipeReader, len: usize, more: bool) -> io::Result<usize> {
        let mut flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
        flags.set(SpliceFlags::MORE, more);
        Ok(splice(pipe, None, self, None, len, flags)?)
    }

    /// Ends both directions: a pending read or write on another task returns.
    pub fn shutdown(&self) {
        let _ = net::shutdown(self.as_fd(), net::Shutdown::Both);
    }

    /// Whether the peer has gone (or sent bytes beyond what was read), without taking anything.
    pub fn is_closed_by_peer(&self) -> bool {
        let mut byte = [0_u8; 1];
        matches!(
            net::recv(
                self.as_fd(),
                &mut byte,
                RecvFlags::PEEK | RecvFlags::DONTWAIT
            ),
            Ok((_, 0)) | Err(rustix::io::Errno::CONNRESET)
        )
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the stream owns the descriptor and lives as long as `self`.
        unsafe { BorrowedFd::borrow_raw(self.descriptor) }
    }
}

/// What is left of a list of pieces to write.
struct GatherCursor<'a> {
    pieces: &'a [&'a [u8]],
    /// Bytes of the first piece that were written already.
    skip: usize,
}

impl GatherCursor<'_> {
    /// Counts `written` bytes off and drops pieces that are done. False when nothing is left.
    fn advance(&mut self, mut written: usize) -> bool {
        while let Some(first) = self.pieces.first() {
            let left = first.len() - self.skip;
            if written < left {
                self.skip += written;
                return true;
            }
            written -= left;
            self.skip = 0;
            self.pieces = &self.pieces[1..];
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gather_cursor_counts_off_partial_writes_and_empty_pieces() {
        let pieces: [&[u8]; 4] = [b"", b"abc", b"", b"de"];
        let mut cursor = GatherCursor {
            pieces: &pieces,
            skip: 0,
        };
        assert!(cursor.advance(0));
        assert!(cursor.advance(2));
        assert_eq!(&cursor.pieces[0][cursor.skip..], b"c");
        assert!(cursor.advance(1));
        assert_eq!(&cursor.pieces[0][cursor.skip..], b"de");
        assert!(!cursor.advance(2));
    }

    #[test]
    fn a_taken_port_is_noticed_although_listeners_may_share_it() {
        let first = BoundListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address: SocketAddr = net::getsockname(&first.0).unwrap().try_into().unwrap();
        assert!(BoundListener::bind(address).is_ok());
        assert_eq!(
            probe_address(address).unwrap_err().kind(),
            io::ErrorKind::AddrInUse
        );
    }
}
