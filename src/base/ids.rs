//! Identifiers and positions. Each is a type of its own, so that an offset cannot be passed
//! where a file position is meant.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use uuid::Uuid;

/// A record's place in its partition: 0, 1, 2, … without unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Offset(pub i64);

impl Offset {
    pub const ZERO: Self = Self(0);
    /// Kafka's "unknown offset" on the wire.
    pub const UNKNOWN: Self = Self(-1);

    /// The offset `count` records further; saturates, since offsets come from the wire too.
    pub fn plus(self, count: i64) -> Self {
        Self(self.0.saturating_add(count))
    }

    pub fn next(self) -> Self {
        self.plus(1)
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A byte's place in a segment file, in bytes from its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FilePosition(pub u64);

impl fmt::Display for FilePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The term of a partition's leader; -1 is "unknown" (KIP-101).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaderEpoch(pub i32);

impl LeaderEpoch {
    pub const UNKNOWN: Self = Self(-1);
}

impl fmt::Display for LeaderEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The broker's number in the cluster (`node.id`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub i32);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The place of a shard among the shards of this process: 0, 1, … (not the core's number).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u16);

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A partition's number in its topic.
pub type PartitionIndex = i32;

/// Identifies a producer's session on the wire (KIP-98); -1 is "none".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProducerId(pub i64);

impl ProducerId {
    pub const NONE: Self = Self(-1);
}

impl fmt::Display for ProducerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The fencing number of a producer id; -1 is "none".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProducerEpoch(pub i16);

impl ProducerEpoch {
    pub const NONE: Self = Self(-1);
}

/// A topic's identity, which outlives neither deletion nor re-creation under the same name
/// (KIP-516). Prints as Kafka prints it: 22 characters of URL-safe base64 without padding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TopicId(pub Uuid);

impl TopicId {
    /// "No topic id" on the wire.
    pub const ZERO: Self = Self(Uuid::nil());

    /// A new random id. Kafka's own rules hold: never zero, and never one that prints with a
    /// leading `-`, which a command line would take for an option.
    pub fn random() -> Self {
        loop {
            let id = Self(Uuid::new_v4());
            if id != Self::ZERO && !id.to_string().starts_with('-') {
                return id;
            }
        }
    }
}

impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(self.0.as_bytes()))
    }
}

impl fmt::Debug for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text was not a Kafka UUID (22 characters of URL-safe base64).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a Kafka UUID (22 characters of URL-safe base64)")]
pub struct InvalidTopicId(pub String);

impl FromStr for TopicId {
    type Err = InvalidTopicId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidTopicId(text.to_owned());
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| invalid())?;
        Ok(Self(Uuid::from_slice(&bytes).map_err(|_| invalid())?))
    }
}

/// A partition by its topic's name and its number; prints as Kafka names the folder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartition {
    pub topic: Arc<str>,
    pub partition: PartitionIndex,
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_id_prints_and_parses_as_kafkas_uuid() {
        let id = TopicId(Uuid::from_u128(0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f));
        assert_eq!(id.to_string(), "AAECAwQFBgcICQoLDA0ODw");
        assert_eq!("AAECAwQFBgcICQoLDA0ODw".parse(), Ok(id));
        assert!("AAEC".parse::<TopicId>().is_err());
    }

    #[test]
    fn offsets_saturate() {
        assert_eq!(Offset(i64::MAX).next(), Offset(i64::MAX));
    }
}
