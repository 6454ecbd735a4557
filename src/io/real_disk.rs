//! The disk trait on the kernel: direct I/O through the executor's io_uring, and directory work on
//! the executor's helper thread, where it cannot stall the core.
//!
//! Absent: buffered writes to segments; buffered reads are spliced only ([`splice`](super::splice)).
//! Small files (indexes, checkpoints) go through the page cache
//! and are flushed before their call resolves.

use std::io::{self, Write};
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::Bytes;
use glommio::io::{DmaBuffer, DmaFile, OpenOptions, OwnedDmaFile, ReadResult};

use rustix::fs::{Mode, OFlags};

use super::disk::{Disk, DiskFile, OpenMode, Space};
use super::side_ring;
use super::splice::SpliceSource;
use crate::base::limits::DISK_BLOCK_BYTES;

#[cfg(test)]
mod tests;

/// The machine's file systems, from inside one executor.
#[derive(Debug, Clone, Default)]
pub struct RealDisk {
    _private: (),
}

impl RealDisk {
    /// Opens `probe_file` directly before anything else. The runtime decides at the first direct
    /// file of a device whether the device can be polled for completions; an empty file would make
    /// it believe so, and every later operation would burn the core.
    ///
    /// # Errors
    /// The file is missing or empty, or the file system has no direct I/O.
    pub async fn new(probe_file: &Path) -> io::Result<Self> {
        if std::fs::metadata(probe_file)?.len() == 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "{} is empty: the first direct file must not be",
                    probe_file.display()
                ),
            ));
        }
        let file = OpenOptions::new().read(true).dma_open(probe_file).await?;
        file.close().await?;
        Ok(Self::probed_elsewhere())
    }

    /// For an executor that opened a non-empty direct file on the device already.
    pub fn probed_elsewhere() -> Self {
        Self::default()
    }
}

/// Runs `work` on the executor's helper thread.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    glommio::executor().spawn_blocking(work).await
}

fn with_path(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

impl Disk for RealDisk {
    type File = RealFile;

    async fn open(&self, path: &Path, mode: OpenMode) -> io::Result<RealFile> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(mode == OpenMode::Create)
            .dma_open(path)
            .await?;
        Ok(RealFile {
            file: Rc::new(file),
        })
    }

    async fn list_dir(&self, path: &Path) -> io::Result<Vec<String>> {
        let path = path.to_owned();
        blocking(move || {
            std::fs::read_dir(&path)
                .map_err(|error| with_path(&path, error))?
                .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
                .collect()
        })
        .await
    }

    async fn list_files(&self, path: &Path) -> io::Result<Vec<(String, u64)>> {
        let path = path.to_owned();
        blocking(move || {
            let mut files = Vec::new();
            for entry in std::fs::read_dir(&path).map_err(|error| with_path(&path, error))? {
                let entry = entry?;
                let metadata = entry.metadata()?;
                if metadata.is_file() {
                    files.push((
                        entry.file_name().to_string_lossy().into_owned(),
                        metadata.len(),
                    ));
                }
            }
            Ok(files)
        })
        .await
    }

    async fn space(&self, path: &Path) -> io::Result<Space> {
        let path = path.to_owned();
        blocking(move || {
            let found =
                rustix::fs::statvfs(&path).map_err(|error| with_path(&path, error.into()))?;
            Ok(Space {
                total_bytes: found.f_blocks.saturating_mul(found.f_frsize),
                free_bytes: found.f_bavail.saturating_mul(found.f_frsize),
            })
        })
        .await
    }

    async fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let path = path.to_owned();
        blocking(move || std::fs::create_dir_all(&path).map_err(|error| with_path(&path, error)))
            .await
    }

    async fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from, to) = (from.to_owned(), to.to_owned());
        blocking(move || std::fs::rename(&from, &to).map_err(|error| with_path(&from, error))).await
    }

    async fn remove_file(&self, path: &Path) -> io::Result<()> {
        let path = path.to_owned();
        blocking(move || std::fs::remove_file(&path).map_err(|error| with_path(&path, error))).await
    }

    async fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        let path = path.to_owned();
        blocking(move || std::fs::remove_dir_all(&path).map_err(|error| with_path(&path, error)))
            .await
    }

    async fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let path = path.to_owned();
        blocking(move || {
            std::fs::File::open(&path)
                .and_then(|dir| dir.sync_all())
                .map_err(|error| with_path(&path, error))
        })
        .await
    }

    async fn read_file(&self, path: &Path) -> io::Result<Vec<u8>> {
        let path = path.to_owned();
        blocking(move || std::fs::read(&path).map_err(|error| with_path(&path, error))).await
    }

    async fn write_file(&self, path: &Path, contents: &[u8]) -> io::Result<()> {
        let (path, contents) = (path.to_owned(), contents.to_vec());
        blocking(move || write_whole(&path, &contents).map_err(|error| with_path(&path, error)))
            .await
    }
}

