use super::*;

fn read(contents: &str) -> Result<(Settings, Vec<String>), String> {
    read_settings(contents, Path::new("f.toml")).map_err(|error| error.to_string())
}

fn load(contents: &str, overrides: &Overrides) -> Result<BrokerConfig, String> {
    let (settings, _) = read(contents)?;
    typed(settings, overrides, &[0, 1]).map_err(|error| error.to_string())
}

#[test]
fn dotted_quoted_and_table_forms_mean_the_same() {
    let forms = [
        "log.segment.bytes = 2097152",
        "\"log.segment.bytes\" = 2097152",
        "[log.segment]\nbytes = 2097152",
        "[log]\nsegment.bytes = 2097152",
        "log.segment.bytes = \"2097152\"",
    ];
    for form in forms {
        let (settings, warnings) = read(form).unwrap();
        assert_eq!(settings["log.segment.bytes"], "2097152", "{form}");
        assert!(warnings.is_empty(), "{form}");
    }
    let twice = "\"log.segment.bytes\" = 2097152\n[log.segment]\nbytes = 2097152";
    assert!(read(twice).unwrap_err().contains("set twice"));
}

#[test]
fn what_is_wrong_is_one_line_that_says_what_to_do() {
    let table = [
        (
            "log.segment.byte = 1",
            "f.toml: unknown key `log.segment.byte`; did you mean `log.segment.bytes`?",
        ),
        (
            "zzz = 1",
            "f.toml: unknown key `zzz`; README.md says where the settings are listed",
        ),
        (
            "node.id = \"x\"",
            "f.toml: `node.id` must be a whole number, not a string: \"x\"",
        ),
        (
            "node.id = true",
            "f.toml: `node.id` must be a whole number, not a boolean: true",
        ),
        (
            "num.partitions = 0",
            "f.toml: `num.partitions` cannot be `0`: value must be at least 1",
        ),
        (
            "broker.id = 3",
            "f.toml: `broker.id` is not supported: use node.id",
        ),
        (
            "listeners = \"SSL://h:1\"",
            "configuration: `listeners` names the protocol SSL; only PLAINTEXT is supported yet",
        ),
    ];
    for (contents, message) in table {
        let error = load(contents, &Overrides::default()).unwrap_err();
        assert_eq!(error, message, "{contents}");
        assert_eq!(error.lines().count(), 1);
    }
    let error = read("a = = b").unwrap_err();
    assert!(error.starts_with("f.toml:1: not valid TOML"), "{error}");
    assert_eq!(error.lines().count(), 1);
}

#[test]
fn a_wildcard_address_needs_one_that_clients_can_reach() {
    let wildcard = Overrides {
        listen: Some("0.0.0.0:9092".to_owned()),
        ..Overrides::default()
    };
    assert!(
        load("", &wildcard)
            .unwrap_err()
            .contains("advertised.listeners")
    );
    let config = load(
        "advertised.listeners = \"PLAINTEXT://kafka.example:9\"",
        &wildcard,
    )
    .unwrap();
    assert_eq!(config.advertised, Some(("kafka.example".to_owned(), 9)));
    let also_wildcard = "advertised.listeners = \"PLAINTEXT://0.0.0.0:9\"";
    assert!(
        load(also_wildcard, &wildcard)
            .unwrap_err()
            .contains("not a wildcard")
    );
    assert!(load("listeners = \"PLAINTEXT://:9092\"", &Overrides::default()).is_err());
}

#[test]
fn the_command_line_wins_over_the_file() {
    let overrides = Overrides {
        data_dir: Some("/x".into()),
        listen: Some("127.0.0.1:7".to_owned()),
        cores: Some("1".to_owned()),
        ..Overrides::default()
    };
    let config = load(
        "listeners = \"PLAINTEXT://127.0.0.1:1\"\nlog.dirs = \"/y\"",
        &overrides,
    )
    .unwrap();
    assert_eq!(config.listen.port(), 7);
    assert_eq!(config.data_dir, PathBuf::from("/x"));
    assert_eq!(config.cores, [1]);
    assert_eq!(config.socket_request_max_bytes, 104_857_600);
}

#[test]
fn settings_without_effect_warn() {
    let (_, warnings) = read("num.io.threads = 8").unwrap();
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].contains("num.io.threads") && warnings[0].contains("ringmain.cores"));
}
