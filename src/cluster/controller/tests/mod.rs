use super::super::image::PartitionImage;
use super::ControllerErrorKind as Kind;
use super::*;
use uuid::Uuid;

mod configs;
mod partitions;
mod topics;

fn context() -> ControllerContext {
    let mut last_id = 100;
    ControllerContext {
        defaults: Defaults {
            num_partitions: 3,
            replication_factor: 1,
            cluster_partitions_max: 20_000,
        },
        new_topic_id: Box::new(move || {
            last_id += 1;
            id(last_id)
        }),
        validate_topic_configs: Box::new(|overrides| match overrides.get("retention.ms") {
            Some(value) if value.parse::<i64>().is_err() => Err(format!("`{value}` is no number")),
            _ => Ok(()),
        }),
        validate_broker_configs: Box::new(|_| Ok(())),
    }
}

fn id(number: u128) -> TopicId {
    TopicId(Uuid::from_u128(number))
}

fn broker(number: i32, fenced: bool) -> MetadataRecord {
    MetadataRecord::BrokerRegistered(BrokerImage {
        id: NodeId(number),
        host: "127.0.0.1".to_owned(),
        port: 9092,
        rack: None,
        fenced,
    })
}

fn topic(number: u128, name: &str, partitions: usize, replicas: &[i32]) -> MetadataRecord {
    MetadataRecord::TopicCreated {
        id: id(number),
        name: name.into(),
        partitions: vec![PartitionImage::new(nodes(replicas)); partitions],
        overrides: Overrides::new(),
    }
}

fn nodes(numbers: &[i32]) -> Vec<NodeId> {
    numbers.iter().copied().map(NodeId).collect()
}

/// One broker, topics `my.topic` (id 1, two partitions) and `plain` (id 2, one partition).
fn image() -> MetadataImage {
    MetadataImage::empty("cluster")
        .with(&[
            broker(1, false),
            topic(1, "my.topic", 2, &[1]),
            topic(2, "plain", 1, &[1]),
        ])
        .unwrap()
}

/// Brokers 1, 2, 3 and a fenced 4; topic `t` (id 1) with two replicas.
fn image_of_four() -> MetadataImage {
    MetadataImage::empty("cluster")
        .with(&[
            broker(1, false),
            broker(2, false),
            broker(3, false),
            broker(4, true),
            topic(1, "t", 1, &[1, 2]),
        ])
        .unwrap()
}

/// Decides, and demands that the records fit the image.
fn decided(image: &MetadataImage, command: Command) -> Decision {
    let decision = decide(image, command, &mut context()).unwrap();
    image.with(&decision.records).unwrap();
    decision
}

fn create(
    image: &MetadataImage,
    topics: Vec<NewTopic>,
) -> (Vec<MetadataRecord>, Vec<NewTopicResult>) {
    let command = Command::CreateTopics {
        topics,
        validate_only: false,
    };
    match decided(image, command) {
        Decision {
            records,
            reply: Reply::TopicsCreated(results),
        } => (records, results),
        other => panic!("{other:?}"),
    }
}

fn grow(
    image: &MetadataImage,
    topics: Vec<PartitionGrowth>,
) -> (Vec<MetadataRecord>, Vec<PartitionGrowthResult>) {
    let command = Command::CreatePartitions {
        topics,
        validate_only: false,
    };
    match decided(image, command) {
        Decision {
            records,
            reply: Reply::PartitionsCreated(results),
        } => (records, results),
        other => panic!("{other:?}"),
    }
}

fn assert_refused<T: std::fmt::Debug>(
    row: &impl std::fmt::Debug,
    result: &Result<T, ControllerError>,
    kind: Kind,
    text: &str,
) {
    let error = result.as_ref().expect_err(&format!("{row:?}"));
    assert_eq!(error.kind, kind, "{row:?}: {error}");
    assert!(error.message.contains(text), "{row:?}: {error}");
}

fn sized(num_partitions: i32, replication_factor: i16) -> NewTopic {
    NewTopic {
        num_partitions,
        replication_factor,
        ..NewTopic::with_defaults("new")
    }
}

#[test]
fn the_cluster_has_a_limit_of_partitions() {
    let full = image().with(&[topic(9, "big", 19_994, &[1])]).unwrap();
    let named = |name: &str, count| NewTopic {
        name: name.into(),
        ..sized(count, 1)
    };
    let (records, results) = create(&full, vec![named("a", 2), named("b", 2), named("c", 1)]);
    assert_eq!(records.len(), 2);
    assert_refused(
        &"b",
        &results[1].result,
        Kind::PolicyViolation,
        "more than 20000 partitions",
    );
    assert!(results[0].result.is_ok() && results[2].result.is_ok());
    let (_, results) = grow(&full, vec![growth("plain", 5, None)]);
    assert_refused(
        &"plain",
        &results[0].result,
        Kind::PolicyViolation,
        "more than 20000",
    );
}

#[test]
fn validation_alone_answers_alike_and_records_nothing() {
    let topics = vec![
        NewTopic::with_defaults("new"),
        NewTopic::with_defaults("plain"),
    ];
    let command = |validate_only| Command::CreateTopics {
        topics: topics.clone(),
        validate_only,
    };
    let (real, trial) = (
        decided(&image(), command(false)),
        decided(&image(), command(true)),
    );
    assert_eq!(real.reply, trial.reply);
    assert_eq!((real.records.len(), trial.records.len()), (1, 0));

    let command = |validate_only| Command::CreatePartitions {
        topics: vec![growth("plain", 2, None), growth("plains", 2, None)],
        validate_only,
    };
    let (real, trial) = (
        decided(&image(), command(false)),
        decided(&image(), command(true)),
    );
    assert_eq!(real.reply, trial.reply);
    assert_eq!((real.records.len(), trial.records.len()), (1, 0));
}

fn growth(name: &str, count: i32, assignments: Option<&[&[i32]]>) -> PartitionGrowth {
    PartitionGrowth {
        name: name.to_owned(),
        count,
        assignments: assignments.map(|all| all.iter().map(|one| nodes(one)).collect()),
    }
}

#[test]
fn producer_id_blocks_follow_each_other_and_end() {
    let mut image = image();
    for first in [0, 1000, 2000] {
        let decision = decided(&image, Command::AllocateProducerIds);
        let block = ProducerIdBlock {
            first: ProducerId(first),
            count: 1000,
        };
        assert_eq!(decision.reply, Reply::ProducerIds(block));
        image = image.with(&decision.records).unwrap();
    }
    let last = MetadataRecord::ProducerIdsAllocated {
        next_producer_id: ProducerId(i64::MAX - 999),
    };
    let image = image.with(&[last]).unwrap();
    let result = decide(&image, Command::AllocateProducerIds, &mut context());
    assert_refused(
        &"last",
        &result,
        Kind::UnknownServerError,
        "Exhausted all producerIds",
    );
}

#[test]
fn a_broker_is_recorded_when_something_is_new() {
    for (record, recorded) in [
        (broker(1, false), 0),
        (broker(1, true), 1),
        (broker(2, false), 1),
    ] {
        let MetadataRecord::BrokerRegistered(announced) = record else {
            unreachable!()
        };
        let decision = decided(&image(), Command::RegisterBroker(announced.clone()));
        assert_eq!(decision.records.len(), recorded, "{announced:?}");
    }
}
