//! Clients that know what was acknowledged to them, and when by the device's clock; and the check
//! of what a broker still has after the power failed at some time.
//!
//! One thread owns a partition, and a record's value follows from its offset: what is found at an
//! offset is right or wrong by itself, and a record that is there twice is wrong once.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use kafka_protocol::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsTopic,
};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::{DeleteRecordsRequest, DeleteTopicsRequest};
use uuid::Uuid;

use super::Random;
use super::device::Clock;
use crate::support::batch::Batch;
use crate::support::calls::{
    EARLIEST, LATEST, create_topic, create_topics, describe_topic, fetch_all, list_offsets, name,
    produce,
};
use crate::support::wire::Wire;

/// Reached at a time of the device's clock.
type Reached = (i64, usize);

/// What is known of a partition.
#[derive(Debug, Clone, Default)]
pub struct Known {
    pub topic: String,
    pub partition: i32,
    /// Ends of acknowledged batches.
    acknowledged: Vec<Reached>,
    /// Where the log would end if all that was sent arrived.
    sent_end: i64,
    /// Log starts that were asked for, and those that were confirmed.
    start_asked: Vec<Reached>,
    start_confirmed: Vec<Reached>,
}

/// What is known of a topic.
#[derive(Debug, Clone)]
pub struct KnownTopic {
    pub name: String,
    pub id: Uuid,
    created: usize,
    deletion_asked: Option<usize>,
    deletion_confirmed: Option<usize>,
    pub partitions: Vec<Known>,
}

impl Known {
    fn at_least(reached: &[Reached], cut: usize) -> i64 {
        let before = reached.iter().filter(|(_, time)| *time <= cut);
        before.map(|(offset, _)| *offset).max().unwrap_or(0)
    }

    pub fn acknowledgement_times(&self) -> impl Iterator<Item = usize> {
        self.acknowledged.iter().map(|(_, time)| *time)
    }

    /// Finds every record that was acknowledged before the cut, and takes what is there for
    /// acknowledged from now on: it was readable.
    fn check(&mut self, wire: &mut Wire, cut: usize) -> usize {
        let what = format!("{}-{}", self.topic, self.partition);
        let start = list_offsets(wire, &self.topic, self.partition, EARLIEST);
        let end = list_offsets(wire, &self.topic, self.partition, LATEST);
        assert_eq!(start.error_code, 0, "{what}: its start");
        assert_eq!(end.error_code, 0, "{what}: its end");
        let (start, end) = (start.offset, end.offset);
        let start_min = Self::at_least(&self.start_confirmed, cut);
        let start_max = Self::at_least(&self.start_asked, cut);
        assert!(
            (start_min..=start_max).contains(&start),
            "{what} begins at {start}, and not within {start_min}..={start_max}"
        );
        let end_min = Self::at_least(&self.acknowledged, cut);
        assert!(
            (end_min..=self.sent_end).contains(&end),
            "{what} ends at {end}, and not within {end_min}..={}: records that were acknowledged are lost, or there are others",
            self.sent_end
        );
        let mut next = start;
        for batch in fetch_all(wire, &self.topic, self.partition, start) {
            for (offset, value) in (batch.base_offset..).zip(batch.values()) {
                // A batch may begin before the log's start.
                if offset < next {
                    assert!(offset < start, "{what}: offset {offset} comes twice");
                    continue;
                }
                assert_eq!(offset, next, "{what}: a gap");
                check_value(&self.topic, self.partition, offset, &value);
                next += 1;
            }
        }
        assert_eq!(next, end, "{what}: the end that a fetch finds");
        self.acknowledged = vec![(end, 0)];
        self.sent_end = end;
        self.start_asked = vec![(start, 0)];
        self.start_confirmed = vec![(start, 0)];
        (end - start) as usize
    }

    /// Sends a batch and notes when it was acknowledged.
    ///
    /// # Errors
    /// The error code, where it was refused: it is not in the log then.
    pub fn produce(
        &mut self,
        wire: &mut Wire,
        records: usize,
        value_bytes: usize,
        now: impl Fn() -> usize,
    ) -> Result<(), i16> {
        let base = self.sent_end;
        let values: Vec<String> = (base..)
            .take(records)
            .map(|offset| value(&self.topic, self.partition, offset, value_bytes))
            .collect();
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        let batch = Batch::of(&values).build();
        let answer = produce(wire, &self.topic, self.partition, batch);
        if answer.error_code != 0 {
            return Err(answer.error_code);
        }
        let time = now();
        assert_eq!(
            answer.base_offset, base,
            "{}-{}: the base offset",
            self.topic, self.partition
        );
        self.sent_end = base + records as i64;
        self.acknowledged.push((self.sent_end, time));
        Ok(())
    }

