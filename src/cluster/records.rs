//! The records that change the metadata image, and their bytes.
//!
//! Records travel in *batches*: a batch is what one append makes durable, all of it or nothing.
//! The store frames it (see [`store`](super::store)); here is the payload, a JSON array of
//! records in the order of their offsets:
//!
//! ```text
//! [{"topic-created":{"id":"AAECAwQFBgcICQoLDA0ODw","name":"orders",
//!                    "partitions":[[1,[1],[1],0,0]],"overrides":{"retention.ms":"1000"}}}, ...]
//! ```
//!
//! JSON, because metadata is small and rare, a stranger can read it with `strings`, and its
//! parser is at home with hostile bytes. A record type or a field that this version does not know
//! is an error: silently skipping one would fork the image.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::base::{NodeId, ProducerId, TopicId};

use super::image::{BrokerImage, Overrides, PartitionImage};

/// One change of the metadata image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum MetadataRecord {
    /// A broker is there, or is there under a new address.
    #[serde(with = "as_broker")]
    BrokerRegistered(BrokerImage),
    /// A topic begins, with its partitions and its settings.
    TopicCreated {
        #[serde(with = "as_topic_id")]
        id: TopicId,
        #[serde(with = "as_name")]
        name: Arc<str>,
        partitions: Vec<PartitionImage>,
        overrides: Overrides,
    },
    /// A topic and all of its data end.
    TopicDeleted {
        #[serde(with = "as_topic_id")]
        id: TopicId,
    },
    /// Partitions behind the topic's last one.
    PartitionsAdded {
        #[serde(with = "as_topic_id")]
        id: TopicId,
        partitions: Vec<PartitionImage>,
    },
    /// The topic's settings, all of them.
    TopicConfigsReplaced {
        #[serde(with = "as_topic_id")]
        id: TopicId,
        overrides: Overrides,
    },
    /// The run-time settings of one broker, or of all brokers (`None`), all of them.
    BrokerConfigsReplaced {
        #[serde(with = "as_node_id")]
        broker: Option<NodeId>,
        overrides: Overrides,
    },
    /// Producer ids below this one are given out.
    ProducerIdsAllocated {
        #[serde(with = "as_producer_id")]
        next_producer_id: ProducerId,
    },
}

/// A batch's payload that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("its metadata records cannot be read: {0}")]
pub struct DecodeError(#[from] serde_json::Error);

/// The payload of a batch.
pub fn encode_records(records: &[MetadataRecord]) -> Vec<u8> {
    // The only failures of serde_json's writer are non-string keys and failing sinks.
    serde_json::to_vec(records).expect("records have string keys and go to memory")
}

/// The records of a batch's payload.
pub fn decode_records(payload: &[u8]) -> Result<Vec<MetadataRecord>, DecodeError> {
    Ok(serde_json::from_slice(payload)?)
}

mod as_topic_id {
    use super::TopicId;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(id: &TopicId, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(id)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<TopicId, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(D::Error::custom)
    }
}

mod as_name {
    use super::Arc;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(name: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(name)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<str>, D::Error> {
        Ok(String::deserialize(deserializer)?.into())
    }
}

mod as_node_id {
    use super::NodeId;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(id: &Option<NodeId>, serializer: S) -> Result<S::Ok, S::Error> {
        id.map(|id| id.0).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<NodeId>, D::Error> {
        Ok(Option::<i32>::deserialize(deserializer)?.map(NodeId))
    }
}

mod as_producer_id {
    use super::ProducerId;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(id: &ProducerId, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_i64(id.0)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ProducerId, D::Error> {
        Ok(ProducerId(i64::deserialize(deserializer)?))
    }
}

mod as_broker {
    use super::{BrokerImage, NodeId};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Row {
        id: i32,
        host: String,
        port: u16,
        rack: Option<String>,
        fenced: bool,
    }

    pub fn serialize<S: Serializer>(
        broker: &BrokerImage,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        Row {
            id: broker.id.0,
            host: broker.host.clone(),
            port: broker.port,
            rack: broker.rack.clone(),
            fenced: broker.fenced,
        }
        .serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BrokerImage, D::Error> {
        let row = Row::deserialize(deserializer)?;
        Ok(BrokerImage {
            id: NodeId(row.id),
            host: row.host,
            port: row.port,
            rack: row.rack,
            fenced: row.fenced,
        })
    }
}

#[cfg(test)]
mod tests;
