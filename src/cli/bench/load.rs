//! Runs workers side by side for a given amount of work, with a warm-up that does not count.

use std::io::IsTerminal;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::meter::{Meter, Usage};

/// How often the main thread looks at the clock and draws.
const TICK: Duration = Duration::from_millis(50);

/// When a run ends: at whichever comes first.
#[derive(Debug, Clone, Default)]
pub struct Goal {
    pub bytes: Option<u64>,
    pub requests: Option<u64>,
    pub time: Option<Duration>,
    pub warm_up: Duration,
}

/// What all workers share.
#[derive(Debug)]
pub struct Load {
    measuring: AtomicBool,
    stopping: AtomicBool,
    requests_left: AtomicU64,
    bytes_wanted: u64,
    records: AtomicU64,
    bytes: AtomicU64,
}

impl Load {
    fn new(goal: &Goal) -> Self {
        Self {
            measuring: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            requests_left: AtomicU64::new(goal.requests.unwrap_or(u64::MAX)),
            bytes_wanted: goal.bytes.unwrap_or(u64::MAX),
            records: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    /// Asks for one more request: none when the run is over, otherwise whether it counts.
    pub fn next_request(&self) -> Option<bool> {
        if self.is_over() {
            return None;
        }
        if !self.measuring.load(Ordering::Relaxed) {
            return Some(false);
        }
        let one_less = |left: u64| left.checked_sub(1);
        self.requests_left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less)
            .ok()
            .map(|_| true)
    }

    /// Whether the time is up or the bytes are there. Requests that were sent are waited for.
    pub fn is_over(&self) -> bool {
        self.stopping.load(Ordering::Relaxed) || self.bytes() >= self.bytes_wanted
    }

    /// Adds what a counted request brought.
    pub fn add(&self, records: u64, bytes: u64) {
        self.records.fetch_add(records, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn records(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// What a run brought: each worker's result, and all that was counted.
#[derive(Debug)]
pub struct Outcome<R> {
    pub results: Vec<R>,
    pub records: u64,
    pub bytes: u64,
    pub usage: Usage,
}

/// Runs `work` for each worker on a thread of its own until all have ended. The first failure
/// stops the others.
pub fn drive<W, R>(
    workers: Vec<W>,
    goal: &Goal,
    broker: Option<u32>,
    bytes_expected: Option<u64>,
    work: impl Fn(W, &Load) -> Result<R, String> + Sync,
) -> Result<Outcome<R>, String>
where
    W: Send,
    R: Send,
{
    let load = Load::new(goal);
    let failure = Mutex::new(None);
    let running = AtomicU64::new(workers.len() as u64);
    let warm_up_end = Instant::now() + goal.warm_up;
    // Without a warm-up the first request counts.
    let mut meter = goal.warm_up.is_zero().then(|| Meter::start(broker));
    load.measuring.store(meter.is_some(), Ordering::Relaxed);
    let progress = progress_bar(goal, bytes_expected);
    let (results, usage) = std::thread::scope(|scope| {
        let main = std::thread::current();
        let threads: Vec<_> = workers
            .into_iter()
            .map(|worker| {
                let (load, failure, running, work) = (&load, &failure, &running, &work);
                let main = main.clone();
                scope.spawn(move || {
                    let result = work(worker, load);
                    let result = result.map_err(|error| {
                        load.stopping.store(true, Ordering::Relaxed);
                        if let Ok(mut first) = failure.lock() {
                            first.get_or_insert(error);
                        }
                    });
                    running.fetch_sub(1, Ordering::Release);
                    main.unpark();
                    result.ok()
                })
            })
            .collect();
        while running.load(Ordering::Acquire) > 0 {
            let now = Instant::now();
            if meter.is_none() && now >= warm_up_end {
                meter = Some(Meter::start(broker));
                load.measuring.store(true, Ordering::Relaxed);
            }
            let begun = meter.as_ref().map_or(warm_up_end, Meter::started);
            let left = match (&meter, goal.time) {
                (None, _) => warm_up_end.saturating_duration_since(now),
                (Some(_), Some(time)) => (begun + time).saturating_duration_since(now),
                (Some(_), None) => TICK,
            };
            if meter.is_some() && goal.time.is_some() && left.is_zero() {
                load.stopping.store(true, Ordering::Relaxed);
            }
            draw(&progress, &load, now.saturating_duration_since(begun));
            let pause = if left.is_zero() { TICK } else { left.min(TICK) };
            std::thread::park_timeout(pause);
        }
        let usage = meter.unwrap_or_else(|| Meter::start(broker)).stop();
        let results: Vec<Option<R>> = threads
            .into_iter()
            .map(|thread| thread.join().ok().flatten())
            .collect();
        (results, usage)
    });
    progress.finish_and_clear();
    if let Ok(Some(error)) = failure.into_inner() {
        return Err(error);
    }
    let results: Option<Vec<R>> = results.into_iter().collect();
    Ok(Outcome {
        results: results.ok_or("a worker thread panicked; please report it")?,
        records: load.records(),
        bytes: load.bytes(),
        usage,
    })
}

/// Shows bytes where their number is known, and time otherwise. Hidden unless stderr is a terminal.
fn progress_bar(goal: &Goal, bytes_expected: Option<u64>) -> ProgressBar {
    let (length, template) = match (bytes_expected, goal.time) {
        (Some(bytes), _) => (
            bytes,
            "{wide_bar} {decimal_bytes}/{decimal_total_bytes} {msg}",
        ),
        (None, Some(time)) => (time.as_millis() as u64, "{wide_bar} {elapsed} {msg}"),
        (None, None) => (0, "{spinner} {elapsed} {msg}"),
    };
    let target = if std::io::stderr().is_terminal() {
        ProgressDrawTarget::stderr_with_hz(5)
    } else {
        ProgressDrawTarget::hidden()
    };
    let bar = ProgressBar::with_draw_target(Some(length), target);
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_message(if bytes_expected.is_some() {
        ""
    } else {
        "\u{200b}"
    });
    bar
}

fn draw(bar: &ProgressBar, load: &Load, elapsed: Duration) {
    if bar.is_hidden() {
        return;
    }
    let rate = load.bytes() as f64 / 1e6 / elapsed.as_secs_f64().max(1e-3);
    let by_time = !bar.message().is_empty() && load.bytes_wanted == u64::MAX;
    bar.set_position(if by_time {
        elapsed.as_millis() as u64
    } else {
        load.bytes()
    });
    bar.set_message(format!("{rate:.0} MB/s"));
}