    fn delete_records(&mut self, wire: &mut Wire, before: i64, clock: &Clock) {
        self.start_asked.push((before, clock.now()));
        let partition = DeleteRecordsPartition::default()
            .with_partition_index(self.partition)
            .with_offset(before);
        let topic = DeleteRecordsTopic::default()
            .with_name(name(&self.topic))
            .with_partitions(vec![partition]);
        let request = DeleteRecordsRequest::default()
            .with_timeout_ms(10_000)
            .with_topics(vec![topic]);
        let response = wire.call(2, &request);
        let answer = &response.topics[0].partitions[0];
        assert_eq!(answer.error_code, 0, "DeleteRecords of {}", self.topic);
        self.start_confirmed.push((before, clock.now()));
    }
}

/// The record that belongs there.
fn value(topic: &str, partition: i32, offset: i64, bytes: usize) -> String {
    let mut value = format!("{topic}/{partition}/{offset}/{bytes}/");
    let filler = (b'a' + (offset % 26) as u8) as char;
    value.extend(std::iter::repeat_n(
        filler,
        bytes.saturating_sub(value.len()),
    ));
    value
}

fn check_value(topic: &str, partition: i32, offset: i64, found: &str) {
    let expected = value(topic, partition, offset, found.len());
    let head = |text: &str| text.chars().take(60).collect::<String>();
    assert!(
        expected == found,
        "{topic}-{partition}@{offset} holds {:?} and not {:?}",
        head(found),
        head(&expected)
    );
}

impl KnownTopic {
    pub fn create(wire: &mut Wire, name: &str, partitions: i32, now: impl Fn() -> usize) -> Self {
        let id = create_topic(wire, name, partitions);
        Self::created(name, id, partitions, now())
    }

    fn created(name: &str, id: Uuid, partitions: i32, created: usize) -> Self {
        let known = |partition| Known {
            topic: name.to_owned(),
            partition,
            ..Known::default()
        };
        Self {
            name: name.to_owned(),
            id,
            created,
            deletion_asked: None,
            deletion_confirmed: None,
            partitions: (0..partitions).map(known).collect(),
        }
    }
}

/// Everything that a broker was asked to keep.
#[derive(Debug, Clone, Default)]
pub struct Model {
    pub topics: Vec<KnownTopic>,
}

impl Model {
    /// Fails unless the broker has all that was acknowledged before the cut, and nothing that was
    /// never sent. The number of records found.
    pub fn check(&mut self, address: SocketAddr, cut: usize) -> usize {
        let mut wire = Wire::connect(address);
        let mut records = 0;
        let mut kept = Vec::new();
        for mut topic in std::mem::take(&mut self.topics) {
            let found = describe_topic(&mut wire, &topic.name);
            let is_there = found.error_code == 0;
            let is_deleted = topic.deletion_confirmed.is_some_and(|time| time <= cut);
            let may_be_deleted = topic.deletion_asked.is_some_and(|time| time <= cut);
            if topic.created <= cut && !may_be_deleted {
                assert!(is_there, "the topic {} is lost", topic.name);
            }
            if is_deleted {
                assert!(!is_there, "the topic {} is back", topic.name);
            }
            if !is_there {
                continue;
            }
            assert_eq!(found.topic_id, topic.id, "the id of {}", topic.name);
            for partition in &mut topic.partitions {
                records += partition.check(&mut wire, cut);
            }
            topic.created = 0;
            topic.deletion_asked = None;
            topic.deletion_confirmed = None;
            kept.push(topic);
        }
        self.topics = kept;
        records
    }

    /// Times at which something was acknowledged.
    pub fn acknowledgement_times(&self) -> Vec<usize> {
        let partitions = self.topics.iter().flat_map(|topic| &topic.partitions);
        let times = partitions.flat_map(Known::acknowledgement_times);
        let mut times: Vec<usize> = times.collect();
        times.extend(self.topics.iter().map(|topic| topic.created));
        times.extend(self.topics.iter().filter_map(|it| it.deletion_confirmed));
        times
    }

