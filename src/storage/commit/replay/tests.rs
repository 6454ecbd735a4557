use std::rc::Rc;

use bytes::Bytes;
use uuid::Uuid;

use super::super::format::{EntryPlace, encode_group};
use super::*;
use crate::base::{LeaderEpoch, Offset};
use crate::io::sim_disk::SimDisk;
use crate::io::sim_executor::SimExecutor;

const DATA_DIR: &str = "/data";
const FILE_BLOCKS: usize = 16;
const TOPIC: TopicId = TopicId(Uuid::from_u128(1));
const OTHER_TOPIC: TopicId = TopicId(Uuid::from_u128(2));

fn run<T>(future: impl Future<Output = T>) -> T {
    SimExecutor::new(1).run(future).expect("it goes on")
}

/// An entry that is known by its number.
fn entry(topic_id: TopicId, ownership: u64, number: u32) -> Entry {
    of_kind(
        topic_id,
        ownership,
        number,
        EntryKind::Inline(Bytes::from(vec![number as u8; 100])),
    )
}

fn of_kind(topic_id: TopicId, ownership: u64, number: u32, kind: EntryKind) -> Entry {
    Entry {
        place: EntryPlace {
            topic_id,
            partition: 0,
            ownership,
            leader_epoch: LeaderEpoch(0),
            segment_base: Offset(0),
            position: number,
        },
        kind,
    }
}

/// A data directory under construction.
struct Dir {
    disk: SimDisk,
    checkpoints: MergedCheckpoint,
}

/// A group of one entry of the topic, with the sequence as the entry's number.
struct TestGroup {
    sequence: u64,
    flushed: u64,
    entries: Vec<Entry>,
}

fn group(sequence: u64, flushed: u64) -> TestGroup {
    group_of(sequence, flushed, vec![entry(TOPIC, 1, sequence as u32)])
}

fn group_of(sequence: u64, flushed: u64, entries: Vec<Entry>) -> TestGroup {
    TestGroup {
        sequence,
        flushed,
        entries,
    }
}

/// The groups `first..=last`, each written when the one before it was flushed.
fn groups(first: u64, last: u64) -> Vec<TestGroup> {
    (first..=last)
        .map(|sequence| group(sequence, sequence - 1))
        .collect()
}

impl Dir {
    fn new() -> Self {
        let disk = SimDisk::new(1);
        run(disk.create_dir_all(Path::new(DATA_DIR))).unwrap();
        Self {
            disk,
            checkpoints: MergedCheckpoint::default(),
        }
    }

    fn core(shard: u16) -> PathBuf {
        core_dir(Path::new(DATA_DIR), ShardId(shard))
    }

    fn file(shard: u16, number: usize) -> PathBuf {
        file_path(&Self::core(shard), number)
    }

    /// Gives the core a log: files of a run, all of them empty.
    fn log(&self, shard: u16, shard_count: u16, generation: u64) -> &Self {
        let header = FileHeader {
            generation,
            shard: ShardId(shard),
            shard_count,
        };
        run(async {
            self.disk.create_dir_all(&Self::core(shard)).await.unwrap();
            let bytes = (FILE_BLOCKS * DISK_BLOCK_BYTES) as u64;
            super::super::files::prepare(&self.disk, &Self::core(shard), header, bytes)
                .await
                .unwrap();
        });
        self
    }

    /// Writes groups of a block each, from the front of the file on.
    fn write(&self, shard: u16, number: usize, generation: u64, groups: &[TestGroup]) -> &Self {
        run(async {
            let path = Self::file(shard, number);
            let file = self.disk.open(&path, OpenMode::Existing).await.unwrap();
            for (nth, group) in groups.iter().enumerate() {
                let mut buffer = file.allocate(DISK_BLOCK_BYTES);
                encode_group(
                    &mut buffer,
                    generation,
                    group.sequence,
                    group.flushed,
                    group.entries.iter(),
                );
                let position = (1 + nth as u64) * BLOCK;
                file.write_at(Rc::new(buffer), position).await.unwrap();
            }
            file.sync_data().await.unwrap();
        });
        self
    }

    /// Damages the `block`-th block of a file, from byte `at` of it on.
    fn damage(&self, shard: u16, number: usize, block: usize, at: usize) -> &Self {
        let position = block * DISK_BLOCK_BYTES + at;
        self.disk
            .damage(&Self::file(shard, number), position, &[0xff; 8])
            .unwrap();
        self
    }

    fn release(&mut self, shard: u16, generation: u64, group: u64) -> &Self {
        self.checkpoints
            .released_groups
            .insert(Self::core(shard), (generation, group));
        self
    }

