//! DescribeConfigs, AlterConfigs and IncrementalAlterConfigs.

use std::collections::BTreeSet;
use std::sync::Arc;

use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use kafka_protocol::messages::{
    AlterConfigsRequest, AlterConfigsResponse, DescribeConfigsRequest, DescribeConfigsResponse,
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
};
use tracing::warn;

use super::Broker;
use super::errors::{ResponseError, alter_code, controller_code, text};
use crate::cluster::controller::{ConfigChange, ConfigEdit, validate_topic_name};
use crate::cluster::{Command, ConfigResource, ControllerError, ControllerErrorKind, Reply};
use crate::config::alter::{self, Altered, BrokerScope, Change};
use crate::config::describe::{
    DescribedSetting, describe_broker, describe_cluster_default, describe_topic,
};
use crate::config::{AlterError, BrokerConfig, Entries};

/// Resource types of the protocol.
const TOPIC: i8 = 2;
const BROKER: i8 = 4;

type Refusal = (ResponseError, String);

fn invalid_request<T>(message: String) -> Result<T, Refusal> {
    Err((ResponseError::InvalidRequest, message))
}

/// The error for a topic that is not there.
fn unknown_topic(name: &str) -> Refusal {
    match validate_topic_name(name) {
        Ok(()) => (
            ResponseError::UnknownTopicOrPartition,
            "This server does not host this topic-partition.".to_owned(),
        ),
        Err(error) => (controller_code(&error), error.message),
    }
}

pub fn describe_configs(
    broker: &Broker,
    request: DescribeConfigsRequest,
) -> DescribeConfigsResponse {
    let results = request.resources.into_iter().map(|resource| {
        let described = describe_resource(broker, &resource);
        let result = DescribeConfigsResult::default()
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name);
        match described {
            Ok(settings) => result.with_configs(
                settings
                    .into_iter()
                    .map(|one| {
                        described_setting(
                            one,
                            request.include_synonyms,
                            request.include_documentation,
                        )
                    })
                    .collect(),
            ),
            Err((code, message)) => result
                .with_error_code(code.code())
                .with_error_message(Some(text(&message))),
        }
    });
    DescribeConfigsResponse::default().with_results(results.collect())
}

fn describe_resource(
    broker: &Broker,
    resource: &DescribeConfigsResource,
) -> Result<Vec<DescribedSetting>, Refusal> {
    let wanted: Option<Vec<String>> = resource
        .configuration_keys
        .as_ref()
        .map(|keys| keys.iter().map(|key| key.to_string()).collect());
    let wanted = wanted.as_deref();
    let name = resource.resource_name.as_str();
    let config = broker.config();
    let settings = &config.settings;
    match resource.resource_type {
        TOPIC => {
            let image = broker.image();
            let topic = image.topic(name).ok_or_else(|| unknown_topic(name))?;
            Ok(describe_topic(settings, &topic.overrides, wanted))
        }
        BROKER if name.is_empty() => Ok(describe_cluster_default(settings, wanted)),
        BROKER => match name.parse::<i32>() {
            Ok(id) if id == config.node_id.0 => Ok(describe_broker(settings, wanted)),
            Ok(_) => invalid_request(format!(
                "Unexpected broker id, expected {} or empty string, but received {name}",
                config.node_id
            )),
            Err(_) => invalid_request(format!("Broker id must be an integer, but it is: {name}")),
        },
        kind => invalid_request(format!("Unsupported resource type: {kind}")),
    }
}

fn described_setting(
    described: DescribedSetting,
    with_synonyms: bool,
    with_documentation: bool,
) -> DescribeConfigsResourceResult {
    let synonyms = described.synonyms.into_iter().map(|synonym| {
        DescribeConfigsSynonym::default()
            .with_name(text(synonym.name))
            .with_value(synonym.value.as_deref().map(text))
            .with_source(synonym.source.code())
    });
    DescribeConfigsResourceResult::default()
        .with_name(text(described.name))
        .with_value(described.value.as_deref().map(text))
        .with_read_only(described.read_only)
        .with_config_source(described.source.code())
        .with_is_sensitive(described.is_sensitive)
        .with_synonyms(if with_synonyms {
            synonyms.collect()
        } else {
            Vec::new()
        })
        .with_config_type(described.kind.code())
        .with_documentation(with_documentation.then(|| text(&described.documentation)))
}

/// One resource of an alteration: the words of the request, and what they come to.
struct Alteration {
    kind: i8,
    name: String,
    change: Result<ConfigChange, Refusal>,
}

