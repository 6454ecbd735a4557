//! Settings: Kafka's names, one table that documents, parses and describes each.
//!
//! Reading order: [`table`] (every setting), [`value`] (types and their texts), [`broker`] (typed
//! settings of the broker), [`topic`] (typed settings of a topic), [`file`] (TOML and the command
//! line), [`describe`] and [`alter`] (what the config APIs answer).
//!
//! Deliberately absent: files other than the configuration file, and Kafka's error codes.

pub mod alter;
pub mod broker;
pub mod cores;
pub mod describe;
pub mod file;
pub mod table;
pub mod topic;
pub mod value;

pub use alter::{AlterError, AlterOperation};
pub use broker::BrokerConfig;
pub use file::{ConfigError, Overrides};
pub use topic::TopicConfig;

use std::collections::BTreeMap;

/// Settings as texts, by name.
pub type Settings = BTreeMap<String, String>;
