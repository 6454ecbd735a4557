use std::collections::BTreeMap;
use std::future::pending;

use bytes::Bytes;
use uuid::Uuid;

use super::super::format::{EntryKind, EntryPlace};
use super::super::replay::{self, LoggedEntries};
use super::*;
use crate::base::{LeaderEpoch, ShardId, TopicId};
use crate::io::sim_disk::SimDisk;
use crate::io::sim_executor::SimExecutor;
use crate::storage::checkpoint::{self, CoreCheckpoint};

const DATA_DIR: &str = "/data";
/// A file has a header and room for groups of a block at four places.
const LOG_BYTES: u64 = 4 * 8 * BLOCK;
const GROUPS_PER_FILE: i64 = 4;
const CONTROL_TOPIC: u128 = 1_000;

/// A commit log with members that log what a test tells them to.
struct World {
    disk: SimDisk,
    executor: SimExecutor,
    log: Rc<CommitLog<SimDisk>>,
    members: Vec<Rc<Member>>,
    /// Up to where groups were released, as each checkpoint said it.
    released: Rc<RefCell<Vec<u64>>>,
}

struct Member {
    topic_id: TopicId,
    log: RefCell<Option<Rc<CommitLog<SimDisk>>>>,
    waiting: RefCell<VecDeque<Entry>>,
    /// What was appended, acknowledged, and is in its segment.
    appended: Cell<i64>,
    acks: RefCell<Vec<i64>>,
    in_segment: Cell<i64>,
    /// Where its entries end in each file.
    ends: RefCell<BTreeMap<u64, i64>>,
    /// What a release waits for, and whether it fails then.
    gate: Gate,
    release_fails: Cell<bool>,
    released_files: RefCell<Vec<u64>>,
    failures: RefCell<Vec<String>>,
    heard_no_room: Cell<bool>,
    heard_out_of_space: Cell<bool>,
}

impl CommitMember for Member {
    fn fill(self: Rc<Self>, group: &mut Group) -> bool {
        let number = group.file_number();
        let mut waiting = self.waiting.borrow_mut();
        let mut end = None;
        while let Some(entry) = waiting.pop_front() {
            let position = i64::from(entry.place.position);
            if let Err(entry) = group.push(entry) {
                waiting.push_front(entry);
                break;
            }
            end = Some(position + 1);
        }
        if let Some(end) = end {
            if self.ends.borrow_mut().insert(number, end).is_none() {
                group.join_file(self.clone());
            }
            group.acknowledge(self.clone(), Ack::Durable(Offset(end)));
        }
        !waiting.is_empty()
    }

    fn committed(self: Rc<Self>, ack: Ack) {
        let Ack::Durable(Offset(end)) = ack else {
            panic!("nothing is logged again here");
        };
        assert!(end > self.acknowledged(), "acknowledged out of order");
        assert_eq!(self.failures.borrow().len(), 0, "it was told of a failure");
        self.acks.borrow_mut().push(end);
    }

    fn commit_failed(&self, error: &io::Error) {
        self.failures.borrow_mut().push(error.to_string());
    }

    fn out_of_space(&self) {
        self.heard_out_of_space.set(true);
    }

    fn no_room(self: Rc<Self>) {
        self.heard_no_room.set(true);
    }

    fn release(self: Rc<Self>, number: u64) -> LocalResult<()> {
        Box::pin(async move {
            self.gate.pass().await;
            if self.release_fails.get() {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.released_files.borrow_mut().push(number);
            let ends = self.ends.borrow();
            let end = ends.range(..=number).map(|(_, end)| *end).max();
            self.in_segment
                .set(end.unwrap_or(0).max(self.in_segment.get()));
            Ok(())
        })
    }
}

impl Member {
    fn acknowledged(&self) -> i64 {
        self.acks.borrow().last().copied().unwrap_or(0)
    }

