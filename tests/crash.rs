//! SIGKILL at any moment: what was acknowledged stays, once and in order.

mod support;

#[path = "support/clients.rs"]
mod clients;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use kafka_protocol::messages::{
    DeleteTopicsRequest, DescribeConfigsRequest, IncrementalAlterConfigsRequest,
};
use kafka_protocol::protocol::Request;
use rdkafka::Message;
use rdkafka::producer::{BaseRecord, Producer};
use uuid::Uuid;

use clients::{Deliveries, consume, consumer, producer, send};
use support::batch::Batch;
use support::calls::{
    LATEST, PRODUCE_BY_NAME, code, create_topic, create_topic_with, create_topics, describe_topic,
    fetch_all, list_offsets, name, produce_ok, produce_request, text,
};
use support::wire::{Outcome, Wire, decode_response};
use support::{Broker, Settings, needs_own_process, two_cores, unique_topic};

const PATIENCE: Duration = Duration::from_secs(120);

/// A small generator, so that a failure can be repeated from the seed that it printed.
struct Random(u64);

impl Random {
    /// `RINGMAIN_TEST_SEED` if set, else from the clock.
    fn announced(test: &str) -> Self {
        let seed = match std::env::var("RINGMAIN_TEST_SEED") {
            Ok(seed) => seed.parse().expect("RINGMAIN_TEST_SEED is a number"),
            Err(_) => std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64,
        };
        println!("{test}: RINGMAIN_TEST_SEED={seed}");
        Self(seed | 1)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

#[test]
fn no_acknowledged_record_is_lost_or_doubled_by_ten_kills() {
    if needs_own_process("no_acknowledged_record_is_lost_or_doubled_by_ten_kills") {
        return;
    }
    const PARTITIONS: i32 = 6;
    let mut random = Random::announced("ten kills");
    let mut broker = Broker::start();
    let bootstrap = broker.bootstrap();
    let topic = unique_topic("kills");
    // Small segments, so that kills also hit rolls.
    let configs = [("segment.bytes", "1048576")];
    create_topic_with(&mut broker.wire(), &topic, PARTITIONS, &configs);

    let deliveries = Deliveries::default();
    let producer = Arc::new(producer(
        clients::config(&bootstrap)
            .set("enable.idempotence", "true")
            .set("acks", "all")
            .set("linger.ms", "2")
            .set("message.timeout.ms", "300000")
            .set("socket.timeout.ms", "5000")
            .set("queue.buffering.max.messages", "20000"),
        &deliveries,
    ));
    let stop = Arc::new(AtomicBool::new(false));
    let worker = {
        let (stop, topic, producer) = (Arc::clone(&stop), topic.clone(), Arc::clone(&producer));
        thread::spawn(move || {
            let mut number = 0;
            while !stop.load(Ordering::Relaxed) {
                let value = format!("{number:020} {}", "x".repeat(number % 500));
                let record = BaseRecord::with_opaque_to(&topic, Box::new(number))
                    .partition(number as i32 % PARTITIONS)
                    .key(&b"k"[..])
                    .payload(value.as_bytes());
                send(&producer, record);
                number += 1;
                if number % 20 == 0 {
                    producer.poll(Duration::ZERO);
                    thread::sleep(Duration::from_millis(1));
                }
            }
            number
        })
    };
    for round in 0..10 {
        let before = deliveries.acknowledged_count();
        support::eventually("records are acknowledged", PATIENCE, || {
            deliveries.acknowledged_count() > before
        });
        thread::sleep(Duration::from_millis(100 + random.below(700)));
        println!(
            "kill {round} after {} records",
            deliveries.acknowledged_count()
        );
        broker.kill_and_restart();
    }
    stop.store(true, Ordering::Relaxed);
    let sent = worker.join().expect("the producing thread");
    producer
        .flush(PATIENCE)
        .expect("everything is delivered in the end");

    let places: HashMap<(i32, i64), usize> = deliveries.with(|it| {
        assert!(
            it.failed.is_empty(),
            "{:?}",
            &it.failed[..it.failed.len().min(5)]
        );
        assert_eq!(it.acknowledged.len(), sent);
        let places = it
            .acknowledged
            .iter()
            .map(|&(number, partition, offset)| ((partition, offset), number));
        places.collect()
    });
    let consumer = consumer(&bootstrap, &topic, PARTITIONS);
    let mut next = vec![0; PARTITIONS as usize];
    let mut last = vec![None; PARTITIONS as usize];
    consume(&consumer, sent, PATIENCE, |message| {
        let partition = message.partition() as usize;
        assert_eq!(
            message.offset(),
            next[partition],
            "no gap in partition {partition}"
        );
        next[partition] += 1;
        let value = String::from_utf8_lossy(message.payload().unwrap());
        let number: usize = value[..20].parse().expect("a number");
        assert_eq!(number % PARTITIONS as usize, partition);
        // Ascending: in order, and none twice.
        assert!(
            last[partition].is_none_or(|last| last < number),
            "{last:?}, then {number}"
        );
        last[partition] = Some(number);
        let told = places.get(&(message.partition(), message.offset()));
        // librdkafka reports no offset where the broker answered a retry as a duplicate.
        assert!(
            told.is_none_or(|told| *told == number),
            "{told:?} was told of {number}"
        );
    });
    let mut wire = broker.wire();
    for partition in 0..PARTITIONS {
        let end = list_offsets(&mut wire, &topic, partition, LATEST).offset;
        assert_eq!(
            end, next[partition as usize],
            "nothing else is in partition {partition}"
        );
    }
}

/// What the metadata must still know: topic to id, partitions and `retention.ms`.
type Model = HashMap<String, (Uuid, i32, Option<String>)>;

/// What a command may have done when its answer never came.
enum Pending {
    Nothing,
    Create(String, i32),
    Retain(String, String),
    Delete(String),
}

/// The answer, or `None` where the connection broke first.
fn try_call<R: Request>(wire: &mut Wire, version: i16, request: &R) -> Option<R::Response> {
    let frame = support::wire::encode_request(version, 1, request);
    wire.send_frame(&frame).ok()?;
    match wire.outcome() {
        Outcome::Answered(frame) => Some(decode_response::<R>(version, 1, frame)),
        _ => None,
    }
}

#[test]
fn topics_and_their_configs_survive_kills_at_any_moment() {
    if needs_own_process("topics_and_their_configs_survive_kills_at_any_moment") {
        return;
    }
    let mut random = Random::announced("metadata kills");
    let mut broker = Broker::start();
    let mut model = Model::new();
    for round in 0..12 {
        let address = broker.address();
        let mut wire = Wire::connect(address);
        let pause = Duration::from_millis(5 + random.below(150));
        let seed = random.below(u64::MAX);
        let worker = thread::spawn(move || {
            let mut random = Random(seed | 1);
            let pending = change_until_broken(&mut wire, &mut model, &mut random, round);
            (model, pending)
        });
        thread::sleep(pause);
        broker.kill();
        let (known, pending) = worker.join().expect("the changing thread");
        model = known;
        broker.start_again();
        let mut wire = broker.wire();
        settle(&mut wire, &mut model, pending);
        check(&mut wire, &model);
    }
    println!("{} topics in the end", model.len());
    assert!(!model.is_empty());
    broker.restart();
    let mut wire = broker.wire();
    check(&mut wire, &model);
    for topic in model.keys() {
        produce_ok(&mut wire, topic, 0, Batch::of(&["usable"]).build());
    }
}

fn change_until_broken(
    wire: &mut Wire,
    model: &mut Model,
    random: &mut Random,
    round: i32,
) -> Pending {
    let end = Instant::now() + PATIENCE;
    for number in 0.. {
        assert!(Instant::now() < end, "the broker was not killed");
        let known: Vec<String> = model.keys().cloned().collect();
        let any = |random: &mut Random| known[random.below(known.len() as u64) as usize].clone();
        match random.below(4) {
            0 if known.len() > 3 => {
                let topic = any(random);
                let request = DeleteTopicsRequest::default()
                    .with_timeout_ms(10_000)
                    .with_topics(vec![
                        DeleteTopicState::default().with_name(Some(name(&topic))),
                    ]);
                let Some(response) = try_call(wire, 6, &request) else {
                    return Pending::Delete(topic);
                };
                assert_eq!(response.responses[0].error_code, 0, "delete {topic}");
                model.remove(&topic);
            }
            1 if !known.is_empty() => {
                let topic = any(random);
                let retention = (1000 + random.below(1_000_000)).to_string();
                let Some(response) = try_call(wire, 1, &retain(&topic, &retention)) else {
                    return Pending::Retain(topic, retention);
                };
                assert_eq!(response.responses[0].error_code, 0, "alter {topic}");
                model.get_mut(&topic).unwrap().2 = Some(retention);
            }
            _ => {
                let topic = format!("survivor-{round}-{number}");
                let partitions = 1 + random.below(4) as i32;
                let request = create_topics(&topic, partitions, &[]);
                let Some(response) = try_call(wire, 7, &request) else {
                    return Pending::Create(topic, partitions);
                };
                let result = &response.topics[0];
                assert_eq!(result.error_code, 0, "create {topic}");
                model.insert(topic, (result.topic_id, partitions, None));
            }
        }
    }
    Pending::Nothing
}

fn retain(topic: &str, retention: &str) -> IncrementalAlterConfigsRequest {
    let entry = AlterableConfig::default()
        .with_name(text("retention.ms"))
        .with_config_operation(0)
        .with_value(Some(text(retention)));
    IncrementalAlterConfigsRequest::default().with_resources(vec![
        AlterConfigsResource::default()
            .with_resource_type(2)
            .with_resource_name(text(topic))
            .with_configs(vec![entry]),
    ])
}

/// The unanswered command happened or did not; the model follows what is there.
fn settle(wire: &mut Wire, model: &mut Model, pending: Pending) {
    match pending {
        Pending::Nothing => {}
        Pending::Create(topic, partitions) => {
            let found = describe_topic(wire, &topic);
            if found.error_code == 0 {
                assert_eq!(
                    found.partitions.len(),
                    partitions as usize,
                    "all or nothing"
                );
                model.insert(topic, (found.topic_id, partitions, None));
            }
        }
        Pending::Retain(topic, retention) => {
            let now = retention_of(wire, &topic);
            let entry = model.get_mut(&topic).unwrap();
            if now.as_ref() == Some(&retention) {
                entry.2 = now;
            }
        }
        Pending::Delete(topic) => {
            if describe_topic(wire, &topic).error_code != 0 {
                model.remove(&topic);
            }
        }
    }
}

/// The override of `retention.ms`, if there is one.
fn retention_of(wire: &mut Wire, topic: &str) -> Option<String> {
    let resource = DescribeConfigsResource::default()
        .with_resource_type(2)
        .with_resource_name(text(topic))
        .with_configuration_keys(Some(vec![text("retention.ms")]));
    let request = DescribeConfigsRequest::default().with_resources(vec![resource]);
    let response = wire.call(4, &request);
    let result = &response.results[0];
    assert_eq!(result.error_code, 0, "configs of {topic}");
    let entry = &result.configs[0];
    // 1 is DYNAMIC_TOPIC_CONFIG.
    let overridden = entry.config_source == 1;
    overridden.then(|| entry.value.as_ref().unwrap().to_string())
}

fn check(wire: &mut Wire, model: &Model) {
    let all = wire.call(
        12,
        &kafka_protocol::messages::MetadataRequest::default().with_topics(None),
    );
    let mut found: Vec<String> = all
        .topics
        .iter()
        .map(|it| it.name.as_ref().unwrap().to_string())
        .collect();
    found.sort();
    let mut expected: Vec<String> = model.keys().cloned().collect();
    expected.sort();
    assert_eq!(found, expected, "the topics that there are");
    for (topic, (id, partitions, retention)) in model {
        let now = describe_topic(wire, topic);
        assert_eq!(now.error_code, 0, "{topic}");
        assert_eq!(now.topic_id, *id, "the id of {topic}");
        assert_eq!(
            now.partitions.len(),
            *partitions as usize,
            "partitions of {topic}"
        );
        assert_eq!(
            retention_of(wire, topic),
            *retention,
            "retention.ms of {topic}"
        );
    }
}

#[test]
fn a_kill_right_after_the_answer_keeps_topic_and_record() {
    if needs_own_process("a_kill_right_after_the_answer_keeps_topic_and_record") {
        return;
    }
    let mut broker = Broker::start();
    for round in 0..5 {
        let topic = unique_topic("at-once");
        let mut wire = broker.wire();
        let id = create_topic(&mut wire, &topic, 2);
        assert_eq!(
            produce_ok(&mut wire, &topic, 1, Batch::of(&["kept"]).build()),
            0
        );
        broker.kill_and_restart();
        let mut wire = broker.wire();
        assert_eq!(
            describe_topic(&mut wire, &topic).topic_id,
            id,
            "round {round}"
        );
        assert_eq!(
            list_offsets(&mut wire, &topic, 1, LATEST).offset,
            1,
            "round {round}"
        );
    }
}

/// Small batches on many partitions share the commit log's groups; its small files are used again
/// many times in each round. The next start has another number of cores, and so other owners.
#[test]
fn kills_and_other_core_counts_lose_nothing_of_small_batches_on_many_partitions() {
    if needs_own_process(
        "kills_and_other_core_counts_lose_nothing_of_small_batches_on_many_partitions",
    ) {
        return;
    }
    const PARTITIONS: i32 = 48;
    const CLIENTS: i32 = 6;
    let mut random = Random::announced("core counts");
    let two = two_cores();
    let one = two.split(',').next().expect("a core").to_owned();
    let settings = Settings::default().config("ringmain.commit.log.bytes = 4194304\n");
    let mut broker = settings.start();
    let topic = unique_topic("cores");
    create_topic(&mut broker.wire(), &topic, PARTITIONS);
    let mut ends = vec![0; PARTITIONS as usize];
    for (round, cores) in [&one, &two, &one, &one, &two, &two].into_iter().enumerate() {
        let address = broker.address();
        let workers: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let own: Vec<(i32, i64)> = (0..PARTITIONS)
                    .zip(ends.iter().copied())
                    .filter(|(partition, _)| partition % CLIENTS == client)
                    .collect();
                let (topic, random) = (topic.clone(), Random(random.below(u64::MAX) | 1));
                thread::spawn(move || produce_until_broken(address, &topic, own, random))
            })
            .collect();
        thread::sleep(Duration::from_millis(300 + random.below(900)));
        // A clean stop under load now and then.
        if round % 3 == 2 {
            broker.stop();
        } else {
            broker.kill();
        }
        for worker in workers {
            for (partition, acknowledged) in worker.join().expect("a producing thread") {
                ends[partition as usize] = acknowledged;
            }
        }
        broker.set_cores(cores);
        broker.start_again();
        let mut wire = broker.wire();
        for (partition, end) in (0..).zip(&mut ends) {
            *end = check_sequence(&mut wire, &topic, partition, *end);
        }
        let total: i64 = ends.iter().sum();
        println!("round {round}: {total} records, now on cores {cores}");
    }
    assert!(ends.iter().all(|end| *end > 0), "{ends:?}");
}

