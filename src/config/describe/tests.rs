use std::path::Path;

use super::super::load::Overrides;
use super::super::{BrokerConfig, TopicConfig};
use super::*;

fn broker(text: &str) -> BrokerConfig {
    let loaded = BrokerConfig::from_text(Path::new("f"), text, Overrides::default());
    loaded.expect("a valid file").0
}

fn entries(pairs: &[(&str, &str)]) -> Entries {
    let owned = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
    pairs.iter().map(owned).collect()
}

fn topic_setting(broker: &BrokerSettings, own: &[(&str, &str)], name: &str) -> DescribedSetting {
    let names = [name.to_owned()];
    let mut described = describe_topic(broker, &entries(own), Some(&names));
    assert_eq!(described.len(), 1, "{name}");
    described.remove(0)
}

fn broker_setting(broker: &BrokerSettings, name: &str) -> DescribedSetting {
    let names = [name.to_owned()];
    let mut described = describe_broker(broker, Some(&names));
    assert_eq!(described.len(), 1, "{name}");
    described.remove(0)
}

/// `name=value source` of each entry of a chain.
fn chain(described: &DescribedSetting) -> Vec<String> {
    let print = |synonym: &DescribedSynonym| {
        let value = synonym.value.as_deref().unwrap_or("null");
        format!("{}={value} {:?}", synonym.name, synonym.source)
    };
    described.synonyms.iter().map(print).collect()
}

#[test]
fn every_topic_setting_is_described_with_value_source_type_and_text() {
    let described = describe_topic(&BrokerSettings::default(), &Entries::new(), None);
    assert_eq!(described.len(), 33);
    for setting in described {
        assert!(setting.value.is_some(), "{}", setting.name);
        assert_eq!(setting.source, Source::Default, "{}", setting.name);
        assert!(
            !setting.read_only && !setting.is_sensitive,
            "{}",
            setting.name
        );
        assert!(!setting.documentation.is_empty(), "{}", setting.name);
    }
}

#[test]
fn values_types_and_codes_are_those_of_kafka() {
    let broker = BrokerSettings::default();
    let rows = [
        ("cleanup.policy", "delete", 7),
        ("compression.type", "producer", 2),
        ("retention.ms", "604800000", 5),
        ("segment.bytes", "1073741824", 3),
        ("min.cleanable.dirty.ratio", "0.5", 6),
        ("preallocate", "false", 1),
        ("leader.replication.throttled.replicas", "", 7),
        ("max.compaction.lag.ms", "9223372036854775807", 5),
        ("flush.messages", "1", 5),
    ];
    for (name, value, code) in rows {
        let described = topic_setting(&broker, &[], name);
        assert_eq!(described.value.as_deref(), Some(value), "{name}");
        assert_eq!(described.kind.code(), code, "{name}");
    }
    let codes = [
        (Source::DynamicTopic, 1),
        (Source::DynamicBroker, 2),
        (Source::DynamicDefaultBroker, 3),
        (Source::StaticBroker, 4),
        (Source::Default, 5),
    ];
    for (source, code) in codes {
        assert_eq!(source.code(), code);
    }
}

#[test]
fn no_names_and_an_empty_list_of_names_mean_all() {
    let broker = BrokerSettings::default();
    let all = describe_topic(&broker, &Entries::new(), None);
    assert_eq!(describe_topic(&broker, &Entries::new(), Some(&[])), all);
    let names = ["segment.ms".to_owned(), "no.such.name".to_owned()];
    let some = describe_topic(&broker, &Entries::new(), Some(&names));
    let some: Vec<&str> = some.iter().map(|setting| setting.name).collect();
    assert_eq!(some, ["segment.ms"]);
}

#[test]
fn a_topics_own_value_lies_over_the_chain_of_the_broker() {
    let mut settings = broker("message.max.bytes = 2000").settings;
    settings.dynamic_default_entries = entries(&[("message.max.bytes", "3000")]);
    settings.dynamic_broker_entries = entries(&[("message.max.bytes", "4000")]);
    let described = topic_setting(
        &settings,
        &[("max.message.bytes", " 5000 ")],
        "max.message.bytes",
    );
    assert_eq!(described.value.as_deref(), Some("5000"));
    assert_eq!(described.source, Source::DynamicTopic);
    assert_eq!(
        chain(&described),
        [
            "max.message.bytes=5000 DynamicTopic",
            "message.max.bytes=4000 DynamicBroker",
            "message.max.bytes=3000 DynamicDefaultBroker",
            "message.max.bytes=2000 StaticBroker",
            "message.max.bytes=1048588 Default",
        ]
    );
    let described = topic_setting(&settings, &[], "max.message.bytes");
    assert_eq!(described.value.as_deref(), Some("4000"));
    assert_eq!(described.source, Source::DynamicBroker);
}

#[test]
fn an_explicit_value_equal_to_the_default_is_told_apart_from_it() {
    let own = [("cleanup.policy", "delete")];
    let described = topic_setting(&BrokerSettings::default(), &own, "cleanup.policy");
    assert_eq!(described.source, Source::DynamicTopic);
    assert_eq!(
        chain(&described),
        [
            "cleanup.policy=delete DynamicTopic",
            "log.cleanup.policy=delete Default"
        ]
    );
}

