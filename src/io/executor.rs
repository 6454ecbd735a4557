//! The executor of one core: the only door to the runtime, so that it stays replaceable.
//!
//! One executor is one thread, pinned to one core, with its own io_uring. Its settings are fixed
//! by measurement and each is explained at its constant. Every executor carries a
//! [heartbeat](HeartbeatPace): it bounds how long a runtime that parks although tasks are
//! runnable can stay parked, and shows how late timers fire.
//!
//! Executors are made once per process: each life of one leaks an eventfd.
#![allow(unsafe_code)] // one clock_gettime

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use glommio::{BuilderErrorKind, GlommioError, Latency, LocalExecutorBuilder, Placement, Shares};

#[cfg(test)]
mod tests;

/// Memory registered with the rings for direct I/O, in bytes. It is resident, and 64 MiB already
/// cost about 70 MB an executor.
const IO_MEMORY_BYTES: usize = 16 << 20;

/// Entries of each submission ring.
const RING_DEPTH: usize = 256;

/// How long a task queue may run before other queues and the ring get their turn. The runtime's
/// own 100 ms would make a message to a busy core wait that long; 1 ms makes the early park that
/// the heartbeat repairs more likely.
const PREEMPT_PERIOD: Duration = Duration::from_millis(10);

/// The same for the first task of an executor, which starts the heartbeat: until that has run once,
/// nothing would end an early park. Only a thread that is kept from its core for so long between
/// two instructions could meet one.
const FIRST_PREEMPT_PERIOD: Duration = Duration::from_secs(10);

/// How long an idle executor polls before it sleeps. 50 us halve the round trip between cores; 10 us
/// would cost a bulk producer's broker a tenth less of its core, but with them the mailbox hung once
/// under contention; 1 ms would burn the core wherever timers tick.
const SPIN_BEFORE_PARK: Duration = Duration::from_micros(50);

/// What an executor needs to be told.
#[derive(Default)]
pub struct ExecutorSettings {
    /// The thread's name.
    pub name: String,
    /// The core's number as the kernel counts it.
    pub core: usize,
    /// A file that is not empty, on the device of the data. The first direct file that an
    /// executor opens on a device teaches it whether the device can be polled for completions; an
    /// empty file teaches it wrongly, and every later direct operation would burn the core.
    pub first_file: Option<PathBuf>,
    /// Told after each heartbeat, on the executor's thread.
    pub on_heartbeat: Option<OnHeartbeat>,
}

type OnHeartbeat = Box<dyn FnMut(Beat) + Send>;

/// One heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beat {
    /// How long the timer was set for.
    pub period: Duration,
    /// How much later than that it fired: the executor was stalled, or the machine was.
    pub late_by: Duration,
}

#[derive(Debug, thiserror::Error)]
pub enum ExecutorError {
    #[error(
        "executor `{name}` cannot start on core {core}: {reason}; choose cores of this process's affinity with --cores"
    )]
    Spawn {
        name: String,
        core: usize,
        reason: String,
    },
    #[error("executor `{name}` failed: {reason}")]
    Failed { name: String, reason: String },
    #[error("executor `{name}` panicked: {reason}")]
    Panicked { name: String, reason: String },
    #[error(
        "cannot open {path} for direct I/O: {source}; the data directory needs a file system with O_DIRECT (ext4, XFS)"
    )]
    FirstFile { path: PathBuf, source: io::Error },
}

/// A running executor.
pub struct ExecutorHandle<T: Send + 'static> {
    name: String,
    thread: glommio::ExecutorJoinHandle<Result<T, ExecutorError>>,
}

impl<T: Send + 'static> ExecutorHandle<T> {
    /// Blocks until the executor's future has ended, and gives its output.
    ///
    /// # Errors
    /// The executor could not start (too little lockable memory shows only here), or one of its
    /// tasks panicked.
    pub fn join(self) -> Result<T, ExecutorError> {
        let name = self.name;
        match self.thread.join() {
            Ok(output) => output,
            Err(GlommioError::BuilderError(BuilderErrorKind::ThreadPanic(payload))) => {
                let reason = payload
                    .downcast_ref::<&str>()
                    .map(|text| (*text).to_owned())
                    .or_else(|| payload.downcast_ref::<String>().cloned())
                    .unwrap_or_else(|| "no message".to_owned());
                Err(ExecutorError::Panicked { name, reason })
            }
            Err(error) => Err(ExecutorError::Failed {
                name,
                reason: error.to_string(),
            }),
        }
    }
}

