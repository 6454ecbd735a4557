//! A log at work: full and failing devices, rolls, deletion, look-ups by time.

use futures_lite::future::{poll_once, yield_now};

use super::simulated::*;
use super::*;
use crate::io::sim_disk::SimDisk;
use crate::io::sim_executor::SimExecutor;
use crate::storage::error::{AppendError, ReadError};

fn live<T, F: Future<Output = T>>(run: impl FnOnce(Rc<Life>) -> F) -> T {
    let mut life = Life::new(SimDisk::new(11), 11);
    let executor = std::mem::replace(
        &mut life.executor,
        crate::io::sim_executor::SimExecutor::new(11),
    );
    // The spawn function belongs to the first executor, which runs everything.
    let life = Rc::new(life);
    executor
        .run(async {
            life.make_dirs().await;
            run(life.clone()).await
        })
        .expect("the run stalled")
}

async fn open(life: &Life, config: LogConfig) -> Opened {
    life.open_from(config, None).await.unwrap()
}

#[test]
fn a_failed_write_or_flush_stops_the_log_for_good_and_tells_the_owner() {
    // The operations after opening: create, folder flushes, reserve, write, flush.
    for failing in 1..=6 {
        live(|life| async move {
            let opened = open(&life, small_segments()).await;
            let disk = &life.core.disk;
            disk.fail_at(disk.operations() + failing, io::ErrorKind::Other);
            let end = opened.append().unwrap();
            let error = opened.log.wait_durable(end).await.unwrap_err();
            assert!(
                matches!(error, LogError::Failed { .. }),
                "{failing}: {error}"
            );
            assert_eq!(opened.failures.borrow().len(), 1, "{failing}");
            assert_eq!(opened.acknowledged.get(), Offset::ZERO);
            assert!(matches!(
                opened.append(),
                Err(AppendError::Log(LogError::Failed { .. }))
            ));
            assert!(opened.log.close().await.is_err());
        });
    }
}

#[test]
fn a_full_device_is_survived_and_what_was_pending_is_written_when_there_is_space() {
    live(|life| async move {
        let opened = open(&life, small_segments()).await;
        let before = opened.append_durably(3).await;
        life.core.disk.set_capacity(Some(1));
        let mut end = before;
        while opened.log.log_end_offset() < Offset(300) {
            match opened.append() {
                Ok(appended) => end = appended,
                Err(error) => {
                    assert_eq!(error, AppendError::Log(LogError::StorageFull));
                    break;
                }
            }
            yield_now().await;
        }
        assert!(end > before);
        assert_eq!(
            opened.log.wait_durable(end).await,
            Err(LogError::StorageFull)
        );
        assert_eq!(opened.log.wait_for_room().await, Err(LogError::StorageFull));
        assert!(opened.failures.borrow().is_empty());
        opened.check().await.unwrap();
        life.core.disk.set_capacity(None);
        assert!(
            opened.append().is_err(),
            "refused, but the occasion to try again"
        );
        let mut turns = 0;
        while opened.log.durable_offset() < end {
            yield_now().await;
            turns += 1;
            assert!(turns < 10_000, "it was not tried again");
        }
        opened.append_durably(5).await;
        opened.check().await.unwrap();
    });
}

#[test]
fn appends_wait_for_room_beyond_the_bound_of_pending_bytes() {
    live(|life| async move {
        let config = LogConfig {
            pending_bytes_max: 1,
            ..small_segments()
        };
        let opened = open(&life, config).await;
        opened.log.wait_for_room().await.unwrap();
        opened.append().unwrap();
        assert!(opened.log.pending_bytes() > 0);
        assert!(poll_once(opened.log.wait_for_room()).await.is_none());
        opened.log.wait_for_room().await.unwrap();
        assert_eq!(opened.log.pending_bytes(), 0);
    });
}

