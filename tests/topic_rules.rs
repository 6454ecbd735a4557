//! Creating, growing, describing, configuring and deleting topics, with Kafka's error for each
//! mistake. Every expectation was checked against Apache Kafka 4.1.

mod support;

use std::time::Duration;

use kafka_protocol::messages::alter_configs_request::{
    AlterConfigsResource, AlterableConfig as FullConfig,
};
use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_topics_request::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig,
};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::DescribeConfigsResult;
use kafka_protocol::messages::describe_topic_partitions_request::{Cursor, TopicRequest};
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource as IncrementalResource, AlterableConfig,
};
use kafka_protocol::messages::{
    AlterConfigsRequest, BrokerId, CreatePartitionsRequest, CreateTopicsRequest,
    DeleteTopicsRequest, DescribeClusterRequest, DescribeConfigsRequest,
    DescribeTopicPartitionsRequest, IncrementalAlterConfigsRequest, MetadataRequest,
};
use uuid::Uuid;

use support::batch::Batch;
use support::calls::{
    LATEST, code, create_topic, create_topic_with, create_topics, describe_topic, list_offsets,
    name, produce_ok, text,
};
use support::wire::Wire;
use support::{Broker, eventually, unique_topic};

const TOPIC: i8 = 2;
const BROKER: i8 = 4;

fn creatable(topic: &str) -> CreatableTopic {
    create_topics(topic, 1, &[]).topics.swap_remove(0)
}

fn try_create(wire: &mut Wire, topics: Vec<CreatableTopic>) -> Vec<(String, i16)> {
    let request = CreateTopicsRequest::default()
        .with_timeout_ms(10_000)
        .with_topics(topics);
    let response = wire.call(7, &request);
    for result in &response.topics {
        let told = result.error_code == 0 || result.error_message.is_some();
        assert!(told, "an error has a text: {result:?}");
    }
    let results = response.topics.iter();
    results
        .map(|it| (it.name.to_string(), it.error_code))
        .collect()
}

