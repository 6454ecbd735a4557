//! From file and command line to the settings in force, and the messages on the way.

use std::path::{Path, PathBuf};

use super::*;
use crate::base::NodeId;

fn load(text: &str) -> Result<(BrokerConfig, Vec<Warning>), ConfigError> {
    load_with(text, Overrides::default())
}

fn load_with(
    text: &str,
    overrides: Overrides,
) -> Result<(BrokerConfig, Vec<Warning>), ConfigError> {
    BrokerConfig::from_text(Path::new("ringmain.toml"), text, overrides)
}

fn config(text: &str) -> BrokerConfig {
    let (config, _) = load(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    config
}

fn message(text: &str) -> String {
    match load(text) {
        Ok(_) => panic!("accepted: {text}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn without_file_and_options_the_designs_defaults_hold() {
    let (config, warnings) = BrokerConfig::load(Overrides::default()).unwrap();
    assert!(warnings.is_empty());
    assert_eq!(config.node_id, NodeId(1));
    assert_eq!(config.data_dir, PathBuf::from("./ringmain-data"));
    assert_eq!(config.listen.to_string(), "127.0.0.1:9092");
    assert_eq!(config.advertised, None);
    assert_eq!(config.admin.to_string(), "127.0.0.1:9644");
    assert_eq!(config.cores, CoreSelection::All);
    assert_eq!(config.num_partitions, 1);
    assert!(config.auto_create_topics_enable);
    assert_eq!(config.socket_request_max_bytes, 104_857_600);
    assert_eq!(config.producer_id_expiration_ms, 86_400_000);
    assert_eq!(config.fetch_max_bytes, 57_671_680);
    assert_eq!(config.fetch_session_slots, 1000);
    let topic = TopicConfig::from_overrides(&config.topic_defaults, &Entries::new());
    assert_eq!(topic, TopicConfig::default());
    assert_eq!(topic.retention_ms, Some(604_800_000));
    assert_eq!(topic.retention_bytes, None);
    assert_eq!(topic.flush_messages, 1);
    assert_eq!(topic.flush_ms, i64::MAX as u64);
    assert_eq!(topic.segment_bytes, 1 << 30);
    assert!(topic.cleanup_policy.delete && !topic.cleanup_policy.compact);
}

#[test]
fn dotted_quoted_and_table_forms_of_a_key_mean_the_same() {
    let forms = [
        "log.segment.bytes = 2097152",
        "\"log.segment.bytes\" = 2097152",
        "log.\"segment.bytes\" = 2_097_152",
        "[log]\nsegment.bytes = 0x200000",
        "[log.segment]\nbytes = 2097152",
        "log = { segment = { bytes = 2097152 } }",
        "log.segment.bytes = \"2097152\"",
    ];
    for form in forms {
        let config = config(form);
        let topic = TopicConfig::from_overrides(&config.topic_defaults, &Entries::new());
        assert_eq!(topic.segment_bytes, 2_097_152, "{form}");
        let stored = config.settings.static_entries.get("log.segment.bytes");
        assert_eq!(stored.map(String::as_str), Some("2097152"), "{form}");
    }
}

#[test]
fn lists_are_texts_or_arrays_and_booleans_may_be_quoted() {
    for form in [
        "log.cleanup.policy = \"compact,delete\"",
        "log.cleanup.policy = [\"compact\", \"delete\"]",
    ] {
        let topic = TopicConfig::from_overrides(&config(form).topic_defaults, &Entries::new());
        assert!(
            topic.cleanup_policy.delete && topic.cleanup_policy.compact,
            "{form}"
        );
    }
    assert!(!config("auto.create.topics.enable = false").auto_create_topics_enable);
    assert!(!config("auto.create.topics.enable = \"false\"").auto_create_topics_enable);
}

#[test]
fn retention_takes_milliseconds_before_minutes_before_hours() {
    let rows = [
        ("log.retention.hours = 2", Some(7_200_000)),
        (
            "log.retention.hours = 2\nlog.retention.minutes = 3",
            Some(180_000),
        ),
        ("log.retention.minutes = 3\nlog.retention.ms = 5", Some(5)),
        ("log.retention.ms = -1", None),
        ("log.retention.hours = -1", None),
        ("log.retention.ms = -5", None),
    ];
    for (text, expected) in rows {
        let topic = TopicConfig::from_overrides(&config(text).topic_defaults, &Entries::new());
        assert_eq!(topic.retention_ms, expected, "{text}");
    }
}

#[test]
fn every_problem_is_one_line_that_says_where_and_what_to_do() {
    let rows = [
        (
            "\nlog.segmnet.bytes = 1",
            "ringmain.toml:2: unknown setting `log.segmnet.bytes`; did you mean `log.segment.bytes`?",
        ),
        (
            "retention.ms = 1",
            "ringmain.toml:1: unknown setting `retention.ms`; did you mean `log.retention.ms`?",
        ),
        (
            "colour.of.the.bikeshed = 1",
            "ringmain.toml:1: unknown setting `colour.of.the.bikeshed`; remove it, or see the list of settings in Kafka's documentation",
        ),
        (
            "zookeeper.connect = \"localhost:2181\"",
            "ringmain.toml:1: `zookeeper.connect`: ZooKeeper is gone since Kafka 4.0; remove the key, metadata lives in the data directory",
        ),
        (
            "num.partitions = \"three\"",
            "ringmain.toml:1: `num.partitions` expects an int, found string \"three\"",
        ),
        (
            "num.partitions = 1.5",
            "ringmain.toml:1: `num.partitions` expects an int, found float 1.5",
        ),
        (
            "auto.create.topics.enable = 1",
            "ringmain.toml:1: `auto.create.topics.enable` expects a boolean, found integer 1",
        ),
        (
            "listeners = 9092",
            "ringmain.toml:1: `listeners` expects a string, found integer 9092",
        ),
        (
            "num.partitions = [1]",
            "ringmain.toml:1: `num.partitions` expects an int, found an array",
        ),
        (
            "log.segment.bytes = 3000000000",
            "ringmain.toml:1: `log.segment.bytes` is out of range: 3000000000 does not fit an int (-2147483648 to 2147483647)",
        ),
        (
            "num.partitions = 0",
            "ringmain.toml:1: Invalid value 0 for configuration num.partitions: Value must be at least 1",
        ),
        (
            "ssl.keystore.location = \"x.jks\"",
            "ringmain.toml:1: `ssl.keystore.location` cannot be set to `x.jks`: TLS is not supported yet; remove the key",
        ),
        (
            "ssl.key.password = \"geheim\"",
            "ringmain.toml:1: `ssl.key.password` cannot be set to `[hidden]`: TLS is not supported yet; remove the key",
        ),
        (
            "ssl.key.password = 4711",
            "ringmain.toml:1: `ssl.key.password` expects a password, found something else",
        ),
        (
            "\"num.partitions\" = 1\nnum.partitions = 2",
            "ringmain.toml:2: `num.partitions` is given twice, also on line 1; keep one",
        ),
        (
            "listeners = \"PLAINTEXT://0.0.0.0:9092\"",
            "ringmain.toml:1: `listeners` has the wildcard address `0.0.0.0:9092`, which no client can connect to; set `advertised.listeners` to the address that clients use",
        ),
        (
            "listeners = \"SASL_SSL://localhost:9093\"",
            "ringmain.toml:1: `listeners` has a listener of protocol SASL_SSL; only PLAINTEXT is supported yet",
        ),
        (
            "listeners = \"INTERNAL://localhost:9093\"",
            "ringmain.toml:1: `listeners` has the listener INTERNAL, which `listener.security.protocol.map` does not name",
        ),
        (
            "listeners = \"127.0.0.1:9092\"",
            "ringmain.toml:1: `listeners` expects NAME://HOST:PORT such as PLAINTEXT://127.0.0.1:9092, found `127.0.0.1:9092`",
        ),
        (
            "listeners = \"PLAINTEXT://a:1,PLAINTEXT://b:2\"",
            "ringmain.toml:1: `listeners` has 2 client listeners; one is supported yet",
        ),
        (
            "advertised.listeners = \"PLAINTEXT://0.0.0.0:9092\"",
            "ringmain.toml:1: `advertised.listeners` holds a wildcard address, which no client can connect to; name this host's own",
        ),
        (
            "log.dirs = \"/a,/b\"",
            "ringmain.toml:1: `log.dirs` names 2 directories; one is supported",
        ),
        (
            "controller.quorum.voters = \"1@a:9093,2@b:9093\"",
            "ringmain.toml:1: `controller.quorum.voters` names 2 nodes; a cluster is not supported yet",
        ),
        (
            "process.roles = \"controller\"",
            "ringmain.toml:1: `process.roles` has no `broker`; a controller alone is not supported yet",
        ),
        (
            "log.retention.ms = 0",
            "ringmain.toml:1: `log.retention.ms` must be unlimited (-1) or, equal or greater than 1",
        ),
        (
            "ringmain.cores = \"3-1\"",
            "ringmain.toml:1: `ringmain.cores`: the range `3-1` runs backwards; write the smaller core first",
        ),
        (
            "ringmain.network.in.bytes = 1048576",
            "ringmain.toml:1: `ringmain.network.in.bytes` (1048576) is less than `socket.request.max.bytes` (104857600); raise it, or lower that",
        ),
    ];
    for (text, expected) in rows {
        assert_eq!(message(text), expected, "{text}");
    }
}

#[test]
fn a_file_that_is_no_toml_names_the_line() {
    let message = message("num.partitions = 1\nlog.dirs = /data\n");
    assert!(
        message.starts_with("ringmain.toml:2: not valid TOML: "),
        "{message}"
    );
    assert_eq!(message.lines().count(), 1, "{message}");
}

#[test]
fn keys_that_toml_cannot_hold_side_by_side_say_how_to_write_them() {
    let text = "max.connections = 5\nmax.connections.per.ip = 3";
    let problem = message(text);
    assert!(problem.contains("quote both"), "{problem}");
    let quoted = config("\"max.connections\" = 5\n\"max.connections.per.ip\" = 3");
    let number = |name| quoted.settings.value(name).and_then(|it| it.as_integer());
    assert_eq!(number("max.connections"), Some(5));
    assert_eq!(number("max.connections.per.ip"), Some(3));
}

#[test]
fn all_problems_are_reported_one_a_line() {
    let message = message("num.partitions = 0\nnope.nope = 1\nlog.retention.ms = 0");
    let places: Vec<&str> = message
        .lines()
        .filter_map(|line| line.split(": ").next())
        .collect();
    assert_eq!(
        places,
        ["ringmain.toml:1", "ringmain.toml:2", "ringmain.toml:3"]
    );
}

#[test]
fn a_file_that_cannot_be_read_is_one_line() {
    let overrides = Overrides {
        config: Some(PathBuf::from("/nonexistent/ringmain.toml")),
        ..Overrides::default()
    };
    let error = BrokerConfig::load(overrides).unwrap_err().to_string();
    assert!(
        error.starts_with("/nonexistent/ringmain.toml: cannot read"),
        "{error}"
    );
    assert_eq!(error.lines().count(), 1);
}

#[test]
fn inert_settings_warn_with_place_and_reason() {
    let (_, warnings) = load("num.partitions = 2\nnum.io.threads = 16").unwrap();
    let warnings: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "ringmain.toml:2: `num.io.threads` has no effect: one executor per core does all work, \
          see `ringmain.cores`"
        ]
    );
}

#[test]
fn a_refused_setting_may_be_set_to_its_default() {
    let (_, warnings) = load("security.inter.broker.protocol = \"PLAINTEXT\"").unwrap();
    assert!(warnings.is_empty());
}

#[test]
fn a_kraft_operators_file_works_as_it_is() {
    let text = r#"
        process.roles = "broker,controller"
        node.id = 7
        controller.quorum.bootstrap.servers = "localhost:9093"
        listeners = "PLAINTEXT://:9092,CONTROLLER://:9093"
        inter.broker.listener.name = "PLAINTEXT"
        advertised.listeners = "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093"
        controller.listener.names = "CONTROLLER"
        listener.security.protocol.map = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL"
        num.network.threads = 3
        num.io.threads = 8
        socket.send.buffer.bytes = 102400
        socket.receive.buffer.bytes = -1
        socket.request.max.bytes = 104857600
        log.dirs = "/tmp/kraft-combined-logs"
        num.partitions = 3
        num.recovery.threads.per.data.dir = 2
        offsets.topic.replication.factor = 1
        transaction.state.log.replication.factor = 1
        transaction.state.log.min.isr = 1
        log.retention.hours = 168
        log.segment.bytes = 1073741824
        log.retention.check.interval.ms = 300000
    "#;
    let config = config(text);
    assert_eq!(config.node_id, NodeId(7));
    assert_eq!(config.data_dir, PathBuf::from("/tmp/kraft-combined-logs"));
    assert_eq!(config.listen.to_string(), ":9092");
    let advertised = config.advertised.map(|advertised| advertised.to_string());
    assert_eq!(advertised.as_deref(), Some("localhost:9092"));
}

#[test]
fn the_command_line_goes_before_the_file() {
    let overrides = Overrides {
        config: None,
        data_dir: Some(PathBuf::from("/data,with,commas")),
        listen: Some("[::1]:0".to_owned()),
        admin: Some("127.0.0.1:0".to_owned()),
        cores: Some("0-1".to_owned()),
    };
    let text = "log.dirs = \"/a\"\nringmain.cores = \"7\"\nringmain.admin.listener = \"h:1\"";
    let (config, _) = load_with(text, overrides).unwrap();
    assert_eq!(config.data_dir, PathBuf::from("/data,with,commas"));
    assert_eq!(config.listen.to_string(), "[::1]:0");
    assert_eq!(config.admin.to_string(), "127.0.0.1:0");
    assert_eq!(config.cores, CoreSelection::List(vec![0, 1]));
    let stored = &config.settings.static_entries;
    assert_eq!(stored["listeners"], "PLAINTEXT://[::1]:0");
    assert_eq!(stored["log.dirs"], "/data,with,commas");
    let same = config.with_dynamic(Entries::new(), Entries::new());
    assert_eq!(same, Ok(config));
}

#[test]
fn bad_options_are_named() {
    let option = |overrides: Overrides| load_with("", overrides).unwrap_err().to_string();
    let listen = |text: &str| Overrides {
        listen: Some(text.to_owned()),
        ..Overrides::default()
    };
    assert_eq!(
        option(listen("9092")),
        "`--listen`: expects HOST:PORT such as 127.0.0.1:9092, found `9092`"
    );
    assert!(option(listen("0.0.0.0:9092")).contains("set `advertised.listeners`"));
    let cores = Overrides {
        cores: Some("x".to_owned()),
        ..Overrides::default()
    };
    assert_eq!(
        option(cores),
        "`--cores`: expects `all` or a list such as `0`, `0-3` or `0,2`, found `x`"
    );
}

#[test]
fn node_id_goes_before_its_older_name() {
    assert_eq!(config("broker.id = 4").node_id, NodeId(4));
    assert_eq!(config("broker.id = 4\nnode.id = 5").node_id, NodeId(5));
    assert!(message("broker.id = -1").contains("has to be 0 or more"));
}

#[test]
fn a_topics_own_values_go_before_the_brokers() {
    let broker = config("log.retention.hours = 1\nlog.message.timestamp.type = \"LogAppendTime\"");
    let own = Entries::from([
        ("retention.ms".to_owned(), " -1 ".to_owned()),
        ("segment.bytes".to_owned(), "2097152".to_owned()),
        ("compression.type".to_owned(), "zstd".to_owned()),
        // Stored by another version: passed over.
        ("max.message.bytes".to_owned(), "many".to_owned()),
        ("from.the.future".to_owned(), "1".to_owned()),
    ]);
    let topic = TopicConfig::from_overrides(&broker.topic_defaults, &own);
    assert_eq!(topic.retention_ms, None);
    assert_eq!(topic.segment_bytes, 2_097_152);
    assert_eq!(topic.compression_type, CompressionType::Zstd);
    assert_eq!(topic.message_timestamp_type, TimestampType::LogAppendTime);
    assert_eq!(topic.max_message_bytes, 1_048_588);
}

#[test]
fn dynamic_settings_reach_topics_and_typed_fields() {
    let broker = config("message.max.bytes = 2000");
    let for_all = Entries::from([
        ("message.max.bytes".to_owned(), "3000".to_owned()),
        ("log.retention.ms".to_owned(), "60000".to_owned()),
    ]);
    let for_this = Entries::from([("message.max.bytes".to_owned(), "4000".to_owned())]);
    let changed = broker.with_dynamic(for_all, for_this).unwrap();
    let topic = TopicConfig::from_overrides(&changed.topic_defaults, &Entries::new());
    assert_eq!(topic.retention_ms, Some(60_000));
    assert_eq!(topic.max_message_bytes, 4000);
}

#[test]
fn absurd_nesting_is_a_problem_and_not_a_crash() {
    let dotted = format!("{} = 1", vec!["a"; 100_000].join("."));
    let nested = format!("a = {}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let tables = format!("[{}]\nb = 1", vec!["a"; 100_000].join("."));
    for text in [dotted, nested, tables] {
        assert!(load(&text).is_err());
    }
}
