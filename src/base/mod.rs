//! Vocabulary that every layer shares: identifiers, offsets, time and limits. No I/O.

pub mod ids;
pub mod limits;
pub mod time;

pub use ids::{
    FilePosition, LeaderEpoch, NodeId, Offset, PartitionIndex, ProducerEpoch, ProducerId, ShardId,
    TopicId, TopicPartition,
};
pub use time::TimestampMs;
