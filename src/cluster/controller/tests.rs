use uuid::Uuid;

use super::super::image::PartitionImage;
use super::ControllerErrorKind as Kind;
use super::*;

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

fn assigned(assignments: &[(i32, &[i32])]) -> NewTopic {
    NewTopic {
        assignments: assignments
            .iter()
            .map(|(partition, replicas)| ReplicaAssignment {
                partition: *partition,
                replicas: nodes(replicas),
            })
            .collect(),
        ..NewTopic::with_defaults("new")
    }
}

fn sized(num_partitions: i32, replication_factor: i16) -> NewTopic {
    NewTopic {
        num_partitions,
        replication_factor,
        ..NewTopic::with_defaults("new")
    }
}

fn configured(configs: &[(&str, Option<&str>)]) -> NewTopic {
    NewTopic {
        configs: configs
            .iter()
            .map(|(key, value)| (key.to_string(), value.map(str::to_owned)))
            .collect(),
        ..NewTopic::with_defaults("new")
    }
}

#[test]
fn topics_are_created_with_what_was_asked_or_the_defaults() {
    let (records, results) = create(
        &image(),
        vec![
            NewTopic::with_defaults("auto"),
            NewTopic {
                name: "asked".into(),
                ..sized(2, 1)
            },
            NewTopic {
                name: "told".into(),
                ..assigned(&[(1, &[1]), (0, &[1])])
            },
            NewTopic {
                name: "configured".into(),
                num_partitions: 1,
                ..configured(&[("retention.ms", Some("1")), ("retention.ms", Some("2"))])
            },
        ],
    );
    let partition = PartitionImage {
        leader: NodeId(1),
        replicas: nodes(&[1]),
        isr: nodes(&[1]),
        leader_epoch: crate::base::LeaderEpoch(0),
        partition_epoch: 0,
    };
    let overrides: Overrides = [("retention.ms".to_owned(), "2".to_owned())].into();
    let expected = [
        (101, "auto", 3, Overrides::new()),
        (102, "asked", 2, Overrides::new()),
        (103, "told", 2, Overrides::new()),
        (104, "configured", 1, overrides),
    ];
    let expected_records: Vec<_> = expected
        .iter()
        .map(
            |(number, name, count, overrides)| MetadataRecord::TopicCreated {
                id: id(*number),
                name: (*name).into(),
                partitions: vec![partition.clone(); *count],
                overrides: overrides.clone(),
            },
        )
        .collect();
    assert_eq!(records, expected_records);
    let expected_results: Vec<_> = expected
        .iter()
        .map(|(number, name, count, overrides)| NewTopicResult {
            name: name.to_string(),
            result: Ok(CreatedTopic {
                id: id(*number),
                num_partitions: *count as i32,
                replication_factor: 1,
                overrides: overrides.clone(),
            }),
        })
        .collect();
    assert_eq!(results, expected_results);
}

#[test]
fn topic_names_follow_kafkas_rule() {
    let long = "a".repeat(249);
    for good in ["a", "A-z_0.9", "...", "__consumer_offsets", &long] {
        assert_eq!(validate_topic_name(good), Ok(()), "{good}");
    }
    let longer = "a".repeat(250);
    for (bad, text) in [
        ("", "Topic name is invalid: the empty string is not allowed"),
        (".", "Topic name is invalid: '.' is not allowed"),
        ("..", "Topic name is invalid: '..' is not allowed"),
        (&longer, "is longer than the max allowed length 249"),
        (
            "a/b",
            "Topic name is invalid: 'a/b' contains one or more characters other than ASCII \
             alphanumerics, '.', '_' and '-'",
        ),
        ("ä", "contains one or more characters"),
        ("a\0", "contains one or more characters"),
    ] {
        assert_refused(&bad, &validate_topic_name(bad), Kind::InvalidTopic, text);
    }
}