/// Starts an executor on its core and runs there what `make` returns. Tasks that still run when
/// that future ends are dropped.
///
/// # Errors
/// The core does not exist or is not ours, or no thread could be made. What fails later, memory
/// included, shows at [`ExecutorHandle::join`]: let the future report its own readiness.
pub fn spawn_pinned<G, F, T>(
    settings: ExecutorSettings,
    make: G,
) -> Result<ExecutorHandle<T>, ExecutorError>
where
    G: FnOnce() -> F + Send + 'static,
    F: Future<Output = T> + 'static,
    T: Send + 'static,
{
    spawn_with(settings, PREEMPT_PERIOD, true, make)
}

fn spawn_with<G, F, T>(
    settings: ExecutorSettings,
    preempt_period: Duration,
    with_heartbeat: bool,
    make: G,
) -> Result<ExecutorHandle<T>, ExecutorError>
where
    G: FnOnce() -> F + Send + 'static,
    F: Future<Output = T> + 'static,
    T: Send + 'static,
{
    let ExecutorSettings {
        name,
        core,
        first_file,
        on_heartbeat,
    } = settings;
    let name_inside = name.clone();
    let thread = LocalExecutorBuilder::new(Placement::Fixed(core))
        .name(&name)
        .io_memory(IO_MEMORY_BYTES)
        .ring_depth(RING_DEPTH)
        .preempt_timer(FIRST_PREEMPT_PERIOD)
        .spin_before_park(SPIN_BEFORE_PARK)
        .spawn(move || async move {
            // Tasks inherit the queue of the task that starts them.
            let queue = glommio::executor().create_task_queue(
                Shares::default(),
                Latency::Matters(preempt_period),
                "work",
            );
            let work = async move {
                let on_heartbeat = Rc::new(RefCell::new(on_heartbeat));
                if with_heartbeat {
                    // It beats until the executor is gone: even its last step may park early.
                    spawn_local(beat(Rc::clone(&on_heartbeat))).detach();
                }
                if let Some(path) = first_file {
                    open_first(path).await?;
                }
                let output = make().await;
                super::side_ring::end().await;
                on_heartbeat.take();
                Ok(output)
            };
            match glommio::spawn_local_into(work, queue) {
                Ok(work) => work.await,
                Err(error) => Err(ExecutorError::Failed {
                    name: name_inside,
                    reason: error.to_string(),
                }),
            }
        })
        .map_err(|error| ExecutorError::Spawn {
            name: name.clone(),
            core,
            reason: error.to_string(),
        })?;
    Ok(ExecutorHandle { name, thread })
}

async fn open_first(path: PathBuf) -> Result<(), ExecutorError> {
    let size = std::fs::metadata(&path).map(|metadata| metadata.len());
    let opened = match size {
        Ok(0) => Err(io::Error::other("it is empty")),
        Ok(_) => glommio::io::OpenOptions::new()
            .read(true)
            .dma_open(&path)
            .await
            .map_err(io::Error::from),
        Err(error) => Err(error),
    };
    match opened {
        Ok(file) => {
            // Closing cannot lose anything: the file was only read.
            let _ = file.close().await;
            Ok(())
        }
        Err(source) => Err(ExecutorError::FirstFile { path, source }),
    }
}

// --- heartbeat -------------------------------------------------------------------------------

/// Decides how often the heart beats: a beat costs an idle core about 0.9 % at 10 ms and 0.2 % at
/// 100 ms, so it is quick only while there is work.
///
/// Work is counted as runs of other tasks in a window of a second. A handful of them is the
/// housekeeping of an idle broker.
#[derive(Debug)]
pub struct HeartbeatPace {
    runs_at_window_start: u64,
    window_start: Instant,
    busy_until: Instant,
    own_beats: u64,
}

impl HeartbeatPace {
    /// While there was work in the last second.
    pub const PERIOD_BUSY: Duration = Duration::from_millis(10);
    /// While there was none.
    pub const PERIOD_IDLE: Duration = Duration::from_millis(100);

