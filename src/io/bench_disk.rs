//! What a device does with the calls that the storage makes: direct sequential writes, a write and
//! a flush one at a time, direct sequential reads. For `ringmain bench disk`.
//!
//! All go through the executor and its ring, as the storage's own do, so that the figures are
//! limits of the broker and not only of the device.

use std::cell::Cell;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use glommio::io::{DmaBuffer, DmaFile, OpenOptions};
use hdrhistogram::Histogram;

use super::executor::{ExecutorError, ExecutorSettings, spawn_local, spawn_pinned};
use crate::base::limits::DISK_BLOCK_BYTES;

/// One sequential transfer, in bytes.
pub const SEQUENTIAL_PIECE_BYTES: usize = 1 << 20;
/// Sequential transfers in flight.
pub const SEQUENTIAL_IN_FLIGHT: usize = 16;
/// Sizes of the writes that are flushed one at a time, in bytes.
pub const FLUSHED_WRITE_BYTES: [usize; 4] = [4 << 10, 16 << 10, 128 << 10, 1 << 20];
/// The part of the file that flushed writes go round, in bytes: written before.
const FLUSHED_REGION_BYTES: u64 = 64 << 20;

/// What to measure.
#[derive(Debug, Clone)]
pub struct DiskPlan {
    /// An existing directory; a temporary file is made there and removed.
    pub dir: PathBuf,
    /// How much is written and read sequentially, in bytes.
    pub sequential_bytes: u64,
    /// How long each size of flushed writes is tried.
    pub time_per_size: Duration,
    /// The core to run on.
    pub core: usize,
}

/// What was found.
#[derive(Debug)]
pub struct DiskFigures {
    pub write: Transfer,
    pub read: Transfer,
    pub flushed: Vec<FlushedWrites>,
}

#[derive(Debug, Clone, Copy)]
pub struct Transfer {
    pub bytes: u64,
    pub took: Duration,
}

impl Transfer {
    pub fn bytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.took.as_secs_f64().max(1e-9)
    }
}

/// Writes of one size, each flushed before the next.
#[derive(Debug)]
pub struct FlushedWrites {
    pub write_bytes: usize,
    pub took: Duration,
    /// Nanoseconds of a write and its flush together.
    pub latency: Histogram<u64>,
}

#[derive(Debug, thiserror::Error)]
pub enum DiskBenchError {
    #[error(
        "cannot measure in {dir}: {}; give a directory with room for {bytes} bytes in --data-dir", .source.kind()
    )]
    File {
        dir: PathBuf,
        bytes: u64,
        source: io::Error,
    },
    #[error(transparent)]
    Executor(#[from] ExecutorError),
}

/// Measures. `on_progress` is told the share that is done, from 0 to 1, on another thread.
pub fn measure(
    plan: &DiskPlan,
    on_progress: impl Fn(f64) + Send + 'static,
) -> Result<DiskFigures, DiskBenchError> {
    let failed = |source| DiskBenchError::File {
        dir: plan.dir.clone(),
        bytes: plan.sequential_bytes,
        source,
    };
    let file = TemporaryFile::create(&plan.dir).map_err(failed)?;
    let settings = ExecutorSettings {
        name: "bench-disk".to_owned(),
        core: plan.core,
        first_file: Some(file.0.clone()),
        on_heartbeat: None,
    };
    let (path, job) = (file.0.clone(), plan.clone());
    let executor = spawn_pinned(settings, move || async move {
        run_steps(&path, &job, &on_progress).await
    })?;
    executor.join()?.map_err(failed)
}

/// Removes its file when dropped.
struct TemporaryFile(PathBuf);

impl TemporaryFile {
    fn create(dir: &Path) -> io::Result<Self> {
        let path = dir.join(format!("ringmain-bench-{}.tmp", std::process::id()));
        // Not empty: the executor learns from it what the device can do.
        let mut file = fs::File::options()
            .write(true)
            .create_new(true)
            .open(&path)?;
        let guard = Self(path);
        file.write_all(&[0; DISK_BLOCK_BYTES])?;
        file.sync_all()?;
        Ok(guard)
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        // If it cannot be removed, it is in the way of nothing but a run with the same process id.
        let _ = fs::remove_file(&self.0);
    }
}

