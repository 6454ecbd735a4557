//! Power losses and kills at every operation of the disk: what was acknowledged is there
//! afterwards, at the same offsets, and nothing follows a gap.

use super::simulated::*;
use super::*;
use crate::io::sim_disk::{SimDisk, SimRandom};
use crate::io::sim_executor::SimExecutor;

#[derive(Debug, Clone, Copy)]
struct Scenario {
    seed: u64,
    /// The operation at which the first life ends, counted from its start; nothing where it runs
    /// to its end.
    crash_at: Option<u64>,
    /// How many lives end by a kill, the power staying on, before a power loss ends one.
    kills: u64,
    flushes_lie: bool,
    flush_messages: u64,
    /// The size of the commit log, where there is one.
    commit_log_bytes: Option<u64>,
}

/// Appends, waits, makes checkpoints and deletes, by the seed.
async fn work(life: &Life, opened: &Opened, seed: u64, steps: usize) {
    let mut random = SimRandom::new(seed);
    for _ in 0..steps {
        match random.below(16) {
            0..10 => {
                if opened.append().is_err() {
                    return;
                }
            }
            10..14 => {
                let end = opened.log.log_end_offset();
                if opened.log.wait_durable(end).await.is_err() {
                    return;
                }
            }
            14 => life.checkpoint(&opened.log).await,
            _ => {
                let span = opened.log.durable_offset().0 as u64 / 2;
                let start = Offset(random.below(span + 1) as i64);
                opened.log.advance_log_start(start);
                life.checkpoint(&opened.log).await;
                opened.log.remove_old_segments().await.unwrap();
            }
        }
    }
}

/// One life until its end, then two more on what it left. Returns how many operations the first
/// life took; the error says what was wrong.
fn run(scenario: Scenario) -> Result<u64, String> {
    let Scenario { seed, .. } = scenario;
    let config = LogConfig {
        flush_messages: scenario.flush_messages,
        ..small_segments()
    };
    let config = if scenario.commit_log_bytes.is_some() {
        LogConfig {
            direct_bytes_min: 9_000,
            stage_bytes_min: 4096,
            ..config
        }
    } else {
        config
    };
    let mut disk = SimDisk::new(seed);
    let made = Life::new(disk.clone(), seed);
    made.executor.run(made.make_dirs()).ok_or("no folders")?;
    let before = disk.operations();
    if let Some(crash_at) = scenario.crash_at {
        disk.crash_at(before + crash_at);
    }
    let mut operations = None;
    let mut promised = Offset::ZERO;
    for life_number in 0..3 {
        if scenario.flushes_lie {
            disk.lie_about_flushes();
        }
        let mut life = Life::new(disk.clone(), seed + life_number);
        life.commit_log_bytes = scenario.commit_log_bytes;
        let executor = std::mem::replace(&mut life.executor, SimExecutor::new(0));
        let announced = Rc::new(RefCell::new(None));
        let result = executor.run(async {
            let opened = life
                .open(config.clone())
                .await
                .map_err(|error| format!("opening: {error}"))?;
            *announced.borrow_mut() = Some(opened.acknowledged.clone());
            let end = opened.log.log_end_offset();
            if end < promised {
                return Err(format!(
                    "the log ends at {end}, acknowledged was {promised}"
                ));
            }
            opened.check().await?;
            opened.check_trace()?;
            work(&life, &opened, seed ^ life_number, 40).await;
            opened.check().await?;
            if life_number == 1 {
                life.close(&opened).await?;
            }
            Ok(())
        });
        if let Some(result) = result {
            result.map_err(|error| format!("life {life_number}: {error}"))?;
        }
        if let Some(acknowledged) = &*announced.borrow() {
            promised = promised.max(acknowledged.get());
        }
        operations.get_or_insert_with(|| disk.operations() - before);
        let crash_seed = seed ^ scenario.crash_at.unwrap_or_default() ^ (life_number << 32);
        disk = if life_number < scenario.kills {
            disk.kill(crash_seed)
        } else {
            disk.crash(crash_seed)
        };
    }
    Ok(operations.unwrap_or_default())
}

/// Runs the first life whole, and then cut short at each of its operations.
fn every_operation(scenario: Scenario) -> Result<(), String> {
    let describe = |scenario: Scenario, error| format!("{scenario:?}: {error}");
    let operations = run(scenario).map_err(|error| describe(scenario, error))?;
    for crash_at in 1..=operations {
        let scenario = Scenario {
            crash_at: Some(crash_at),
            ..scenario
        };
        run(scenario).map_err(|error| describe(scenario, error))?;
    }
    Ok(())
}

const STRICT: Scenario = Scenario {
    seed: 0,
    crash_at: None,
    kills: 0,
    flushes_lie: false,
    flush_messages: 1,
    commit_log_bytes: None,
};

/// Four files of five blocks: they are used again all the time.
const WITH_COMMIT_LOG: Scenario = Scenario {
    commit_log_bytes: Some(80 << 10),
    ..STRICT
};

#[test]
fn power_losses_at_every_operation_lose_nothing_acknowledged() {
    for seed in 0..24 {
        if let Err(error) = every_operation(Scenario { seed, ..STRICT }) {
            panic!("{error}");
        }
    }
}

#[test]
fn kills_at_every_operation_lose_nothing_acknowledged_even_when_the_power_fails_later() {
    for (seed, kills) in [(1, 1), (2, 1), (3, 1), (4, 2), (5, 2), (6, 3)] {
        let scenario = Scenario {
            seed,
            kills,
            ..STRICT
        };
        if let Err(error) = every_operation(scenario) {
            panic!("{error}");
        }
    }
}

#[test]
fn kills_lose_nothing_acknowledged_under_a_relaxed_flush_rule() {
    for (seed, flush_messages) in [(1, 50), (2, 20), (3, u64::MAX)] {
        let scenario = Scenario {
            seed,
            kills: u64::MAX,
            flush_messages,
            ..STRICT
        };
        if let Err(error) = every_operation(scenario) {
            panic!("{error}");
        }
    }
}

#[test]
fn a_log_that_does_not_flush_is_caught() {
    let caught = (0..3).any(|seed| {
        let lying = Scenario {
            seed,
            flushes_lie: true,
            ..STRICT
        };
        every_operation(lying).is_err()
    });
    assert!(caught, "no seed showed that flushes did nothing");
}

#[test]
fn power_losses_at_every_operation_lose_nothing_that_the_commit_log_has() {
    for seed in 0..24 {
        if let Err(error) = every_operation(Scenario {
            seed,
            ..WITH_COMMIT_LOG
        }) {
            panic!("{error}");
        }
    }
}

#[test]
fn kills_at_every_operation_lose_nothing_that_the_commit_log_has() {
    for (seed, kills) in [(1, 1), (2, 1), (3, 1), (4, 2), (5, 2), (6, 3)] {
        let scenario = Scenario {
            seed,
            kills,
            ..WITH_COMMIT_LOG
        };
        if let Err(error) = every_operation(scenario) {
            panic!("{error}");
        }
    }
}

#[test]
fn a_commit_log_that_does_not_flush_is_caught() {
    let caught = (0..3).any(|seed| {
        let lying = Scenario {
            seed,
            flushes_lie: true,
            ..WITH_COMMIT_LOG
        };
        every_operation(lying).is_err()
    });
    assert!(caught, "no seed showed that flushes did nothing");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let scenario = Scenario {
        seed: 5,
        crash_at: Some(20),
        ..STRICT
    };
    assert_eq!(run(scenario), run(scenario));
}
