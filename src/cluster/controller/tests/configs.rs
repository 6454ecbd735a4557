use super::*;

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