    /// Has something to log; the log hears of it when it does not wait for its `fill` already.
    fn append(self: &Rc<Self>, entries: usize, entry_bytes: usize) {
        let was_idle = self.waiting.borrow().is_empty();
        for _ in 0..entries {
            let number = self.appended.get();
            self.appended.set(number + 1);
            let bytes = Bytes::from(vec![number as u8; entry_bytes]);
            let entry = entry_at(self.topic_id, number, EntryKind::Inline(bytes));
            self.waiting.borrow_mut().push_back(entry);
        }
        if was_idle {
            let log = self.log.borrow().clone();
            log.expect("it was started").submit(self.clone());
        }
    }
}

fn entry_at(topic_id: TopicId, number: i64, kind: EntryKind) -> Entry {
    Entry {
        place: EntryPlace {
            topic_id,
            partition: 0,
            ownership: 1,
            leader_epoch: LeaderEpoch(0),
            segment_base: Offset(0),
            position: number as u32,
        },
        kind,
    }
}

fn control(number: i64) -> Entry {
    let topic_id = TopicId(Uuid::from_u128(CONTROL_TOPIC));
    let end = Offset(number);
    entry_at(topic_id, number, EntryKind::Truncation { end })
}

fn core_dir() -> std::path::PathBuf {
    checkpoint::core_dir(Path::new(DATA_DIR), ShardId(0))
}

fn header(generation: u64) -> FileHeader {
    FileHeader {
        generation,
        shard: ShardId(0),
        shard_count: 1,
    }
}

async fn write_checkpoint(disk: &SimDisk, sequence: u64, released_group: u64) -> io::Result<()> {
    let checkpoint = CoreCheckpoint {
        generation: 1,
        sequence,
        released_group,
        entries: Vec::new(),
    };
    checkpoint::write(disk, Path::new(DATA_DIR), ShardId(0), &checkpoint).await
}

impl World {
    fn new(seed: u64, members: usize) -> Self {
        let disk = SimDisk::new(seed);
        let executor = SimExecutor::new(seed);
        let released: Rc<RefCell<Vec<u64>>> = Rc::default();
        let before_reuse: BeforeReuse = {
            let (disk, released) = (disk.clone(), released.clone());
            Box::new(move |group| {
                released.borrow_mut().push(group);
                let sequence = released.borrow().len() as u64 + 1;
                let disk = disk.clone();
                Box::pin(async move { write_checkpoint(&disk, sequence, group).await })
            })
        };
        let log = executor.run(async {
            disk.create_dir_all(&core_dir()).await.unwrap();
            disk.sync_dir(Path::new(DATA_DIR)).await.unwrap();
            disk.sync_dir(Path::new("/")).await.unwrap();
            write_checkpoint(&disk, 1, 0).await.unwrap();
            let spawn = executor.spawn();
            CommitLog::start(
                &disk,
                spawn,
                &core_dir(),
                header(1),
                LOG_BYTES,
                before_reuse,
            )
            .await
            .unwrap()
        });
        let log = log.unwrap();
        let members = (1..=members).map(|number| {
            Rc::new(Member {
                topic_id: TopicId(Uuid::from_u128(number as u128)),
                log: RefCell::new(Some(log.clone())),
                waiting: RefCell::default(),
                appended: Cell::new(0),
                acks: RefCell::default(),
                in_segment: Cell::new(0),
                ends: RefCell::default(),
                gate: Gate::opened(),
                release_fails: Cell::new(false),
                released_files: RefCell::default(),
                failures: RefCell::default(),
                heard_no_room: Cell::new(false),
                heard_out_of_space: Cell::new(false),
            })
        });
        Self {
            members: members.collect(),
            disk,
            executor,
            log,
            released,
        }
    }

    /// Runs until nothing can go on.
    fn settle(&self) {
        assert!(self.executor.run(pending::<()>()).is_none());
    }

    /// Asks for a control entry in a task of its own, and gives where its answer will be.
    fn log_control(&self, number: i64) -> Rc<RefCell<Option<io::Result<()>>>> {
        let answer: Rc<RefCell<Option<io::Result<()>>>> = Rc::default();
        let (log, slot) = (self.log.clone(), Rc::clone(&answer));
        (self.executor.spawn())(Box::pin(async move {
            let result = log.log_control(control(number)).await;
            *slot.borrow_mut() = Some(result);
        }));
        answer
    }

    /// Appends a group of each member's, one after the other, as often as it is told.
    fn append_groups(&self, groups: i64) {
        for _ in 0..groups {
            for member in &self.members {
                member.append(1, 100);
            }
            self.settle();
        }
    }