#[test]
fn creation_is_refused_as_kafka_refuses_it() {
    let table = [
        (
            NewTopic::with_defaults("a b"),
            Kind::InvalidTopic,
            "Topic name is invalid",
        ),
        (
            NewTopic::with_defaults("plain"),
            Kind::TopicAlreadyExists,
            "Topic 'plain' already exists.",
        ),
        (
            NewTopic::with_defaults("my.topic"),
            Kind::TopicAlreadyExists,
            "Topic 'my.topic' already exists.",
        ),
        (
            NewTopic::with_defaults("my_topic"),
            Kind::InvalidTopic,
            "Topic 'my_topic' collides with existing topic: my.topic",
        ),
        (
            NewTopic::with_defaults("__cluster_metadata"),
            Kind::TopicAuthorizationFailed,
            "Authorization failed.",
        ),
        (
            sized(0, 1),
            Kind::InvalidPartitions,
            "invalid non-positive value",
        ),
        (
            sized(-2, 1),
            Kind::InvalidPartitions,
            "invalid non-positive value",
        ),
        (
            sized(1, 0),
            Kind::InvalidReplicationFactor,
            "must be larger than 0, or -1",
        ),
        (
            sized(0, -2),
            Kind::InvalidReplicationFactor,
            "must be larger than 0, or -1",
        ),
        (
            sized(1, 2),
            Kind::InvalidReplicationFactor,
            "Unable to replicate the partition 2 time(s): The target replication factor of 2 \
             cannot be reached because only 1 broker(s) are registered.",
        ),
        (
            NewTopic {
                replication_factor: 1,
                ..assigned(&[(0, &[1])])
            },
            Kind::InvalidRequest,
            "but replication factor was not set to -1.",
        ),
        (
            NewTopic {
                num_partitions: 1,
                ..assigned(&[(0, &[1])])
            },
            Kind::InvalidRequest,
            "but numPartitions was not set to -1.",
        ),
        (
            assigned(&[(0, &[1]), (0, &[1])]),
            Kind::InvalidReplicaAssignment,
            "Found multiple manual partition assignments for partition 0",
        ),
        (
            assigned(&[(1, &[1])]),
            Kind::InvalidReplicaAssignment,
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (
            assigned(&[(0, &[1]), (-1, &[1])]),
            Kind::InvalidReplicaAssignment,
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (
            assigned(&[(0, &[])]),
            Kind::InvalidReplicaAssignment,
            "includes an empty replica list.",
        ),
        (
            assigned(&[(0, &[7])]),
            Kind::InvalidReplicaAssignment,
            "includes broker 7, but no such broker is registered.",
        ),
        (
            assigned(&[(0, &[1, 1])]),
            Kind::InvalidReplicaAssignment,
            "includes the broker 1 more than once.",
        ),
        (
            configured(&[("b", None), ("a", None)]),
            Kind::InvalidConfig,
            "Null value not supported for topic configs: a,b",
        ),
        (
            configured(&[("retention.ms", Some("x"))]),
            Kind::InvalidConfig,
            "`x` is no number",
        ),
        (
            sized(10_001, 1),
            Kind::PolicyViolation,
            "Excessively large number of partitions per request.",
        ),
        (
            sized(i32::MAX, 1),
            Kind::PolicyViolation,
            "Excessively large",
        ),
    ];
    for (row, kind, text) in table {
        let (records, results) = create(&image(), vec![row.clone()]);
        assert_eq!((records.len(), results.len()), (0, 1), "{row:?}");
        assert_eq!(results[0].name, row.name);
        assert_refused(&row, &results[0].result, kind, text);
    }
}

#[test]
fn a_refused_topic_does_not_keep_the_others_of_its_request_back() {
    let (records, results) = create(
        &image(),
        vec![
            NewTopic::with_defaults("twice"),
            NewTopic::with_defaults("plain"),
            NewTopic::with_defaults("good"),
            NewTopic::with_defaults("twice"),
        ],
    );
    assert_eq!(records.len(), 1);
    let outcomes: Vec<_> = results
        .iter()
        .map(|r| {
            (
                r.name.as_str(),
                r.result.as_ref().err().map(|error| error.kind),
            )
        })
        .collect();
    let expected = [
        ("twice", Some(Kind::InvalidRequest)),
        ("plain", Some(Kind::TopicAlreadyExists)),
        ("good", None),
    ];
    assert_eq!(outcomes, expected);
}

#[test]
fn a_request_for_too_many_partitions_is_refused_as_a_whole() {
    let half = |name: &str| NewTopic {
        name: name.into(),
        ..sized(5_001, 1)
    };
    let (records, results) = create(&image(), vec![half("a"), half("b")]);
    assert!(records.is_empty());
    assert!(
        results
            .iter()
            .all(|r| r.result.as_ref().unwrap_err().kind == Kind::PolicyViolation)
    );
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

#[test]
fn replicas_stripe_over_the_unfenced_brokers() {
    let (records, _) = create(&image_of_four(), vec![sized(6, 2)]);
    let MetadataRecord::TopicCreated { partitions, .. } = &records[0] else {
        panic!("{records:?}");
    };
    for broker in [1, 2, 3] {
        let led = partitions
            .iter()
            .filter(|p| p.leader == NodeId(broker))
            .count();
        let held = partitions
            .iter()
            .filter(|p| p.replicas.contains(&NodeId(broker)))
            .count();
        assert_eq!((led, held), (2, 4), "broker {broker} in {partitions:?}");
    }
    assert!(
        partitions
            .iter()
            .all(|p| p.isr == p.replicas && p.replicas[0] == p.leader)
    );
    let (_, results) = create(&image_of_four(), vec![sized(1, 4)]);
    let text = "cannot be reached because only 3 broker(s) are unfenced.";
    assert_refused(&4, &results[0].result, Kind::InvalidReplicationFactor, text);
}

#[test]
fn a_fenced_replica_starts_outside_the_isr() {
    let (records, _) = create(&image_of_four(), vec![assigned(&[(0, &[4, 2])])]);
    let MetadataRecord::TopicCreated { partitions, .. } = &records[0] else {
        panic!("{records:?}");
    };
    assert_eq!(partitions[0].leader, NodeId(2));
    assert_eq!(
        (&partitions[0].replicas, &partitions[0].isr),
        (&nodes(&[4, 2]), &nodes(&[2]))
    );
    let (_, results) = create(&image_of_four(), vec![assigned(&[(0, &[4])])]);
    let text = "for partition 0 are fenced";
    assert_refused(&4, &results[0].result, Kind::InvalidReplicaAssignment, text);
    let (_, results) = create(&image_of_four(), vec![assigned(&[(0, &[1, 2]), (1, &[1])])]);
    let text = "with 1 replica(s), but this is not consistent with previous partitions, which \
                have 2 replica(s).";
    assert_refused(&2, &results[0].result, Kind::InvalidReplicaAssignment, text);
}

fn growth(name: &str, count: i32, assignments: Option<&[&[i32]]>) -> PartitionGrowth {
    PartitionGrowth {
        name: name.to_owned(),
        count,
        assignments: assignments.map(|all| all.iter().map(|one| nodes(one)).collect()),
    }
}

#[test]
fn partitions_are_added_behind_the_last_one() {
    let (records, results) = grow(
        &image_of_four(),
        vec![growth("t", 3, Some(&[&[2, 3], &[3, 1]]))],
    );
    assert_eq!(
        results,
        [PartitionGrowthResult {
            name: "t".into(),
            result: Ok(())
        }]
    );
    let expected = MetadataRecord::PartitionsAdded {
        id: id(1),
        partitions: vec![
            PartitionImage::new(nodes(&[2, 3])),
            PartitionImage::new(nodes(&[3, 1])),
        ],
    };
    assert_eq!(records, [expected]);
    let (records, _) = grow(&image_of_four(), vec![growth("t", 4, None)]);
    let after = image_of_four().with(&records).unwrap();
    let topic = after.topic("t").unwrap();
    assert_eq!(topic.partitions.len(), 4);
    assert!(
        topic
            .partitions
            .iter()
            .all(|partition| partition.replicas.len() == 2)
    );
}

#[test]
fn growth_is_refused_as_kafka_refuses_it() {
    let table = [
        (
            growth("none", 2, None),
            Kind::UnknownTopicOrPartition,
            "does not host this",
        ),
        (
            growth("t", 1, None),
            Kind::InvalidPartitions,
            "Topic already has 1 partition(s).",
        ),
        (
            growth("t", 0, None),
            Kind::InvalidPartitions,
            "The topic t currently has 1 partition(s); 0 would not be an increase.",
        ),
        (
            growth("t", -1, None),
            Kind::InvalidPartitions,
            "-1 would not be an increase.",
        ),
        (
            growth("t", i32::MIN, None),
            Kind::InvalidPartitions,
            "would not be an increase.",
        ),
        (
            growth("t", i32::MAX, None),
            Kind::PolicyViolation,
            "Excessively large",
        ),
        (
            growth("t", 3, Some(&[&[1, 2]])),
            Kind::InvalidReplicaAssignment,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (
            growth("t", 2, Some(&[&[1]])),
            Kind::InvalidReplicaAssignment,
            "with 1 replica(s), but this is not consistent",
        ),
        (
            growth("t", 2, Some(&[&[1, 9]])),
            Kind::InvalidReplicaAssignment,
            "no such broker",
        ),
    ];
    for (row, kind, text) in table {
        let (records, results) = grow(&image_of_four(), vec![row.clone()]);
        assert!(records.is_empty(), "{row:?}");
        assert_refused(&row, &results[0].result, kind, text);
    }
}

#[test]
fn every_topic_that_was_to_grow_gets_one_result() {
    let (records, results) = grow(
        &image(),
        vec![
            growth("plain", 2, None),
            growth("none", 2, None),
            growth("my.topic", 3, None),
            growth("plain", 3, None),
        ],
    );
    assert_eq!(records.len(), 1);
    let outcomes: Vec<_> = results
        .iter()
        .map(|r| {
            (
                r.name.as_str(),
                r.result.as_ref().err().map(|error| error.kind),
            )
        })
        .collect();
    let expected = [
        ("plain", Some(Kind::InvalidRequest)),
        ("none", Some(Kind::UnknownTopicOrPartition)),
        ("my.topic", None),
    ];
    assert_eq!(outcomes, expected);
}

fn delete(topics: &[(Option<&str>, u128)]) -> (Vec<MetadataRecord>, Vec<DeleteTopicResult>) {
    let topics = topics
        .iter()
        .map(|(name, number)| TopicSelector {
            name: name.map(str::to_owned),
            id: id(*number),
        })
        .collect();
    match decided(&image(), Command::DeleteTopics { topics }) {
        Decision {
            records,
            reply: Reply::TopicsDeleted(results),
        } => (records, results),
        other => panic!("{other:?}"),
    }
}

#[test]
fn topics_are_deleted_by_name_or_by_id() {
    let (records, results) = delete(&[(Some("plain"), 0), (None, 1)]);
    let deleted = |number| MetadataRecord::TopicDeleted { id: id(number) };
    assert_eq!(records, [deleted(2), deleted(1)]);
    let result = |name: &str, number| DeleteTopicResult {
        name: Some(name.to_owned()),
        id: id(number),
        result: Ok(()),
    };
    assert_eq!(results, [result("plain", 2), result("my.topic", 1)]);
}

#[test]
fn deletion_is_refused_as_kafka_refuses_it() {
    type Row<'a> = (&'a [(Option<&'a str>, u128)], usize, usize, Kind, &'a str);
    // The request, how many are deleted, which result is looked at, and what it says.
    let table: [Row; 8] = [
        (
            &[(Some("none"), 0)],
            0,
            0,
            Kind::UnknownTopicOrPartition,
            "does not host this topic",
        ),
        (
            &[(None, 77)],
            0,
            0,
            Kind::UnknownTopicId,
            "does not host this topic ID",
        ),
        (
            &[(None, 0)],
            0,
            0,
            Kind::InvalidRequest,
            "Neither topic name nor id were specified.",
        ),
        (
            &[(Some("plain"), 2)],
            0,
            0,
            Kind::InvalidRequest,
            "You may not specify both topic name and topic id.",
        ),
        (
            &[(Some("plain"), 0), (Some("plain"), 0)],
            0,
            0,
            Kind::InvalidRequest,
            "Duplicate topic name.",
        ),
        (
            &[(None, 1), (None, 1)],
            0,
            0,
            Kind::InvalidRequest,
            "Duplicate topic id.",
        ),
        (
            &[(None, 2), (Some("plain"), 0)],
            1,
            1,
            Kind::InvalidRequest,
            "The provided topic name maps to an ID that was already supplied.",
        ),
        (
            &[(None, 1), (Some("none"), 0)],
            1,
            1,
            Kind::UnknownTopicOrPartition,
            "",
        ),
    ];
    for (row, deleted, looked_at, kind, text) in table {
        let (records, results) = delete(row);
        assert_eq!(records.len(), deleted, "{row:?}");
        assert_refused(&row, &results[looked_at].result, kind, text);
    }
}

fn alter(
    resource: ConfigResource,
    edit: ConfigEdit,
) -> (Vec<MetadataRecord>, Result<(), ControllerError>) {
    let command = Command::AlterConfigs {
        changes: vec![ConfigChange { resource, edit }],
        validate_only: false,
    };
    match decided(&image(), command) {
        Decision {
            records,
            reply: Reply::ConfigsAltered(mut results),
        } => (records, results.remove(0).result),
        other => panic!("{other:?}"),
    }
}

fn one(key: &str, value: &str) -> Overrides {
    [(key.to_owned(), value.to_owned())].into()
}

#[test]
fn configs_are_edited_from_what_they_are_at_that_moment() {
    let edit = ConfigEdit::from_fn(|present| {
        let mut overrides = present.clone();
        let count = overrides.len();
        overrides.insert(format!("key{count}"), "v".to_owned());
        Ok(overrides)
    });
    let (records, result) = alter(ConfigResource::Topic("plain".into()), edit.clone());
    assert_eq!(result, Ok(()));
    let after = image().with(&records).unwrap();
    assert_eq!(after.topic("plain").unwrap().overrides, one("key0", "v"));
    let change = ConfigChange {
        resource: ConfigResource::Topic("plain".into()),
        edit,
    };
    let command = Command::AlterConfigs {
        changes: vec![change],
        validate_only: false,
    };
    let after = after.with(&decided(&after, command).records).unwrap();
    let keys: Vec<_> = after
        .topic("plain")
        .unwrap()
        .overrides
        .keys()
        .cloned()
        .collect();
    assert_eq!(keys, ["key0", "key1"]);
}

#[test]
fn broker_configs_are_kept_by_broker_and_for_all() {
    for (resource, broker) in [
        (ConfigResource::Broker(NodeId(1)), Some(NodeId(1))),
        (ConfigResource::BrokerDefault, None),
    ] {
        let (records, result) = alter(resource, ConfigEdit::replace(one("k", "v")));
        assert_eq!(result, Ok(()));
        let expected = MetadataRecord::BrokerConfigsReplaced {
            broker,
            overrides: one("k", "v"),
        };
        assert_eq!(records, [expected]);
    }
}

#[test]
fn a_change_of_nothing_records_nothing() {
    let edit = ConfigEdit::replace(Overrides::new());
    let (records, result) = alter(ConfigResource::Topic("plain".into()), edit);
    assert_eq!((records.len(), result), (0, Ok(())));
}

#[test]
fn config_changes_are_refused_as_kafka_refuses_them() {
    let refusal = Kind::InvalidConfig.with("no such key");
    let table = [
        (
            ConfigResource::Topic("none".into()),
            ConfigEdit::replace(one("k", "v")),
            Kind::UnknownTopicOrPartition,
            "The topic 'none' does not exist.",
        ),
        (
            ConfigResource::Broker(NodeId(9)),
            ConfigEdit::replace(one("k", "v")),
            Kind::BrokerIdNotRegistered,
            "No broker with id 9 found.",
        ),
        (
            ConfigResource::Topic("plain".into()),
            ConfigEdit::replace(one("retention.ms", "x")),
            Kind::InvalidConfig,
            "`x` is no number",
        ),
        (
            ConfigResource::Topic("plain".into()),
            ConfigEdit::from_fn(move |_| Err(refusal.clone())),
            Kind::InvalidConfig,
            "no such key",
        ),
    ];
    for (resource, edit, kind, text) in table {
        let (records, result) = alter(resource.clone(), edit);
        assert!(records.is_empty(), "{resource:?}");
        assert_refused(&resource, &result, kind, text);
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