#[test]
fn batches_that_do_not_continue_the_log_are_refused() {
    live(|life| async move {
        let opened = open(&life, small_segments()).await;
        opened.append_durably(2).await;
        let error = opened.log.append(expected_batch(Offset(1)), TimestampMs(1));
        assert!(matches!(error, Err(AppendError::OutOfOrder { .. })));
        let large = batch_at(opened.log.log_end_offset(), 1, 20_000);
        let error = opened.log.append(large, TimestampMs(1));
        assert!(matches!(error, Err(AppendError::TooLarge { .. })));
        opened.append_durably(1).await;
    });
}

#[test]
fn the_next_write_begins_while_a_flush_runs_and_acknowledgements_stay_in_order() {
    live(|life| async move {
        let opened = open(&life, small_segments()).await;
        let mut ends = Vec::new();
        for _ in 0..50 {
            ends.push(opened.append().unwrap());
            yield_now().await;
        }
        for end in ends {
            opened.log.wait_durable(end).await.unwrap();
            assert!(opened.acknowledged.get() >= end);
        }
    });
}

#[test]
fn segments_roll_by_size_age_and_offset_range() {
    live(|life| async move {
        let opened = open(
            &life,
            LogConfig {
                segment_ms: 1_000,
                ..small_segments()
            },
        )
        .await;
        let append = |timestamp: i64, records: i32| {
            let base = opened.log.log_end_offset();
            let bytes = batch(base, records, 100, TimestampMs(timestamp), 1);
            let appended = AppendBatch {
                bytes: Bytes::from(bytes),
                base_offset: base,
                last_offset: base.plus(i64::from(records) - 1),
                max_timestamp: TimestampMs(timestamp),
                leader_epoch: LeaderEpoch(0),
            };
            opened.log.append(appended, TimestampMs(5_000)).unwrap();
            opened.log.segments().len()
        };
        // By record time, against the first batch of the segment.
        assert_eq!(append(1_000, 1), 1);
        assert_eq!(append(2_000, 1), 1);
        assert_eq!(append(2_001, 1), 2);
        assert_eq!(append(1_000, 1), 2, "older records do not roll");
        // Offsets beyond 31 bits of the base.
        assert_eq!(append(2_001, i32::MAX), 3);
        assert_eq!(append(2_001, 2), 4);
        // A snapshot belongs to each new segment.
        opened
            .log
            .wait_durable(opened.log.log_end_offset())
            .await
            .unwrap();
        let names = life.core.disk.list_dir(&dir()).await.unwrap();
        let snapshots = names.iter().filter(|name| name.ends_with(".snapshot"));
        assert_eq!(snapshots.count(), 2, "{names:?}");
    });
}

#[test]
fn deleted_records_are_gone_and_their_segments_are_removed() {
    live(|life| async move {
        let opened = open(&life, small_segments()).await;
        let end = opened.append_durably(60).await;
        let segments = opened.log.segments();
        assert!(segments.len() > 4);
        let start = segments[2].base.plus(1);
        assert_eq!(opened.log.advance_log_start(start), start);
        assert_eq!(opened.log.advance_log_start(Offset(1)), start, "never back");
        assert_eq!(opened.log.advance_log_start(Offset(1)), start);
        life.checkpoint(&opened.log).await;
        assert_eq!(opened.log.remove_old_segments().await.unwrap(), 2);
        assert_eq!(opened.log.segments()[0].base, segments[2].base);
        let error = opened.log.read(Offset::ZERO, 100, end, true).await;
        assert!(matches!(error, Err(ReadError::OffsetOutOfRange { .. })));
        opened.check().await.unwrap();
        // All of it: the active segment stays.
        assert_eq!(opened.log.advance_log_start(end.plus(1_000)), end);
        life.checkpoint(&opened.log).await;
        opened.log.remove_old_segments().await.unwrap();
        assert_eq!(opened.log.segments().len(), 1);
        let closed = opened.log.close().await.unwrap();
        let opened = life
            .open_from(small_segments(), Some(closed))
            .await
            .unwrap();
        assert_eq!(opened.log.log_start_offset(), end);
        assert_eq!(opened.log.log_end_offset(), end);
        opened.append_durably(3).await;
        opened.check().await.unwrap();
    });
}

