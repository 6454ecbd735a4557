//! Why the controller refused something.

/// A refusal: the kind decides Kafka's error code, the message goes to the client as it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ControllerError {
    pub kind: ControllerErrorKind,
    pub message: String,
}

/// The refusals, named as Kafka's error codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ControllerErrorKind {
    /// INVALID_TOPIC_EXCEPTION (17)
    InvalidTopic,
    /// TOPIC_AUTHORIZATION_FAILED (29): the name is the broker's own
    TopicAuthorizationFailed,
    /// TOPIC_ALREADY_EXISTS (36)
    TopicAlreadyExists,
    /// INVALID_PARTITIONS (37)
    InvalidPartitions,
    /// INVALID_REPLICATION_FACTOR (38)
    InvalidReplicationFactor,
    /// INVALID_REPLICA_ASSIGNMENT (39)
    InvalidReplicaAssignment,
    /// INVALID_CONFIG (40)
    InvalidConfig,
    /// INVALID_REQUEST (42)
    InvalidRequest,
    /// POLICY_VIOLATION (44)
    PolicyViolation,
    /// UNKNOWN_TOPIC_OR_PARTITION (3)
    UnknownTopicOrPartition,
    /// UNKNOWN_TOPIC_ID (100)
    UnknownTopicId,
    /// BROKER_ID_NOT_REGISTERED (102)
    BrokerIdNotRegistered,
    /// UNKNOWN_SERVER_ERROR (-1)
    UnknownServerError,
    /// KAFKA_STORAGE_ERROR (56, retriable): the metadata could not be made durable
    StorageError,
    /// NOT_CONTROLLER (41, retriable): the control thread stops
    NotController,
}

impl ControllerErrorKind {
    pub fn with(self, message: impl Into<String>) -> ControllerError {
        ControllerError {
            kind: self,
            message: message.into(),
        }
    }

    /// UNKNOWN_TOPIC_OR_PARTITION with Kafka's default text.
    pub(super) fn unknown_topic() -> ControllerError {
        Self::UnknownTopicOrPartition.with("This server does not host this topic-partition.")
    }

    /// UNKNOWN_TOPIC_ID with Kafka's default text.
    pub(super) fn unknown_topic_id() -> ControllerError {
        Self::UnknownTopicId.with("This server does not host this topic ID.")
    }

    pub(super) fn duplicate_topic_name() -> ControllerError {
        Self::InvalidRequest.with("Duplicate topic name.")
    }
}
