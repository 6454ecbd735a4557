//! The one table of error codes: every error of the layers below, and the code that Kafka's
//! clients know it by.

pub use kafka_protocol::error::ResponseError;
use kafka_protocol::protocol::StrBytes;

use super::fetch_session::SessionError;
use crate::cluster::{ControllerError, ControllerErrorKind};
use crate::config::AlterError;
use crate::partition::PartitionError;
use crate::protocol::records::RecordsError;

/// Text for a response.
pub fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

pub fn partition_code(error: &PartitionError) -> ResponseError {
    use PartitionError as Error;
    match error {
        Error::OutOfOrderSequence { .. } => ResponseError::OutOfOrderSequenceNumber,
        Error::InvalidProducerEpoch { .. } => ResponseError::InvalidProducerEpoch,
        Error::NegativeSequence { .. } => ResponseError::InvalidRecord,
        Error::OffsetOutOfRange { .. } => ResponseError::OffsetOutOfRange,
        Error::FencedLeaderEpoch { .. } => ResponseError::FencedLeaderEpoch,
        Error::UnknownLeaderEpoch { .. } => ResponseError::UnknownLeaderEpoch,
        Error::NotLeader | Error::Stopping => ResponseError::NotLeaderOrFollower,
        Error::NotEnoughReplicas { .. } => ResponseError::NotEnoughReplicas,
        Error::OffsetNotAvailable { .. } => ResponseError::OffsetNotAvailable,
        Error::NotHere => ResponseError::UnknownTopicOrPartition,
        Error::Offline { .. } | Error::Storage(_) => ResponseError::KafkaStorageError,
        Error::Transactional => ResponseError::InvalidTxnState,
        Error::Records(error) => records_code(error),
        Error::LargerThanSegment { .. } => ResponseError::RecordListTooLarge,
        Error::UnsupportedTimestamp { .. } => ResponseError::UnsupportedVersion,
    }
}

fn records_code(error: &RecordsError) -> ResponseError {
    match error {
        RecordsError::Batch(_) => ResponseError::CorruptMessage,
        RecordsError::Invalid(_) => ResponseError::InvalidRecord,
        RecordsError::TooLarge { .. } => ResponseError::MessageTooLarge,
        RecordsError::UnsupportedCompression(_) => ResponseError::UnsupportedCompressionType,
        RecordsError::Records {
            invalid_timestamp: true,
            ..
        } => ResponseError::InvalidTimestamp,
        RecordsError::Records {
            invalid_timestamp: false,
            ..
        } => ResponseError::InvalidRecord,
    }
}

pub fn session_code(error: &SessionError) -> ResponseError {
    match error {
        SessionError::IdNotFound => ResponseError::FetchSessionIdNotFound,
        SessionError::InvalidEpoch => ResponseError::InvalidFetchSessionEpoch,
        SessionError::TopicIdError => ResponseError::FetchSessionTopicIdError,
    }
}

pub fn alter_code(error: &AlterError) -> ResponseError {
    match error {
        AlterError::InvalidConfig(_) => ResponseError::InvalidConfig,
        AlterError::InvalidRequest(_) => ResponseError::InvalidRequest,
    }
}

pub fn controller_code(error: &ControllerError) -> ResponseError {
    use ControllerErrorKind as Kind;
    match error.kind {
        Kind::InvalidTopic => ResponseError::InvalidTopicException,
        Kind::TopicAuthorizationFailed => ResponseError::TopicAuthorizationFailed,
        Kind::TopicAlreadyExists => ResponseError::TopicAlreadyExists,
        Kind::InvalidPartitions => ResponseError::InvalidPartitions,
        Kind::InvalidReplicationFactor => ResponseError::InvalidReplicationFactor,
        Kind::InvalidReplicaAssignment => ResponseError::InvalidReplicaAssignment,
        Kind::InvalidConfig => ResponseError::InvalidConfig,
        Kind::InvalidRequest => ResponseError::InvalidRequest,
        Kind::PolicyViolation => ResponseError::PolicyViolation,
        Kind::UnknownTopicOrPartition => ResponseError::UnknownTopicOrPartition,
        Kind::UnknownTopicId => ResponseError::UnknownTopicId,
        Kind::BrokerIdNotRegistered => ResponseError::BrokerIdNotRegistered,
        Kind::UnknownServerError => ResponseError::UnknownServerError,
        Kind::StorageError => ResponseError::KafkaStorageError,
        Kind::NotController => ResponseError::NotController,
    }
}
