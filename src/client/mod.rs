//! A small blocking Kafka client for the command line and the load generator.
//!
//! Reading order: [`error`] (what a person is told), [`connection`] (one connection, versions
//! agreed), [`topics`] (metadata, topic creation and offsets).
//!
//! Requests are encoded by the crate `kafka-protocol`. Responses are read by our own code, which
//! bounds every count by the bytes behind it: a hostile broker must not be able to exhaust memory
//! or panic a client.
//!
//! Deliberately absent: retries, pools, and the hot messages, which the load generator writes
//! itself.

pub mod connection;
pub mod error;
pub mod topics;

pub use connection::{Client, ConnectOptions};
pub use error::ClientError;
pub use topics::{PartitionInfo, TopicInfo};
