//! What `/v1/status` says.

use std::collections::BTreeMap;

use serde::Serialize;

use super::state::AdminState;
use crate::cluster::MetadataImage;

/// The broker at a glance.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Status {
    pub node_id: i32,
    pub cluster_id: String,
    pub version: &'static str,
    pub uptime_s: u64,
    pub is_ready: bool,
    /// What keeps it from being ready, by part.
    pub not_ready: BTreeMap<String, String>,
    /// The cores of the shards, in order of the shards.
    pub cores: Vec<usize>,
    pub topic_count: usize,
    pub partition_count: usize,
    /// Counts the metadata's changes.
    pub metadata_version: i64,
    /// In order of their names.
    pub offline_partitions: Vec<OfflinePartition>,
}

/// A partition that cannot be served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OfflinePartition {
    /// `topic-0`
    pub partition: String,
    pub shard: u16,
    /// Which file, which position, what to do.
    pub reason: String,
}

impl Status {
    pub(super) fn of(state: &AdminState) -> Self {
        let image = state.image();
        let metrics = state.metrics();
        let shards = metrics.shards();
        let mut offline_partitions: Vec<OfflinePartition> = shards
            .iter()
            .flat_map(|shard| {
                let of_shard = shard.offline_partitions().into_iter();
                of_shard.map(|(partition, reason)| OfflinePartition {
                    partition,
                    shard: shard.shard(),
                    reason,
                })
            })
            // One of a topic that was deleted since is no longer anybody's concern.
            .filter(|offline| exists(&image, &offline.partition))
            .collect();
        offline_partitions.sort_by(|a, b| a.partition.cmp(&b.partition));
        let not_ready = state.health().reasons();
        Self {
            node_id: state.node_id().0,
            cluster_id: image.cluster_id().to_string(),
            version: env!("CARGO_PKG_VERSION"),
            uptime_s: metrics.uptime().as_secs(),
            is_ready: not_ready.is_empty(),
            not_ready,
            cores: shards.iter().map(|shard| shard.core()).collect(),
            topic_count: image.topic_count(),
            partition_count: image.partition_count(),
            metadata_version: image.version(),
            offline_partitions,
        }
    }
}

/// Whether the image has a partition of this printed name.
fn exists(image: &MetadataImage, partition: &str) -> bool {
    let Some((topic, index)) = partition.rsplit_once('-') else {
        return false;
    };
    let index = index.parse().ok();
    image
        .topic(topic)
        .zip(index)
        .is_some_and(|(topic, index)| topic.partition(index).is_some())
}
