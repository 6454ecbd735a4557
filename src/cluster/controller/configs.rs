//! Changing the settings of topics and brokers.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use crate::base::NodeId;

use super::super::image::{MetadataImage, Overrides};
use super::super::records::MetadataRecord;
use super::error::{ControllerError, ControllerErrorKind};
use super::{ControllerContext, Decision, Reply, duplicates};

/// Whose settings.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConfigResource {
    Topic(String),
    Broker(NodeId),
    /// All brokers: Kafka's broker resource with the empty name.
    BrokerDefault,
}

/// How the overrides change: from what they are when the controller comes to the command, so that
/// two clients who alter different keys at the same time both succeed.
#[derive(Clone)]
pub struct ConfigEdit(Arc<EditOverrides>);

type EditOverrides = dyn Fn(&Overrides) -> Result<Overrides, ControllerError> + Send + Sync;

impl ConfigEdit {
    /// AlterConfigs: the overrides are these, whatever they were.
    pub fn replace(overrides: Overrides) -> Self {
        Self::from_fn(move |_| Ok(overrides.clone()))
    }

    /// IncrementalAlterConfigs: from the present overrides to the new ones. The function is called
    /// on the control thread, and must not block.
    pub fn from_fn(
        edit: impl Fn(&Overrides) -> Result<Overrides, ControllerError> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(edit))
    }
}

impl fmt::Debug for ConfigEdit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConfigEdit")
    }
}

/// One resource of an alteration.
#[derive(Debug, Clone)]
pub struct ConfigChange {
    pub resource: ConfigResource,
    pub edit: ConfigEdit,
}

/// What became of one resource of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigResult {
    pub resource: ConfigResource,
    pub result: Result<(), ControllerError>,
}

pub(super) fn alter_configs(
    image: &MetadataImage,
    changes: Vec<ConfigChange>,
    context: &ControllerContext,
) -> Decision {
    let repeated: BTreeSet<ConfigResource> =
        duplicates(changes.iter().map(|change| &change.resource))
            .into_iter()
            .cloned()
            .collect();
    let mut answered = BTreeSet::new();
    let mut records = Vec::new();
    let mut results = Vec::new();
    for change in changes {
        let result = if repeated.contains(&change.resource) {
            if !answered.insert(change.resource.clone()) {
                continue;
            }
            Err(ControllerErrorKind::InvalidRequest.with("Each resource must appear at most once."))
        } else {
            alter(image, &change, context)
        };
        results.push(ConfigResult {
            resource: change.resource,
            result: result.map(|record| records.extend(record)),
        });
    }
    Decision {
        records,
        reply: Reply::ConfigsAltered(results),
    }
}

/// The record of a change; none where it leaves things as they are.
fn alter(
    image: &MetadataImage,
    change: &ConfigChange,
    context: &ControllerContext,
) -> Result<Option<MetadataRecord>, ControllerError> {
    let invalid = |message| ControllerErrorKind::InvalidConfig.with(message);
    let edited = |present: &Overrides| {
        (change.edit.0)(present).map(|overrides| (overrides != *present).then_some(overrides))
    };
    match &change.resource {
        ConfigResource::Topic(name) => {
            let topic = image.topic(name).ok_or_else(|| {
                ControllerErrorKind::UnknownTopicOrPartition
                    .with(format!("The topic '{name}' does not exist."))
            })?;
            let Some(overrides) = edited(&topic.overrides)? else {
                return Ok(None);
            };
            (context.validate_topic_configs)(&overrides).map_err(invalid)?;
            Ok(Some(MetadataRecord::TopicConfigsReplaced {
                id: topic.id,
                overrides,
            }))
        }
        ConfigResource::Broker(id) => {
            if image.broker(*id).is_none() {
                return Err(ControllerErrorKind::BrokerIdNotRegistered
                    .with(format!("No broker with id {id} found.")));
            }
            alter_broker(edited(image.broker_overrides(*id))?, Some(*id), context)
        }
        ConfigResource::BrokerDefault => {
            alter_broker(edited(image.broker_default_overrides())?, None, context)
        }
    }
}

fn alter_broker(
    overrides: Option<Overrides>,
    broker: Option<NodeId>,
    context: &ControllerContext,
) -> Result<Option<MetadataRecord>, ControllerError> {
    let Some(overrides) = overrides else {
        return Ok(None);
    };
    (context.validate_broker_configs)(&overrides)
        .map_err(|message| ControllerErrorKind::InvalidConfig.with(message))?;
    Ok(Some(MetadataRecord::BrokerConfigsReplaced {
        broker,
        overrides,
    }))
}