    fn read_as(&self, shard: u16, shard_count: u16) -> Result<LoggedEntries, ReplayError> {
        run(read_all(
            &self.disk,
            Path::new(DATA_DIR),
            &self.checkpoints,
            ShardId(shard),
            shard_count,
            |_, _| true,
        ))
    }

    fn read(&self) -> Result<LoggedEntries, ReplayError> {
        self.read_as(0, 1)
    }
}

/// The numbers of a topic's entries.
fn numbers(found: &LoggedEntries, topic_id: TopicId) -> Vec<u32> {
    let entries = found.partitions.get(&(topic_id, 0));
    let numbers = entries.into_iter().flatten();
    numbers.map(|entry| entry.place.position).collect()
}

#[track_caller]
fn expect_damage(found: Result<LoggedEntries, ReplayError>, file: &Path, position: u64) {
    let error = found.expect_err("damage");
    let ReplayError::Damaged {
        file: named,
        position: at,
        ..
    } = &error
    else {
        panic!("{error}");
    };
    assert_eq!((named.as_path(), *at), (file, position), "{error}");
    let text = error.to_string();
    assert!(text.contains(&file.display().to_string()), "{text}");
    assert!(text.contains(&format!("byte {position}")), "{text}");
    assert!(text.contains("backup"), "{text}");
}

// --- what is there -----------------------------------------------------------------------------

#[test]
fn a_directory_without_logs_holds_nothing() {
    let found = Dir::new().read().unwrap();
    assert!(found.partitions.is_empty());
    assert_eq!((found.generation, found.torn_groups), (0, 0));
}

#[test]
fn files_that_were_never_written_hold_nothing_but_their_generation() {
    let dir = Dir::new();
    let found = dir.log(0, 1, 9).read().unwrap();
    assert!(found.partitions.is_empty());
    assert_eq!((found.generation, found.torn_groups), (9, 0));
}

#[test]
fn groups_go_on_from_file_to_file_in_the_order_of_their_sequence() {
    let dir = Dir::new();
    dir.log(0, 1, 1)
        .write(0, 1, 1, &groups(1, 3))
        .write(0, 2, 1, &groups(4, 5))
        .write(0, 3, 1, &groups(6, 15))
        .write(0, 0, 1, &groups(16, 17));
    let found = dir.read().unwrap();
    assert_eq!(numbers(&found, TOPIC), (1..=17).collect::<Vec<u32>>());
    assert_eq!((found.generation, found.torn_groups), (1, 0));
}

#[test]
fn a_group_of_many_blocks_is_read_whole() {
    let large: Vec<Entry> = (1..=100).map(|number| entry(TOPIC, 1, number)).collect();
    let dir = Dir::new();
    dir.log(0, 1, 1);
    run(async {
        let path = Dir::file(0, 1);
        let file = dir.disk.open(&path, OpenMode::Existing).await.unwrap();
        let len: usize = large.iter().map(Entry::encoded_len).sum();
        let mut buffer = file.allocate((len + 100).next_multiple_of(DISK_BLOCK_BYTES));
        encode_group(&mut buffer, 1, 1, 0, large.iter());
        let next = BLOCK + buffer.len() as u64;
        file.write_at(Rc::new(buffer), BLOCK).await.unwrap();
        let mut buffer = file.allocate(DISK_BLOCK_BYTES);
        encode_group(&mut buffer, 1, 2, 1, [entry(TOPIC, 1, 101)].iter());
        file.write_at(Rc::new(buffer), next).await.unwrap();
    });
    let found = dir.read().unwrap();
    assert_eq!(numbers(&found, TOPIC), (1..=101).collect::<Vec<u32>>());
}

#[test]
fn only_the_partitions_that_were_asked_for_are_given() {
    let dir = Dir::new();
    let both = vec![entry(TOPIC, 1, 1), entry(OTHER_TOPIC, 1, 2)];
    dir.log(0, 1, 1).write(0, 1, 1, &[group_of(1, 0, both)]);
    let found = run(read_all(
        &dir.disk,
        Path::new(DATA_DIR),
        &dir.checkpoints,
        ShardId(0),
        1,
        |topic_id, _| topic_id == OTHER_TOPIC,
    ))
    .unwrap();
    assert_eq!(numbers(&found, TOPIC), Vec::<u32>::new());
    assert_eq!(numbers(&found, OTHER_TOPIC), [2]);
}

// --- several cores -----------------------------------------------------------------------------

