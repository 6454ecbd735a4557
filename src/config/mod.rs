//! Settings: what can be set, what is set, and what that means to the broker.
//!
//! In reading order: [`table`] lists every setting with type, default, limits and documentation;
//! [`value`] and [`validator`] read and check single values; [`layers`] say which of several
//! values goes first; [`broker`] and [`topic`] derive the typed settings in force; [`load`] gets
//! them from file and command line; [`describe`] and [`alter`] are the logic behind
//! DescribeConfigs and AlterConfigs.
//!
//! Deliberately absent: any second place that knows a default or a limit. What the broker reads
//! is derived from the table.

pub mod alter;
pub mod broker;
pub mod cores;
pub mod describe;
pub mod endpoint;
mod error;
mod file;
pub mod layers;
pub mod load;
pub mod table;
pub mod topic;
pub mod validator;
pub mod value;

#[cfg(test)]
mod tests;

pub use alter::AlterError;
pub use broker::BrokerConfig;
pub use cores::{CoreSelection, InvalidCores, format_cores};
pub use endpoint::Endpoint;
pub use error::{ConfigError, Located, Problem};
pub use layers::{BrokerSettings, Entries, Source};
pub use load::{Overrides, Warning};
pub use topic::{CleanupPolicy, CompressionType, TimestampType, TopicConfig, TopicDefaults};
