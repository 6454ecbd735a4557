//! Which brokers hold the replicas of new partitions.

use std::collections::BTreeSet;

use crate::base::{NodeId, TopicId};

use super::super::image::{MetadataImage, PartitionImage};
use super::error::{ControllerError, ControllerErrorKind};
use super::usable_brokers;

/// Partitions `first_partition`, … , `count` of them, striped over the unfenced brokers: each
/// partition begins one broker further than the last. Where a topic begins follows from its id, so
/// that topics of one partition spread too.
pub(super) fn place_replicas(
    image: &MetadataImage,
    topic_id: TopicId,
    first_partition: usize,
    count: usize,
    replication_factor: usize,
) -> Result<Vec<PartitionImage>, ControllerError> {
    let brokers = usable_brokers(image);
    let refuse = |reason: &str| {
        Err(ControllerErrorKind::InvalidReplicationFactor.with(format!(
            "Unable to replicate the partition {replication_factor} time(s): {reason}"
        )))
    };
    if brokers.is_empty() {
        return refuse("All brokers are currently fenced.");
    }
    let registered = image.brokers().len();
    if replication_factor > registered {
        return refuse(&format!(
            "The target replication factor of {replication_factor} cannot be reached because \
             only {registered} broker(s) are registered."
        ));
    }
    if replication_factor > brokers.len() {
        return refuse(&format!(
            "The target replication factor of {replication_factor} cannot be reached because \
             only {} broker(s) are unfenced.",
            brokers.len()
        ));
    }
    let start = (topic_id.0.as_u128() % brokers.len() as u128) as usize;
    Ok((first_partition..first_partition.saturating_add(count))
        .map(|partition| {
            let stripe = start + partition % brokers.len();
            let replicas = (0..replication_factor)
                .map(|replica| brokers[(stripe + replica) % brokers.len()])
                .collect();
            PartitionImage::new(replicas)
        })
        .collect())
}

/// A partition whose replicas the client chose. `replication_factor` is what the partitions
/// before it have, or the topic's; `None` accepts any.
pub(super) fn place_as_told(
    image: &MetadataImage,
    partition: i64,
    replicas: &[NodeId],
    replication_factor: Option<usize>,
) -> Result<PartitionImage, ControllerError> {
    let refuse = |message: String| Err(ControllerErrorKind::InvalidReplicaAssignment.with(message));
    if replicas.is_empty() {
        return refuse("The manual partition assignment includes an empty replica list.".into());
    }
    let mut seen = BTreeSet::new();
    for broker in replicas {
        if image.broker(*broker).is_none() {
            return refuse(format!(
                "The manual partition assignment includes broker {broker}, but no such broker is \
                 registered."
            ));
        }
        if !seen.insert(*broker) {
            return refuse(format!(
                "The manual partition assignment includes the broker {broker} more than once."
            ));
        }
    }
    if let Some(expected) = replication_factor.filter(|expected| *expected != replicas.len()) {
        return refuse(format!(
            "The manual partition assignment includes a partition with {} replica(s), but this \
             is not consistent with previous partitions, which have {expected} replica(s).",
            replicas.len()
        ));
    }
    let isr: Vec<NodeId> = replicas
        .iter()
        .copied()
        .filter(|id| image.broker(*id).is_some_and(|broker| !broker.fenced))
        .collect();
    let Some(leader) = isr.first().copied() else {
        return refuse(format!(
            "All brokers specified in the manual partition assignment for partition {partition} \
             are fenced or in controlled shutdown."
        ));
    };
    Ok(PartitionImage {
        leader,
        isr,
        ..PartitionImage::new(replicas.to_vec())
    })
}