/// Two cores of one run; the topic was the second core's before it was the first's.
fn two_cores() -> Dir {
    let dir = Dir::new();
    let on_0 = [
        group_of(1, 0, vec![entry(OTHER_TOPIC, 1, 1)]),
        group_of(2, 1, vec![entry(TOPIC, 3, 30), entry(TOPIC, 3, 31)]),
    ];
    let on_1 = [
        group_of(1, 0, vec![entry(TOPIC, 1, 10), entry(TOPIC, 1, 11)]),
        group_of(2, 1, vec![entry(TOPIC, 2, 20)]),
        group_of(3, 2, vec![entry(OTHER_TOPIC, 2, 2)]),
    ];
    dir.log(0, 2, 4).write(0, 1, 4, &on_0);
    dir.log(1, 2, 4).write(1, 1, 4, &on_1);
    dir
}

#[test]
fn logs_are_merged_by_ownership_when_the_number_of_cores_changed() {
    let dir = two_cores();
    // From two cores to one, and to three: each of them may own the partition.
    for (shard, shard_count) in [(0, 1), (0, 3), (2, 3)] {
        let found = dir.read_as(shard, shard_count).unwrap();
        assert_eq!(numbers(&found, TOPIC), [10, 11, 20, 30, 31]);
        assert_eq!(numbers(&found, OTHER_TOPIC), [1, 2]);
    }
}

#[test]
fn one_core_becomes_two_and_both_read_its_log() {
    let dir = Dir::new();
    dir.log(0, 1, 1).write(0, 1, 1, &groups(1, 3));
    for shard in [0, 1] {
        let found = dir.read_as(shard, 2).unwrap();
        assert_eq!(numbers(&found, TOPIC), [1, 2, 3], "shard {shard}");
    }
}

#[test]
fn a_core_reads_only_its_own_log_while_the_number_of_cores_stays() {
    let dir = two_cores();
    assert_eq!(numbers(&dir.read_as(0, 2).unwrap(), TOPIC), [30, 31]);
    assert_eq!(numbers(&dir.read_as(1, 2).unwrap(), TOPIC), [10, 11, 20]);
}

#[test]
fn a_damaged_log_of_another_core_counts_only_when_it_is_read() {
    let dir = two_cores();
    dir.damage(1, 1, 2, 50);
    assert!(dir.read_as(0, 2).is_ok());
    expect_damage(dir.read_as(1, 2), &Dir::file(1, 1), 2 * BLOCK);
    expect_damage(dir.read_as(0, 1), &Dir::file(1, 1), 2 * BLOCK);
}

#[test]
fn a_log_of_a_former_run_than_its_cores_checkpoint_does_not_count() {
    let mut dir = Dir::new();
    dir.log(0, 1, 3).write(0, 1, 3, &groups(1, 3));
    dir.damage(0, 1, 1, 50);
    dir.release(0, 4, 0);
    let found = dir.read().unwrap();
    assert!(found.partitions.is_empty());
    assert_eq!(found.generation, 3);
}

#[test]
fn a_start_that_was_interrupted_leaves_files_of_two_runs_and_the_newer_counts() {
    let dir = Dir::new();
    dir.log(0, 1, 3).write(0, 3, 3, &groups(1, 3));
    let header = FileHeader {
        generation: 4,
        shard: ShardId(0),
        shard_count: 1,
    };
    dir.disk
        .damage(&Dir::file(0, 0), 0, &header.encode())
        .unwrap();
    let found = dir.read().unwrap();
    assert!(found.partitions.is_empty());
    assert_eq!(found.generation, 4);
}

// --- torn tails and damage ---------------------------------------------------------------------

#[test]
fn a_torn_tail_is_no_damage_and_what_lies_behind_it_is_counted() {
    // Whether group 3 was flushed is not known: the next one was written while its flush ran.
    let row = |last: u64, flushed: u64| {
        let mut written = groups(1, 3);
        written.extend((4..=last).map(|sequence| group(sequence, flushed)));
        written
    };
    for (last, behind) in [(3, 0), (4, 1)] {
        let dir = Dir::new();
        dir.log(0, 1, 1).write(0, 1, 1, &row(last, 2));
        dir.damage(0, 1, 3, 60);
        let found = dir.read().unwrap();
        assert_eq!(numbers(&found, TOPIC), [1, 2], "of {last} groups");
        assert_eq!(found.torn_groups, behind, "of {last} groups");
    }
}

