//! An unmodified librdkafka against the broker: a million records in each compression, look-ups,
//! metadata and administration.

mod support;

#[path = "support/clients.rs"]
mod clients;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use futures_lite::future::block_on;
use kafka_protocol::messages::AlterConfigsRequest;
use kafka_protocol::messages::alter_configs_request::{AlterConfigsResource, AlterableConfig};
use rdkafka::admin::{
    AdminOptions, AlterConfig, ConfigSource, NewPartitions, NewTopic, ResourceSpecifier,
    TopicReplication,
};
use rdkafka::consumer::Consumer;
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::message::{Header, Headers, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer};
use rdkafka::{Message, Offset, Timestamp, TopicPartitionList};
use sha2::{Digest, Sha256};

use clients::{Deliveries, admin, consume, consumer, producer, send};
use support::calls::{code, text};
use support::{Broker, eventually, unique_topic};

const RECORDS: usize = 1_000_000;
const PARTITIONS: i32 = 12;
const PATIENCE: Duration = Duration::from_secs(60);

/// The parts of record `number`: everything about it follows from its number.
struct Parts {
    partition: i32,
    timestamp_ms: i64,
    key: String,
    value: Vec<u8>,
    header: [u8; 8],
}

impl Parts {
    fn of(number: usize, base_ms: i64) -> Self {
        // Half text that compresses, half bytes that do not.
        let mut value =
            format!("record {number:09} of a million, over twelve partitions;").into_bytes();
        let mut state = number as u64 ^ 0x9e37_79b9_7f4a_7c15;
        for _ in 0..5 {
            state = state
                .wrapping_mul(0x5851_f42d_4c95_7f2d)
                .wrapping_add(0x1405_7b7e_f767_814f);
            value.extend_from_slice(&(state ^ state >> 29).to_be_bytes());
        }
        Self {
            partition: number as i32 % PARTITIONS,
            timestamp_ms: base_ms + number as i64 / 100,
            key: format!("key-{number}"),
            value,
            header: (number as u64).to_be_bytes(),
        }
    }
}

/// Takes in one record with the length of each part, so that no two sequences look alike.
fn digest(hash: &mut Sha256, offset: i64, timestamp_ms: i64, parts: [&[u8]; 3]) {
    hash.update(offset.to_be_bytes());
    hash.update(timestamp_ms.to_be_bytes());
    for part in parts {
        hash.update((part.len() as u32).to_be_bytes());
        hash.update(part);
    }
}

