use super::*;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

fn settings(name: &str, core: usize) -> ExecutorSettings {
    ExecutorSettings {
        name: name.to_owned(),
        core,
        ..ExecutorSettings::default()
    }
}

/// The cores that this process may use.
fn cores() -> Vec<usize> {
    core_affinity::get_core_ids()
        .expect("the affinity mask is readable")
        .into_iter()
        .map(|core| core.id)
        .collect()
}

/// Runs `make` on an executor and gives its output.
fn run<F, T>(make: impl FnOnce() -> F + Send + 'static) -> T
where
    F: Future<Output = T> + 'static,
    T: Send + 'static,
{
    spawn_pinned(settings("test", cores()[0]), make)
        .and_then(ExecutorHandle::join)
        .expect("the executor runs")
}

#[test]
fn an_executor_gives_its_output_at_join() {
    assert_eq!(run(|| async { 1 + 1 }), 2);
}

#[test]
fn tasks_are_awaited_cancelled_and_detached() {
    run(|| async {
        assert_eq!(spawn_local(async { 3 }).await, 3);
        let endless = spawn_local(std::future::pending::<()>());
        assert_eq!(endless.cancel().await, None);
        let ran = Rc::new(Cell::new(false));
        let flag = ran.clone();
        spawn_local(async move { flag.set(true) }).detach();
        yield_now().await;
        assert!(ran.get());
    });
}

#[test]
fn a_timeout_gives_the_output_or_the_time() {
    run(|| async {
        assert_eq!(timeout(Duration::from_secs(5), async { 1 }).await, Ok(1));
        let short = Duration::from_millis(5);
        assert_eq!(
            timeout(short, std::future::pending::<()>()).await,
            Err(TimedOut(short))
        );
    });
}

#[test]
fn blocking_work_runs_beside_the_executor() {
    let (inside, outside) = run(|| async {
        let inside = thread::current().id();
        (inside, run_blocking(|| thread::current().id()).await)
    });
    assert_ne!(inside, outside);
}

#[test]
fn a_panic_shows_at_join_with_its_message() {
    let error = spawn_pinned(settings("doomed", cores()[0]), || async {
        panic!("the invariant broke");
    })
    .and_then(ExecutorHandle::<()>::join)
    .expect_err("it panicked");
    assert_eq!(
        error.to_string(),
        "executor `doomed` panicked: the invariant broke"
    );
}

#[test]
fn a_core_that_does_not_exist_is_refused() {
    let error = spawn_pinned(settings("nowhere", 4_000), || async {})
        .and_then(ExecutorHandle::join)
        .expect_err("there is no core 4000");
    assert!(error.to_string().contains("core 4000"), "{error}");
}

#[test]
fn an_empty_first_file_is_refused() {
    let file = tempfile::NamedTempFile::new().expect("a file in the temporary directory");
    let mut with_file = settings("first", cores()[0]);
    with_file.first_file = Some(file.path().to_owned());
    let error = spawn_pinned(with_file, || async {})
        .and_then(ExecutorHandle::join)
        .expect_err("the file is empty");
    assert!(error.to_string().contains("it is empty"), "{error}");
}

#[test]
fn an_idle_executor_uses_next_to_no_processor() {
    let used = run(|| async {
        // Let the heartbeat find out that nothing is to do.
        sleep(Duration::from_millis(1_500)).await;
        let before = thread_cpu_time();
        sleep(Duration::from_secs(1)).await;
        thread_cpu_time() - before
    });
    assert!(used < Duration::from_millis(50), "{used:?} in a second");
}

#[test]
fn the_heartbeat_reports_how_late_it_fires() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let mut reporting = settings("stalled", cores()[0]);
    reporting.on_heartbeat = Some(Box::new(move |beat| {
        let _ = sender.send(beat);
    }));
    spawn_pinned(reporting, || async {
        sleep(Duration::from_millis(30)).await;
        thread::sleep(Duration::from_millis(200)); // a task that blocks its core
        sleep(Duration::from_millis(30)).await;
    })
    .and_then(ExecutorHandle::join)
    .expect("the executor runs");
    let late_max = receiver.iter().map(|beat| beat.late_by).max();
    assert!(late_max >= Some(Duration::from_millis(150)), "{late_max:?}");
}

