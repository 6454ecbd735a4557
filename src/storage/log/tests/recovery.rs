//! The decision table of recovery, a row a test case: a log of several segments is left in some
//! way, damaged in some way, and opened.

use super::simulated::*;
use super::*;
use crate::io::sim_disk::SimDisk;
use crate::storage::names::{FileKind, file_name};

const BATCHES: usize = 60;
const BATCHES_AT_CHECKPOINT: usize = 45;

/// How the first life ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    CleanStop,
    Kill,
}

/// What a log was when its life ended.
struct Left {
    disk: SimDisk,
    checkpoint: PartitionCheckpoint,
    end: Offset,
    /// Base offsets of its segments.
    bases: Vec<Offset>,
    /// Position and base offset of the last batch, in the last segment.
    last_batch: (u64, Offset),
}

impl Left {
    fn path(&self, nth: usize, kind: FileKind) -> PathBuf {
        dir().join(file_name(self.bases[nth], kind))
    }

    fn last(&self) -> usize {
        self.bases.len() - 1
    }

    fn now<T>(&self, future: impl Future<Output = io::Result<T>>) -> T {
        Life::new(self.disk.clone(), 1)
            .executor
            .run(future)
            .unwrap()
            .unwrap()
    }

    fn remove(&self, path: &Path) {
        self.now(self.disk.remove_file(path));
    }

    fn write(&self, path: &Path, contents: &[u8]) {
        self.now(self.disk.write_file(path, contents));
    }

    fn read(&self, path: &Path) -> Vec<u8> {
        self.now(self.disk.read_file(path))
    }
}

