//! Whole nodes through several lives, drawn from a seed: partitions, cores, appends, faults, and
//! how each life ends. What was acknowledged is there in the next life, at the same offsets.
//!
//! `RINGMAIN_CRASH_SEEDS=10000` runs so many seeds; `RINGMAIN_CRASH_SEED=17` runs that one.

use futures_lite::future::{poll_once, yield_now};

use super::node::{Held, Node, Promise};
use super::*;
use crate::io::sim_disk::{SimDisk, SimRandom, UNREADABLE};
use crate::io::sim_executor::SimExecutor;

const PARTITIONS_MAX: u64 = 6;
const CORES_MAX: u64 = 3;
const SEEDS: u64 = 300;

/// How the disk breaks its word, for tests of the tests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Lie {
    #[default]
    None,
    Flushes,
    Writes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    PowerLoss,
    Kill,
    CleanStop,
}

type Promises = RefCell<Vec<Option<Rc<Promise>>>>;

/// What happens in a life, step by step.
async fn work(node: &Node, disk: &SimDisk, random: &mut SimRandom, steps: u64) {
    // Some lives append much at once, others little and wait for it.
    let burst_max = [1, 3, 12][random.below(3) as usize];
    for _ in 0..steps {
        let held = &node.partitions[random.below(node.partitions.len() as u64) as usize];
        match random.below(40) {
            0..18 => append_some(held, 1 + random.below(burst_max)),
            18..20 => {
                for held in &node.partitions {
                    append_some(held, 1);
                }
            }
            20..30 => {
                let end = held.log.log_end_offset();
                let _ = patiently(node, disk, held.log.wait_durable(end)).await;
            }
            30..33 => {
                let core = random.below(node.cores.len() as u64) as usize;
                // A failed checkpoint leaves the former one.
                let _ = patiently(node, disk, node.checkpoint(core)).await;
            }
            33..34 => {
                let span = held.log.durable_offset().0 as u64 / 2;
                held.log
                    .advance_log_start(Offset(random.below(span + 1) as i64));
                let mut are_durable = true;
                for core in 0..node.cores.len() {
                    are_durable &= patiently(node, disk, node.checkpoint(core)).await.is_ok();
                }
                if are_durable {
                    let _ = held.log.remove_old_segments().await;
                }
            }
            34..35 => {
                let full = random.percent(50).then(|| disk.used_bytes() + 8192);
                disk.set_capacity(full);
            }
            35..36 => {
                held.set_flush_messages(if random.percent(60) { 1 } else { 20 });
            }
            _ => {
                for _ in 0..random.below(30) {
                    yield_now().await;
                }
            }
        }
        node.tick();
    }
    disk.set_capacity(None);
    for held in &node.partitions {
        let end = held.log.log_end_offset();
        // What waited for space is written now.
        while patiently(node, disk, held.log.wait_durable(end)).await == Err(LogError::StorageFull)
        {
            node.tick();
            yield_now().await;
        }
    }
}

/// Waits as the upkeep of a shard goes on; a full device gets space after a while.
async fn patiently<T>(node: &Node, disk: &SimDisk, waited_for: impl Future<Output = T>) -> T {
    const TURNS: usize = 20_000;
    let mut waited_for = std::pin::pin!(waited_for);
    for turn in 0..TURNS {
        if disk.has_crashed() || node.partitions.iter().any(Held::has_failed) {
            // The process has ended.
            std::future::pending::<()>().await;
        }
        if let Some(result) = poll_once(&mut waited_for).await {
            return result;
        }
        if turn > TURNS / 10 {
            disk.set_capacity(None);
        }
        if turn % 100 == 0 {
            node.tick();
        }
        yield_now().await;
    }
    for held in &node.partitions {
        println!("{}", held.describe());
    }
    panic!("waiting has no end")
}

fn append_some(held: &Held, count: u64) {
    for _ in 0..count {
        // Refused while the device is full or has failed.
        if held.append().is_err() {
            return;
        }
    }
}