    /// Whether the disk has of all members what was acknowledged, in order.
    fn check_promises(&self, disk: &SimDisk) -> Result<(), String> {
        let found = replayed(disk)?;
        for (nth, member) in self.members.iter().enumerate() {
            let numbers = numbers(&found, member.topic_id);
            let follow = numbers.windows(2).all(|pair| pair[1] == pair[0] + 1);
            if !follow {
                return Err(format!("member {nth} has a gap: {numbers:?}"));
            }
            let first = numbers.first().copied().unwrap_or(0);
            let end = numbers.last().map_or(0, |last| last + 1);
            if first > member.in_segment.get() {
                return Err(format!("member {nth} begins only at {first}"));
            }
            let known = end.max(member.in_segment.get());
            if known < member.acknowledged() {
                let promised = member.acknowledged();
                return Err(format!("member {nth} has {known} of {promised}"));
            }
        }
        Ok(())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for member in &self.members {
            member.log.borrow_mut().take();
        }
    }
}

fn replayed(disk: &SimDisk) -> Result<LoggedEntries, String> {
    let read = async {
        let dir = Path::new(DATA_DIR);
        let checkpoints = checkpoint::read_all(disk, dir)
            .await
            .map_err(|error| error.to_string())?;
        replay::read_all(disk, dir, &checkpoints, ShardId(0), 1, |_, _| true)
            .await
            .map_err(|error| error.to_string())
    };
    SimExecutor::new(0).run(read).expect("it goes on")
}

fn numbers(found: &LoggedEntries, topic_id: TopicId) -> Vec<i64> {
    let entries = found.partitions.get(&(topic_id, 0));
    let positions = entries.into_iter().flatten();
    positions
        .map(|entry| i64::from(entry.place.position))
        .collect()
}

// --- groups ------------------------------------------------------------------------------------

#[test]
fn what_members_append_together_is_one_group_and_acknowledged_once() {
    let world = World::new(1, 3);
    for member in &world.members {
        member.append(2, 100);
    }
    world.settle();
    for member in &world.members {
        assert_eq!(*member.acks.borrow(), [2]);
    }
    assert_eq!(world.log.counters().groups.get(), 1);
    assert_eq!(world.log.counters().bytes.get(), BLOCK);
    assert_eq!(world.log.used_bytes(), 2 * BLOCK);
}

#[test]
fn entries_are_acknowledged_in_order_and_found_by_the_next_start() {
    for seed in 0..20 {
        let world = World::new(seed, 3);
        for _ in 0..3 {
            for member in &world.members {
                member.append(1, 100);
            }
            // The next ones arrive while a write or flush is under way.
            world.executor.run(async {
                for _ in 0..4 {
                    yield_now().await;
                }
            });
        }
        world.settle();
        for member in &world.members {
            assert_eq!(member.acknowledged(), 3, "seed {seed}");
        }
        let found = replayed(&world.disk.crash(seed)).unwrap();
        for member in &world.members {
            assert_eq!(numbers(&found, member.topic_id), [0, 1, 2], "seed {seed}");
        }
    }
}

#[test]
fn a_full_group_goes_on_in_the_next_one() {
    let world = World::new(1, 2);
    world.members[0].append(7, 3_000);
    world.members[1].append(1, 100);
    world.settle();
    // A group takes half a file, which is five entries of this size.
    assert_eq!(*world.members[0].acks.borrow(), [5, 7]);
    assert_eq!(*world.members[1].acks.borrow(), [1]);
    assert_eq!(world.log.counters().groups.get(), 2);
    world.check_promises(&world.disk.crash(1)).unwrap();
}

#[test]
fn a_control_entry_resolves_when_it_is_flushed() {
    let world = World::new(1, 1);
    let answer = world.log_control(0);
    world.members[0].append(1, 100);
    world.settle();
    assert!(matches!(*answer.borrow(), Some(Ok(()))));
    assert_eq!(world.members[0].acknowledged(), 1);
}

// --- crashes -----------------------------------------------------------------------------------

/// Members and control entries, over more files than there are. Gives the disk's operations
/// and the number of files that were released.
fn busy_world(seed: u64, prepare: impl FnOnce(&SimDisk)) -> Result<(u64, usize), String> {
    let world = World::new(seed, 2);
    prepare(&world.disk);
    let mut answers = Vec::new();
    for round in 0..6 * GROUPS_PER_FILE {
        for (nth, member) in world.members.iter().enumerate() {
            if (round + nth as i64) % 3 != 2 {
                member.append(1 + nth, 700);
            }
        }
        if round % 8 == 1 {
            answers.push((round, world.log_control(round)));
        }
        world.executor.run(async {
            for _ in 0..10 + seed % 30 {
                yield_now().await;
            }
        });
    }
    world.settle();
    let operations = world.disk.operations();
    let disk = world.disk.crash(seed);
    world.check_promises(&disk)?;
    let is_released = !world.released.borrow().is_empty();
    let found = numbers(&replayed(&disk)?, TopicId(Uuid::from_u128(CONTROL_TOPIC)));
    for (number, answer) in answers {
        let is_logged = matches!(*answer.borrow(), Some(Ok(())));
        if is_logged && !found.contains(&number) && !is_released {
            return Err(format!("control entry {number} is gone"));
        }
    }
    let released = world.released.borrow().len();
    Ok((operations, released))
}

#[test]
fn what_was_acknowledged_survives_a_crash_at_any_operation() {
    for seed in 0..12 {
        let start = World::new(seed, 2).disk.operations();
        let (end, released) = busy_world(seed, |_| {}).unwrap();
        assert!(released >= 4, "seed {seed}: {released} files");
        for operation in start + 1..=end {
            busy_world(seed, |disk| disk.crash_at(operation))
                .unwrap_or_else(|error| panic!("seed {seed}, operation {operation}: {error}"));
        }
    }
}

#[test]
fn a_disk_that_lies_about_flushes_is_caught() {
    let caught = (0..20).filter(|seed| busy_world(*seed, SimDisk::lie_about_flushes).is_err());
    assert!(caught.count() > 5);
}

#[test]
fn a_flush_that_begins_before_its_write_is_complete_is_caught() {
    let caught = (0..20).filter(|seed| busy_world(*seed, SimDisk::complete_writes_early).is_err());
    assert!(caught.count() > 5);
}

// --- files are used again ----------------------------------------------------------------------

#[test]
fn files_are_released_one_after_the_other_and_used_again() {
    let world = World::new(1, 2);
    world.append_groups(10 * GROUPS_PER_FILE);
    for member in &world.members {
        assert_eq!(member.acknowledged(), 10 * GROUPS_PER_FILE);
        assert_eq!(
            *member.released_files.borrow(),
            (1..=9).collect::<Vec<u64>>()
        );
    }
    let released: Vec<u64> = (1..=9).map(|file| file * GROUPS_PER_FILE as u64).collect();
    assert_eq!(*world.released.borrow(), released);
    world.check_promises(&world.disk.crash(1)).unwrap();
}

#[test]
fn groups_wait_when_all_files_are_used_and_go_on_when_a_release_ends() {
    let world = World::new(1, 2);
    world.members[0].gate.close();
    world.append_groups(4 * GROUPS_PER_FILE);
    assert!(world.log.is_short_of_room());
    assert!(!world.members[1].heard_no_room.get());

    world.members[1].append(1, 100);
    let answer = world.log_control(0);
    world.settle();
    assert_eq!(world.members[1].acknowledged(), 4 * GROUPS_PER_FILE);
    assert!(world.members[1].heard_no_room.get());
    assert!(answer.borrow().is_none());
    assert!(!world.log.is_out_of_space());
    assert_eq!(*world.released.borrow(), Vec::<u64>::new());

    world.members[0].gate.open();
    world.settle();
    assert_eq!(world.members[1].acknowledged(), 4 * GROUPS_PER_FILE + 1);
    assert!(matches!(*answer.borrow(), Some(Ok(()))));
    assert!(!world.log.is_short_of_room());
    world.check_promises(&world.disk.crash(1)).unwrap();
}

#[test]
fn a_release_that_failed_is_told_and_tried_again() {
    let world = World::new(1, 2);
    world.members[0].release_fails.set(true);
    world.append_groups(4 * GROUPS_PER_FILE);
    world.members[1].append(1, 100);
    world.settle();
    assert!(world.log.is_out_of_space());
    assert!(world.members[1].heard_out_of_space.get());
    assert_eq!(world.members[1].acknowledged(), 4 * GROUPS_PER_FILE);
    world.log.retry();
    world.settle();
    assert!(world.log.is_out_of_space());

    world.members[0].release_fails.set(false);
    world.log.retry();
    world.settle();
    assert!(!world.log.is_out_of_space());
    assert_eq!(world.members[1].acknowledged(), 4 * GROUPS_PER_FILE + 1);
    assert!(world.members[0].failures.borrow().is_empty());
    world.check_promises(&world.disk.crash(1)).unwrap();
}

#[test]
fn a_file_whose_checkpoint_failed_is_used_again_only_after_another() {
    let world = World::new(1, 1);
    world.members[0].gate.close();
    world.append_groups(4 * GROUPS_PER_FILE);
    // The checkpoint is the next to touch the disk.
    let next = world.disk.operations() + 1;
    world.disk.fail_at(next, io::ErrorKind::StorageFull);
    world.members[0].gate.open();
    world.settle();
    assert!(world.log.is_out_of_space());
    assert_eq!(*world.released.borrow(), [4]);
    // What needs the file asks for it once more.
    world.append_groups(1);
    assert!(!world.log.is_out_of_space());
    assert_eq!(*world.released.borrow(), [4, 4, 8, 12, 16]);
    let acknowledged = world.members[0].acknowledged();
    assert_eq!(acknowledged, 4 * GROUPS_PER_FILE + 1);
    world.check_promises(&world.disk.crash(1)).unwrap();
}

// --- failures ----------------------------------------------------------------------------------

#[test]
fn a_failed_write_or_flush_fails_all_members_and_acknowledges_nothing_more() {
    for seed in 0..8 {
        // A group takes a write and a flush: both fail, of each of the groups in the first file.
        for nth in 1..=6 {
            let world = World::new(seed, 3);
            let operation = world.disk.operations() + nth;
            world.disk.fail_at(operation, io::ErrorKind::Other);
            world.append_groups(3);
            let row = format!("seed {seed}, operation {nth}");
            for member in &world.members {
                let groups_before = i64::try_from(nth - 1).unwrap() / 2;
                assert_eq!(member.acknowledged(), groups_before, "{row}");
                assert!(!member.failures.borrow().is_empty(), "{row}");
                assert!(member.failures.borrow()[0].contains("injected"), "{row}");
            }
            let answer = world.log_control(0);
            world.members[0].append(1, 100);
            world.settle();
            assert!(matches!(*answer.borrow(), Some(Err(_))), "{row}");
            world.check_promises(&world.disk.crash(seed)).unwrap();
        }
    }
}

#[test]
fn a_control_entry_whose_flush_fails_is_answered_with_an_error() {
    for nth in 1..=2 {
        let world = World::new(1, 1);
        let operation = world.disk.operations() + nth;
        world.disk.fail_at(operation, io::ErrorKind::Other);
        let answer = world.log_control(0);
        world.settle();
        assert!(matches!(*answer.borrow(), Some(Err(_))), "operation {nth}");
    }
}

// --- the end -----------------------------------------------------------------------------------

#[test]
fn a_clean_stop_leaves_files_that_hold_nothing() {
    for seed in 0..10 {
        let world = World::new(seed, 2);
        world.append_groups(2 * GROUPS_PER_FILE + 1);
        let closed = world.executor.run(async {
            world.log.stop().await;
            world.log.close(&world.disk, &core_dir(), header(2)).await
        });
        closed.expect("it goes on").unwrap();
        let found = replayed(&world.disk.crash(seed)).unwrap();
        assert!(found.partitions.is_empty(), "seed {seed}");
        assert_eq!((found.generation, found.torn_groups), (2, 0), "seed {seed}");
    }
}

#[test]
fn a_stop_waits_for_a_release_and_then_asks_for_no_checkpoint() {
    let world = World::new(1, 1);
    world.members[0].gate.close();
    world.append_groups(GROUPS_PER_FILE + 1);
    let is_stopped = Rc::new(Cell::new(false));
    let (log, stopped) = (world.log.clone(), is_stopped.clone());
    (world.executor.spawn())(Box::pin(async move {
        log.stop().await;
        stopped.set(true);
    }));
    world.settle();
    assert!(!is_stopped.get());
    world.members[0].gate.open();
    world.settle();
    assert!(is_stopped.get());
    assert_eq!(*world.released.borrow(), Vec::<u64>::new());
}

#[test]
fn a_stop_ends_groups_that_wait_for_room() {
    let world = World::new(1, 2);
    world.members[0].release_fails.set(true);
    world.append_groups(4 * GROUPS_PER_FILE);
    world.members[1].append(1, 100);
    let answer = world.log_control(0);
    world.settle();
    assert!(answer.borrow().is_none());
    let closed = world.executor.run(async {
        world.log.stop().await;
        world.log.close(&world.disk, &core_dir(), header(2)).await
    });
    closed.expect("it goes on").unwrap();
    assert!(matches!(*answer.borrow(), Some(Err(_))));
    assert_eq!(world.members[1].acknowledged(), 4 * GROUPS_PER_FILE);
    assert!(world.members[1].failures.borrow().is_empty());
}