#[test]
fn each_mistake_in_a_creation_has_its_error() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    let existing = unique_topic("existing");
    create_topic(&mut wire, &existing, 1);
    let config = |key: &str, value: Option<&str>| {
        let config = CreatableTopicConfig::default()
            .with_name(text(key))
            .with_value(value.map(text));
        creatable(&unique_topic("configured")).with_configs(vec![config])
    };
    let assigned = |partitions: &[(i32, &[i32])]| {
        let one = |&(index, brokers): &(i32, &[i32])| {
            CreatableReplicaAssignment::default()
                .with_partition_index(index)
                .with_broker_ids(brokers.iter().map(|id| BrokerId(*id)).collect())
        };
        creatable(&unique_topic("assigned"))
            .with_num_partitions(-1)
            .with_replication_factor(-1)
            .with_assignments(partitions.iter().map(one).collect())
    };
    let long = "x".repeat(250);
    let fresh = || creatable(&unique_topic("fresh"));
    let collision = existing.replace('-', "_");
    create_topic(&mut wire, &format!("{collision}.a"), 1);
    let rows = [
        (
            "an existing name",
            creatable(&existing),
            code::TOPIC_ALREADY_EXISTS,
        ),
        (
            "an empty name",
            creatable(""),
            code::INVALID_TOPIC_EXCEPTION,
        ),
        ("a dot", creatable("."), code::INVALID_TOPIC_EXCEPTION),
        ("two dots", creatable(".."), code::INVALID_TOPIC_EXCEPTION),
        ("a blank", creatable("a b"), code::INVALID_TOPIC_EXCEPTION),
        (
            "250 characters",
            creatable(&long),
            code::INVALID_TOPIC_EXCEPTION,
        ),
        (
            "a name that collides in metrics",
            creatable(&format!("{collision}_a")),
            code::INVALID_TOPIC_EXCEPTION,
        ),
        (
            "no partitions",
            fresh().with_num_partitions(0),
            code::INVALID_PARTITIONS,
        ),
        (
            "-2 partitions",
            fresh().with_num_partitions(-2),
            code::INVALID_PARTITIONS,
        ),
        (
            "no replicas",
            fresh().with_replication_factor(0),
            code::INVALID_REPLICATION_FACTOR,
        ),
        (
            "more replicas than brokers",
            fresh().with_replication_factor(2),
            code::INVALID_REPLICATION_FACTOR,
        ),
        (
            "an unknown config",
            config("no.such.key", Some("1")),
            code::INVALID_CONFIG,
        ),
        (
            "no number",
            config("retention.ms", Some("soon")),
            code::INVALID_CONFIG,
        ),
        (
            "out of its range",
            config("segment.bytes", Some("-5")),
            code::INVALID_CONFIG,
        ),
        (
            "not one of its values",
            config("cleanup.policy", Some("burn")),
            code::INVALID_CONFIG,
        ),
        (
            "a null value",
            config("retention.ms", None),
            code::INVALID_CONFIG,
        ),
        (
            "an unknown broker",
            assigned(&[(0, &[99])]),
            code::INVALID_REPLICA_ASSIGNMENT,
        ),
        (
            "a replica twice",
            assigned(&[(0, &[1, 1])]),
            code::INVALID_REPLICA_ASSIGNMENT,
        ),
        (
            "an index left out",
            assigned(&[(1, &[1])]),
            code::INVALID_REPLICA_ASSIGNMENT,
        ),
        (
            "an empty assignment",
            assigned(&[(0, &[])]),
            code::INVALID_REPLICA_ASSIGNMENT,
        ),
        (
            "an assignment and a count",
            assigned(&[(0, &[1])]).with_num_partitions(1),
            code::INVALID_REQUEST,
        ),
        ("a good assignment", assigned(&[(0, &[1]), (1, &[1])]), 0),
        (
            "defaults",
            fresh().with_num_partitions(-1).with_replication_factor(-1),
            0,
        ),
    ];
    let mut wrong = Vec::new();
    for (what, topic, expected) in rows {
        let error = try_create(&mut wire, vec![topic])[0].1;
        if error != expected {
            wrong.push(format!("{what}: {error}, not {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn one_bad_topic_does_not_spoil_the_others_of_a_creation() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    let (good, twice) = (unique_topic("good"), unique_topic("twice"));
    let topics = vec![
        creatable(&good),
        creatable("bad name"),
        creatable(&twice),
        creatable(&twice),
    ];
    let results = try_create(&mut wire, topics);
    let error = |topic: &str| {
        let mut found = results.iter().filter(|(name, _)| name == topic);
        let error = found.next().expect("one result").1;
        assert!(found.next().is_none(), "one result only for {topic}");
        error
    };
    assert_eq!(error(&good), 0);
    assert_eq!(error("bad name"), code::INVALID_TOPIC_EXCEPTION);
    assert_eq!(error(&twice), code::INVALID_REQUEST, "named twice");
}

#[test]
fn a_creation_tells_what_it_made() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    let topic = unique_topic("made");
    let request = create_topics(&topic, 3, &[("retention.ms", "5000")]);
    let mut dry = request.clone();
    dry.validate_only = true;
    let response = wire.call(7, &dry);
    assert_eq!(response.topics[0].error_code, 0);
    let unknown = code::UNKNOWN_TOPIC_OR_PARTITION;
    assert_eq!(
        describe_topic(&mut wire, &topic).error_code,
        unknown,
        "validated only"
    );
    let response = wire.call(7, &request);
    let made = &response.topics[0];
    assert_eq!(
        (
            made.error_code,
            made.num_partitions,
            made.replication_factor
        ),
        (0, 3, 1)
    );
    assert_ne!(made.topic_id, Uuid::nil());
    let configs = made.configs.as_ref().expect("the configs");
    let retention = configs
        .iter()
        .find(|it| it.name.as_str() == "retention.ms")
        .unwrap();
    assert_eq!(retention.value.as_deref(), Some("5000"));
    eventually("metadata has the same id", Duration::from_secs(5), || {
        describe_topic(&mut wire, &topic).topic_id == made.topic_id
    });
}

#[test]
fn each_topic_of_a_growth_has_its_own_result() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    let (good, same, fewer) = (
        unique_topic("grow"),
        unique_topic("same"),
        unique_topic("fewer"),
    );
    for topic in [&good, &same, &fewer] {
        create_topic(&mut wire, topic, 2);
    }
    produce_ok(&mut wire, &good, 1, Batch::of(&["kept"]).build());
    let unknown = unique_topic("unknown");
    let grow = |topic: &str, count| {
        CreatePartitionsTopic::default()
            .with_name(name(topic))
            .with_count(count)
            .with_assignments(None)
    };
    let request = CreatePartitionsRequest::default()
        .with_timeout_ms(10_000)
        .with_topics(vec![
            grow(&good, 5),
            grow(&same, 2),
            grow(&fewer, 1),
            grow(&unknown, 3),
        ]);
    let mut dry = request.clone();
    dry.validate_only = true;
    for request in [dry, request] {
        let response = wire.call(3, &request);
        assert_eq!(response.results.len(), 4);
        for (topic, expected) in [
            (&good, 0),
            (&same, code::INVALID_PARTITIONS),
            (&fewer, code::INVALID_PARTITIONS),
            (&unknown, code::UNKNOWN_TOPIC_OR_PARTITION),
        ] {
            let result = response.results.iter().find(|it| it.name.as_str() == topic);
            assert_eq!(result.expect("a result").error_code, expected, "{topic}");
        }
    }
    eventually(
        "the new partitions have leaders",
        Duration::from_secs(5),
        || (0..5).all(|it| list_offsets(&mut wire, &good, it, LATEST).error_code == 0),
    );
    assert_eq!(describe_topic(&mut wire, &good).partitions.len(), 5);
    assert_eq!(
        list_offsets(&mut wire, &good, 1, LATEST).offset,
        1,
        "what was there stays"
    );
    produce_ok(&mut wire, &good, 4, Batch::of(&["new"]).build());
}

fn delete(wire: &mut Wire, topics: Vec<DeleteTopicState>) -> Vec<(Option<String>, Uuid, i16)> {
    let request = DeleteTopicsRequest::default()
        .with_timeout_ms(10_000)
        .with_topics(topics);
    let response = wire.call(6, &request);
    let results = response.responses.iter();
    let row = |it: &kafka_protocol::messages::delete_topics_response::DeletableTopicResult| {
        (
            it.name.as_ref().map(|name| name.to_string()),
            it.topic_id,
            it.error_code,
        )
    };
    results.map(row).collect()
}

#[test]
fn topics_are_deleted_by_name_or_by_id() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    let by_name = |topic: &str| DeleteTopicState::default().with_name(Some(name(topic)));
    let by_id = |id: Uuid| {
        DeleteTopicState::default()
            .with_name(None)
            .with_topic_id(id)
    };
    let (first, second) = (unique_topic("first"), unique_topic("second"));
    let first_id = create_topic(&mut wire, &first, 2);
    let second_id = create_topic(&mut wire, &second, 1);
    produce_ok(&mut wire, &first, 0, Batch::of(&["gone"]).build());

    let unknown = Uuid::from_u128(0xbad);
    let results = delete(&mut wire, vec![by_id(unknown)]);
    assert_eq!(results[0].2, code::UNKNOWN_TOPIC_ID);
    let results = delete(
        &mut wire,
        vec![by_name(&first), by_name(&unique_topic("unknown"))],
    );
    let find = |topic: &str| {
        results
            .iter()
            .find(|it| it.0.as_deref() == Some(topic))
            .unwrap()
    };
    assert_eq!(find(&first), &(Some(first.clone()), first_id, 0));
    assert!(
        results
            .iter()
            .any(|it| it.2 == code::UNKNOWN_TOPIC_OR_PARTITION)
    );
    let results = delete(&mut wire, vec![by_id(second_id)]);
    assert_eq!(results, [(Some(second.clone()), second_id, 0)]);
    for topic in [&first, &second] {
        eventually("it is gone", Duration::from_secs(10), || {
            describe_topic(&mut wire, topic).error_code == code::UNKNOWN_TOPIC_OR_PARTITION
        });
    }
    // Made again under the same name, it is another topic, and empty.
    let again = create_topic(&mut wire, &first, 2);
    assert_ne!(again, first_id);
    assert_eq!(list_offsets(&mut wire, &first, 0, LATEST).offset, 0);
    assert_eq!(
        produce_ok(&mut wire, &first, 0, Batch::of(&["fresh"]).build()),
        0
    );
}