async fn run_steps(
    path: &Path,
    plan: &DiskPlan,
    on_progress: &dyn Fn(f64),
) -> io::Result<DiskFigures> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .dma_open(path)
        .await?;
    let file = Rc::new(file);
    let piece = SEQUENTIAL_PIECE_BYTES as u64;
    let pieces = plan
        .sequential_bytes
        .max(FLUSHED_REGION_BYTES)
        .div_ceil(piece);
    let steps = (FLUSHED_WRITE_BYTES.len() + 2) as f64;
    file.pre_allocate(pieces * piece, false).await?;
    let write = transfer(&file, pieces, true).await?;
    on_progress(1.0 / steps);
    let mut flushed = Vec::new();
    for write_bytes in FLUSHED_WRITE_BYTES {
        flushed.push(write_and_flush(&file, write_bytes, plan.time_per_size).await?);
        on_progress((1.0 + flushed.len() as f64) / steps);
    }
    let read = transfer(&file, pieces, false).await?;
    on_progress(1.0);
    file.close_rc().await?;
    Ok(DiskFigures {
        write,
        read,
        flushed,
    })
}

/// Writes or reads the whole file once; writes are flushed at the end, within the time.
async fn transfer(file: &Rc<DmaFile>, pieces: u64, is_write: bool) -> io::Result<Transfer> {
    let next = Rc::new(Cell::new(0_u64));
    let began = Instant::now();
    let lanes: Vec<_> = (0..SEQUENTIAL_IN_FLIGHT)
        .map(|lane| {
            let (file, next) = (file.clone(), next.clone());
            spawn_local(async move {
                // Reads bring buffers of their own, from the same registered memory.
                let buffer = is_write
                    .then(|| filled_buffer(&file, SEQUENTIAL_PIECE_BYTES, lane as u64))
                    .map(Rc::new);
                while next.get() < pieces {
                    let position = next.get() * SEQUENTIAL_PIECE_BYTES as u64;
                    next.set(next.get() + 1);
                    let done = match &buffer {
                        Some(buffer) => file.write_rc_at(buffer.clone(), position).await?,
                        None => file
                            .read_at_aligned(position, SEQUENTIAL_PIECE_BYTES)
                            .await?
                            .len(),
                    };
                    if done != SEQUENTIAL_PIECE_BYTES {
                        return Err(io::Error::from(io::ErrorKind::StorageFull));
                    }
                }
                Ok(())
            })
        })
        .collect();
    for lane in lanes {
        lane.await?;
    }
    if is_write {
        file.fdatasync().await?;
    }
    Ok(Transfer {
        bytes: pieces * SEQUENTIAL_PIECE_BYTES as u64,
        took: began.elapsed(),
    })
}

/// Overwrites blocks one after the other, each flushed before the next.
async fn write_and_flush(
    file: &Rc<DmaFile>,
    write_bytes: usize,
    time: Duration,
) -> io::Result<FlushedWrites> {
    let mut latency = Histogram::new_with_bounds(1_000, 600_000_000_000, 3)
        .unwrap_or_else(|_| unreachable!("the bounds are constants that hdrhistogram takes"));
    let buffer = Rc::new(filled_buffer(file, write_bytes, write_bytes as u64));
    let mut position = 0;
    let began = Instant::now();
    while began.elapsed() < time {
        let start = Instant::now();
        if file.write_rc_at(buffer.clone(), position).await? != write_bytes {
            return Err(io::ErrorKind::StorageFull.into());
        }
        file.fdatasync().await?;
        let nanoseconds = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        latency.saturating_record(nanoseconds);
        position = (position + write_bytes as u64) % FLUSHED_REGION_BYTES;
    }
    Ok(FlushedWrites {
        write_bytes,
        took: began.elapsed(),
        latency,
    })
}

/// Bytes that a device can neither compress nor recognise as zeros.
fn filled_buffer(file: &DmaFile, len: usize, seed: u64) -> DmaBuffer {
    let mut buffer = file.alloc_dma_buffer(len);
    let mut state = seed.wrapping_mul(2).wrapping_add(0x9e37_79b9_7f4a_7c15);
    for chunk in buffer.as_bytes_mut().chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        chunk.copy_from_slice(&state.to_ne_bytes()[..chunk.len()]);
    }
    buffer
}
