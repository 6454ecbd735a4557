//! A full disk: appends are refused with an error that clients retry on, everything else goes on,
//! nothing that was acknowledged is lost, and writes resume by themselves when there is space.
//!
//! Needs root and loop devices; elsewhere the tests say so and pass, unless
//! `RINGMAIN_REQUIRE_POWER_CUT=1`.

mod support;

#[path = "support/power/mod.rs"]
mod power;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kafka_protocol::messages::DeleteRecordsRequest;
use kafka_protocol::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsTopic,
};
use tempfile::TempDir;

use power::filesystem::{Kind, Mounted, is_unavailable};
use power::workload::delete_topic;
use support::batch::Batch;
use support::calls::{EARLIEST, LATEST, create_topic, fetch_all, list_offsets, name, produce};
use support::wire::Wire;
use support::{Broker, Settings, eventually, foreign_bootstrap, temp_dir};

/// Kafka's clients send again after these: KAFKA_STORAGE_ERROR and REQUEST_TIMED_OUT.
const RETRIABLE: [i16; 2] = [56, 7];
const CONFIG: &str = "ringmain.commit.log.bytes = 4194304\nlog.segment.bytes = 1048576\n";
const SMALL: (usize, usize) = (2, 300);
const LARGE: (usize, usize) = (20, 10_000);
/// Well above what the broker waits before it tries again.
const PATIENCE: Duration = Duration::from_secs(30);
/// A little more than what the broker keeps free, which is an eighth of the disk here.
const NEARLY_FULL_BYTES: u64 = DISK_BYTES / 8 + (8 << 20);
const DISK_BYTES: u64 = 96 << 20;
/// An append is answered within this, full disk or not.
const ANSWER_MAX: Duration = Duration::from_secs(15);

/// A file system of its own, and a broker on it.
struct Full {
    broker: Broker,
    mounted: Mounted,
    _home: TempDir,
}

impl Full {
    fn start() -> Self {
        let home = temp_dir();
        let image = home.path().join("image");
        let file = File::create(&image).expect("the image");
        file.set_len(DISK_BYTES).expect("its size");
        let mounted = Mounted::new(&image, Kind::Fresh, false);
        let settings = Settings::default()
            .config(CONFIG)
            .data_dir(&mounted.path().join("data"));
        Self {
            broker: settings.start(),
            mounted,
            _home: home,
        }
    }

    /// Takes the space that is left but for so many bytes.
    fn fill_up(&self, left_bytes: u64) -> PathBuf {
        let path = self.mounted.path().join("ballast");
        let file = File::create(&path).expect("the ballast");
        let mut size_bytes = 0;
        let mut step_bytes = 16 << 20;
        while step_bytes >= 4096 {
            let flags = rustix::fs::FallocateFlags::empty();
            let fits = self.mounted.free_bytes() >= left_bytes + step_bytes;
            if fits && rustix::fs::fallocate(&file, flags, size_bytes, step_bytes).is_ok() {
                size_bytes += step_bytes;
            } else {
                step_bytes /= 2;
            }
        }
        path
    }
}

/// A partition, and what was acknowledged of it: base offset to the number of the batch there.
struct Log {
    topic: &'static str,
    partition: i32,
    acknowledged: BTreeMap<i64, u64>,
    next_number: u64,
}

impl Log {
    fn new(topic: &'static str, partition: i32) -> Self {
        Self {
            topic,
            partition,
            acknowledged: BTreeMap::new(),
            next_number: 0,
        }
    }

    fn all(topic: &'static str, partitions: i32) -> Vec<Self> {
        (0..partitions).map(|it| Self::new(topic, it)).collect()
    }

    /// True where the batch was acknowledged; otherwise it was refused in a way that clients retry.
    fn append(&mut self, wire: &mut Wire, (records, bytes): (usize, usize)) -> bool {
        let number = self.next_number;
        self.next_number += 1;
        let value = format!("{number:09} {}", "x".repeat(bytes));
        let batch = Batch::of(&vec![value.as_str(); records]).build();
        let started = Instant::now();
        let answer = produce(wire, self.topic, self.partition, batch);
        let took = started.elapsed();
        assert!(took < ANSWER_MAX, "an append was answered after {took:?}");
        if answer.error_code == 0 {
            self.acknowledged.insert(answer.base_offset, number);
            return true;
        }
        assert!(
            RETRIABLE.contains(&answer.error_code),
            "{}-{}: {} {:?}",
            self.topic,
            self.partition,
            answer.error_code,
            answer.error_message
        );
        false
    }

    /// Every batch that was acknowledged is there, at its offset, and offsets have no gap.
    fn check(&self, wire: &mut Wire) {
        let what = format!("{}-{}", self.topic, self.partition);
        let start = list_offsets(wire, self.topic, self.partition, EARLIEST).offset;
        let mut found = BTreeMap::new();
        let mut next = start;
        for batch in fetch_all(wire, self.topic, self.partition, start) {
            assert!(
                batch.base_offset == next || (batch.base_offset < start && found.is_empty()),
                "{what}: a gap at {next}"
            );
            next = batch.last_offset() + 1;
            let number: u64 = batch.values()[0][..9].parse().expect("a number");
            found.insert(batch.base_offset, number);
        }
        for (base, number) in self.acknowledged.range(start..) {
            assert_eq!(found.get(base), Some(number), "{what}: the batch at {base}");
        }
        let end = list_offsets(wire, self.topic, self.partition, LATEST).offset;
        assert_eq!(next, end, "{what}: its end");
    }
}

