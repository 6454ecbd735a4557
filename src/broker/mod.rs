//! The broker's semantics: requests of Kafka's protocol carried out by the shards.
//!
//! Reading order: [`dispatch`] (from a frame to a handler), the handlers by API family
//! ([`produce`], [`fetch`] with its [`fetch_session`]s, [`offsets`], [`metadata`], [`topics`],
//! [`configs`], [`producer_ids`]), and [`errors`] (the one table of error codes).
//!
//! Deliberately absent: sockets, files, and state beyond what a connection's shard needs.

pub mod configs;
pub mod dispatch;
pub mod errors;
pub mod fetch;
pub mod fetch_session;
pub mod metadata;
pub mod offsets;
pub mod produce;
pub mod producer_ids;
pub mod topics;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use crate::base::{NodeId, PartitionIndex};
use crate::cluster::{ControlHandle, MetadataImage, TopicImage};
use crate::config::BrokerConfig;
use crate::protocol::fetch::TopicRef;
use crate::shard::Shard;
use crate::shard::messages::PartitionKey;
use fetch_session::FetchSessionCache;
use producer_ids::ProducerIds;

/// One shard's part of the broker: it serves the connections that the shard accepted.
pub struct Broker {
    shard: Rc<Shard>,
    control: ControlHandle,
    fetch_sessions: RefCell<FetchSessionCache>,
    producer_ids: ProducerIds,
}

impl Broker {
    pub fn new(shard: Rc<Shard>, control: ControlHandle) -> Self {
        let slots = shard.partitions().config().fetch_session_slots;
        let sessions = FetchSessionCache::new(slots, shard.id(), shard.shard_count());
        Self {
            shard,
            control,
            fetch_sessions: RefCell::new(sessions),
            producer_ids: ProducerIds::default(),
        }
    }

    fn shard(&self) -> &Shard {
        &self.shard
    }

    /// The settings in force.
    fn config(&self) -> Arc<BrokerConfig> {
        self.shard.partitions().config()
    }

    fn image(&self) -> Arc<MetadataImage> {
        self.shard.image()
    }

    fn node_id(&self) -> NodeId {
        self.config().node_id
    }

    fn key_by_name(&self, topic: &str, partition: PartitionIndex) -> Option<PartitionKey> {
        key_of(self.image().topic(topic)?, partition)
    }
}

/// The partition, if the topic has one of this number.
fn key_of(topic: &TopicImage, partition: PartitionIndex) -> Option<PartitionKey> {
    topic.partition(partition).map(|_| PartitionKey {
        topic_id: topic.id,
        partition,
    })
}

/// The topic that a request names.
fn find_topic<'a>(image: &'a MetadataImage, topic: &TopicRef) -> Option<&'a Arc<TopicImage>> {
    match topic {
        TopicRef::Name(name) => image.topic(name),
        TopicRef::Id(id) => image.topic_by_id(*id),
    }
}