/// Lives once: appends, makes a checkpoint on the way, and ends.
fn leave(end: End) -> Left {
    let disk = SimDisk::new(9);
    let mut life = Life::new(disk.clone(), 9);
    let executor = std::mem::replace(
        &mut life.executor,
        crate::io::sim_executor::SimExecutor::new(0),
    );
    let (checkpoint, log_end, bases, last_batch) = executor
        .run(async {
            life.make_dirs().await;
            let opened = life.open(small_segments()).await.unwrap();
            opened.append_durably(BATCHES_AT_CHECKPOINT).await;
            life.checkpoint(&opened.log).await;
            let mut checkpoint = opened.log.checkpoint().await;
            opened
                .append_durably(BATCHES - BATCHES_AT_CHECKPOINT - 1)
                .await;
            let segments = opened.log.segments();
            let position = segments.last().unwrap().size_bytes;
            let last_batch = (position, opened.log.log_end_offset());
            opened.append_durably(1).await;
            let segments = opened.log.segments();
            assert!(segments.len() > 4, "{segments:?}");
            assert!(checkpoint.segment_base < segments.last().unwrap().base);
            assert!(segments.last().unwrap().size_bytes > position);
            if end == End::CleanStop {
                checkpoint = opened.log.close().await.unwrap();
                life.save_checkpoint(checkpoint.clone()).await;
            }
            let bases = segments.iter().map(|segment| segment.base).collect();
            (checkpoint, opened.log.log_end_offset(), bases, last_batch)
        })
        .unwrap();
    Left {
        disk: disk.kill(1),
        checkpoint,
        end: log_end,
        bases,
        last_batch,
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// All is there.
    Whole,
    /// The last batch was cut.
    CutBeforeLast,
    /// The partition is offline, and the message has this part.
    Offline(&'static str),
    /// Nothing is wrong at the start; reading everything shows the damage.
    ReadFails,
}

struct Row {
    name: &'static str,
    end: End,
    damage: fn(&Left),
    with_checkpoint: bool,
    outcome: Outcome,
}

fn flip(left: &Left, path: &Path, position: u64) {
    let byte = left.read(path)[position as usize];
    left.disk
        .damage(path, position as usize, &[byte ^ 0x40])
        .unwrap();
}

fn check(row: &Row) -> Result<(), String> {
    let left = leave(row.end);
    (row.damage)(&left);
    let life = Life::new(left.disk.clone(), 3);
    life.executor
        .run(async {
            let checkpoint = row.with_checkpoint.then(|| left.checkpoint.clone());
            let opened = life.open_from(small_segments(), checkpoint.clone()).await;
            let opened = match (opened, &row.outcome) {
                (Err(error), Outcome::Offline(part)) if error.to_string().contains(part) => {
                    return Ok(());
                }
                (Err(error), _) => return Err(error.to_string()),
                (Ok(_), Outcome::Offline(_)) => return Err("it opened".to_owned()),
                (Ok(opened), _) => opened,
            };
            let end = match row.outcome {
                Outcome::CutBeforeLast => left.last_batch.1,
                _ => left.end,
            };
            if opened.log.log_end_offset() != end {
                return Err(format!(
                    "it ends at {} and not at {end}",
                    opened.log.log_end_offset()
                ));
            }
            let cut = opened.log.recovery_report().cut;
            if cut.is_some() != (row.outcome == Outcome::CutBeforeLast) {
                return Err(format!("cut is {cut:?}"));
            }
            if row.outcome == Outcome::ReadFails {
                return match opened.check().await {
                    Err(error) if error.contains("is damaged at byte") => Ok(()),
                    other => Err(format!("reading says {other:?}")),
                };
            }
            opened.check().await?;
            opened.check_trace()?;
            // It goes on, is durable, and the next start finds all in order.
            let end = opened.append_durably(20).await;
            opened.check().await?;
            let closed = opened.log.close().await.unwrap();
            for checkpoint in [None, Some(closed)] {
                let again = life.open_from(small_segments(), checkpoint).await;
                let again = again.map_err(|error| format!("again: {error}"))?;
                if again.log.log_end_offset() != end || again.log.recovery_report().cut.is_some() {
                    return Err(format!("again: {:?}", again.log.recovery_report()));
                }
                again.check().await?;
                again.check_trace()?;
            }
            Ok(())
        })
        .unwrap()
}

#[test]
fn the_decision_table_holds() {
    use End::{CleanStop, Kill};
    use FileKind::{Log, OffsetIndex, Snapshot, TimeIndex};
    use Outcome::{CutBeforeLast, Offline, ReadFails, Whole};
    let row = |name, end, damage, with_checkpoint, outcome| Row {
        name,
        end,
        damage,
        with_checkpoint,
        outcome,
    };
    let rows = [
        row("clean stop", CleanStop, |_| {}, true, Whole),
        row(
            "clean stop, checkpoint lost",
            CleanStop,
            |_| {},
            false,
            Whole,
        ),
        row(
            "reserved zeros after the last batch",
            Kill,
            |_| {},
            true,
            Whole,
        ),
        row("reserved zeros, no checkpoint", Kill, |_| {}, false, Whole),
        row(
            "torn tail",
            Kill,
            |left| {
                flip(left, &left.path(left.last(), Log), left.last_batch.0 + 70);
            },
            true,
            CutBeforeLast,
        ),
        row(
            "torn tail, no checkpoint",
            Kill,
            |left| {
                flip(left, &left.path(left.last(), Log), left.last_batch.0 + 70);
            },
            false,
            CutBeforeLast,
        ),
        row(
            "torn tail, length nonsense",
            Kill,
            |left| {
                let path = left.path(left.last(), Log);
                left.disk
                    .damage(&path, left.last_batch.0 as usize + 8, &[0x7f; 4])
                    .unwrap();
            },
            true,
            CutBeforeLast,
        ),
        row(
            "torn tail, file ends inside the batch",
            Kill,
            |left| {
                let path = left.path(left.last(), Log);
                let kept = left.read(&path)[..left.last_batch.0 as usize + 40].to_vec();
                left.write(&path, &kept);
            },
            true,
            CutBeforeLast,
        ),
        row(
            "indexes of the active segment missing",
            CleanStop,
            |left| {
                left.remove(&left.path(left.last(), OffsetIndex));
                left.remove(&left.path(left.last(), TimeIndex));
            },
            true,
            Whole,
        ),
        row(
            "index of a rolled segment missing",
            CleanStop,
            |left| {
                left.remove(&left.path(1, OffsetIndex));
            },
            true,
            Whole,
        ),
        row(
            "time index of a rolled segment missing",
            Kill,
            |left| {
                left.remove(&left.path(0, TimeIndex));
            },
            true,
            Whole,
        ),
        row(
            "indexes of a rolled segment zeroed",
            Kill,
            |left| {
                for kind in [OffsetIndex, TimeIndex] {
                    let path = left.path(1, kind);
                    let len = left.read(&path).len();
                    left.write(&path, &vec![0; len.max(24)]);
                }
            },
            true,
            Whole,
        ),
        row(
            "index of a rolled segment points into batches",
            Kill,
            |left| {
                let path = left.path(1, OffsetIndex);
                let mut bytes = left.read(&path);
                for entry in bytes.chunks_mut(8) {
                    entry[7] ^= 1;
                }
                left.write(&path, &bytes);
            },
            true,
            Whole,
        ),
        row(
            "index of the active segment points into batches",
            CleanStop,
            |left| {
                let path = left.path(left.last(), OffsetIndex);
                let mut bytes = left.read(&path);
                for entry in bytes.chunks_mut(8) {
                    entry[7] ^= 1;
                }
                left.write(&path, &bytes);
            },
            true,
            Whole,
        ),
        row(
            "log ahead of its index",
            CleanStop,
            |left| {
                left.write(&left.path(left.last(), OffsetIndex), &[]);
                left.write(&left.path(left.last(), TimeIndex), &[]);
            },
            true,
            Whole,
        ),
        row(
            "index ahead of its log",
            Kill,
            |left| {
                let entry = [&100i32.to_be_bytes()[..], &i32::MAX.to_be_bytes()[..]].concat();
                left.write(&left.path(left.last(), OffsetIndex), &entry);
                left.write(&left.path(left.last(), TimeIndex), &[]);
            },
            true,
            Whole,
        ),
        row(
            "snapshots missing",
            CleanStop,
            remove_snapshots,
            false,
            Whole,
        ),
        row(
            "snapshots malformed",
            CleanStop,
            damage_snapshots,
            false,
            Whole,
        ),
        row(
            "snapshots missing, one in the checkpoint",
            Kill,
            remove_snapshots,
            true,
            Whole,
        ),
        row(
            "snapshot of what does not exist",
            Kill,
            |left| {
                left.write(&dir().join(file_name(left.end.plus(1_000), Snapshot)), b"?");
            },
            true,
            Whole,
        ),
        row(
            "bad batch below the durable offset",
            CleanStop,
            |left| {
                flip(left, &left.path(1, Log), 16);
            },
            true,
            ReadFails,
        ),
        row(
            "bad batch below the durable offset, found by a scan",
            CleanStop,
            |left| {
                flip(left, &left.path(1, Log), 70);
                left.remove(&left.path(1, OffsetIndex));
            },
            true,
            Offline("is damaged at byte 0: checksum"),
        ),
        row(
            "bad batch before another segment, no checkpoint",
            Kill,
            |left| {
                flip(left, &left.path(1, Log), 70);
            },
            false,
            Offline("is damaged at byte 0: checksum"),
        ),
        row(
            "bad batch above the checkpoint and before another segment",
            Kill,
            |left| {
                let nth = left.last() - 1;
                assert!(left.bases[nth] > left.checkpoint.durable_offset);
                flip(left, &left.path(nth, Log), 70);
            },
            true,
            Offline("is damaged at byte 0: checksum"),
        ),
        row(
            "file shorter than its durable position",
            CleanStop,
            |left| {
                let path = left.path(left.last(), Log);
                let kept = left.read(&path)[..left.last_batch.0 as usize].to_vec();
                left.write(&path, &kept);
            },
            true,
            Offline("too early"),
        ),
        row(
            "last file missing",
            CleanStop,
            |left| {
                left.remove(&left.path(left.last(), Log));
            },
            true,
            Offline("the file is missing"),
        ),
        row(
            "first file missing",
            CleanStop,
            |left| {
                left.remove(&left.path(0, Log));
            },
            true,
            Offline("is missing"),
        ),
        row(
            "file in the middle missing, no checkpoint",
            Kill,
            |left| {
                left.remove(&left.path(1, Log));
            },
            false,
            Offline("the next file begins"),
        ),
        row(
            "all files missing",
            CleanStop,
            |left| {
                for nth in 0..left.bases.len() {
                    left.remove(&left.path(nth, Log));
                }
            },
            true,
            Offline("the file is missing"),
        ),
        row(
            "zeros after a rolled segment",
            Kill,
            |left| {
                let path = left.path(1, Log);
                let mut bytes = left.read(&path);
                bytes.resize(bytes.len() + 5_000, 0);
                left.write(&path, &bytes);
            },
            false,
            Whole,
        ),
        row(
            "foreign files",
            Kill,
            |left| {
                left.write(&dir().join("leader-epoch-checkpoint"), b"0\n0\n");
                left.write(&dir().join("00000000000000000001.log.deleted"), b"x");
            },
            true,
            Whole,
        ),
    ];
    let failed: Vec<String> = rows
        .iter()
        .filter_map(|row| {
            let error = check(row).err()?;
            Some(format!("{}: {error}", row.name))
        })
        .collect();
    assert!(failed.is_empty(), "\n{}", failed.join("\n"));
}

fn snapshots(left: &Left) -> Vec<PathBuf> {
    let names = left.now(left.disk.list_dir(&dir()));
    let paths: Vec<PathBuf> = names
        .iter()
        .filter(|name| name.ends_with(".snapshot"))
        .map(|name| dir().join(name))
        .collect();
    assert_eq!(paths.len(), 2);
    paths
}

fn remove_snapshots(left: &Left) {
    for path in snapshots(left) {
        left.remove(&path);
    }
}

fn damage_snapshots(left: &Left) {
    for path in snapshots(left) {
        flip(left, &path, 3);
    }
}

#[test]
fn only_what_the_checkpoint_does_not_cover_is_scanned() {
    for (end, scanned_max) in [(End::CleanStop, 4_000), (End::Kill, 40_000)] {
        let left = leave(end);
        let life = Life::new(left.disk.clone(), 3);
        life.executor
            .run(async {
                let checkpoint = Some(left.checkpoint.clone());
                let opened = life.open_from(small_segments(), checkpoint).await.unwrap();
                let report = opened.log.recovery_report();
                assert!(report.scanned_bytes < scanned_max, "{end:?}: {report:?}");
                let snapshot = left.bases[left.last()];
                let newest = snapshot.max(left.checkpoint.durable_offset);
                assert_eq!(report.replayed_from, newest);
            })
            .unwrap();
    }
}

#[test]
fn a_segment_below_the_log_start_is_removed_at_the_next_start() {
    let mut left = leave(End::Kill);
    left.checkpoint.log_start = left.bases[2];
    let life = Life::new(left.disk.clone(), 3);
    life.executor
        .run(async {
            let checkpoint = Some(left.checkpoint.clone());
            let opened = life.open_from(small_segments(), checkpoint).await.unwrap();
            assert_eq!(opened.log.recovery_report().removed_segments, 2);
            assert_eq!(opened.log.log_start_offset(), left.bases[2]);
            opened.check().await.unwrap();
            opened.check_trace().unwrap();
            let names = left.disk.list_dir(&dir()).await.unwrap();
            for kind in [FileKind::Log, FileKind::OffsetIndex, FileKind::TimeIndex] {
                assert!(!names.contains(&file_name(left.bases[0], kind)));
            }
        })
        .unwrap();
}

#[test]
fn what_recovery_found_is_durable_when_the_log_is_open() {
    // A killed process may leave batches that were written and not flushed.
    let disk = SimDisk::new(4);
    let life = Life::new(disk.clone(), 4);
    let relaxed = LogConfig {
        flush_messages: u64::MAX,
        ..small_segments()
    };
    let end = life
        .executor
        .run(async {
            life.make_dirs().await;
            let opened = life.open_from(relaxed, None).await.unwrap();
            opened.append_durably(5).await
        })
        .unwrap();
    for seed in 0..20 {
        let disk = disk.kill(seed);
        let life = Life::new(disk.clone(), seed);
        life.executor
            .run(async { life.open_from(small_segments(), None).await.unwrap() })
            .unwrap();
        let life = Life::new(disk.crash(seed), seed);
        let opened = life
            .executor
            .run(async { life.open_from(small_segments(), None).await.unwrap() })
            .unwrap();
        assert_eq!(opened.log.log_end_offset(), end, "seed {seed}");
    }
}

#[test]
fn a_clean_stop_leaves_files_without_a_tail() {
    let left = leave(End::CleanStop);
    for nth in 0..left.bases.len() {
        let bytes = left.read(&left.path(nth, FileKind::Log));
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            rest = &rest[BatchView::whole(rest).unwrap().len()..];
        }
        let times = left.read(&left.path(nth, FileKind::TimeIndex));
        assert!(
            !times.is_empty(),
            "the last timestamp of a segment is in its time index"
        );
    }
}
