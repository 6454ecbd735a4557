//! DescribeConfigs, AlterConfigs and IncrementalAlterConfigs.

use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use kafka_protocol::messages::{
    AlterConfigsRequest, AlterConfigsResponse, DescribeConfigsRequest, DescribeConfigsResponse,
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
};

use super::Broker;
use super::errors::{ResponseError, alter_code, controller_code, text};
use crate::cluster::controller::{ConfigChange, ConfigEdit};
use crate::cluster::{
    Command, ConfigResource, ControllerError, ControllerErrorKind, MetadataImage, Reply,
};
use crate::config::alter::{self, AlterOperation, Scope};
use crate::config::describe::{BrokerLayers, Described, describe_broker, describe_topic};
use crate::config::{AlterError, Settings};

/// Resource types of the protocol.
const TOPIC: i8 = 2;
const BROKER: i8 = 4;

type Refusal = (ResponseError, String);

impl Broker {
    /// The broker's settings by where they were set.
    pub(super) fn layers<'a>(&'a self, image: &'a MetadataImage) -> BrokerLayers<'a> {
        BrokerLayers {
            dynamic: image.broker_overrides(self.node_id()),
            dynamic_default: image.broker_default_overrides(),
            fixed: &self.config().settings,
        }
    }

    /// Whose settings a resource's name means.
    fn resource(&self, kind: i8, name: &str) -> Result<ConfigResource, Refusal> {
        match kind {
            TOPIC if self.image().topic(name).is_some() => {
                Ok(ConfigResource::Topic(name.to_owned()))
            }
            TOPIC => match crate::cluster::controller::validate_topic_name(name) {
                Ok(()) => Err((
                    ResponseError::UnknownTopicOrPartition,
                    "This server does not host this topic-partition.".to_owned(),
                )),
                Err(error) => Err((controller_code(&error), error.message)),
            },
            BROKER if name.is_empty() => Ok(ConfigResource::BrokerDefault),
            BROKER if name.parse() == Ok(self.node_id().0) => {
                Ok(ConfigResource::Broker(self.node_id()))
            }
            BROKER => Err((
                ResponseError::InvalidRequest,
                format!(
                    "Unexpected broker id, expected {} or empty string, but received {name}",
                    self.node_id()
                ),
            )),
            _ => Err((
                ResponseError::InvalidRequest,
                format!(
                    "resource type {kind} has no settings here: topics ({TOPIC}) and brokers ({BROKER}) have"
                ),
            )),
        }
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
) -> Result<Vec<Described>, Refusal> {
    let wanted: Option<Vec<String>> = resource
        .configuration_keys
        .as_ref()
        .map(|keys| keys.iter().map(|key| key.to_string()).collect());
    let wanted = wanted.as_deref();
    let image = broker.image();
    let layers = broker.layers(&image);
    match broker.resource(resource.resource_type, &resource.resource_name)? {
        ConfigResource::Topic(name) => {
            let own = image.topic(&name).map(|topic| &topic.overrides);
            Ok(describe_topic(
                own.unwrap_or(&Settings::new()),
                &layers,
                wanted,
            ))
        }
        ConfigResource::Broker(_) => Ok(describe_broker(&layers, wanted)),
        ConfigResource::BrokerDefault => {
            // Of all brokers, only what was set for all of them.
            let nothing = Settings::new();
            let only_default = BrokerLayers {
                dynamic: &nothing,
                fixed: &nothing,
                ..layers
            };
            let mut described = describe_broker(&only_default, wanted);
            described.retain(|one| layers.dynamic_default.contains_key(one.name));
            Ok(described)
        }
    }
}

fn described_setting(
    described: Described,
    with_synonyms: bool,
    with_documentation: bool,
) -> DescribeConfigsResourceResult {
    let synonyms = described.synonyms.into_iter().map(|synonym| {
        DescribeConfigsSynonym::default()
            .with_name(text(synonym.name))
            .with_value(synonym.value.as_deref().map(text))
            .with_source(synonym.source as i8)
    });
    DescribeConfigsResourceResult::default()
        .with_name(text(described.name))
        .with_value(described.value.as_deref().map(text))
        .with_read_only(described.is_read_only)
        .with_config_source(described.source as i8)
        .with_is_sensitive(false)
        .with_synonyms(if with_synonyms {
            synonyms.collect()
        } else {
            Vec::new()
        })
        .with_config_type(described.kind_code)
        .with_documentation(with_documentation.then(|| text(&described.documentation)))
}

/// One resource of an alteration: the words of the request, and what they come to.
struct Alteration {
    kind: i8,
    name: String,
    change: Result<ConfigChange, Refusal>,
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
        let kind = resource.resource_type;
        let name = resource.resource_name.to_string();
        let change = broker.resource(kind, &name).and_then(|target| {
            let settings = alter::replace(scope_of(&target), &named).map_err(refusal)?;
            Ok(ConfigChange {
                resource: target,
                edit: ConfigEdit::replace(settings),
            })
        });
        Alteration { kind, name, change }
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
        let kind = resource.resource_type;
        let name = resource.resource_name.to_string();
        let steps: Result<Vec<_>, Refusal> = resource
            .configs
            .into_iter()
            .map(|config| {
                let operation =
                    AlterOperation::from_code(config.config_operation).ok_or_else(|| {
                        let message = format!("Unknown operation type {}", config.config_operation);
                        (ResponseError::InvalidRequest, message)
                    })?;
                Ok((
                    config.name.to_string(),
                    operation,
                    config.value.map(|value| value.to_string()),
                ))
            })
            .collect();
        let change = steps.and_then(|steps| incremental_change(broker, kind, &name, steps));
        Alteration { kind, name, change }
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

fn incremental_change(
    broker: &Broker,
    kind: i8,
    name: &str,
    steps: Vec<(String, AlterOperation, Option<String>)>,
) -> Result<ConfigChange, Refusal> {
    let target = broker.resource(kind, name)?;
    let scope = scope_of(&target);
    // What a list starts from where it was not set: its value in force.
    let image = broker.image();
    let layers = broker.layers(&image);
    let in_force = match scope {
        Scope::Topic => describe_topic(&Settings::new(), &layers, None),
        Scope::Broker => describe_broker(&layers, None),
    };
    let inherited: Settings = in_force
        .into_iter()
        .filter_map(|one| Some((one.name.to_owned(), one.value?)))
        .collect();
    let edit = move |current: &Settings| {
        let inherited = |name: &str| inherited.get(name).cloned().unwrap_or_default();
        alter::change(scope, current, &steps, inherited).map_err(|error| {
            let kind = match error {
                AlterError::InvalidConfig(_) => ControllerErrorKind::InvalidConfig,
                AlterError::InvalidRequest(_) => ControllerErrorKind::InvalidRequest,
            };
            ControllerError {
                kind,
                message: error.to_string(),
            }
        })
    };
    Ok(ConfigChange {
        resource: target,
        edit: ConfigEdit::from_fn(edit),
    })
}

fn scope_of(resource: &ConfigResource) -> Scope {
    match resource {
        ConfigResource::Topic(_) => Scope::Topic,
        ConfigResource::Broker(_) | ConfigResource::BrokerDefault => Scope::Broker,
    }
}

fn refusal(error: AlterError) -> Refusal {
    (alter_code(&error), error.to_string())
}

/// Has the controller make the changes that are sound; answers in the order of the request.
async fn alter_all(
    broker: &Broker,
    alterations: Vec<Alteration>,
    validate_only: bool,
) -> Vec<(i8, String, Option<Refusal>)> {
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
    use crate::base::NodeId;

    #[test]
    fn a_broker_resource_is_in_the_scope_of_brokers() {
        assert_eq!(scope_of(&ConfigResource::Broker(NodeId(1))), Scope::Broker);
        assert_eq!(
            scope_of(&ConfigResource::Topic("t".to_owned())),
            Scope::Topic
        );
    }
}
