//! What the broker tells of itself: counters of each shard, health, and logs.
//!
//! In reading order: [`shard_metrics`] (what a shard counts), [`registry`] (all of it as
//! Prometheus text), [`process`] (what the kernel says of us), [`health`] (whether the broker is
//! ready, and why not), [`logging`].
//!
//! Deliberately absent: HTTP (see `admin`), and any lock on the way of a record.

pub mod health;
pub mod logging;
pub mod process;
pub mod registry;
pub mod shard_metrics;

pub use health::Health;
pub use registry::MetricsRegistry;
pub use shard_metrics::ShardMetrics;
