//! A response on its way out: small pieces from memory, large ones by reference, spliced from their
//! file where the kernel can do it.

use std::io;
use std::rc::Rc;

use bytes::Bytes;

use crate::base::limits::{COPIED_PIECE_BYTES_MAX, FILE_READ_BYTES, SPLICED_BYTES_MIN};
use crate::io::disk::{DiskFile, Extent};
use crate::io::socket::Socket;
use crate::io::splice::{SpliceSource, Splicer};

/// The bytes of one response frame, its length prefix included, in order. `S` is a file that can
/// cross cores ([`DiskFile::Shared`]).
#[derive(Debug)]
pub struct Reply<S> {
    pub pieces: Vec<Extent<S>>,
}

impl<S> Reply<S> {
    pub fn from_bytes(bytes: impl Into<Bytes>) -> Self {
        Self {
            pieces: vec![Extent::Memory(bytes.into())],
        }
    }

    /// Bytes of the whole.
    pub fn len(&self) -> u64 {
        self.pieces.iter().map(Extent::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.pieces.iter().all(Extent::is_empty)
    }

    /// Bytes that this reply keeps in memory until it is sent.
    pub fn memory_bytes(&self) -> usize {
        let in_memory = |piece: &Extent<S>| match piece {
            Extent::Memory(bytes) => bytes.len(),
            Extent::File { .. } => 0,
        };
        self.pieces.iter().map(in_memory).sum()
    }
}

/// Sends a reply. After an error the stream is in the middle of a frame: the caller closes it.
pub async fn send<F: DiskFile>(socket: &Rc<Socket>, reply: Reply<F::Shared>) -> io::Result<u64> {
    let mut gathered = Gathered::default();
    let mut sent_bytes = 0;
    let mut splicer = Splicer::default();
    for piece in &reply.pieces {
        if let Extent::File { position, len, .. } = piece
            && let Some(source) = spliced_from::<F>(piece)
        {
            splicer.plan(&source, *position, *len);
        }
    }
    for piece in reply.pieces {
        sent_bytes += piece.len();
        let is_spliced = spliced_from::<F>(&piece).is_some();
        match piece {
            Extent::Memory(bytes) => gathered.push(socket, bytes).await?,
            Extent::File {
                file,
                position,
                len,
            } => {
                gathered.flush(socket).await?;
                let sent = if is_spliced {
                    splicer.send(socket, len).await?
                } else {
                    0
                };
                if sent < len {
                    let file = F::from_shared(&file)?;
                    send_file::<F>(socket, &file, position + sent, len - sent).await?;
                }
            }
        }
    }
    gathered.flush(socket).await?;
    Ok(sent_bytes)
}

/// What a piece is spliced from; nothing where it is sent in another way.
fn spliced_from<F: DiskFile>(piece: &Extent<F::Shared>) -> Option<SpliceSource> {
    match piece {
        Extent::File { file, len, .. } if *len >= SPLICED_BYTES_MIN => F::splice_source(file),
        Extent::File { .. } | Extent::Memory(_) => None,
    }
}

/// Streams a part of a file with direct reads, one buffer ahead of the socket.
async fn send_file<F: DiskFile>(
    socket: &Socket,
    file: &F,
    position: u64,
    len: u64,
) -> io::Result<()> {
    let end = position + len;
    let mut position = position;
    let mut next = Some(read_chunk(file, position, end).await?);
    while let Some(chunk) = next.take() {
        position += chunk.len() as u64;
        if position < end {
            let pieces = [&chunk[..]];
            let write = socket.write_all_gathered(&pieces);
            let read_ahead = read_chunk(file, position, end);
            let (read, sent) = futures_lite::future::zip(read_ahead, write).await;
            sent?;
            next = Some(read?);
        } else {
            socket.write_all_gathered(&[&chunk]).await?;
        }
    }
    Ok(())
}

async fn read_chunk<F: DiskFile>(file: &F, position: u64, end: u64) -> io::Result<F::Bytes> {
    let len = (end - position).min(FILE_READ_BYTES as u64);
    let chunk = file.read_at(position, len as usize).await?;
    if chunk.is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "a segment file ends before the position that its partition made visible",
        ));
    }
    Ok(chunk)
}

/// Memory pieces that wait to be sent together. Small ones are copied into one buffer, which costs
/// less than a slice of a gathered write each.
#[derive(Default)]
struct Gathered {
    pieces: Vec<Bytes>,
    small: bytes::BytesMut,
    bytes: usize,
}

impl Gathered {
    const BYTES_MAX: usize = 1 << 20;
    const PIECES_MAX: usize = 32;

    async fn push(&mut self, socket: &Socket, bytes: Bytes) -> io::Result<()> {
        self.bytes += bytes.len();
        if bytes.len() <= COPIED_PIECE_BYTES_MAX {
            self.small.extend_from_slice(&bytes);
        } else {
            self.seal_small();
            self.pieces.push(bytes);
        }
        if self.bytes >= Self::BYTES_MAX || self.pieces.len() >= Self::PIECES_MAX {
            self.flush(socket).await?;
        }
        Ok(())
    }

    fn seal_small(&mut self) {
        if !self.small.is_empty() {
            self.pieces.push(self.small.split().freeze());
        }
    }

    async fn flush(&mut self, socket: &Socket) -> io::Result<()> {
        self.seal_small();
        if !self.pieces.is_empty() {
            let slices: Vec<&[u8]> = self.pieces.iter().map(|piece| &piece[..]).collect();
            socket.write_all_gathered(&slices).await?;
            self.pieces.clear();
            self.bytes = 0;
        }
        Ok(())
    }
}