    const WINDOW: Duration = Duration::from_secs(1);
    const RUNS_IDLE_MAX: u64 = 20;

    /// An executor counts as busy when it starts.
    pub fn new(now: Instant) -> Self {
        Self {
            runs_at_window_start: 0,
            window_start: now,
            busy_until: now + Self::WINDOW,
            own_beats: 0,
        }
    }

    /// The period until the next beat. `task_runs` counts every run of every task so far, the
    /// heartbeat's included.
    pub fn next_period(&mut self, now: Instant, task_runs: u64) -> Duration {
        self.own_beats += 1;
        let runs = task_runs
            .saturating_sub(self.runs_at_window_start)
            .saturating_sub(self.own_beats);
        let busy = runs > Self::RUNS_IDLE_MAX;
        if busy {
            self.busy_until = now + Self::WINDOW;
        }
        if busy || now.duration_since(self.window_start) >= Self::WINDOW {
            self.window_start = now;
            self.runs_at_window_start = task_runs;
            self.own_beats = 0;
        }
        if now < self.busy_until {
            Self::PERIOD_BUSY
        } else {
            Self::PERIOD_IDLE
        }
    }
}

async fn beat(on_heartbeat: Rc<RefCell<Option<OnHeartbeat>>>) {
    let mut now = Instant::now();
    let mut pace = HeartbeatPace::new(now);
    loop {
        let runs = glommio::executor().executor_stats().tasks_executed();
        let period = pace.next_period(now, runs);
        sleep(period).await;
        let woken = Instant::now();
        let late_by = woken.duration_since(now).saturating_sub(period);
        if let Some(report) = &mut *on_heartbeat.borrow_mut() {
            report(Beat { period, late_by });
        }
        now = woken;
    }
}

// --- inside an executor ----------------------------------------------------------------------

/// A task of this executor. Awaiting gives its output; dropping it ends it.
#[must_use = "a dropped task ends; call `detach` to let it run"]
pub struct Task<T>(glommio::Task<T>);

impl<T: 'static> Task<T> {
    /// Lets it run on its own until it ends or the executor does.
    pub fn detach(self) {
        drop(self.0.detach());
    }

    /// Ends the task and resolves when it has stopped; its output, if it had just finished.
    pub async fn cancel(self) -> Option<T> {
        self.0.cancel().await
    }
}

impl<T> Future for Task<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        Pin::new(&mut self.0).poll(context)
    }
}

/// Starts a task on this executor. Call it only inside one.
pub fn spawn_local<T: 'static>(future: impl Future<Output = T> + 'static) -> Task<T> {
    Task(glommio::spawn_local(future))
}

/// Runs blocking work on the executor's helper thread; for rare calls that the ring lacks.
pub async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    glommio::executor().spawn_blocking(work).await
}

pub async fn sleep(duration: Duration) {
    glommio::timer::sleep(duration).await;
}

/// Lets others run if this task has had its share of time. Long loops call it once an extent or
/// batch: a task whose I/O is always ready never yields by itself.
pub async fn yield_if_needed() {
    glommio::yield_if_needed().await;
}

/// Lets all runnable tasks run and the ring be looked at, whatever this task's share of time: those
/// who wait for I/O get their turn long before [`PREEMPT_PERIOD`] is over.
pub async fn yield_to_ring() {
    // Only a task that sleeps lets the runtime get as far as its ring.
    sleep(Duration::from_micros(1)).await;
}

/// Lets all runnable tasks run once.
pub async fn yield_now() {
    futures_lite::future::yield_now().await;
}

/// The time was up first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not finished after {0:?}")]
pub struct TimedOut(pub Duration);

/// The future's output, or [`TimedOut`]; the future is dropped then.
pub async fn timeout<T>(
    duration: Duration,
    future: impl Future<Output = T>,
) -> Result<T, TimedOut> {
    futures_lite::future::or(async { Ok(future.await) }, async {
        sleep(duration).await;
        Err(TimedOut(duration))
    })
    .await
}

/// Processor time that the calling thread has used since it began.
pub fn thread_cpu_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a live timespec, which the call only fills.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    if status != 0 {
        return Duration::ZERO;
    }
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or_default();
    Duration::from_secs(seconds) + Duration::from_nanos(nanoseconds)
}
