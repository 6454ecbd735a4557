//! What a partition answers instead of doing what was asked, and what is wrong with a file.

use crate::base::{LeaderEpoch, Offset, ProducerEpoch, ProducerId};
use crate::protocol::records::RecordsError;

/// Each has exactly one Kafka error code, named in its comment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PartitionError {
    /// OUT_OF_ORDER_SEQUENCE_NUMBER (45)
    #[error(
        "out of order sequence number for producer {producer_id}: {found} came, the last one was {last}"
    )]
    OutOfOrderSequence {
        producer_id: ProducerId,
        /// The batch's first sequence.
        found: i32,
        /// The last sequence accepted; -1 for "none in this epoch".
        last: i32,
    },
    /// INVALID_PRODUCER_EPOCH (47)
    #[error(
        "epoch {} of producer {producer_id} is older than the last one seen, {}", .found.0, .current.0
    )]
    InvalidProducerEpoch {
        producer_id: ProducerId,
        found: ProducerEpoch,
        current: ProducerEpoch,
    },
    /// INVALID_RECORD (87)
    #[error("sequence number {found} of producer {producer_id} is negative")]
    NegativeSequence { producer_id: ProducerId, found: i32 },
    /// OFFSET_OUT_OF_RANGE (1)
    #[error("offset {asked} is outside of the log, which has {log_start} to {end}")]
    OffsetOutOfRange {
        asked: Offset,
        log_start: Offset,
        /// The offset after the last one that may be asked for.
        end: Offset,
    },
    /// FENCED_LEADER_EPOCH (74)
    #[error("leader epoch {asked} is over: the current one is {current}")]
    FencedLeaderEpoch {
        asked: LeaderEpoch,
        current: LeaderEpoch,
    },
    /// UNKNOWN_LEADER_EPOCH (75)
    #[error("leader epoch {asked} is not known here yet: the current one is {current}")]
    UnknownLeaderEpoch {
        asked: LeaderEpoch,
        current: LeaderEpoch,
    },
    /// NOT_LEADER_OR_FOLLOWER (6)
    #[error("this node does not lead the partition")]
    NotLeader,
    /// OFFSET_NOT_AVAILABLE (78)
    #[error("the high watermark has not yet reached the start of leader epoch {current}")]
    OffsetNotAvailable { current: LeaderEpoch },
    /// UNKNOWN_TOPIC_OR_PARTITION (3)
    #[error("this node does not have the partition")]
    NotHere,
    /// KAFKA_STORAGE_ERROR (56)
    #[error("the partition is offline: {reason}")]
    Offline { reason: String },
    /// NOT_ENOUGH_REPLICAS (19)
    #[error(
        "{in_sync} replicas are in sync, and min.insync.replicas of the topic is {required}: \
         produce without acks=all, or lower it"
    )]
    NotEnoughReplicas { in_sync: usize, required: usize },
    /// NOT_LEADER_OR_FOLLOWER (6)
    #[error("the broker is stopping")]
    Stopping,
    /// INVALID_TXN_STATE (48)
    #[error("transactions are not supported yet: send the records without a transactional id")]
    Transactional,
    /// As the kind of fault says: CORRUPT_MESSAGE (2), INVALID_RECORD (87), INVALID_TIMESTAMP (32),
    /// MESSAGE_TOO_LARGE (10), UNSUPPORTED_COMPRESSION_TYPE (76)
    #[error(transparent)]
    Records(#[from] RecordsError),
    /// RECORD_LIST_TOO_LARGE (18)
    #[error("a batch of {bytes} bytes exceeds segment.bytes, which is {segment_bytes}")]
    LargerThanSegment { bytes: usize, segment_bytes: u64 },
    /// KAFKA_STORAGE_ERROR (56)
    #[error("{0}")]
    Storage(String),
    /// UNSUPPORTED_VERSION (35)
    #[error("version {version} of ListOffsets does not know the special timestamp {timestamp}")]
    UnsupportedTimestamp { timestamp: i64, version: i16 },
}

/// A derived file does not hold what it should. It can be rebuilt from the log: delete it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CorruptCheckpoint(pub String);