/// A record's value follows from its place.
fn value_at(partition: i32, offset: i64) -> String {
    let filler = "y".repeat(40 + (offset * 37 % 400) as usize);
    format!("{partition}/{offset}/{filler}")
}

/// Small batches to the partitions, of which only this thread appends to any; where the
/// acknowledged records end when the connection breaks.
fn produce_until_broken(
    address: SocketAddr,
    topic: &str,
    mut partitions: Vec<(i32, i64)>,
    mut random: Random,
) -> Vec<(i32, i64)> {
    let mut wire = Wire::connect(address);
    loop {
        let any = random.below(partitions.len() as u64) as usize;
        let (partition, end) = &mut partitions[any];
        let count = 1 + random.below(5) as i64;
        let values: Vec<String> = (*end..*end + count)
            .map(|offset| value_at(*partition, offset))
            .collect();
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        let request = produce_request(topic, *partition, -1, Batch::of(&values).build());
        let Some(response) = try_call(&mut wire, PRODUCE_BY_NAME, &request) else {
            return partitions;
        };
        let answer = &response.responses[0].partition_responses[0];
        if answer.error_code != 0 {
            // What a broker that is being stopped may answer: the batch is there, or it is not.
            assert_eq!(answer.error_code, code::NOT_LEADER_OR_FOLLOWER);
            return partitions;
        }
        assert_eq!(answer.base_offset, *end, "partition {partition}");
        *end += count;
    }
}

/// Every record from the first to the log's end is in its place, and those below `acknowledged`
/// are there. The log's end.
fn check_sequence(wire: &mut Wire, topic: &str, partition: i32, acknowledged: i64) -> i64 {
    let end = list_offsets(wire, topic, partition, LATEST).offset;
    assert!(
        end >= acknowledged,
        "partition {partition} ends at {end}, and {acknowledged} was acknowledged"
    );
    let mut next = 0;
    for batch in fetch_all(wire, topic, partition, 0) {
        assert_eq!(batch.base_offset, next, "no gap in partition {partition}");
        for value in batch.values() {
            assert_eq!(value, value_at(partition, next), "in its place");
            next += 1;
        }
    }
    assert_eq!(next, end, "partition {partition}");
    end
}