/// What a request asks for one resource.
enum Wish {
    /// These are all of its settings.
    Replace(Vec<(String, Option<String>)>),
    Change(Vec<Change>),
}

impl Alteration {
    fn new(broker: &Broker, kind: i8, name: &str, wish: Wish) -> Self {
        let change = resource_of(broker, kind, name).map(|resource| ConfigChange {
            edit: edit(broker.config(), &resource, wish),
            resource,
        });
        Self {
            kind,
            name: name.to_owned(),
            change,
        }
    }
}

/// Whose settings a resource's name means.
fn resource_of(broker: &Broker, kind: i8, name: &str) -> Result<ConfigResource, Refusal> {
    match kind {
        TOPIC if broker.image().topic(name).is_some() => Ok(ConfigResource::Topic(name.to_owned())),
        TOPIC => Err(unknown_topic(name)),
        BROKER => match BrokerScope::of_resource(name, broker.node_id().0) {
            Ok(BrokerScope::ClusterDefault) => Ok(ConfigResource::BrokerDefault),
            Ok(BrokerScope::ThisBroker) => Ok(ConfigResource::Broker(broker.node_id())),
            Err(error) => Err((alter_code(&error), error.to_string())),
        },
        _ => invalid_request(format!("Unknown resource type {kind}")),
    }
}

/// The edit that the control thread makes, from what the settings are by then.
fn edit(config: Arc<BrokerConfig>, resource: &ConfigResource, wish: Wish) -> ConfigEdit {
    let scope = match resource {
        ConfigResource::Topic(_) => {
            return ConfigEdit::from_fn(move |present| {
                let defaults = &config.topic_defaults;
                let altered = match &wish {
                    Wish::Replace(named) => alter::replace_topic(defaults, named),
                    Wish::Change(changes) => alter::alter_topic(defaults, present, changes),
                };
                // The controller has its check of topics warn about settings without effect.
                Ok(altered.map_err(refused)?.entries)
            });
        }
        ConfigResource::Broker(_) => BrokerScope::ThisBroker,
        ConfigResource::BrokerDefault => BrokerScope::ClusterDefault,
    };
    ConfigEdit::from_fn(move |present| {
        let altered = alter_broker(&config, scope, present, &wish).map_err(refused)?;
        for warning in altered.warnings {
            warn!("{warning}");
        }
        Ok(altered.entries)
    })
}

fn alter_broker(
    config: &BrokerConfig,
    scope: BrokerScope,
    present: &Entries,
    wish: &Wish,
) -> Result<Altered, AlterError> {
    let mut config = config.clone();
    let entries = match scope {
        BrokerScope::ClusterDefault => &mut config.settings.dynamic_default_entries,
        BrokerScope::ThisBroker => &mut config.settings.dynamic_broker_entries,
    };
    entries.clone_from(present);
    match wish {
        Wish::Replace(named) => alter::replace_broker(&config, scope, named),
        Wish::Change(changes) => alter::alter_broker(&config, scope, changes),
    }
}

fn refused(error: AlterError) -> ControllerError {
    let kind = match error {
        AlterError::InvalidConfig(_) => ControllerErrorKind::InvalidConfig,
        AlterError::InvalidRequest(_) => ControllerErrorKind::InvalidRequest,
    };
    ControllerError {
        kind,
        message: error.to_string(),
    }
}

/// Refuses resources that the request names more than once, every time.
fn refuse_repeated(alterations: &mut [Alteration]) {
    let mut seen = BTreeSet::new();
    let mut repeated = BTreeSet::new();
    for one in alterations.iter() {
        if !seen.insert((one.kind, one.name.clone())) {
            repeated.insert((one.kind, one.name.clone()));
        }
    }
    for one in alterations {
        if repeated.contains(&(one.kind, one.name.clone())) {
            let message = "Each resource must appear at most once.";
            one.change = invalid_request(message.to_owned());
        }
    }
}

pub async fn alter_configs(broker: &Broker, request: AlterConfigsRequest) -> AlterConfigsResponse {
    use kafka_protocol::messages::alter_configs_response::AlterConfigsResourceResponse;
    let alterations = request.resources.into_iter().map(|resource| {
        let named: Vec<(String, Option<String>)> = resource
            .configs
            .into_iter()
            .map(|config| {
                (
                    config.name.to_string(),
                    config.value.map(|value| value.to_string()),
                )
            })
            .collect();
        Alteration::new(
            broker,
            resource.resource_type,
            &resource.resource_name,
            Wish::Replace(named),
        )
    });
    let results = alter_all(broker, alterations.collect(), request.validate_only).await;
    let responses = results.into_iter().map(|(kind, name, refusal)| {
        let response = AlterConfigsResourceResponse::default()
            .with_resource_type(kind)
            .with_resource_name(text(&name));
        match refusal {
            None => response,
            Some((code, message)) => response
                .with_error_code(code.code())
                .with_error_message(Some(text(&message))),
        }
    });
    AlterConfigsResponse::default().with_responses(responses.collect())
}