/// Appends until all partitions have refused many times in a row: the commit log is full too.
fn append_until_refused(wire: &mut Wire, logs: &mut [Log], patience: Duration) {
    let end = Instant::now() + patience;
    let mut refused_in_a_row = 0;
    let mut turn = 0;
    while refused_in_a_row < 3 * logs.len() {
        assert!(Instant::now() < end, "the disk is not full yet");
        turn += 1;
        let any = turn % logs.len();
        let size = if turn % 3 == 0 { LARGE } else { SMALL };
        if logs[any].append(wire, size) {
            refused_in_a_row = 0;
        } else {
            refused_in_a_row += 1;
        }
    }
}

fn check_all(wire: &mut Wire, logs: &[Log]) {
    for log in logs {
        log.check(wire);
    }
}

/// Waits until each partition takes appends again, of both sizes.
fn resume(wire: &mut Wire, logs: &mut [Log]) {
    for log in logs {
        for size in [SMALL, LARGE] {
            eventually("writes resume by themselves", PATIENCE, || {
                log.append(wire, size)
            });
        }
    }
}

fn delete_records(wire: &mut Wire, topic: &str, partition: i32, before: i64) {
    let topic = DeleteRecordsTopic::default()
        .with_name(name(topic))
        .with_partitions(vec![
            DeleteRecordsPartition::default()
                .with_partition_index(partition)
                .with_offset(before),
        ]);
    let request = DeleteRecordsRequest::default()
        .with_timeout_ms(10_000)
        .with_topics(vec![topic]);
    let answer = &wire.call(2, &request).topics[0].partitions[0];
    assert_eq!(answer.error_code, 0, "DeleteRecords");
    assert_eq!(answer.low_watermark, before);
}

fn is_skipped(test: &str) -> bool {
    foreign_bootstrap().is_some() || is_unavailable(test, false)
}

#[test]
fn a_full_disk_refuses_appends_and_takes_them_again_when_there_is_space() {
    if is_skipped("a_full_disk_refuses_appends_and_takes_them_again_when_there_is_space") {
        return;
    }
    let full = Full::start();
    let mut wire = full.broker.wire();
    create_topic(&mut wire, "kept", 6);
    let mut kept = Log::all("kept", 6);
    // Filled by others to the last block, and by the broker itself.
    for left_bytes in [0, NEARLY_FULL_BYTES] {
        resume(&mut wire, &mut kept);
        let ballast = full.fill_up(left_bytes);
        append_until_refused(&mut wire, &mut kept, PATIENCE);
        println!("full, {} bytes left", full.mounted.free_bytes());
        check_all(&mut wire, &kept);
        remove(&ballast);
        resume(&mut wire, &mut kept);
        check_all(&mut wire, &kept);
    }
}

#[test]
fn a_full_disk_is_emptied_by_deletions() {
    if is_skipped("a_full_disk_is_emptied_by_deletions") {
        return;
    }
    let full = Full::start();
    let mut wire = full.broker.wire();
    create_topic(&mut wire, "kept", 4);
    create_topic(&mut wire, "passing", 2);
    create_topic(&mut wire, "shortened", 1);
    let mut kept = Log::all("kept", 4);
    let mut passing = Log::all("passing", 2);
    let mut shortened = Log::new("shortened", 0);
    for _ in 0..40 {
        assert!(passing[0].append(&mut wire, LARGE));
        assert!(passing[1].append(&mut wire, LARGE));
        assert!(shortened.append(&mut wire, LARGE));
    }
    full.fill_up(NEARLY_FULL_BYTES);
    append_until_refused(&mut wire, &mut kept, PATIENCE);
    check_all(&mut wire, &passing);
    create_topic(&mut wire, "another", 1);
    delete_records(&mut wire, "shortened", 0, 600);
    shortened.check(&mut wire);
    resume(&mut wire, &mut kept[..1]);
    append_until_refused(&mut wire, &mut kept, PATIENCE);
    delete_topic(&mut wire, "passing");
    resume(&mut wire, &mut kept);
    check_all(&mut wire, &kept);
    shortened.check(&mut wire);
}

#[test]
fn a_kill_on_a_full_disk_loses_nothing() {
    if is_skipped("a_kill_on_a_full_disk_loses_nothing") {
        return;
    }
    let mut full = Full::start();
    let mut wire = full.broker.wire();
    create_topic(&mut wire, "kept", 6);
    let mut kept = Log::all("kept", 6);
    resume(&mut wire, &mut kept);
    let ballast = full.fill_up(NEARLY_FULL_BYTES);
    append_until_refused(&mut wire, &mut kept, PATIENCE);
    full.broker.kill_and_restart();
    let mut wire = full.broker.wire();
    check_all(&mut wire, &kept);
    for log in &mut kept {
        log.append(&mut wire, SMALL);
    }
    remove(&ballast);
    resume(&mut wire, &mut kept);
    full.broker.restart();
    check_all(&mut full.broker.wire(), &kept);
}

fn remove(ballast: &Path) {
    std::fs::remove_file(ballast).expect("the ballast goes");
}
