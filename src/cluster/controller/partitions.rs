//! Adding partitions to topics.

use std::collections::BTreeSet;

use crate::base::NodeId;

use super::super::image::{MetadataImage, PartitionImage};
use super::super::records::MetadataRecord;
use super::assign::{place_as_told, place_replicas};
use super::error::{ControllerError, ControllerErrorKind};
use super::topics::cluster_full;
use super::{Decision, Defaults, PARTITIONS_PER_REQUEST_MAX, Reply, duplicates};

/// A topic that shall have more partitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionGrowth {
    pub name: String,
    /// The partitions after the growth, old and new.
    pub count: i32,
    /// The replicas of each new partition; `None` lets the controller choose.
    pub assignments: Option<Vec<Vec<NodeId>>>,
}

/// What became of one topic of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionGrowthResult {
    pub name: String,
    pub result: Result<(), ControllerError>,
}

pub(super) fn create_partitions(
    image: &MetadataImage,
    topics: Vec<PartitionGrowth>,
    defaults: Defaults,
) -> Decision {
    let repeated: BTreeSet<String> = duplicates(topics.iter().map(|topic| topic.name.as_str()))
        .into_iter()
        .map(str::to_owned)
        .collect();
    let mut budget = Budget {
        request: PARTITIONS_PER_REQUEST_MAX,
        cluster: defaults
            .cluster_partitions_max
            .saturating_sub(image.partition_count()),
    };
    let mut answered = BTreeSet::new();
    let mut records = Vec::new();
    let mut results = Vec::new();
    for growth in topics {
        let result = if repeated.contains(&growth.name) {
            if !answered.insert(growth.name.clone()) {
                continue;
            }
            Err(ControllerErrorKind::duplicate_topic_name())
        } else {
            grow(image, &growth, &mut budget, defaults)
        };
        results.push(PartitionGrowthResult {
            name: growth.name,
            result: result.map(|record| records.push(record)),
        });
    }
    Decision {
        records,
        reply: Reply::PartitionsCreated(results),
    }
}

/// The partitions that may still be made.
struct Budget {
    request: usize,
    cluster: usize,
}

fn grow(
    image: &MetadataImage,
    growth: &PartitionGrowth,
    budget: &mut Budget,
    defaults: Defaults,
) -> Result<MetadataRecord, ControllerError> {
    let topic = image
        .topic(&growth.name)
        .ok_or_else(ControllerErrorKind::unknown_topic)?;
    let present = topic.partitions.len();
    let wanted = usize::try_from(growth.count).unwrap_or(0);
    if wanted == present {
        return Err(ControllerErrorKind::InvalidPartitions
            .with(format!("Topic already has {present} partition(s).")));
    }
    let Some(additional) = wanted.checked_sub(present) else {
        return Err(ControllerErrorKind::InvalidPartitions.with(format!(
            "The topic {} currently has {present} partition(s); {} would not be an increase.",
            growth.name, growth.count
        )));
    };
    if let Some(assignments) = &growth.assignments
        && assignments.len() != additional
    {
        return Err(ControllerErrorKind::InvalidReplicaAssignment.with(format!(
            "Attempted to add {additional} additional partition(s), but only {} assignment(s) \
             were specified.",
            assignments.len()
        )));
    }
    if additional > budget.request {
        return Err(ControllerErrorKind::PolicyViolation
            .with("Excessively large number of partitions per request."));
    }
    if additional > budget.cluster {
        return Err(cluster_full(defaults));
    }
    let replication_factor = topic.partitions.first().map_or(1, |p| p.replicas.len());
    let partitions: Vec<PartitionImage> = match &growth.assignments {
        None => place_replicas(image, topic.id, present, additional, replication_factor)?,
        Some(assignments) => assignments
            .iter()
            .zip(i64::from(growth.count) - additional as i64..)
            .map(|(replicas, partition)| {
                place_as_told(image, partition, replicas, Some(replication_factor))
            })
            .collect::<Result<_, _>>()?,
    };
    budget.request -= additional;
    budget.cluster -= additional;
    Ok(MetadataRecord::PartitionsAdded {
        id: topic.id,
        partitions,
    })
}