#[test]
fn describe_topic_partitions_pages_with_a_cursor() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    let mut topics = [unique_topic("page-a"), unique_topic("page-b")];
    topics.sort();
    for topic in &topics {
        create_topic(&mut wire, topic, 3);
    }
    let unknown = unique_topic("page-z");
    let mut named: Vec<TopicRequest> = topics
        .iter()
        .chain([&unknown])
        .map(|topic| TopicRequest::default().with_name(name(topic)))
        .collect();
    named.reverse(); // the answer is sorted all the same
    let mut request = DescribeTopicPartitionsRequest::default()
        .with_response_partition_limit(2)
        .with_topics(named);
    let mut seen = Vec::new();
    for _ in 0..10 {
        let response = wire.call(0, &request);
        for topic in &response.topics {
            let topic_name = topic.name.as_ref().unwrap().to_string();
            if topic_name == unknown {
                assert_eq!(topic.error_code, code::UNKNOWN_TOPIC_OR_PARTITION);
                continue;
            }
            assert_eq!(topic.error_code, 0);
            for partition in &topic.partitions {
                assert_eq!(partition.leader_id.0, 1);
                seen.push((topic_name.clone(), partition.partition_index));
            }
        }
        let Some(cursor) = response.next_cursor else {
            break;
        };
        request.cursor = Some(
            Cursor::default()
                .with_topic_name(cursor.topic_name)
                .with_partition_index(cursor.partition_index),
        );
    }
    let expected: Vec<(String, i32)> = topics
        .iter()
        .flat_map(|topic| (0..3).map(|it| (topic.clone(), it)))
        .collect();
    assert_eq!(seen, expected);
}