pub async fn incremental_alter_configs(
    broker: &Broker,
    request: IncrementalAlterConfigsRequest,
) -> IncrementalAlterConfigsResponse {
    use kafka_protocol::messages::incremental_alter_configs_response::AlterConfigsResourceResponse;
    let alterations = request.resources.into_iter().map(|resource| {
        let changes = resource
            .configs
            .into_iter()
            .map(|config| Change {
                name: config.name.to_string(),
                operation: config.config_operation,
                value: config.value.map(|value| value.to_string()),
            })
            .collect();
        Alteration::new(
            broker,
            resource.resource_type,
            &resource.resource_name,
            Wish::Change(changes),
        )
    });
    let results = alter_all(broker, alterations.collect(), request.validate_only).await;
    let responses = results.into_iter().map(|(kind, name, refusal)| {
        let response = AlterConfigsResourceResponse::default()
            .with_resource_type(kind)
            .with_resource_name(text(&name));
        match refusal {
            None => response,
            Some((code, message)) => response
                .with_error_code(code.code())
                .with_error_message(Some(text(&message))),
        }
    });
    IncrementalAlterConfigsResponse::default().with_responses(responses.collect())
}

/// Has the controller make the changes that are sound; answers in the order of the request.
async fn alter_all(
    broker: &Broker,
    mut alterations: Vec<Alteration>,
    validate_only: bool,
) -> Vec<(i8, String, Option<Refusal>)> {
    refuse_repeated(&mut alterations);
    let changes: Vec<ConfigChange> = alterations
        .iter()
        .filter_map(|one| one.change.as_ref().ok().cloned())
        .collect();
    let reply = if changes.is_empty() {
        Ok(Reply::ConfigsAltered(Vec::new()))
    } else {
        broker
            .control
            .submit(Command::AlterConfigs {
                changes,
                validate_only,
            })
            .await
    };
    let as_refusal = |error: &ControllerError| (controller_code(error), error.message.clone());
    alterations
        .into_iter()
        .map(|one| {
            let refused = match (&one.change, &reply) {
                (Err(refusal), _) => Some(refusal.clone()),
                (Ok(_), Err(error)) => Some(as_refusal(error)),
                (Ok(change), Ok(Reply::ConfigsAltered(results))) => {
                    let result = results
                        .iter()
                        .find(|result| result.resource == change.resource);
                    result.and_then(|result| result.result.as_ref().err().map(as_refusal))
                }
                (Ok(_), Ok(_)) => Some((ResponseError::UnknownServerError, "no answer".to_owned())),
            };
            (one.kind, one.name, refused)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_that_is_named_twice_is_refused_both_times() {
        let alteration = |kind, name: &str| Alteration {
            kind,
            name: name.to_owned(),
            change: invalid_request("of its own".to_owned()),
        };
        let mut alterations = vec![
            alteration(TOPIC, "a"),
            alteration(TOPIC, "b"),
            alteration(BROKER, "a"),
            alteration(TOPIC, "a"),
        ];
        refuse_repeated(&mut alterations);
        let messages: Vec<String> = alterations
            .into_iter()
            .filter_map(|one| Some(one.change.err()?.1))
            .collect();
        let once = "Each resource must appear at most once.";
        assert_eq!(messages, [once, "of its own", "of its own", once]);
    }

    #[test]
    fn a_brokers_edit_starts_from_what_the_control_thread_has() {
        let config = BrokerConfig::load(crate::config::Overrides::default())
            .unwrap()
            .0;
        let present = Entries::from([("log.segment.bytes".to_owned(), "2097152".to_owned())]);
        let wish = Wish::Change(vec![Change {
            name: "message.max.bytes".to_owned(),
            operation: 0,
            value: Some("2000".to_owned()),
        }]);
        let altered = alter_broker(&config, BrokerScope::ThisBroker, &present, &wish).unwrap();
        let names: Vec<&String> = altered.entries.keys().collect();
        assert_eq!(names, ["log.segment.bytes", "message.max.bytes"]);
    }
}
