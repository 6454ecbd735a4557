//! Pipes that bytes of files pass through on their way to a socket, kept for reuse by each
//! executor.
//!
//! The kernel grants an ordinary user a number of pages for pipes (`fs.pipe-user-pages-soft`,
//! 16,384 by default), and beyond it neither enlarges a pipe nor gives a new one more than two
//! pages. So pipes are few, and who gets none copies the bytes instead.

use std::cell::{Cell, RefCell};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

use crate::base::limits::{
    IDLE_PIPES_PER_EXECUTOR_MAX, PIPE_BYTES, PIPES_PER_EXECUTOR_MAX, PIPES_PER_PROCESS_MAX,
};

static PIPES_OF_PROCESS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static PIPES_OF_EXECUTOR: Cell<usize> = const { Cell::new(0) };
    static IDLE: RefCell<Vec<Pipe>> = const { RefCell::new(Vec::new()) };
}

/// An empty pipe of [`PIPE_BYTES`]. Dropping it closes it, with what is in it.
#[derive(Debug)]
pub struct Pipe(Rc<Ends>);

#[derive(Debug)]
struct Ends {
    reader: OwnedFd,
    writer: OwnedFd,
    _share: Share,
}

/// The end that bytes are read from. The pipe stays open as long as it.
#[derive(Debug, Clone)]
pub struct PipeReader(Rc<Ends>);

/// The end that bytes are written to. The pipe stays open as long as it.
#[derive(Debug, Clone)]
pub struct PipeWriter(Rc<Ends>);

impl AsFd for PipeReader {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.reader.as_fd()
    }
}

impl AsFd for PipeWriter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.writer.as_fd()
    }
}

impl Pipe {
    /// A pipe of this executor; nothing where too many are in use, or the kernel gives none of the
    /// full size.
    pub fn take() -> Option<Self> {
        let idle = IDLE.with_borrow_mut(Vec::pop);
        idle.or_else(Self::open)
    }

    fn open() -> Option<Self> {
        let share = Share::take()?;
        // Where the pipe is full, a splice in the ring is to wait and not to fail.
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).ok()?;
        let granted_bytes = fcntl_setpipe_size(&writer, PIPE_BYTES).ok()?;
        (granted_bytes >= PIPE_BYTES).then(|| {
            Self(Rc::new(Ends {
                reader,
                writer,
                _share: share,
            }))
        })
    }

    pub fn reader(&self) -> PipeReader {
        PipeReader(self.0.clone())
    }

    pub fn writer(&self) -> PipeWriter {
        PipeWriter(self.0.clone())
    }

    /// Keeps the pipe for the next user. The caller knows that it is empty; one of which that is
    /// not certain is dropped instead.
    pub fn put_back(self) {
        IDLE.with_borrow_mut(|idle| {
            if idle.len() < IDLE_PIPES_PER_EXECUTOR_MAX {
                idle.push(self);
            }
        });
    }
}

/// Counts a pipe until it is closed.
#[derive(Debug)]
struct Share;

impl Share {
    fn take() -> Option<Self> {
        let of_executor = PIPES_OF_EXECUTOR.get();
        if of_executor >= PIPES_PER_EXECUTOR_MAX {
            return None;
        }
        let counted =
            PIPES_OF_PROCESS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
                (count < PIPES_PER_PROCESS_MAX).then_some(count + 1)
            });
        counted.ok()?;
        PIPES_OF_EXECUTOR.set(of_executor + 1);
        Some(Self)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        PIPES_OF_PROCESS.fetch_sub(1, Ordering::Relaxed);
        let _ = PIPES_OF_EXECUTOR.try_with(|count| count.set(count.get().saturating_sub(1)));
    }
}

/// Pipes of this executor that are open, idle ones included.
pub fn open_pipes() -> usize {
    PIPES_OF_EXECUTOR.get()
}