#[test]
fn deletion_without_a_new_checkpoint_leaves_what_the_derived_state_is_restored_from() {
    // The segments go before the process ends, or when the next one starts.
    for is_removed in [true, false] {
        let mut life = Life::new(SimDisk::new(11), 11);
        let executor = std::mem::replace(&mut life.executor, SimExecutor::new(11));
        let relaxed = LogConfig {
            flush_messages: u64::MAX,
            ..small_segments()
        };
        let start = executor.run(async {
            life.make_dirs().await;
            let opened = life.open(relaxed.clone()).await.unwrap();
            opened.append_durably(30).await;
            life.checkpoint(&opened.log).await;
            opened.append_durably(60).await;
            // Nothing new can be flushed, so that the checkpoint is the former one.
            let disk = &life.core.disk;
            disk.set_capacity(Some(disk.used_bytes() + 3_000));
            loop {
                let end = opened.append().unwrap();
                if opened.log.wait_durable(end).await.is_err() {
                    break;
                }
            }
            // Behind the snapshot of the checkpoint, and before those of the last segments.
            let segments = opened.log.segments();
            let start = segments[segments.len() - 4].base;
            assert_eq!(opened.log.advance_log_start(start), start);
            life.checkpoint(&opened.log).await;
            if is_removed {
                let removed = opened.log.remove_old_segments().await.unwrap();
                assert!(removed > 3, "removed {removed}");
            }
            start
        });
        let start = start.expect("the run stalled");

        let mut life = Life::new(life.core.disk.kill(1), 12);
        life.core.disk.set_capacity(None);
        let executor = std::mem::replace(&mut life.executor, SimExecutor::new(12));
        let ran = executor.run(async {
            let opened = life.open(relaxed).await.unwrap();
            assert_eq!(opened.log.log_start_offset(), start);
            assert_eq!(opened.log.segments()[0].base, start);
            let end = opened.log.log_end_offset();
            assert_eq!(*opened.trace.borrow(), expected_trace(Offset::ZERO, end));
            opened.check().await.unwrap();
        });
        ran.expect("the run stalled");
    }
}

#[test]
fn a_deleted_log_leaves_nothing() {
    live(|life| async move {
        let opened = open(&life, small_segments()).await;
        opened.append_durably(20).await;
        opened.append().unwrap();
        opened.log.delete().await.unwrap();
        let disk = &life.core.disk;
        let names = disk.list_dir(Path::new(DATA_DIR)).await.unwrap();
        assert_eq!(names, ["core-000"]);
        assert!(opened.append().is_err());
        let error = opened.log.read(Offset::ZERO, 100, Offset(1), true).await;
        assert!(matches!(error, Err(ReadError::Closed)));
        assert_eq!(life.core.tail.used_bytes(), 0);
    });
}

#[test]
fn reads_keep_to_their_bounds() {
    live(|life| async move {
        let opened = open(&life, small_segments()).await;
        let end = opened.append_durably(60).await;
        let log = &opened.log;
        let mut base = Offset::ZERO;
        while base < end {
            let batch = expected_batch(base);
            let (len, next) = (batch.bytes.len() as u64, batch.last_offset.next());
            for offset in [base, batch.last_offset] {
                let read = async |max_bytes, visible_end, minimum_one| {
                    log.read(offset, max_bytes, visible_end, minimum_one)
                        .await
                        .unwrap()
                        .len
                };
                assert_eq!(read(len, next, false).await, len);
                assert_eq!(read(len - 1, end, false).await, 0, "too large");
                assert_eq!(read(0, end, true).await, len, "whole all the same");
                assert_eq!(
                    read(1 << 20, batch.last_offset, true).await,
                    0,
                    "not visible"
                );
                assert_eq!(read(1 << 20, next, true).await, len, "only this is visible");
                let following = expected_batch(next).bytes.len() as u64;
                let both = read(len + following, end, true).await;
                assert!(both == len || both == len + following);
            }
            base = next;
        }
        assert_eq!(log.read(end, 100, end, true).await.unwrap().len, 0);
        assert!(log.read(end.plus(1), 100, end, true).await.is_err());
    });
}

