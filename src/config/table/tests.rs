use std::collections::BTreeSet;

use super::*;

fn all_rows() -> impl Iterator<Item = &'static Setting> {
    BROKER_ROWS.into_iter().flatten().chain(topic::ROWS)
}

#[test]
fn names_are_unique() {
    let mut seen = BTreeSet::new();
    for setting in BROKER_ROWS.into_iter().flatten() {
        assert!(
            seen.insert(setting.name),
            "broker setting {} twice",
            setting.name
        );
    }
    seen.clear();
    for setting in topic::ROWS {
        assert!(
            seen.insert(setting.name),
            "topic setting {} twice",
            setting.name
        );
    }
}

#[test]
fn every_default_parses_keeps_its_limits_and_prints_as_written() {
    // Kafka's own defaults that break Kafka's own limits would be found here as well.
    for setting in all_rows() {
        if let Some(text) = setting.default {
            let value = setting.parse(text);
            let printed = value.map(|value| value.to_string());
            assert_eq!(printed, Ok(text.to_owned()), "{}", setting.name);
        }
    }
}

#[test]
fn every_setting_is_documented_in_sentences() {
    for setting in all_rows() {
        let text = setting.documentation();
        assert!(text.ends_with('.'), "{}: {text}", setting.name);
        assert!(!text.contains("  "), "{}: {text}", setting.name);
    }
}

#[test]
fn units_in_a_name_are_in_its_documentation() {
    for setting in all_rows() {
        let text = setting.documentation();
        let refers = text.contains("Default of");
        let unit = match setting.name.rsplit('.').next() {
            Some("ms") => "milliseconds",
            Some("seconds" | "secs") => "seconds",
            Some("minutes") => "minutes",
            _ => continue,
        };
        assert!(refers || text.contains(unit), "{}: {text}", setting.name);
    }
}

#[test]
fn synonyms_are_broker_settings_of_the_same_type_and_default() {
    for topic in topic::ROWS {
        let synonyms = topic_synonyms(topic.name);
        for synonym in synonyms {
            let broker = broker_setting(synonym.name).expect(synonym.name);
            if synonym.factor == 1 {
                assert_eq!(broker.kind, topic.kind, "{}", synonym.name);
            }
        }
        let broker_default = synonyms.iter().find_map(|synonym| {
            let value = broker_setting(synonym.name)?.default_value()?;
            match (value.as_integer(), synonym.factor) {
                (Some(number), factor) if factor != 1 => Some((number * factor).to_string()),
                _ => Some(value.to_string()),
            }
        });
        if let Some(broker_default) = broker_default {
            let own = topic.default.map(str::to_owned);
            assert_eq!(own, Some(broker_default), "{}", topic.name);
        }
    }
}

#[test]
fn only_settings_of_topics_alone_have_no_synonym() {
    let alone: Vec<&str> = topic_settings()
        .map(|setting| setting.name)
        .filter(|name| topic_synonyms(name).is_empty())
        .collect();
    assert_eq!(
        alone,
        [
            "follower.replication.throttled.replicas",
            "leader.replication.throttled.replicas",
            "remote.log.copy.disable",
            "remote.log.delete.on.disable",
            "remote.storage.enable",
        ]
    );
}

#[test]
fn a_family_of_stand_ins_is_the_same_from_each_of_its_names() {
    let names = [
        "log.retention.ms",
        "log.retention.minutes",
        "log.retention.hours",
    ];
    for name in names {
        assert_eq!(broker_synonyms(name), names);
    }
    assert_eq!(broker_synonyms("num.partitions"), ["num.partitions"]);
}

#[test]
fn every_topic_setting_of_kafka_4_1_is_there() {
    let names: Vec<&str> = topic_settings().map(|setting| setting.name).collect();
    let kafka = "cleanup.policy compression.gzip.level compression.lz4.level compression.type \
        compression.zstd.level delete.retention.ms file.delete.delay.ms flush.messages flush.ms \
        follower.replication.throttled.replicas index.interval.bytes \
        leader.replication.throttled.replicas local.retention.bytes local.retention.ms \
        max.compaction.lag.ms max.message.bytes message.timestamp.after.max.ms \
        message.timestamp.before.max.ms message.timestamp.type min.cleanable.dirty.ratio \
        min.compaction.lag.ms min.insync.replicas preallocate remote.log.copy.disable \
        remote.log.delete.on.disable remote.storage.enable retention.bytes retention.ms \
        segment.bytes segment.index.bytes segment.jitter.ms segment.ms \
        unclean.leader.election.enable";
    assert_eq!(names, kafka.split_whitespace().collect::<Vec<_>>());
}

#[test]
fn defaults_are_kafkas_where_the_design_does_not_say_otherwise() {
    let rows = [
        ("auto.create.topics.enable", "true"),
        ("num.partitions", "1"),
        ("message.max.bytes", "1048588"),
        ("socket.request.max.bytes", "104857600"),
        ("log.segment.bytes", "1073741824"),
        ("log.retention.hours", "168"),
        ("log.index.interval.bytes", "4096"),
        ("log.message.timestamp.after.max.ms", "3600000"),
        ("fetch.max.bytes", "57671680"),
        ("producer.id.expiration.ms", "86400000"),
        ("offsets.topic.num.partitions", "50"),
        ("group.initial.rebalance.delay.ms", "3000"),
        // Ringmain's own.
        ("node.id", "1"),
        ("log.flush.interval.messages", "1"),
        ("listeners", "PLAINTEXT://127.0.0.1:9092"),
        ("ringmain.admin.listener", "127.0.0.1:9644"),
        ("log.dir", "./ringmain-data"),
    ];
    for (name, default) in rows {
        let setting = broker_setting(name).expect(name);
        assert_eq!(setting.default, Some(default), "{name}");
    }
}

#[test]
fn a_typing_error_finds_the_setting_that_was_meant() {
    let rows = [
        ("log.segment.byte", Some("log.segment.bytes")),
        ("num.partition", Some("num.partitions")),
        (
            "auto.create.topic.enable",
            Some("auto.create.topics.enable"),
        ),
        ("retention.hours", Some("log.retention.hours")),
        ("ringmain.core", Some("ringmain.cores")),
        // A topic's name for what the broker calls otherwise.
        ("retention.ms", Some("log.retention.ms")),
        ("max.message.bytes", Some("message.max.bytes")),
        ("colour.of.the.bikeshed", None),
        ("", None),
    ];
    for (unknown, expected) in rows {
        assert_eq!(nearest_broker_setting(unknown), expected, "{unknown}");
    }
    assert_eq!(
        nearest_topic_setting("log.retention.ms"),
        Some("retention.ms")
    );
    assert_eq!(nearest_topic_setting("retention.mss"), Some("retention.ms"));
}

#[test]
fn removed_settings_are_not_settings() {
    for name in ["zookeeper.connect", "port", "log.message.format.version"] {
        assert!(removed(name).is_some(), "{name}");
        assert!(broker_setting(name).is_none(), "{name}");
    }
    for setting in all_rows() {
        assert_eq!(removed(setting.name), None, "{}", setting.name);
    }
}