#[test]
fn a_torn_tail_at_the_end_of_a_file_makes_the_next_file_count_no_more() {
    let dir = Dir::new();
    dir.log(0, 1, 1)
        .write(0, 1, 1, &groups(1, 3))
        .write(0, 2, 1, &[group(4, 2)]);
    dir.damage(0, 1, 3, 60);
    let found = dir.read().unwrap();
    assert_eq!(numbers(&found, TOPIC), [1, 2]);
    assert_eq!(found.torn_groups, 1);
}

#[test]
fn a_gap_at_or_below_a_flushed_sequence_is_damage_with_file_and_position() {
    // What is damaged of groups 1 to 3 and 4 to 5, and what is named.
    let rows = [
        ((1, 2), (1, 2 * BLOCK)),
        ((1, 3), (1, 3 * BLOCK)),
        ((2, 1), (1, 4 * BLOCK)),
    ];
    for ((number, block), (named, position)) in rows {
        // At the front of the group, in its header, and in its entry.
        for at in [0, 20, 60, 150] {
            let mut dir = Dir::new();
            dir.log(0, 1, 1)
                .write(0, 1, 1, &groups(1, 3))
                .write(0, 2, 1, &groups(4, 5));
            dir.damage(0, number, block, at);
            dir.release(0, 1, 0);
            expect_damage(dir.read(), &Dir::file(0, named), position);
        }
    }
}

#[test]
fn a_file_that_is_missing_among_others_is_damage() {
    let mut dir = Dir::new();
    dir.log(0, 1, 1)
        .write(0, 1, 1, &groups(1, 2))
        .write(0, 2, 1, &groups(3, 4))
        .write(0, 3, 1, &groups(5, 6));
    dir.release(0, 1, 0);
    run(dir.disk.remove_file(&Dir::file(0, 2))).unwrap();
    expect_damage(dir.read(), &Dir::file(0, 1), 3 * BLOCK);
}

#[test]
fn a_damaged_header_is_damage_at_the_front_of_its_file() {
    let dir = Dir::new();
    dir.log(0, 1, 1).write(0, 1, 1, &groups(1, 2));
    dir.damage(0, 2, 0, 14);
    expect_damage(dir.read(), &Dir::file(0, 2), 0);
}

#[test]
fn a_header_of_another_version_is_an_error_that_names_the_file() {
    let dir = Dir::new();
    dir.log(0, 1, 1);
    dir.disk
        .damage(&Dir::file(0, 3), 4, &9_u32.to_be_bytes())
        .unwrap();
    let error = dir.read().unwrap_err();
    assert!(matches!(error, ReplayError::Unknown { .. }), "{error}");
    let text = error.to_string();
    let file = Dir::file(0, 3).display().to_string();
    assert!(text.contains(&file) && text.contains("version 9"), "{text}");
}

