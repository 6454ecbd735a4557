//! The disk as the storage engine sees it: one trait, filled by the kernel ([`real`](super::real_disk))
//! and by a simulation ([`sim`](super::sim_disk)) that loses what was not flushed.
//!
//! Everything is direct: positions, lengths and buffers of writes are multiples of
//! [`DISK_BLOCK_BYTES`](crate::base::limits::DISK_BLOCK_BYTES).

use std::future::Future;
use std::io;
use std::ops::Deref;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;

use bytes::Bytes;

use super::splice::SpliceSource;

/// Work that runs beside its starter on the same executor.
pub type LocalTask = Pin<Box<dyn Future<Output = ()>>>;

/// Starts a [`LocalTask`]: the executor's spawn function, or a simulation's.
pub type Spawn = Rc<dyn Fn(LocalTask)>;

/// Whether a file must exist already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// Read and write an existing file.
    Existing,
    /// Read and write; create it where it is missing. The directory entry is durable only after
    /// [`Disk::sync_dir`].
    Create,
}

/// Room on a file system, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    pub total_bytes: u64,
    /// What an ordinary user may still take.
    pub free_bytes: u64,
}

/// A directory tree on stable media. Cheap to clone; lives on one executor.
#[allow(async_fn_in_trait)] // used on one thread only; the futures need not be Send
pub trait Disk: Clone + 'static {
    type File: DiskFile;

    async fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Self::File>;
    /// Names (not paths) of the entries of a directory, in no order.
    async fn list_dir(&self, path: &Path) -> io::Result<Vec<String>>;
    /// Names and sizes in bytes of the plain files of a directory, in no order.
    async fn list_files(&self, path: &Path) -> io::Result<Vec<(String, u64)>>;
    /// How much of the file system that holds `path` is free.
    async fn space(&self, path: &Path) -> io::Result<Space>;
    async fn create_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Atomic replacement; durable only after [`Disk::sync_dir`] of the parent.
    async fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    async fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes a directory and all below it.
    async fn remove_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Makes the directory's entries durable.
    async fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// The whole of a small file (indexes, checkpoints, snapshots).
    async fn read_file(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// Writes a file whole and flushes its data; the entry is durable after [`Disk::sync_dir`].
    /// The former contents are overwritten in place: until it resolves, a crash leaves any mixture
    /// of both. What must be replaced whole is written beside it and renamed.
    async fn write_file(&self, path: &Path, contents: &[u8]) -> io::Result<()>;
}

/// An open file. Dropping it closes it.
#[allow(async_fn_in_trait)]
pub trait DiskFile: 'static {
    /// Aligned memory that a write can be made from.
    type Buffer: Deref<Target = [u8]> + std::ops::DerefMut;
    /// Bytes that a read brought.
    type Bytes: Deref<Target = [u8]>;
    /// The same open file, to be handed to another core.
    type Shared: Clone + Send + 'static;

    /// A buffer of `len` bytes, a multiple of the block size; its contents are arbitrary.
    fn allocate(&self, len: usize) -> Self::Buffer;
    /// Resolves when the device has all of the bytes (not flushed). A short write is
    /// [`io::ErrorKind::StorageFull`].
    async fn write_at(&self, buffer: Rc<Self::Buffer>, position: u64) -> io::Result<()>;
    /// Writes pieces of whole blocks, each in aligned memory
    /// ([`BlockPool::gather`](super::blocks::BlockPool::gather)), one behind the other and without
    /// copying them. Resolves as [`write_at`](Self::write_at).
    async fn write_pieces_at(&self, pieces: Vec<Bytes>, position: u64) -> io::Result<()>;
    /// Any position and length; fewer bytes come back only at the end of the file.
    async fn read_at(&self, position: u64, len: usize) -> io::Result<Self::Bytes>;
    /// Resolves when all writes that completed before the call, and the size, are on stable media.
    async fn sync_data(&self) -> io::Result<()>;
    /// Reserves space and extends the size to `len` bytes; never shortens.
    async fn preallocate(&self, len: u64) -> io::Result<()>;
    /// Sets the size.
    async fn truncate(&self, len: u64) -> io::Result<()>;
    async fn size(&self) -> io::Result<u64>;
    fn share(&self) -> io::Result<Self::Shared>;
    /// What the kernel can splice the file from; nothing where it cannot.
    fn splice_source(shared: &Self::Shared) -> Option<SpliceSource>;
    /// The handle, brought to this executor.
    fn from_shared(shared: &Self::Shared) -> io::Result<Self>
    where
        Self: Sized;
}

/// Where the bytes of a fetch lie: nothing was copied yet.
#[derive(Debug, Clone)]
pub enum Extent<S> {
    /// In memory.
    Memory(bytes::Bytes),
    /// In a file, flushed and immutable between `position` and `position + len`.
    File { file: S, position: u64, len: u64 },
}

impl<S> Extent<S> {
    pub fn len(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::File { len, .. } => *len,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