fn a_million_records_survive(compression: &str) {
    let broker = Broker::start();
    let bootstrap = broker.bootstrap();
    let topic = unique_topic(&format!("million-{compression}"));
    create(&bootstrap, &topic, PARTITIONS);
    let started = Instant::now();

    let deliveries = Deliveries::default();
    let producer = producer(
        clients::config(&bootstrap)
            .set("acks", "all")
            .set("compression.codec", compression)
            .set("linger.ms", "20")
            .set("batch.size", "500000")
            .set("queue.buffering.max.messages", "300000"),
        &deliveries,
    );
    let base_ms = now_ms() - 3_600_000;
    let mut expected = vec![Sha256::new(); PARTITIONS as usize];
    for number in 0..RECORDS {
        let parts = Parts::of(number, base_ms);
        let headers = OwnedHeaders::new()
            .insert(Header {
                key: "number",
                value: Some(&parts.header[..]),
            })
            .insert(Header {
                key: "null",
                value: None::<&[u8]>,
            });
        let record = BaseRecord::with_opaque_to(&topic, Box::new(number))
            .partition(parts.partition)
            .timestamp(parts.timestamp_ms)
            .headers(headers)
            .key(parts.key.as_bytes())
            .payload(&parts.value[..]);
        send(&producer, record);
        if number % 1000 == 0 {
            producer.poll(Duration::ZERO);
        }
        let hash = &mut expected[parts.partition as usize];
        let offset = number as i64 / i64::from(PARTITIONS);
        let contents = [parts.key.as_bytes(), &parts.value[..], &parts.header[..]];
        digest(hash, offset, parts.timestamp_ms, contents);
    }
    producer.flush(PATIENCE).expect("everything is delivered");
    let produced = started.elapsed();
    deliveries.with(|it| {
        assert!(
            it.failed.is_empty(),
            "{:?}",
            &it.failed[..it.failed.len().min(5)]
        );
        assert_eq!(it.acknowledged.len(), RECORDS);
        for &(number, partition, offset) in &it.acknowledged {
            let place = (
                number as i32 % PARTITIONS,
                number as i64 / i64::from(PARTITIONS),
            );
            assert_eq!((partition, offset), place, "record {number}");
        }
    });

    let consumer = consumer(&bootstrap, &topic, PARTITIONS);
    let mut got = vec![Sha256::new(); PARTITIONS as usize];
    let mut next = vec![0; PARTITIONS as usize];
    consume(&consumer, RECORDS, PATIENCE, |message| {
        let partition = message.partition() as usize;
        assert_eq!(
            message.offset(),
            next[partition],
            "partition {partition}: order"
        );
        next[partition] += 1;
        let Timestamp::CreateTime(timestamp_ms) = message.timestamp() else {
            panic!("no create time: {:?}", message.timestamp());
        };
        let headers = message.headers().expect("headers");
        assert_eq!((headers.count(), headers.get(1).key), (2, "null"));
        assert_eq!(headers.get(1).value, None);
        let header = headers.get(0).value.expect("a header's value");
        let contents = [message.key().unwrap(), message.payload().unwrap(), header];
        digest(
            &mut got[partition],
            message.offset(),
            timestamp_ms,
            contents,
        );
    });
    for (partition, (got, expected)) in got.into_iter().zip(expected).enumerate() {
        assert_eq!(
            got.finalize(),
            expected.finalize(),
            "SHA-256 of partition {partition}"
        );
    }
    let consumed = started.elapsed() - produced;
    println!("{compression}: produced in {produced:.1?}, consumed in {consumed:.1?}");
    for partition in 0..PARTITIONS {
        let ends = consumer
            .fetch_watermarks(&topic, partition, PATIENCE)
            .expect("watermarks");
        let count = (RECORDS as i64 - i64::from(partition) + 11) / 12;
        assert_eq!(ends, (0, count), "partition {partition}");
    }
}

fn now_ms() -> i64 {
    let since = std::time::UNIX_EPOCH.elapsed().expect("a clock after 1970");
    since.as_millis() as i64
}

#[test]
fn a_million_records_survive_uncompressed() {
    a_million_records_survive("none");
}

#[test]
fn a_million_records_survive_gzip() {
    a_million_records_survive("gzip");
}

#[test]
fn a_million_records_survive_snappy() {
    a_million_records_survive("snappy");
}

#[test]
fn a_million_records_survive_lz4() {
    a_million_records_survive("lz4");
}

#[test]
fn a_million_records_survive_zstd() {
    a_million_records_survive("zstd");
}

fn options() -> AdminOptions {
    AdminOptions::new()
        .request_timeout(Some(Duration::from_secs(20)))
        .operation_timeout(Some(Duration::from_secs(20)))
}

/// Creates a topic and waits until each partition answers.
fn create(bootstrap: &str, topic: &str, partitions: i32) {
    let new = NewTopic::new(topic, partitions, TopicReplication::Fixed(1));
    let results = block_on(admin(bootstrap).create_topics([&new], &options()));
    assert_eq!(results.expect("an answer"), [Ok(topic.to_owned())]);
    wait_for(bootstrap, topic, partitions);
}

fn wait_for(bootstrap: &str, topic: &str, partitions: i32) {
    let consumer = consumer(bootstrap, topic, partitions);
    for partition in 0..partitions {
        eventually("a leader answers", Duration::from_secs(20), || {
            consumer
                .fetch_watermarks(topic, partition, Duration::from_secs(5))
                .is_ok()
        });
    }
}

