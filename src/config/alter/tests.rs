use std::path::Path;

use super::super::load::Overrides;
use super::*;

const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;

/// Names with values.
type Pairs<'a> = &'a [(&'a str, &'a str)];

fn entries(pairs: Pairs<'_>) -> Entries {
    let owned = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
    pairs.iter().map(owned).collect()
}

fn given(pairs: &[(&str, Option<&str>)]) -> Vec<(String, Option<String>)> {
    pairs
        .iter()
        .map(|(name, text)| ((*name).to_owned(), text.map(str::to_owned)))
        .collect()
}

fn change(operation: i8, name: &str, value: &str) -> Change {
    Change {
        name: name.to_owned(),
        operation,
        value: (operation != DELETE).then(|| value.to_owned()),
    }
}

fn alter(current: &[(&str, &str)], changes: &[Change]) -> Result<Entries, AlterError> {
    let altered = alter_topic(&TopicDefaults::default(), &entries(current), changes)?;
    Ok(altered.entries)
}

fn broker(text: &str) -> BrokerConfig {
    let loaded = BrokerConfig::from_text(Path::new("f"), text, Overrides::default());
    loaded.expect("a valid file").0
}

fn invalid_config(message: &str) -> AlterError {
    AlterError::InvalidConfig(message.to_owned())
}

fn invalid_request(message: &str) -> AlterError {
    AlterError::InvalidRequest(message.to_owned())
}

#[test]
fn set_and_delete_leave_other_entries_alone() {
    let current = [("retention.ms", "5"), ("segment.ms", "7")];
    assert_eq!(
        alter(&current, &[change(SET, "retention.ms", "9")]),
        Ok(entries(&[("retention.ms", "9"), ("segment.ms", "7")]))
    );
    assert_eq!(
        alter(&current, &[change(DELETE, "retention.ms", "")]),
        Ok(entries(&[("segment.ms", "7")]))
    );
    // Kafka lets what is not set, or not even known, be deleted.
    assert_eq!(
        alter(&current, &[change(DELETE, "no.such.setting", "")]),
        Ok(entries(&current))
    );
}

#[test]
fn a_value_equal_to_the_default_is_kept_as_set() {
    assert_eq!(
        alter(&[], &[change(SET, "retention.ms", "604800000")]),
        Ok(entries(&[("retention.ms", "604800000")]))
    );
    let replaced = replace_topic(
        &TopicDefaults::default(),
        &given(&[("cleanup.policy", Some("delete"))]),
    );
    assert_eq!(
        replaced.map(|altered| altered.entries),
        Ok(entries(&[("cleanup.policy", "delete")]))
    );
}

#[test]
fn alter_configs_replaces_everything_that_was_set() {
    // It is not told what was there: nothing of it can survive.
    let replaced = replace_topic(
        &TopicDefaults::default(),
        &given(&[("segment.ms", Some("9"))]),
    );
    assert_eq!(
        replaced.map(|altered| altered.entries),
        Ok(entries(&[("segment.ms", "9")]))
    );
    let emptied = replace_topic(&TopicDefaults::default(), &[]);
    assert_eq!(emptied, Ok(Altered::default()));
}