#[test]
fn retention_shows_the_setting_that_it_really_comes_from() {
    let described = topic_setting(&BrokerSettings::default(), &[], "retention.ms");
    assert_eq!(
        (described.source, chain(&described).len()),
        (Source::Default, 0)
    );

    let settings = broker("log.retention.hours = 2").settings;
    let described = topic_setting(&settings, &[], "retention.ms");
    assert_eq!(described.value.as_deref(), Some("7200000"));
    assert_eq!(
        chain(&described),
        [
            "log.retention.hours=2 StaticBroker",
            "log.retention.hours=168 Default"
        ]
    );

    let settings = broker("log.retention.hours = 2\nlog.retention.ms = 5").settings;
    let described = topic_setting(&settings, &[], "retention.ms");
    assert_eq!(described.value.as_deref(), Some("5"));
    assert_eq!(
        chain(&described),
        [
            "log.retention.ms=5 StaticBroker",
            "log.retention.hours=2 StaticBroker",
            "log.retention.hours=168 Default",
        ]
    );
}

#[test]
fn the_values_described_are_the_values_in_force() {
    let broker = broker("log.roll.hours = 3\nmin.insync.replicas = 2");
    let own = entries(&[("retention.ms", "77")]);
    let topic = TopicConfig::from_overrides(&broker.topic_defaults, &own);
    let described = describe_topic(&broker.settings, &own, None);
    let value = |name: &str| {
        let found = described.iter().find(|setting| setting.name == name);
        found
            .and_then(|setting| setting.value.clone())
            .unwrap_or_default()
    };
    assert_eq!(value("segment.ms"), topic.segment_ms.to_string());
    assert_eq!(
        value("min.insync.replicas"),
        topic.min_insync_replicas.to_string()
    );
    assert_eq!(value("retention.ms"), "77");
    assert_eq!(topic.retention_ms, Some(77));
}

#[test]
fn a_broker_describes_every_setting_with_its_source() {
    let mut settings = broker("num.partitions = 3\nlog.retention.ms = 5").settings;
    settings.dynamic_broker_entries = entries(&[("max.connections", "7")]);
    assert_eq!(
        describe_broker(&settings, None).len(),
        table::broker_settings().count()
    );
    let rows = [
        ("num.partitions", Some("3"), Source::StaticBroker, true),
        ("max.connections", Some("7"), Source::DynamicBroker, false),
        ("node.id", Some("1"), Source::Default, true),
        ("log.dirs", None, Source::Default, true),
        ("log.retention.ms", Some("5"), Source::StaticBroker, false),
        (
            "log.cleaner.io.max.bytes.per.second",
            Some("1.7976931348623157E308"),
            Source::Default,
            false,
        ),
        ("ringmain.cores", Some("all"), Source::Default, true),
    ];
    for (name, value, source, read_only) in rows {
        let described = broker_setting(&settings, name);
        assert_eq!(described.value.as_deref(), value, "{name}");
        assert_eq!(described.source, source, "{name}");
        assert_eq!(described.read_only, read_only, "{name}");
    }
    let described = broker_setting(&settings, "log.retention.ms");
    assert_eq!(
        chain(&described),
        [
            "log.retention.ms=5 StaticBroker",
            "log.retention.hours=168 Default"
        ]
    );
}

#[test]
fn passwords_are_never_shown() {
    // Refused in a file; held here to see that even then nothing shows.
    let settings = BrokerSettings {
        static_entries: entries(&[("ssl.key.password", "geheim")]),
        ..BrokerSettings::default()
    };
    let described = broker_setting(&settings, "ssl.key.password");
    assert!(described.is_sensitive);
    assert_eq!(described.value, None);
    assert_eq!(chain(&described), ["ssl.key.password=null StaticBroker"]);
    assert!(!format!("{described:?}").contains("geheim"));
}

#[test]
fn the_cluster_default_shows_only_what_is_set_for_all_brokers() {
    let mut settings = broker("message.max.bytes = 2000").settings;
    settings.dynamic_broker_entries = entries(&[("message.max.bytes", "4000")]);
    assert_eq!(describe_cluster_default(&settings, None), []);
    settings.dynamic_default_entries = entries(&[("message.max.bytes", "3000")]);
    let described = describe_cluster_default(&settings, None);
    assert_eq!(described.len(), 1);
    assert_eq!(described[0].value.as_deref(), Some("3000"));
    assert_eq!(
        chain(&described[0]),
        ["message.max.bytes=3000 DynamicDefaultBroker"]
    );
}

#[test]
fn settings_without_effect_say_so() {
    let described = broker_setting(&BrokerSettings::default(), "num.io.threads");
    assert!(
        described
            .documentation
            .contains("Accepted without effect: one executor per core")
    );
    let described = broker_setting(&BrokerSettings::default(), "ssl.protocol");
    assert!(
        described
            .documentation
            .contains("Only the default is accepted: TLS is not supported")
    );
}