#[test]
fn the_heart_beats_quickly_only_while_there_is_work() {
    let start = Instant::now();
    let mut pace = HeartbeatPace::new(start);
    let mut now = start;
    let mut runs = 0;
    let mut advance = |pace: &mut HeartbeatPace, work: u64, span: Duration| {
        let end = now + span;
        let mut last = Duration::ZERO;
        while now < end {
            runs += 1 + work; // the heartbeat's own run is counted too
            last = pace.next_period(now, runs);
            now += last;
        }
        last
    };
    let seconds = Duration::from_secs;
    assert_eq!(
        advance(&mut pace, 0, Duration::from_millis(900)),
        HeartbeatPace::PERIOD_BUSY,
        "just started"
    );
    assert_eq!(
        advance(&mut pace, 0, seconds(3)),
        HeartbeatPace::PERIOD_IDLE,
        "nothing but its own beats"
    );
    assert_eq!(
        advance(&mut pace, 1, seconds(3)),
        HeartbeatPace::PERIOD_IDLE,
        "ten runs a second are housekeeping"
    );
    assert_eq!(
        advance(&mut pace, 50, Duration::from_millis(200)),
        HeartbeatPace::PERIOD_BUSY,
        "work"
    );
    assert_eq!(
        advance(&mut pace, 0, Duration::from_millis(900)),
        HeartbeatPace::PERIOD_BUSY,
        "less than a second after it"
    );
    assert_eq!(
        advance(&mut pace, 0, seconds(2)),
        HeartbeatPace::PERIOD_IDLE,
        "long after it"
    );
}

/// Two executors pass one message to and fro through bounded mailboxes while busy threads compete
/// for their cores: the case in which the runtime parks although tasks are runnable. The short
/// preempt period makes it likely; without the heartbeat this hangs within seconds (see it with
/// `RINGMAIN_TEST_NO_HEARTBEAT=1`). `RINGMAIN_LONG=1` runs it for a minute.
#[test]
fn a_mailbox_between_cores_survives_contention() {
    let long = std::env::var("RINGMAIN_LONG").is_ok_and(|value| value == "1");
    let duration = Duration::from_secs(if long { 60 } else { 4 });
    let with_heartbeat = std::env::var("RINGMAIN_TEST_NO_HEARTBEAT").is_err();

    let cores = cores();
    let stop = Arc::new(AtomicBool::new(false));
    let busy: Vec<_> = (0..cores.len() + 1)
        .map(|_| {
            let stop = stop.clone();
            thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        })
        .collect();

    let rounds = Arc::new(AtomicU64::new(0));
    let (ping, pings) = flume::bounded::<u64>(8);
    let (pong, pongs) = flume::bounded::<u64>(8);
    let preempt = Duration::from_millis(2);
    let echo = spawn_with(
        settings("echo", cores[cores.len() - 1]),
        preempt,
        with_heartbeat,
        move || async move {
            while let Ok(number) = pings.recv_async().await {
                if pong.send_async(number).await.is_err() {
                    break;
                }
            }
        },
    )
    .expect("the executor starts");
    let counted = rounds.clone();
    let caller = spawn_with(
        settings("caller", cores[0]),
        preempt,
        with_heartbeat,
        move || async move {
            let start = Instant::now();
            let mut number = 0;
            while start.elapsed() < duration {
                ping.send_async(number).await.expect("echo lives");
                assert_eq!(pongs.recv_async().await, Ok(number));
                number += 1;
                counted.store(number, Ordering::Relaxed);
            }
        },
    )
    .expect("the executor starts");

    // Watch from outside: a hung executor cannot be joined.
    let start = Instant::now();
    let mut last = (rounds.load(Ordering::Relaxed), Instant::now());
    while start.elapsed() < duration {
        thread::sleep(Duration::from_millis(50));
        let now = rounds.load(Ordering::Relaxed);
        if now != last.0 {
            last = (now, Instant::now());
        }
        assert!(
            last.1.elapsed() < Duration::from_secs(3),
            "no message arrived for 3 s after {now} rounds"
        );
    }
    caller.join().expect("caller ends");
    echo.join().expect("echo ends");
    stop.store(true, Ordering::Relaxed);
    for thread in busy {
        thread.join().expect("busy threads end");
    }
    let rounds = rounds.load(Ordering::Relaxed);
    assert!(rounds > 100, "only {rounds} rounds");
}
