//! The figures of the broker.
//!
//! Each shard writes its own [`ShardMetrics`]; the [`MetricsRegistry`] reads all of them when
//! somebody asks. Figures of one moment may be apart by what happened while they were read.

mod cells;
mod process;
mod render;
mod shard;

pub use cells::{Counter, Gauge, Histogram, Maximum};
pub use render::{MetricsRegistry, PROMETHEUS_CONTENT_TYPE};
pub use shard::{API_KEYS_MAX, ShardMetrics};