fn describe(
    wire: &mut Wire,
    kind: i8,
    resource: &str,
    keys: Option<&[&str]>,
) -> DescribeConfigsResult {
    let resource = DescribeConfigsResource::default()
        .with_resource_type(kind)
        .with_resource_name(text(resource))
        .with_configuration_keys(keys.map(|keys| keys.iter().map(|it| text(it)).collect()));
    let request = DescribeConfigsRequest::default()
        .with_include_synonyms(true)
        .with_include_documentation(true)
        .with_resources(vec![resource]);
    wire.call(4, &request).results.swap_remove(0)
}

#[test]
fn configs_are_described_with_source_synonyms_and_documentation() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    let topic = unique_topic("described");
    create_topic_with(&mut wire, &topic, 1, &[("segment.bytes", "2097152")]);
    let all = describe(&mut wire, TOPIC, &topic, None);
    assert_eq!(all.error_code, 0);
    assert!(all.configs.len() >= 25, "{} configs", all.configs.len());
    for config in &all.configs {
        let told = config
            .documentation
            .as_ref()
            .is_some_and(|it| !it.is_empty());
        assert!(told, "{} has documentation", config.name);
        assert!(config.config_type > 0, "{} has a type", config.name);
        assert!(!config.is_sensitive && !config.read_only, "{}", config.name);
    }
    let named = ["segment.bytes", "retention.ms"];
    let some = describe(&mut wire, TOPIC, &topic, Some(&named));
    let mut names: Vec<&str> = some.configs.iter().map(|it| it.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["retention.ms", "segment.bytes"]);
    let own = some
        .configs
        .iter()
        .find(|it| it.name.as_str() == "segment.bytes")
        .unwrap();
    assert_eq!(
        (own.value.as_deref(), own.config_source),
        (Some("2097152"), 1)
    );
    let synonyms: Vec<(&str, Option<&str>, i8)> = own
        .synonyms
        .iter()
        .map(|it| (it.name.as_str(), it.value.as_deref(), it.source))
        .collect();
    let expected = [
        ("segment.bytes", Some("2097152"), 1),
        ("log.segment.bytes", Some("1073741824"), 5),
    ];
    assert_eq!(synonyms, expected);

    let unknown = describe(&mut wire, TOPIC, &unique_topic("unknown"), None);
    assert_eq!(unknown.error_code, code::UNKNOWN_TOPIC_OR_PARTITION);
    let odd = describe(&mut wire, 77, "x", None);
    assert_ne!(odd.error_code, 0, "an unknown kind of resource");
    let of_broker = describe(&mut wire, BROKER, "1", Some(&["num.partitions"]));
    assert_eq!(of_broker.configs[0].value.as_deref(), Some("1"));
    let other = describe(&mut wire, BROKER, "99", None);
    assert_eq!(
        other.error_code,
        code::INVALID_REQUEST,
        "configs of another broker"
    );
}