    /// Clients of all kinds for a while: small batches on many partitions, large ones, both on one
    /// partition, deleted records, topics that come and go.
    pub fn drive(
        &mut self,
        address: SocketAddr,
        clock: &Clock,
        random: &mut Random,
        how_long: Duration,
    ) {
        const SMALL: i32 = 8;
        const THREADS: usize = 4;
        let round = self.topics.len();
        for (kind, partitions) in [("small", SMALL), ("mixed", 3), ("cut", 1)] {
            if !self.topics.iter().any(|topic| topic.name == kind) {
                let mut wire = Wire::connect(address);
                let topic = KnownTopic::create(&mut wire, kind, partitions, || clock.now());
                self.topics.push(topic);
            }
        }
        let end = Instant::now() + how_long;
        let mut take = |kind: &str| -> Vec<Known> {
            let topic = self.topics.iter_mut().find(|topic| topic.name == kind);
            std::mem::take(&mut topic.expect("made above").partitions)
        };
        let (mut small, mixed, mut cut) = (take("small"), take("mixed"), take("cut"));
        let mut workers = Vec::new();
        let per_thread = small.len().div_ceil(THREADS);
        while !small.is_empty() {
            let own: Vec<Known> = small.drain(..per_thread.min(small.len())).collect();
            let (clock, random) = (clock.clone(), random.fork());
            workers.push(thread::spawn(move || {
                produce_until(address, own, &clock, random, end, 0)
            }));
        }
        let (their_clock, fork) = (clock.clone(), random.fork());
        workers.push(thread::spawn(move || {
            produce_until(address, mixed, &their_clock, fork, end, 30)
        }));
        let (their_clock, fork) = (clock.clone(), random.fork());
        let deleter = thread::spawn(move || {
            delete_until(address, &mut cut[0], &their_clock, fork, end);
            cut
        });
        let (their_clock, fork) = (clock.clone(), random.fork());
        let creator = thread::spawn(move || create_until(address, round, &their_clock, fork, end));
        let mut back: Vec<Known> = Vec::new();
        for worker in workers {
            back.extend(worker.join().expect("a producing thread"));
        }
        back.extend(deleter.join().expect("the deleting thread"));
        for known in back {
            let topic = self.topics.iter_mut().find(|it| it.name == known.topic);
            topic.expect("made above").partitions.push(known);
        }
        self.topics
            .extend(creator.join().expect("the creating thread"));
    }
}

/// Small batches to any of the partitions, and of a hundred so many large ones.
fn produce_until(
    address: SocketAddr,
    mut partitions: Vec<Known>,
    clock: &Clock,
    mut random: Random,
    end: Instant,
    large_of_hundred: u64,
) -> Vec<Known> {
    let mut wire = Wire::connect(address);
    while Instant::now() < end {
        let any = random.below(partitions.len() as u64) as usize;
        let (records, bytes) = if random.below(100) < large_of_hundred {
            (random.between(14, 60) as usize, 10_000)
        } else {
            (
                random.between(1, 12) as usize,
                random.between(30, 900) as usize,
            )
        };
        let result = partitions[any].produce(&mut wire, records, bytes, || clock.now());
        assert_eq!(result, Ok(()), "produce");
    }
    partitions
}

fn delete_until(
    address: SocketAddr,
    partition: &mut Known,
    clock: &Clock,
    mut random: Random,
    end: Instant,
) {
    let mut wire = Wire::connect(address);
    while Instant::now() < end {
        for _ in 0..random.between(3, 20) {
            let bytes = random.between(100, 20_000) as usize;
            let result = partition.produce(&mut wire, 3, bytes, || clock.now());
            assert_eq!(result, Ok(()), "produce");
        }
        let start = Known::at_least(&partition.start_asked, usize::MAX);
        let before = start + 1 + random.below((partition.sent_end - start) as u64) as i64;
        partition.delete_records(&mut wire, before, clock);
    }
}

fn create_until(
    address: SocketAddr,
    round: usize,
    clock: &Clock,
    mut random: Random,
    end: Instant,
) -> Vec<KnownTopic> {
    let mut wire = Wire::connect(address);
    let mut topics: Vec<KnownTopic> = Vec::new();
    while Instant::now() < end {
        let topic_name = format!("passing-{round}-{}", topics.len());
        let response = wire.call(7, &create_topics(&topic_name, 2, &[]));
        let result = &response.topics[0];
        assert_eq!(result.error_code, 0, "create {topic_name}");
        let mut topic = KnownTopic::created(&topic_name, result.topic_id, 2, clock.now());
        for partition in &mut topic.partitions {
            let result = partition.produce(&mut wire, 2, 100, || clock.now());
            assert_eq!(result, Ok(()), "produce to {topic_name}");
        }
        topics.push(topic);
        if random.below(2) == 0 {
            let alive: Vec<usize> = (0..topics.len())
                .filter(|index| topics[*index].deletion_asked.is_none())
                .collect();
            let topic = &mut topics[alive[random.below(alive.len() as u64) as usize]];
            topic.deletion_asked = Some(clock.now());
            delete_topic(&mut wire, &topic.name);
            topic.deletion_confirmed = Some(clock.now());
        }
        thread::sleep(Duration::from_millis(random.between(20, 150)));
    }
    topics
}

pub fn delete_topic(wire: &mut Wire, topic: &str) {
    let state = DeleteTopicState::default().with_name(Some(name(topic)));
    let request = DeleteTopicsRequest::default()
        .with_timeout_ms(10_000)
        .with_topics(vec![state]);
    let response = wire.call(6, &request);
    assert_eq!(response.responses[0].error_code, 0, "delete {topic}");
}
