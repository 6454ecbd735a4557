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

use crate::base::NodeId;
use crate::cluster::MetadataImage;
use crate::config::describe::BrokerLayers;
use crate::config::{BrokerConfig, Settings};

/// The broker's settings in force: those of the file under those that were set while it ran.
pub fn broker_settings(image: &MetadataImage, config: &BrokerConfig) -> Settings {
    BrokerLayers {
        dynamic: image.broker_overrides(NodeId(config.node_id)),
        dynamic_default: image.broker_default_overrides(),
        fixed: &config.settings,
    }
    .merged()
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