/// Produces one record per timestamp, each a batch of its own.
fn produce_at(bootstrap: &str, topic: &str, partition: i32, timestamps_ms: &[i64]) {
    let deliveries = Deliveries::default();
    let producer = producer(
        clients::config(bootstrap).set("linger.ms", "0"),
        &deliveries,
    );
    for (number, &timestamp_ms) in timestamps_ms.iter().enumerate() {
        let record = BaseRecord::with_opaque_to(topic, Box::new(number))
            .partition(partition)
            .timestamp(timestamp_ms)
            .key(&b"k"[..])
            .payload(&b"v"[..]);
        send(&producer, record);
        producer.flush(PATIENCE).expect("it is delivered");
    }
    assert_eq!(deliveries.acknowledged_count(), timestamps_ms.len());
}

#[test]
fn offsets_are_found_by_time() {
    let broker = Broker::start();
    let bootstrap = broker.bootstrap();
    let topic = unique_topic("times");
    create(&bootstrap, &topic, 2);
    let base_ms = now_ms() - 1_000_000;
    produce_at(
        &bootstrap,
        &topic,
        0,
        &[base_ms, base_ms + 100, base_ms + 200],
    );
    let consumer = consumer(&bootstrap, &topic, 2);
    let look_up = |timestamp_ms: i64| {
        let mut list = TopicPartitionList::new();
        for partition in 0..2 {
            list.add_partition_offset(&topic, partition, Offset::Offset(timestamp_ms))
                .unwrap();
        }
        let found = consumer
            .offsets_for_times(list, PATIENCE)
            .expect("an answer");
        [0, 1].map(|partition| found.find_partition(&topic, partition).unwrap().offset())
    };
    assert_eq!(look_up(base_ms - 5)[0], Offset::Offset(0));
    assert_eq!(look_up(base_ms + 1)[0], Offset::Offset(1));
    assert_eq!(look_up(base_ms + 200)[0], Offset::Offset(2));
    assert_eq!(look_up(base_ms + 201), [Offset::End, Offset::End]);
    assert_eq!(
        consumer.fetch_watermarks(&topic, 0, PATIENCE).unwrap(),
        (0, 3)
    );
    assert_eq!(
        consumer.fetch_watermarks(&topic, 1, PATIENCE).unwrap(),
        (0, 0)
    );
}

#[test]
fn metadata_names_the_broker_and_the_partitions() {
    let broker = Broker::start();
    let bootstrap = broker.bootstrap();
    let topic = unique_topic("metadata");
    create(&bootstrap, &topic, 5);
    let consumer = consumer(&bootstrap, &topic, 1);
    let metadata = consumer
        .fetch_metadata(Some(&topic), PATIENCE)
        .expect("metadata");
    assert_eq!(metadata.brokers().len(), 1);
    let node = &metadata.brokers()[0];
    assert_eq!(node.id(), 1);
    assert_eq!(format!("{}:{}", node.host(), node.port()), bootstrap);
    let topics = metadata.topics();
    assert_eq!((topics.len(), topics[0].name()), (1, topic.as_str()));
    let mut partitions: Vec<i32> = topics[0].partitions().iter().map(|it| it.id()).collect();
    partitions.sort_unstable();
    assert_eq!(partitions, [0, 1, 2, 3, 4]);
    for partition in topics[0].partitions() {
        assert_eq!(
            (partition.leader(), partition.replicas(), partition.isr()),
            (1, &[1][..], &[1][..])
        );
    }
    let all = consumer.fetch_metadata(None, PATIENCE).expect("metadata");
    assert!(all.topics().iter().any(|it| it.name() == topic));
}

#[test]
fn producing_to_a_new_name_creates_the_topic() {
    let broker = Broker::start();
    let bootstrap = broker.bootstrap();
    let topic = unique_topic("auto");
    produce_at(&bootstrap, &topic, 0, &[now_ms(), now_ms()]);
    let consumer = consumer(&bootstrap, &topic, 1);
    let mut payloads = Vec::new();
    consume(&consumer, 2, PATIENCE, |message| {
        payloads.push(message.payload().unwrap().to_vec())
    });
    assert_eq!(payloads, [b"v", b"v"]);
    let metadata = consumer.fetch_metadata(Some(&topic), PATIENCE).unwrap();
    assert_eq!(
        metadata.topics()[0].partitions().len(),
        1,
        "num.partitions is 1"
    );
}

