//! The controller decides: image and command in, records and reply out.
//!
//! ```text
//!   (image, command) --decide--> records --store--> durable --apply--> next image
//!                           \--> reply, held back until the shards have the next image
//! ```
//!
//! Pure: no clock, no random numbers, no files; new topic ids come from the context. The rules and
//! the texts of errors are those of Kafka's `ReplicationControlManager`, `ConfigurationControlManager`
//! and `ControllerApis`. What one topic of a request does wrong is an error of that topic only.

use std::collections::BTreeSet;

use crate::base::{NodeId, ProducerId, TopicId};

use super::image::{BrokerImage, MetadataImage, Overrides};
use super::records::MetadataRecord;

mod assign;
mod configs;
mod error;
mod partitions;
mod topics;

pub use configs::{ConfigChange, ConfigEdit, ConfigResource, ConfigResult};
pub use error::{ControllerError, ControllerErrorKind};
pub use partitions::{PartitionGrowth, PartitionGrowthResult};
pub use topics::{
    CreatedTopic, DeleteTopicResult, NewTopic, NewTopicResult, ReplicaAssignment, TopicSelector,
    validate_topic_name,
};

/// The ids of one block given to a producer-id cache (Kafka's `PRODUCER_ID_BLOCK_SIZE`).
pub const PRODUCER_ID_BLOCK_COUNT: i64 = 1000;

/// The partitions that one request may make. Beyond it: POLICY_VIOLATION, as in Kafka
/// (`MAX_PARTITIONS_PER_BATCH`).
pub const PARTITIONS_PER_REQUEST_MAX: usize = 10_000;

/// What may be asked of the controller.
#[derive(Debug, Clone)]
pub enum Command {
    /// A broker announces itself; repeated at every start, recorded only where something is new.
    RegisterBroker(BrokerImage),
    CreateTopics {
        topics: Vec<NewTopic>,
        /// Say what would happen and change nothing.
        validate_only: bool,
    },
    DeleteTopics {
        topics: Vec<TopicSelector>,
    },
    CreatePartitions {
        topics: Vec<PartitionGrowth>,
        validate_only: bool,
    },
    AlterConfigs {
        changes: Vec<ConfigChange>,
        validate_only: bool,
    },
    /// The next [`PRODUCER_ID_BLOCK_COUNT`] producer ids, for the caller alone and for ever.
    AllocateProducerIds,
}

/// The answer to the command of the same name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    BrokerRegistered,
    /// One result for each distinct name, in the request's order.
    TopicsCreated(Vec<NewTopicResult>),
    /// One result for each distinct topic, in the request's order.
    TopicsDeleted(Vec<DeleteTopicResult>),
    /// One result for each distinct name, in the request's order.
    PartitionsCreated(Vec<PartitionGrowthResult>),
    /// One result for each distinct resource, in the request's order.
    ConfigsAltered(Vec<ConfigResult>),
    ProducerIds(ProducerIdBlock),
}

/// Producer ids `first`, `first + 1`, … , `count` of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerIdBlock {
    pub first: ProducerId,
    pub count: i64,
}

/// What a command leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// To be made durable together, or not at all, before the reply is given.
    pub records: Vec<MetadataRecord>,
    pub reply: Reply,
}

/// What stands for -1 ("the broker's default") in requests, and what bounds them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Defaults {
    /// `num.partitions`
    pub num_partitions: i32,
    /// `default.replication.factor`
    pub replication_factor: i16,
    /// The most partitions that the cluster may hold. Beyond it: POLICY_VIOLATION.
    pub cluster_partitions_max: usize,
}

impl Default for Defaults {
    fn default() -> Self {
        Self {
            num_partitions: 1,
            replication_factor: 1,
            // Each costs files and memory; far beyond what one machine was measured to carry.
            cluster_partitions_max: 1_000_000,
        }
    }
}

/// Says what is wrong with a topic's overrides.
pub type ValidateConfigs = dyn Fn(&Overrides) -> Result<(), String> + Send + Sync;

/// What the controller needs to know beside image and command.
pub struct ControllerContext {
    pub defaults: Defaults,
    /// A fresh topic id; asked again where the image has that id already.
    pub new_topic_id: Box<dyn FnMut() -> TopicId + Send>,
    pub validate_topic_configs: Box<ValidateConfigs>,
    pub validate_broker_configs: Box<ValidateConfigs>,
}

/// Decides a command. An error refuses the command as a whole; nothing is to be recorded then.
pub fn decide(
    image: &MetadataImage,
    command: Command,
    context: &mut ControllerContext,
) -> Result<Decision, ControllerError> {
    match command {
        Command::RegisterBroker(broker) => Ok(register_broker(image, broker)),
        Command::CreateTopics {
            topics,
            validate_only,
        } => Ok(topics::create_topics(image, topics, context).unless(validate_only)),
        Command::DeleteTopics { topics } => Ok(topics::delete_topics(image, &topics)),
        Command::CreatePartitions {
            topics,
            validate_only,
        } => Ok(
            partitions::create_partitions(image, topics, context.defaults).unless(validate_only),
        ),
        Command::AlterConfigs {
            changes,
            validate_only,
        } => Ok(configs::alter_configs(image, changes, context).unless(validate_only)),
        Command::AllocateProducerIds => allocate_producer_ids(image),
    }
}

impl Decision {
    fn unless(mut self, validate_only: bool) -> Self {
        if validate_only {
            self.records.clear();
        }
        self
    }
}

fn register_broker(image: &MetadataImage, broker: BrokerImage) -> Decision {
    let known = image.broker(broker.id) == Some(&broker);
    Decision {
        records: if known {
            Vec::new()
        } else {
            vec![MetadataRecord::BrokerRegistered(broker)]
        },
        reply: Reply::BrokerRegistered,
    }
}

fn allocate_producer_ids(image: &MetadataImage) -> Result<Decision, ControllerError> {
    let first = image.next_producer_id();
    let next = first
        .0
        .checked_add(PRODUCER_ID_BLOCK_COUNT)
        .ok_or_else(|| {
            ControllerErrorKind::UnknownServerError.with(
            "Exhausted all producerIds as the next block's end producerId has exceeded the int64 \
             type limit",
        )
        })?;
    Ok(Decision {
        records: vec![MetadataRecord::ProducerIdsAllocated {
            next_producer_id: ProducerId(next),
        }],
        reply: Reply::ProducerIds(ProducerIdBlock {
            first,
            count: PRODUCER_ID_BLOCK_COUNT,
        }),
    })
}

/// The brokers that may get replicas, in order.
fn usable_brokers(image: &MetadataImage) -> Vec<NodeId> {
    image
        .brokers()
        .filter(|broker| !broker.fenced)
        .map(|broker| broker.id)
        .collect()
}

/// The keys that come more than once.
fn duplicates<K: Ord + Copy>(keys: impl Iterator<Item = K>) -> BTreeSet<K> {
    let mut seen = BTreeSet::new();
    keys.filter(|key| !seen.insert(*key)).collect()
}

#[cfg(test)]
mod tests;