/// Several lives; the error says what was wrong.
fn run(seed: u64, lie: Lie, flaw: Flaw) -> Result<(), String> {
    let mut random = SimRandom::new(seed ^ 0x5eed);
    let partition_count = 1 + random.below(PARTITIONS_MAX) as usize;
    let life_count = 3 + random.below(4);
    let mut core_count = 1 + random.below(CORES_MAX) as usize;
    let mut disk = SimDisk::new(seed);
    // What survives power losses, and what survives kills until the power fails.
    let mut flushed = vec![Offset::ZERO; partition_count];
    let mut promised = flushed.clone();
    for life in 0..life_count {
        if random.percent(40) {
            core_count = 1 + random.below(CORES_MAX) as usize;
        }
        match lie {
            Lie::None => {}
            Lie::Flushes => disk.lie_about_flushes(),
            Lie::Writes => disk.complete_writes_early(),
        }
        // A flaw is to be caught on the disk that keeps more.
        if flaw == Flaw::None && random.percent(50) {
            disk.flush_each_file_alone();
        }
        let is_last = life + 1 == life_count;
        let crash_at = (!is_last && random.percent(70)).then(|| 1 + random.below(600));
        if let Some(crash_at) = crash_at {
            // Many a crash hits the start, which is where the commit logs change hands.
            let crash_at = if random.percent(30) {
                crash_at / 10 + 1
            } else {
                crash_at
            };
            disk.crash_at(disk.operations() + crash_at);
        }
        let may_fail = !is_last && random.percent(10);
        if may_fail {
            let operation = disk.operations() + 1 + random.below(400);
            disk.fail_at(operation, io::ErrorKind::Other);
        }
        let may_be_unreadable = !is_last && random.percent(15);
        if may_be_unreadable {
            let first = disk.reads() + 1 + random.below(150);
            disk.fail_reads(first, if random.percent(30) { u64::MAX } else { 1 });
        }
        let is_injected = |error: &str| {
            (may_fail && error.contains("injected"))
                || (may_be_unreadable && error.contains(UNREADABLE))
        };
        let end = match random.below(3) {
            0 => End::PowerLoss,
            1 => End::Kill,
            _ => End::CleanStop,
        };
        let executor = SimExecutor::new(random.next_u64());
        let spawn = executor.spawn();
        let promises: Promises = RefCell::new(vec![None; partition_count]);
        let steps = 5 + random.below(60);
        let mut life_random = SimRandom::new(random.next_u64());
        let stage = std::cell::Cell::new("starting");
        let result = executor.run(async {
            let started = Node::start(
                &disk,
                &spawn,
                core_count,
                partition_count,
                flaw,
                |partition, promise| promises.borrow_mut()[partition] = Some(promise),
            )
            .await;
            let node = match started {
                Err(error) if is_injected(&error) => return Ok(()),
                started => started?,
            };
            stage.set("checking");
            let check = async |held: &Held| match held.check().await {
                Err(error) if is_injected(&error) => Ok(()),
                checked => checked,
            };
            for held in &node.partitions {
                let end = held.log.log_end_offset();
                let promised = promised[held.partition];
                if end < promised {
                    return Err(format!("the log ends at {end}, promised was {promised}"));
                }
                check(held).await?;
                held.check_trace()?;
            }
            if node.partitions.is_empty() {
                return Ok(());
            }
            stage.set("working");
            work(&node, &disk, &mut life_random, steps).await;
            if may_fail {
                return Ok(());
            }
            for held in &node.partitions {
                check(held).await?;
            }
            if is_last {
                // Nothing is stuck: all that was appended becomes durable.
                node.tick();
                for held in &node.partitions {
                    append_some(held, 1);
                    let end = held.log.log_end_offset();
                    while let Err(error) = patiently(&node, &disk, held.log.wait_durable(end)).await
                    {
                        if error != LogError::StorageFull {
                            return Err(error.to_string());
                        }
                        // There is space again, and what waits for it is on its way.
                        node.tick();
                        yield_now().await;
                    }
                    held.check().await?;
                }
            }
            if end == End::CleanStop {
                stage.set("closing");
                match node.close().await {
                    Err(error) if error.contains("no space") || is_injected(&error) => {}
                    closed => closed?,
                }
            }
            Ok(())
        });
        match result {
            Some(result) => result.map_err(|error| format!("life {life}: {error}"))?,
            None if disk.has_crashed() || may_fail || may_be_unreadable => {}
            None => {
                return Err(format!("life {life}: it stalled while {}", stage.get()));
            }
        }
        let known = promised.iter_mut().zip(&mut flushed);
        for ((promised, flushed), promise) in known.zip(&*promises.borrow()) {
            if let Some(promise) = promise {
                *flushed = promise.flushed.get().max(*flushed);
                *promised = promise.acknowledged.get().max(*promised);
            }
            if end != End::Kill {
                *promised = *flushed;
            }
        }
        let crash_seed = random.next_u64();
        disk = match end {
            End::Kill => disk.kill(crash_seed),
            End::PowerLoss | End::CleanStop => disk.crash(crash_seed),
        };
    }
    Ok(())
}

fn number_from(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().expect("a number"))
}

#[test]
fn crash_seeds_lose_nothing_acknowledged() {
    let one = number_from("RINGMAIN_CRASH_SEED");
    let first = one
        .or_else(|| number_from("RINGMAIN_CRASH_FIRST_SEED"))
        .unwrap_or(0);
    let count = match one {
        Some(_) => 1,
        None => number_from("RINGMAIN_CRASH_SEEDS").unwrap_or(SEEDS),
    };
    let mut failed = Vec::new();
    for seed in first..first + count {
        if number_from("RINGMAIN_CRASH_TRACE").is_some() {
            println!("seed {seed} begins");
        }
        let result = std::panic::catch_unwind(|| run(seed, Lie::None, Flaw::None));
        let error = match result {
            Ok(Ok(())) => continue,
            Ok(Err(error)) => error,
            Err(_) => "it panicked".to_owned(),
        };
        println!(
            "seed {seed}: {error}\nrepeat: RINGMAIN_CRASH_SEED={seed} cargo test --release --lib crash_seeds -- --nocapture"
        );
        failed.push((seed, error));
    }
    assert!(
        failed.is_empty(),
        "{} of {count} seeds: {:?}",
        failed.len(),
        failed.first()
    );
}

fn is_caught(lie: Lie, flaw: Flaw) -> bool {
    (0..SEEDS).any(|seed| {
        // Damage may also show as an assertion.
        std::panic::catch_unwind(|| run(seed, lie, flaw)).map_or(true, |result| result.is_err())
    })
}

#[test]
fn flushes_that_lie_are_caught() {
    assert!(is_caught(Lie::Flushes, Flaw::None));
}

#[test]
fn flushes_that_begin_before_their_writes_completed_are_caught() {
    assert!(is_caught(Lie::Writes, Flaw::None));
}

#[test]
fn direct_appends_without_their_pending_bytes_are_caught() {
    assert!(is_caught(Lie::None, Flaw::DirectWithoutPending));
}

#[test]
fn direct_appends_that_only_the_flush_of_the_commit_log_covers_are_caught() {
    assert!(is_caught(Lie::None, Flaw::DirectWithoutFlush));
}

#[test]
fn a_commit_file_that_is_used_again_too_early_is_caught() {
    assert!(is_caught(Lie::None, Flaw::ReleasedTooEarly));
}
