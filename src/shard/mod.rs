//! A shard is one executor on one core with everything that it owns. Shards share nothing: they
//! call each other with typed, owned messages.
//!
//! Reading order: [`messages`] (what shards say to each other), [`mailbox`] (how it gets there),
//! [`partitions`] (the partitions of this shard), [`core`] (the shard itself), [`scatter`] (one
//! request to many shards), [`runtime`] (all shards of the process), [`sweep`] (the data directory
//! before the start).
//!
//! Deliberately absent: Kafka's request and response types (the broker translates), and locks.

pub mod core;
pub mod mailbox;
pub mod messages;
pub mod partitions;
pub mod runtime;
pub mod scatter;
pub mod sweep;

pub use core::Shard;
pub use runtime::{Shards, ShardsHandle, ShardsSetup};

use crate::cluster::MetadataImage;
use crate::config::{BrokerConfig, Problem};

/// The broker's settings in force: those that it was started with under those that were set while
/// it ran.
///
/// # Errors
/// They do not fit each other.
pub fn broker_config(
    image: &MetadataImage,
    config: &BrokerConfig,
) -> Result<BrokerConfig, Vec<Problem>> {
    config.with_dynamic(
        image.broker_default_overrides().clone(),
        image.broker_overrides(config.node_id).clone(),
    )
}

/// Ends the process at once after a failed write or flush: what the device holds is unknown, so
/// nothing may be acknowledged any more, and recovery at the next start decides.
fn end_process(reason: &str) {
    tracing::error!(
        reason,
        "a write or flush failed; the broker ends so that recovery can decide what is on the disk"
    );
    eprintln!(
        "ringmain: a write or flush to the data directory failed ({reason}); check the disk, then start the broker again"
    );
    std::process::exit(1);
}
