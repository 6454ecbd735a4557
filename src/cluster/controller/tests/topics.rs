use super::*;

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