fn write_whole(path: &PathBuf, contents: &[u8]) -> io::Result<()> {
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)?;
    file.write_all_at(contents, 0)?;
    file.set_len(contents.len() as u64)?;
    file.flush()?;
    file.sync_data()
}

/// A segment file, opened with O_DIRECT.
#[derive(Debug)]
pub struct RealFile {
    file: Rc<DmaFile>,
}

/// The file's descriptor, which stays open as long as this lives.
struct Descriptor(Rc<DmaFile>);

#[allow(unsafe_code)]
impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the file owns the descriptor and is kept.
        unsafe { BorrowedFd::borrow_raw(self.0.as_raw_fd()) }
    }
}

fn check_written(written: usize, wanted: usize, position: u64) -> io::Result<()> {
    if written == wanted {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::StorageFull,
        format!("the device took {written} of {wanted} bytes at {position}"),
    ))
}

/// Memory for one direct write.
#[derive(Debug)]
pub struct RealBuffer(Rc<DmaBuffer>);

impl Deref for RealBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl DerefMut for RealBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // Only a write in flight shares the buffer, and its caller holds it behind an `Rc` then,
        // which gives no `&mut`.
        Rc::get_mut(&mut self.0)
            .expect("a buffer is filled before it is written")
            .as_bytes_mut()
    }
}

/// What a direct read brought, without the bytes that alignment added.
#[derive(Debug, Clone)]
pub struct RealBytes {
    blocks: ReadResult,
    start: usize,
    end: usize,
}

impl Deref for RealBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.blocks.get(self.start..self.end).unwrap_or(&[])
    }
}

/// An open file that may cross to another core: the descriptor is closed with the last clone.
#[derive(Debug, Clone)]
pub struct RealShared(Arc<SharedFile>);

#[derive(Debug)]
struct SharedFile {
    file: Mutex<OwnedDmaFile>,
    /// Opened at the first use; nothing where that failed.
    splice_source: OnceLock<Option<SpliceSource>>,
}

impl SharedFile {
    /// The same file once more, without O_DIRECT: only such a descriptor is spliced from the page
    /// cache. Nothing of the file is read by it.
    fn open_splice_source(&self) -> io::Result<SpliceSource> {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let descriptor = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(SpliceSource::new(descriptor))
    }
}

impl DiskFile for RealFile {
    type Buffer = RealBuffer;
    type Bytes = RealBytes;
    type Shared = RealShared;

    fn allocate(&self, len: usize) -> RealBuffer {
        debug_assert_eq!(len % DISK_BLOCK_BYTES, 0);
        RealBuffer(Rc::new(self.file.alloc_dma_buffer(len)))
    }

    async fn write_at(&self, buffer: Rc<RealBuffer>, position: u64) -> io::Result<()> {
        let wanted = buffer.0.len();
        let written = self.file.write_rc_at(buffer.0.clone(), position).await?;
        check_written(written, wanted, position)
    }

    async fn write_pieces_at(&self, pieces: Vec<Bytes>, position: u64) -> io::Result<()> {
        let wanted = pieces.iter().map(Bytes::len).sum();
        let descriptor = Descriptor(Rc::clone(&self.file));
        let ring = side_ring::current()?;
        let (written, _) = ring.writev_at(descriptor, pieces, position).await;
        check_written(written?, wanted, position)
    }

    async fn read_at(&self, position: u64, len: usize) -> io::Result<RealBytes> {
        let block = DISK_BLOCK_BYTES as u64;
        let first = position - position % block;
        let skip = (position - first) as usize;
        let blocks = self
            .file
            .read_at_aligned(first, (skip + len).next_multiple_of(DISK_BLOCK_BYTES))
            .await?;
        let end = (skip + len).min(blocks.len());
        Ok(RealBytes {
            start: skip.min(end),
            end,
            blocks,
        })
    }

    async fn sync_data(&self) -> io::Result<()> {
        Ok(self.file.fdatasync().await?)
    }

    async fn preallocate(&self, len: u64) -> io::Result<()> {
        Ok(self.file.pre_allocate(len, false).await?)
    }

    async fn truncate(&self, len: u64) -> io::Result<()> {
        Ok(self.file.truncate(len).await?)
    }

    async fn size(&self) -> io::Result<u64> {
        Ok(self.file.file_size().await?)
    }

    fn share(&self) -> io::Result<RealShared> {
        let duplicate = OwnedDmaFile::from(self.file.dup()?);
        Ok(RealShared(Arc::new(SharedFile {
            file: Mutex::new(duplicate),
            splice_source: OnceLock::new(),
        })))
    }

    fn splice_source(shared: &RealShared) -> Option<SpliceSource> {
        let source = &shared.0.splice_source;
        source
            .get_or_init(|| shared.0.open_splice_source().ok())
            .clone()
    }

    fn from_shared(shared: &RealShared) -> io::Result<Self> {
        let owned = shared
            .0
            .file
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .dup()?;
        Ok(Self {
            file: Rc::new(DmaFile::from(owned)),
        })
    }
}