#[test]
fn topics_are_created_grown_and_deleted() {
    let broker = Broker::start();
    let bootstrap = broker.bootstrap();
    let admin = admin(&bootstrap);
    let topic = unique_topic("admin");
    let new = NewTopic::new(&topic, 2, TopicReplication::Fixed(1)).set("retention.ms", "86400000");
    let dry = options().validate_only(true);
    let results = block_on(admin.create_topics([&new], &dry)).unwrap();
    assert_eq!(results, [Ok(topic.clone())], "validate only");
    let results = block_on(admin.create_topics([&new], &options())).unwrap();
    assert_eq!(results, [Ok(topic.clone())], "it was not there yet");
    let results = block_on(admin.create_topics([&new], &options())).unwrap();
    let expected = (topic.clone(), RDKafkaErrorCode::TopicAlreadyExists);
    assert_eq!(results, [Err(expected)]);
    let too_many = NewTopic::new("replicated", 1, TopicReplication::Fixed(3));
    let results = block_on(admin.create_topics([&too_many], &options())).unwrap();
    let expected = (
        "replicated".to_owned(),
        RDKafkaErrorCode::InvalidReplicationFactor,
    );
    assert_eq!(results, [Err(expected)]);
    wait_for(&bootstrap, &topic, 2);

    let grown = NewPartitions::new(&topic, 4);
    let results = block_on(admin.create_partitions([&grown], &options())).unwrap();
    assert_eq!(results, [Ok(topic.clone())]);
    let shrunk = NewPartitions::new(&topic, 1);
    let results = block_on(admin.create_partitions([&shrunk], &options())).unwrap();
    assert_eq!(
        results,
        [Err((topic.clone(), RDKafkaErrorCode::InvalidPartitions))]
    );
    wait_for(&bootstrap, &topic, 4);
    produce_at(&bootstrap, &topic, 3, &[now_ms()]);

    let results = block_on(admin.delete_topics(&[&topic], &options())).unwrap();
    assert_eq!(results, [Ok(topic.clone())]);
    let results = block_on(admin.delete_topics(&[&topic], &options())).unwrap();
    let gone = RDKafkaErrorCode::UnknownTopicOrPartition;
    assert_eq!(results, [Err((topic.clone(), gone))]);
    // The same name again is a new, empty topic.
    create(&bootstrap, &topic, 4);
    let consumer = consumer(&bootstrap, &topic, 4);
    assert_eq!(
        consumer.fetch_watermarks(&topic, 3, PATIENCE).unwrap(),
        (0, 0)
    );
}

