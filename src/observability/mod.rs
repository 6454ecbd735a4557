//! What can be seen of a running broker: counters, health and the log.
//!
//! Deliberately absent: anything that a shard would have to wait for. Counters are written by one
//! thread and read by any other without locks; health changes rarely enough for a mutex.

pub mod health;
pub mod logging;
pub mod metrics;

pub use health::Health;
pub use metrics::{MetricsRegistry, ShardMetrics};