/// A key, what to do with it, and a value.
type Alteration<'a> = (&'a str, Change, Option<&'a str>);

#[derive(Clone, Copy)]
enum Change {
    Set = 0,
    Delete = 1,
    Append = 2,
    Subtract = 3,
}

fn alter(wire: &mut Wire, topic: &str, changes: &[Alteration<'_>]) -> i16 {
    let configs = changes.iter().map(|&(key, change, value)| {
        AlterableConfig::default()
            .with_name(text(key))
            .with_config_operation(change as i8)
            .with_value(value.map(text))
    });
    let resource = IncrementalResource::default()
        .with_resource_type(TOPIC)
        .with_resource_name(text(topic))
        .with_configs(configs.collect());
    let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
    wire.call(1, &request).responses[0].error_code
}

/// Value and source, as soon as they are `expected`.
fn assert_config(wire: &mut Wire, topic: &str, key: &str, expected: (&str, i8)) {
    let mut now = None;
    for _ in 0..100 {
        let mut result = describe(wire, TOPIC, topic, Some(&[key]));
        let config = result.configs.swap_remove(0);
        now = Some((
            config.value.map(|it| it.to_string()).unwrap_or_default(),
            config.config_source,
        ));
        if now == Some((expected.0.to_owned(), expected.1)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{key} is {now:?}, not {expected:?}");
}

#[test]
fn configs_are_set_deleted_appended_and_subtracted() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    let topic = unique_topic("altered");
    create_topic(&mut wire, &topic, 1);
    assert_eq!(
        alter(
            &mut wire,
            &topic,
            &[("retention.ms", Change::Set, Some("1234"))]
        ),
        0
    );
    assert_config(&mut wire, &topic, "retention.ms", ("1234", 1));
    // A value equal to the default is an override all the same.
    assert_eq!(
        alter(
            &mut wire,
            &topic,
            &[("retention.ms", Change::Set, Some("604800000"))]
        ),
        0
    );
    assert_config(&mut wire, &topic, "retention.ms", ("604800000", 1));
    assert_eq!(
        alter(&mut wire, &topic, &[("retention.ms", Change::Delete, None)]),
        0
    );
    assert_config(&mut wire, &topic, "retention.ms", ("604800000", 5));
    assert_eq!(
        alter(
            &mut wire,
            &topic,
            &[("cleanup.policy", Change::Append, Some("compact"))]
        ),
        0
    );
    assert_config(&mut wire, &topic, "cleanup.policy", ("delete,compact", 1));
    assert_eq!(
        alter(
            &mut wire,
            &topic,
            &[("cleanup.policy", Change::Subtract, Some("delete"))]
        ),
        0
    );
    assert_config(&mut wire, &topic, "cleanup.policy", ("compact", 1));

    let rows: [(&str, &[Alteration<'_>], i16); 6] = [
        (
            "an unknown key",
            &[("no.such", Change::Set, Some("1"))],
            code::INVALID_CONFIG,
        ),
        (
            "no number",
            &[("retention.ms", Change::Set, Some("x"))],
            code::INVALID_CONFIG,
        ),
        (
            "not a list",
            &[("retention.ms", Change::Append, Some("1"))],
            code::INVALID_CONFIG,
        ),
        (
            "a null value",
            &[("retention.ms", Change::Set, None)],
            code::INVALID_REQUEST,
        ),
        (
            "a key twice",
            &[
                ("retention.ms", Change::Set, Some("1")),
                ("retention.ms", Change::Set, Some("2")),
            ],
            code::INVALID_REQUEST,
        ),
        (
            "one good and one bad: neither",
            &[
                ("segment.ms", Change::Set, Some("77777")),
                ("retention.ms", Change::Set, Some("x")),
            ],
            code::INVALID_CONFIG,
        ),
    ];
    let mut wrong = Vec::new();
    for (what, changes, expected) in rows {
        let error = alter(&mut wire, &topic, changes);
        if error != expected {
            wrong.push(format!("{what}: {error}, not {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_config(&mut wire, &topic, "segment.ms", ("604800000", 5));
    let unknown = unique_topic("unknown");
    let error = alter(
        &mut wire,
        &unknown,
        &[("retention.ms", Change::Set, Some("1"))],
    );
    assert_eq!(error, code::UNKNOWN_TOPIC_OR_PARTITION);
}

#[test]
fn alter_configs_replaces_every_override() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    let topic = unique_topic("replaced");
    let configs = [("retention.ms", "1000"), ("segment.ms", "2000")];
    create_topic_with(&mut wire, &topic, 1, &configs);
    let resource = AlterConfigsResource::default()
        .with_resource_type(TOPIC)
        .with_resource_name(text(&topic))
        .with_configs(vec![
            FullConfig::default()
                .with_name(text("retention.ms"))
                .with_value(Some(text("3000"))),
        ]);
    let mut request = AlterConfigsRequest::default().with_resources(vec![resource]);
    request.validate_only = true;
    assert_eq!(wire.call(2, &request).responses[0].error_code, 0);
    assert_config(&mut wire, &topic, "retention.ms", ("1000", 1));
    request.validate_only = false;
    assert_eq!(wire.call(2, &request).responses[0].error_code, 0);
    assert_config(&mut wire, &topic, "retention.ms", ("3000", 1));
    assert_config(&mut wire, &topic, "segment.ms", ("604800000", 5));
}

#[test]
fn an_altered_config_acts_on_the_next_produce() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    let topic = unique_topic("acts");
    create_topic(&mut wire, &topic, 4);
    for partition in 0..4 {
        produce_ok(&mut wire, &topic, partition, Batch::sized(1, 5000).build());
    }
    assert_eq!(
        alter(
            &mut wire,
            &topic,
            &[("max.message.bytes", Change::Set, Some("1000"))]
        ),
        0
    );
    for partition in 0..4 {
        eventually("the new limit acts", Duration::from_secs(5), || {
            let batch = Batch::sized(1, 5000).build();
            support::calls::produce(&mut wire, &topic, partition, batch).error_code
                == code::MESSAGE_TOO_LARGE
        });
    }
}

#[test]
fn the_cluster_is_described() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    for version in 0..=2 {
        let response = wire.call(version, &DescribeClusterRequest::default());
        assert_eq!(response.error_code, 0, "v{version}");
        assert_eq!(
            response.cluster_id.len(),
            22,
            "v{version}: {}",
            response.cluster_id
        );
        assert_eq!(response.controller_id.0, 1, "v{version}");
        let node = &response.brokers[0];
        let address = format!("{}:{}", node.host, node.port);
        assert_eq!(
            (node.broker_id.0, address),
            (1, broker.bootstrap()),
            "v{version}"
        );
    }
    let metadata = wire.call(12, &MetadataRequest::default().with_topics(Some(vec![])));
    let described = wire.call(1, &DescribeClusterRequest::default());
    assert_eq!(metadata.cluster_id, Some(described.cluster_id));
    assert!(
        metadata.topics.is_empty(),
        "an empty list asks for no topic"
    );
}