#[test]
fn every_topic_config_is_described_and_can_be_altered() {
    let broker = Broker::start();
    let bootstrap = broker.bootstrap();
    let admin = admin(&bootstrap);
    let topic = unique_topic("configs");
    let new = NewTopic::new(&topic, 1, TopicReplication::Fixed(1)).set("cleanup.policy", "compact");
    block_on(admin.create_topics([&new], &options())).unwrap();
    wait_for(&bootstrap, &topic, 1);
    let describe = || {
        let resource = ResourceSpecifier::Topic(&topic);
        let results = block_on(admin.describe_configs([&resource], &options())).unwrap();
        let entries = results
            .into_iter()
            .next()
            .unwrap()
            .expect("no error")
            .entries;
        let by_name = entries.into_iter().map(|it| (it.name.clone(), it));
        by_name.collect::<HashMap<_, _>>()
    };
    let entries = describe();
    // The defaults of Kafka 4.1, as its DescribeConfigs reports them.
    let defaults = [
        ("compression.type", "producer"),
        ("delete.retention.ms", "86400000"),
        ("file.delete.delay.ms", "60000"),
        ("flush.ms", "9223372036854775807"),
        ("follower.replication.throttled.replicas", ""),
        ("index.interval.bytes", "4096"),
        ("leader.replication.throttled.replicas", ""),
        ("local.retention.bytes", "-2"),
        ("local.retention.ms", "-2"),
        ("max.compaction.lag.ms", "9223372036854775807"),
        ("max.message.bytes", "1048588"),
        ("message.timestamp.after.max.ms", "3600000"),
        ("message.timestamp.before.max.ms", "9223372036854775807"),
        ("message.timestamp.type", "CreateTime"),
        ("min.cleanable.dirty.ratio", "0.5"),
        ("min.compaction.lag.ms", "0"),
        ("min.insync.replicas", "1"),
        ("preallocate", "false"),
        ("remote.storage.enable", "false"),
        ("retention.bytes", "-1"),
        ("retention.ms", "604800000"),
        ("segment.bytes", "1073741824"),
        ("segment.index.bytes", "10485760"),
        ("segment.jitter.ms", "0"),
        ("segment.ms", "604800000"),
        ("unclean.leader.election.enable", "false"),
    ];
    let mut wrong = Vec::new();
    for (name, default) in defaults {
        match entries.get(name) {
            Some(entry) if entry.value.as_deref() == Some(default) => {
                // Kafka's own formatter stores this one as a dynamic default.
                let stored = broker.is_foreign() && name == "min.insync.replicas";
                if !entry.is_default && !stored {
                    wrong.push(format!("{name} is not marked as a default: {entry:?}"));
                }
            }
            other => wrong.push(format!("{name}: {other:?}, not {default}")),
        }
    }
    // Where we differ from Kafka on purpose: acknowledged means flushed.
    let flush = entries
        .get("flush.messages")
        .and_then(|it| it.value.clone());
    let ours = if broker.is_foreign() {
        "9223372036854775807"
    } else {
        "1"
    };
    if flush.as_deref() != Some(ours) {
        wrong.push(format!("flush.messages: {flush:?}"));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let policy = &entries["cleanup.policy"];
    assert_eq!(policy.value.as_deref(), Some("compact"));
    assert_eq!(policy.source, ConfigSource::DynamicTopic);
    assert!(!policy.is_default);

    // AlterConfigs replaces all overrides: what it does not name returns to its default.
    let alter = AlterConfig::new(ResourceSpecifier::Topic(&topic)).set("retention.ms", "1000");
    let results = block_on(admin.alter_configs([&alter], &options())).unwrap();
    assert!(results[0].is_ok(), "{results:?}");
    eventually("the change is seen", Duration::from_secs(10), || {
        let entries = describe();
        entries["retention.ms"].value.as_deref() == Some("1000")
            && entries["cleanup.policy"].value.as_deref() == Some("delete")
    });
    // rdkafka drops the errors of single resources here, so this one is looked at on the wire.
    let bad = AlterableConfig::default()
        .with_name(text("retention.ms"))
        .with_value(Some(text("soon")));
    let resource = AlterConfigsResource::default()
        .with_resource_type(2)
        .with_resource_name(text(&topic))
        .with_configs(vec![bad]);
    let request = AlterConfigsRequest::default().with_resources(vec![resource]);
    let response = broker.wire().call(1, &request).responses.swap_remove(0);
    assert_eq!(response.error_code, code::INVALID_CONFIG, "{response:?}");
    assert_eq!(
        describe()["retention.ms"].value.as_deref(),
        Some("1000"),
        "unchanged"
    );
}

#[test]
fn the_brokers_configs_are_described_too() {
    let broker = Broker::start();
    let admin = admin(&broker.bootstrap());
    let resource = ResourceSpecifier::Broker(1);
    let results = block_on(admin.describe_configs([&resource], &options())).unwrap();
    let result = results.into_iter().next().unwrap().expect("no error");
    let defaults = [
        ("num.partitions", "1"),
        ("auto.create.topics.enable", "true"),
        ("message.max.bytes", "1048588"),
        ("socket.request.max.bytes", "104857600"),
        ("log.segment.bytes", "1073741824"),
        ("log.retention.hours", "168"),
        ("log.index.interval.bytes", "4096"),
        ("offsets.topic.num.partitions", "50"),
        ("transaction.state.log.num.partitions", "50"),
        ("group.initial.rebalance.delay.ms", "3000"),
        ("node.id", "1"),
    ];
    for (name, value) in defaults {
        let entry = result
            .get(name)
            .unwrap_or_else(|| panic!("{name} is described"));
        assert_eq!(entry.value.as_deref(), Some(value), "{name}");
    }
}