#[test]
fn an_entry_of_another_version_is_an_error_that_names_file_and_group() {
    let dir = Dir::new();
    dir.log(0, 1, 1).write(0, 1, 1, &groups(1, 2));
    // The second group's entry gets an unknown kind and the group a checksum that is right.
    let file = Dir::file(0, 1);
    let start = 2 * DISK_BLOCK_BYTES;
    let mut block = run(dir.disk.read_file(&file)).unwrap()[start..][..DISK_BLOCK_BYTES].to_vec();
    let len = GroupHeader::decode(&block).unwrap().len;
    block[super::super::format::GROUP_HEADER_BYTES] = 99;
    let checksum = crc32c::crc32c(&block[8..len]);
    block[4..8].copy_from_slice(&checksum.to_be_bytes());
    dir.disk.damage(&file, start, &block).unwrap();
    let error = dir.read().unwrap_err();
    assert!(matches!(error, ReplayError::Unknown { .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("group 2") && text.contains("kind 99"),
        "{text}"
    );
}

#[test]
fn a_file_that_cannot_be_read_is_an_error() {
    let dir = Dir::new();
    dir.log(0, 1, 1);
    let path = Dir::file(0, 2);
    run(async {
        dir.disk.remove_file(&path).await.unwrap();
        dir.disk.create_dir_all(&path).await.unwrap();
    });
    let error = dir.read().unwrap_err();
    assert!(matches!(error, ReplayError::Io { .. }), "{error}");
}

// --- files that are used again -----------------------------------------------------------------

/// Groups 1 to 12 in all four files, three each, and then the first two again from 13 on: of the
/// second of them, a part.
fn recycled() -> Dir {
    let dir = Dir::new();
    dir.log(0, 1, 1)
        .write(0, 1, 1, &groups(1, 3))
        .write(0, 2, 1, &groups(4, 6))
        .write(0, 3, 1, &groups(7, 9))
        .write(0, 0, 1, &groups(10, 12))
        .write(0, 1, 1, &groups(13, 15))
        .write(0, 2, 1, &groups(16, 16));
    dir
}

#[test]
fn a_file_that_is_used_again_counts_as_far_as_it_was_overwritten() {
    let mut dir = recycled();
    dir.release(0, 1, 6);
    let found = dir.read().unwrap();
    assert_eq!(numbers(&found, TOPIC), (7..=16).collect::<Vec<u32>>());
    assert_eq!(found.torn_groups, 0);
}

#[test]
fn without_a_checkpoint_the_oldest_whole_file_is_where_a_log_begins() {
    let found = recycled().read().unwrap();
    assert_eq!(numbers(&found, TOPIC), (7..=16).collect::<Vec<u32>>());
}

#[test]
fn released_groups_are_skipped_even_where_they_are_damaged() {
    // Released up to there; what is left.
    for (released, first) in [(0, 1), (3, 4), (6, 7)] {
        let mut dir = Dir::new();
        dir.log(0, 1, 1)
            .write(0, 1, 1, &groups(1, 3))
            .write(0, 2, 1, &groups(4, 6))
            .write(0, 3, 1, &groups(7, 9));
        if released >= 3 {
            dir.damage(0, 1, 1, 60).damage(0, 1, 3, 60);
        }
        if released >= 6 {
            dir.damage(0, 2, 2, 60);
        }
        dir.release(0, 1, released);
        let found = dir.read().unwrap();
        assert_eq!(numbers(&found, TOPIC), (first..=9).collect::<Vec<u32>>());
    }
}

#[test]
fn a_torn_group_over_old_ones_hides_neither_the_old_end_nor_counts_the_old() {
    let mut dir = recycled();
    dir.release(0, 1, 6);
    // Group 16 is torn: behind it lie groups 5 and 6.
    dir.damage(0, 2, 1, 60);
    let found = dir.read().unwrap();
    assert_eq!(numbers(&found, TOPIC), (7..=15).collect::<Vec<u32>>());
    assert_eq!(found.torn_groups, 0);
}

#[test]
fn a_group_of_a_former_run_behind_the_end_does_not_count() {
    let dir = Dir::new();
    dir.log(0, 1, 1).write(0, 1, 1, &groups(1, 5));
    dir.log(0, 1, 2).write(0, 1, 2, &groups(1, 2));
    let found = dir.read().unwrap();
    assert_eq!(numbers(&found, TOPIC), [1, 2]);
    assert_eq!((found.generation, found.torn_groups), (2, 0));
}

// --- deletions ---------------------------------------------------------------------------------

#[test]
fn a_deletion_hides_what_came_before_and_not_what_came_after() {
    let deletion = |ownership| of_kind(TOPIC, ownership, 0, EntryKind::Deletion);
    let rows = [
        ("only", vec![deletion(1)], vec![]),
        ("last", vec![entry(TOPIC, 1, 1), deletion(1)], vec![]),
        (
            "between",
            vec![
                entry(TOPIC, 1, 1),
                deletion(1),
                entry(TOPIC, 2, 2),
                entry(TOPIC, 2, 3),
            ],
            vec![2, 3],
        ),
        (
            "twice",
            vec![
                entry(TOPIC, 1, 1),
                deletion(1),
                entry(TOPIC, 2, 2),
                deletion(2),
                entry(TOPIC, 3, 3),
            ],
            vec![3],
        ),
    ];
    for (name, mut entries, left) in rows {
        // A topic that was created again has another id.
        entries.insert(0, entry(OTHER_TOPIC, 1, 50));
        entries.push(entry(OTHER_TOPIC, 1, 51));
        let dir = Dir::new();
        dir.log(0, 1, 1).write(0, 1, 1, &[group_of(1, 0, entries)]);
        let found = dir.read().unwrap();
        assert_eq!(numbers(&found, TOPIC), left, "{name}");
        assert_eq!(numbers(&found, OTHER_TOPIC), [50, 51], "{name}");
    }
}

#[test]
fn a_deletion_on_another_core_hides_what_is_of_a_smaller_ownership() {
    let dir = Dir::new();
    let deletion = of_kind(TOPIC, 2, 0, EntryKind::Deletion);
    dir.log(0, 2, 1)
        .write(0, 1, 1, &[group_of(1, 0, vec![deletion])]);
    dir.log(1, 2, 1).write(
        1,
        1,
        1,
        &[group_of(1, 0, vec![entry(TOPIC, 1, 1), entry(TOPIC, 3, 3)])],
    );
    assert_eq!(numbers(&dir.read().unwrap(), TOPIC), [3]);
}