#[test]
fn offsets_are_found_by_time() {
    live(|life| async move {
        let opened = open(&life, small_segments()).await;
        let end = opened.append_durably(60).await;
        let log = &opened.log;
        // A record stands for its batch here: its first one.
        let first_of_batch = |batch: &BatchView<'_>, timestamp: TimestampMs, from: Offset| {
            let fits = batch.max_timestamp() >= timestamp && batch.last_offset() >= from;
            Ok(fits.then(|| (batch.max_timestamp(), batch.base_offset().max(from))))
        };
        let mut base = Offset::ZERO;
        while base < end {
            let batch = expected_batch(base);
            let found = log
                .offset_for_time(batch.max_timestamp, end, &first_of_batch)
                .await
                .unwrap()
                .unwrap();
            assert_eq!(found.offset, base);
            assert_eq!(found.timestamp, batch.max_timestamp);
            assert_eq!(found.leader_epoch, LeaderEpoch(7));
            let greatest = log
                .max_timestamp(end, &first_of_batch)
                .await
                .unwrap()
                .unwrap();
            assert!(greatest.timestamp >= batch.max_timestamp);
            base = batch.last_offset.next();
            if base == end {
                assert_eq!(greatest.offset, batch.base_offset);
            }
        }
        let later = TimestampMs(i64::MAX);
        let found = log.offset_for_time(later, end, &first_of_batch).await;
        assert_eq!(found.unwrap(), None);
        log.advance_log_start(Offset(10));
        let earliest = log
            .offset_for_time(TimestampMs(0), end, &first_of_batch)
            .await
            .unwrap();
        assert_eq!(earliest.map(|found| found.offset), Some(Offset(10)));
    });
}

#[test]
fn a_relaxed_flush_rule_acknowledges_what_the_device_has() {
    live(|life| async move {
        let config = LogConfig {
            flush_messages: u64::MAX,
            ..small_segments()
        };
        let opened = open(&life, config).await;
        let before = life.core.disk.operations();
        let end = opened.append_durably(1).await;
        let operations = life.core.disk.operations();
        assert_eq!(
            operations - before,
            5,
            "file, both folders, reserve, write: no flush"
        );
        opened.log.request_flush();
        opened.log.flush_through(end).await.unwrap();
        assert_eq!(life.core.disk.operations(), operations + 1);
    });
}

#[test]
fn a_fresh_log_makes_no_file_before_its_first_append() {
    live(|life| async move {
        let opened = open(&life, small_segments()).await;
        assert_eq!(
            life.core.disk.list_dir(&dir()).await.unwrap(),
            ["partition.metadata"]
        );
        let checkpoint = opened.log.checkpoint().await;
        assert_eq!(checkpoint.position, crate::base::FilePosition(0));
        let closed = opened.log.close().await.unwrap();
        assert_eq!(closed.durable_offset, Offset::ZERO);
        assert_eq!(
            life.core.disk.list_dir(&dir()).await.unwrap(),
            ["partition.metadata"]
        );
        let opened = life
            .open_from(small_segments(), Some(closed))
            .await
            .unwrap();
        opened.append_durably(1).await;
    });
}

#[test]
fn a_small_partition_stays_small() {
    live(|life| async move {
        let opened = open(&life, LogConfig::default()).await;
        opened.append_durably(1).await;
        let files = life.core.disk.list_files(&dir()).await.unwrap();
        assert_eq!(files.len(), 2, "{files:?}");
        assert!(
            files.iter().all(|(_, size)| *size <= 128 << 10),
            "{files:?}"
        );
    });
}