#[test]
fn lists_are_appended_to_and_subtracted_from() {
    let rows: [(Pairs<'_>, i8, &str, &str); 7] = [
        (&[], APPEND, "compact", "delete,compact"),
        (
            &[("cleanup.policy", "compact")],
            APPEND,
            "delete",
            "compact,delete",
        ),
        (
            &[("cleanup.policy", "compact")],
            APPEND,
            "compact",
            "compact",
        ),
        (
            &[("cleanup.policy", "compact,delete")],
            SUBTRACT,
            "delete",
            "compact",
        ),
        (
            &[("cleanup.policy", "compact")],
            SUBTRACT,
            "delete",
            "compact",
        ),
        (&[("cleanup.policy", "compact")], SUBTRACT, "compact", ""),
        (&[], SUBTRACT, "delete", ""),
    ];
    for (current, operation, operand, expected) in rows {
        let altered = alter(current, &[change(operation, "cleanup.policy", operand)]);
        let expected = entries(&[("cleanup.policy", expected)]);
        assert_eq!(altered, Ok(expected), "{current:?} {operation} {operand}");
    }
}

#[test]
fn only_lists_can_be_appended_to() {
    let rows = [
        (
            APPEND,
            "retention.ms",
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (
            SUBTRACT,
            "retention.ms",
            "Can't SUBTRACT to key retention.ms because its type is not LIST.",
        ),
        (
            APPEND,
            "nope",
            "Can't APPEND to key nope because its type is not LIST.",
        ),
    ];
    for (operation, name, message) in rows {
        let altered = alter(&[], &[change(operation, name, "1")]);
        assert_eq!(altered, Err(invalid_config(message)));
    }
}

#[test]
fn bad_values_are_refused_in_kafkas_words() {
    let rows = [
        (
            "retention.ms",
            "xyz",
            "Invalid value xyz for configuration retention.ms: Not a number of type LONG",
        ),
        (
            "retention.ms",
            "-2",
            "Invalid value -2 for configuration retention.ms: Value must be at least -1",
        ),
        (
            "segment.bytes",
            "100",
            "Invalid value 100 for configuration segment.bytes: Value must be at least 1048576",
        ),
        (
            "segment.bytes",
            "3000000000",
            "Invalid value 3000000000 for configuration segment.bytes: Not a number of type INT",
        ),
        (
            "segment.bytes",
            "",
            "Invalid value  for configuration segment.bytes: Not a number of type INT",
        ),
        (
            "min.cleanable.dirty.ratio",
            "2",
            "Invalid value 2.0 for configuration min.cleanable.dirty.ratio: Value must be no more than 1",
        ),
        (
            "cleanup.policy",
            "foo",
            "Invalid value foo for configuration cleanup.policy: String must be one of: compact, delete",
        ),
        (
            "cleanup.policy",
            ",delete",
            "Invalid value  for configuration cleanup.policy: String must be one of: compact, delete",
        ),
        (
            "compression.type",
            "lz5",
            "Invalid value lz5 for configuration compression.type: String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer",
        ),
        (
            "compression.gzip.level",
            "0",
            "Invalid value 0 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to -1",
        ),
        (
            "preallocate",
            "yes",
            "Invalid value yes for configuration preallocate: Expected value to be either true or false",
        ),
        (
            "leader.replication.throttled.replicas",
            "0:1,*",
            "Invalid value [0:1, *] for configuration leader.replication.throttled.replicas: \
             leader.replication.throttled.replicas must be the literal '*' or a list of replicas \
             in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],...",
        ),
        ("unlikely", "1", "Unknown topic config name: unlikely"),
        (
            "log.retention.ms",
            "1",
            "Unknown topic config name: log.retention.ms; did you mean retention.ms?",
        ),
        ("min.compaction.lag.ms", "9223372036854775807", ""),
        (
            "remote.storage.enable",
            "true",
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage.",
        ),
    ];
    for (name, text, message) in rows {
        let altered = alter(&[], &[change(SET, name, text)]);
        if message.is_empty() {
            assert!(altered.is_ok(), "{name}={text}");
        } else {
            assert_eq!(altered, Err(invalid_config(message)));
        }
    }
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    let altered = alter(
        &[("min.compaction.lag.ms", "10")],
        &[change(SET, "max.compaction.lag.ms", "5")],
    );
    assert_eq!(
        altered,
        Err(invalid_config(
            "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)"
        ))
    );
}

#[test]
fn malformed_requests_are_refused_before_their_settings_are_looked_at() {
    let null = Change {
        value: None,
        ..change(SET, "retention.ms", "")
    };
    let rows = [
        (
            vec![null.clone()],
            "Null value not supported for : retention.ms",
        ),
        (
            vec![
                change(SET, "retention.ms", "1"),
                change(DELETE, "retention.ms", ""),
            ],
            "Error due to duplicate config keys",
        ),
        (
            vec![change(7, "retention.ms", "1")],
            "Unknown operations type 7",
        ),
    ];
    for (changes, message) in rows {
        assert_eq!(alter(&[], &changes), Err(invalid_request(message)));
    }
    let replaced = replace_topic(&TopicDefaults::default(), &given(&[("segment.ms", None)]));
    assert_eq!(
        replaced,
        Err(invalid_request("Null value not supported for : segment.ms"))
    );
    let created = create_topic(&TopicDefaults::default(), &given(&[("segment.ms", None)]));
    assert_eq!(
        created,
        Err(invalid_config(
            "Null value not supported for topic configs: segment.ms"
        ))
    );
}

#[test]
fn overlong_values_are_refused() {
    let fits = vec!["compact"; 4095].join(",");
    assert!(alter(&[], &[change(SET, "cleanup.policy", &fits)]).is_ok());
    let long = vec!["compact"; 4097].join(",");
    let altered = alter(&[], &[change(SET, "cleanup.policy", &long)]);
    assert_eq!(
        altered,
        Err(invalid_config(
            "The configuration value cannot be added because it exceeds the maximum value size \
             of 32767 bytes."
        ))
    );
}

#[test]
fn inert_settings_are_accepted_with_a_warning() {
    let altered = create_topic(
        &TopicDefaults::default(),
        &given(&[("preallocate", Some("true")), ("segment.ms", Some("1"))]),
    );
    let altered = altered.unwrap();
    assert_eq!(altered.entries.len(), 2);
    assert_eq!(
        altered.warnings,
        ["`preallocate` has no effect: segments are always allocated ahead in steps"]
    );
}

#[test]
fn a_broker_resource_is_named_after_this_broker_or_nothing() {
    assert_eq!(
        BrokerScope::of_resource("", 1),
        Ok(BrokerScope::ClusterDefault)
    );
    assert_eq!(
        BrokerScope::of_resource("1", 1),
        Ok(BrokerScope::ThisBroker)
    );
    assert_eq!(
        BrokerScope::of_resource("2", 1),
        Err(invalid_request(
            "Unexpected broker id, expected 1, but received 2"
        ))
    );
    assert_eq!(
        BrokerScope::of_resource("one", 1),
        Err(invalid_request(
            "Node id must be an integer, but it is: one"
        ))
    );
}

#[test]
fn dynamic_broker_settings_are_set_and_deleted() {
    let mut config = broker("");
    let changes = [
        change(SET, "message.max.bytes", "2000"),
        change(APPEND, "log.cleanup.policy", "compact"),
    ];
    let altered = alter_broker(&config, BrokerScope::ClusterDefault, &changes).unwrap();
    assert_eq!(
        altered.entries,
        entries(&[
            ("log.cleanup.policy", "delete,compact"),
            ("message.max.bytes", "2000")
        ])
    );
    config = config
        .with_dynamic(altered.entries, Entries::new())
        .unwrap();
    let in_force = config.settings.value("message.max.bytes");
    assert_eq!(in_force, Some(Value::Int(2000)));
    let deleted = alter_broker(
        &config,
        BrokerScope::ClusterDefault,
        &[change(DELETE, "message.max.bytes", "")],
    );
    assert_eq!(
        deleted.map(|altered| altered.entries),
        Ok(entries(&[("log.cleanup.policy", "delete,compact")]))
    );
    let other_scope = alter_broker(&config, BrokerScope::ThisBroker, &[]);
    assert_eq!(
        other_scope.map(|altered| altered.entries),
        Ok(Entries::new())
    );
}

#[test]
fn what_cannot_be_set_on_running_brokers_is_refused() {
    let rows: [(Pairs<'_>, &str); 7] = [
        (
            &[("num.partitions", "4"), ("node.id", "3")],
            "Cannot update these configs dynamically: Set(node.id, num.partitions)",
        ),
        (
            &[("log.retention.ms", "x")],
            "Invalid value x for configuration log.retention.ms: Not a number of type LONG",
        ),
        (
            &[("message.max.bytes", "-1")],
            "Invalid value -1 for configuration message.max.bytes: Value must be at least 0",
        ),
        (
            &[("ssl.keystore.location", "x")],
            "ssl.keystore.location cannot be set: TLS is not supported yet; remove the key",
        ),
        (
            &[("ssl.keystore.type", "JKS")],
            "Cannot update these configs at default cluster level, broker id must be specified: \
             Set(ssl.keystore.type)",
        ),
        (
            &[("message.max.byte", "1")],
            "Unknown broker config name: message.max.byte; did you mean message.max.bytes?",
        ),
        (
            &[
                ("log.cleaner.min.compaction.lag.ms", "9"),
                ("log.cleaner.max.compaction.lag.ms", "8"),
            ],
            "`log.cleaner.min.compaction.lag.ms` (9) is more than \
             `log.cleaner.max.compaction.lag.ms` (8)",
        ),
    ];
    for (pairs, message) in rows {
        let pairs: Vec<_> = pairs
            .iter()
            .map(|(name, text)| (*name, Some(*text)))
            .collect();
        let replaced = replace_broker(&broker(""), BrokerScope::ClusterDefault, &given(&pairs));
        assert_eq!(replaced, Err(invalid_request(message)));
    }
    let rows = [
        (APPEND, "nope", "Unknown config name: nope"),
        (
            APPEND,
            "message.max.bytes",
            "Config value append is not allowed for config key: message.max.bytes",
        ),
        (
            SUBTRACT,
            "message.max.bytes",
            "Config value subtract is not allowed for config key: message.max.bytes",
        ),
    ];
    for (operation, name, message) in rows {
        let changes = [change(operation, name, "1")];
        let altered = alter_broker(&broker(""), BrokerScope::ThisBroker, &changes);
        assert_eq!(altered, Err(invalid_config(message)));
    }
}

#[test]
fn any_change_whatever_is_answered() {
    // Every setting with every operation and odd operands: an answer, never a panic.
    let config = broker("");
    let topics = table::topic_settings().map(|setting| setting.name);
    let brokers = table::broker_settings().map(|setting| setting.name);
    let names: Vec<&str> = topics.chain(brokers).chain(["", ",", "\u{0}"]).collect();
    for name in names {
        for operation in -1..=4 {
            for operand in [
                "",
                ",",
                "-1",
                "9223372036854775808",
                "\u{7f}é,,",
                "true",
                "1:1",
            ] {
                let changes = [change(operation, name, operand)];
                let _ = alter_topic(&config.topic_defaults, &Entries::new(), &changes);
                let altered = alter_broker(&config, BrokerScope::ThisBroker, &changes);
                if let Ok(altered) = altered {
                    let changed = config.with_dynamic(Entries::new(), altered.entries);
                    assert!(changed.is_ok(), "{name} {operation} {operand}");
                }
            }
        }
    }
}
