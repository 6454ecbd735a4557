//! Creating and deleting topics.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::base::limits::TOPIC_NAME_CHARS_MAX;
use crate::base::{NodeId, TopicId};

use super::super::image::{MetadataImage, Overrides, PartitionImage};
use super::super::records::MetadataRecord;
use super::assign::{place_as_told, place_replicas};
use super::error::{ControllerError, ControllerErrorKind};
use super::{ControllerContext, Decision, Defaults, PARTITIONS_PER_REQUEST_MAX, Reply, duplicates};

/// The name that Kafka keeps for the quorum's own log.
const CLUSTER_METADATA_TOPIC_NAME: &str = "__cluster_metadata";

/// A topic as a client asks for it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NewTopic {
    pub name: String,
    /// -1 for `num.partitions`, and where `assignments` says it.
    pub num_partitions: i32,
    /// -1 for `default.replication.factor`, and where `assignments` says it.
    pub replication_factor: i16,
    /// Who shall hold what; empty lets the controller choose.
    pub assignments: Vec<ReplicaAssignment>,
    /// Settings of the topic's own; of a key that comes twice, the last value counts.
    pub configs: Vec<(String, Option<String>)>,
}

impl NewTopic {
    /// A topic with the broker's defaults in everything, as auto-creation makes it.
    pub fn with_defaults(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            num_partitions: -1,
            replication_factor: -1,
            ..Self::default()
        }
    }
}

/// The replicas of one partition, the preferred leader first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaAssignment {
    pub partition: i32,
    pub replicas: Vec<NodeId>,
}

/// What became of one name of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTopicResult {
    pub name: String,
    pub result: Result<CreatedTopic, ControllerError>,
}

/// A topic that is there now, or would be (`validate_only`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreatedTopic {
    pub id: TopicId,
    pub num_partitions: i32,
    pub replication_factor: i16,
    pub overrides: Overrides,
}

/// A topic by its name or by its id, not both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicSelector {
    pub name: Option<String>,
    /// [`TopicId::ZERO`] where the name counts.
    pub id: TopicId,
}

/// What became of one topic of the request. Name and id are both there after a success.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeleteTopicResult {
    pub name: Option<String>,
    pub id: TopicId,
    pub result: Result<(), ControllerError>,
}

/// Kafka's rule for topic names: 1 to 249 of ASCII alphanumerics, `.`, `_`, `-`; neither `.` nor
/// `..`. The error is INVALID_TOPIC_EXCEPTION with Kafka's text.
pub fn validate_topic_name(name: &str) -> Result<(), ControllerError> {
    let is_legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let reason = if name.is_empty() {
        "the empty string is not allowed".to_owned()
    } else if name == "." || name == ".." {
        format!("'{name}' is not allowed")
    } else if name.chars().count() > TOPIC_NAME_CHARS_MAX {
        format!(
            "the length of '{name}' is longer than the max allowed length {TOPIC_NAME_CHARS_MAX}"
        )
    } else if !name.chars().all(is_legal) {
        format!(
            "'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' \
             and '-'"
        )
    } else {
        return Ok(());
    };
    Err(ControllerErrorKind::InvalidTopic.with(format!("Topic name is invalid: {reason}")))
}

pub(super) fn create_topics(
    image: &MetadataImage,
    topics: Vec<NewTopic>,
    context: &mut ControllerContext,
) -> Decision {
    let repeated: BTreeSet<String> = duplicates(topics.iter().map(|topic| topic.name.as_str()))
        .into_iter()
        .map(str::to_owned)
        .collect();
    let too_many = partitions_asked(&topics, context.defaults) > PARTITIONS_PER_REQUEST_MAX;
    let collisions = CollisionIndex::of(image, &topics);
    let mut partition_count = image.partition_count();
    let mut answered = BTreeSet::new();
    let mut records = Vec::new();
    let mut results = Vec::new();
    for topic in topics {
        let result = if repeated.contains(&topic.name) {
            if !answered.insert(topic.name.clone()) {
                continue;
            }
            Err(ControllerErrorKind::duplicate_topic_name())
        } else if too_many {
            Err(ControllerErrorKind::PolicyViolation
                .with("Excessively large number of partitions per request."))
        } else {
            create_topic(image, &topic, &collisions, partition_count, context)
        };
        let result = result.map(|(created, record)| {
            partition_count += created.num_partitions as usize;
            records.push(record);
            created
        });
        results.push(NewTopicResult {
            name: topic.name,
            result,
        });
    }
    Decision {
        records,
        reply: Reply::TopicsCreated(results),
    }
}

fn create_topic(
    image: &MetadataImage,
    topic: &NewTopic,
    collisions: &CollisionIndex,
    partition_count: usize,
    context: &mut ControllerContext,
) -> Result<(CreatedTopic, MetadataRecord), ControllerError> {
    if topic.name == CLUSTER_METADATA_TOPIC_NAME {
        return Err(ControllerErrorKind::TopicAuthorizationFailed.with("Authorization failed."));
    }
    validate_topic_name(&topic.name)?;
    if image.topic(&topic.name).is_some() {
        return Err(ControllerErrorKind::TopicAlreadyExists
            .with(format!("Topic '{}' already exists.", topic.name)));
    }
    if let Some(existing) = collisions.existing(&topic.name) {
        return Err(ControllerErrorKind::InvalidTopic.with(format!(
            "Topic '{}' collides with existing topic: {existing}",
            topic.name
        )));
    }
    let overrides = overrides_of(topic, context)?;
    let id = loop {
        let id = (context.new_topic_id)();
        if image.topic_by_id(id).is_none() {
            break id;
        }
    };
    let partitions = partitions_of(image, topic, id, context.defaults)?;
    if partition_count.saturating_add(partitions.len()) > context.defaults.cluster_partitions_max {
        return Err(cluster_full(context.defaults));
    }
    let created = CreatedTopic {
        id,
        // At most PARTITIONS_PER_REQUEST_MAX, and at most one replica a broker.
        num_partitions: i32::try_from(partitions.len()).unwrap_or(i32::MAX),
        replication_factor: i16::try_from(partitions.first().map_or(0, |p| p.replicas.len()))
            .unwrap_or(i16::MAX),
        overrides: overrides.clone(),
    };
    let record = MetadataRecord::TopicCreated {
        id,
        name: topic.name.as_str().into(),
        partitions,
        overrides,
    };
    Ok((created, record))
}

pub(super) fn cluster_full(defaults: Defaults) -> ControllerError {
    ControllerErrorKind::PolicyViolation.with(format!(
        "The cluster would have more than {} partitions; delete topics that are not needed any \
         more.",
        defaults.cluster_partitions_max
    ))
}

fn overrides_of(
    topic: &NewTopic,
    context: &ControllerContext,
) -> Result<Overrides, ControllerError> {
    let values: BTreeMap<&String, &Option<String>> = topic
        .configs
        .iter()
        .map(|(key, value)| (key, value))
        .collect();
    let without_value: Vec<&str> = values
        .iter()
        .filter(|(_, value)| value.is_none())
        .map(|(key, _)| key.as_str())
        .collect();
    if !without_value.is_empty() {
        return Err(ControllerErrorKind::InvalidConfig.with(format!(
            "Null value not supported for topic configs: {}",
            without_value.join(",")
        )));
    }
    let overrides: Overrides = values
        .into_iter()
        .filter_map(|(key, value)| Some((key.clone(), value.clone()?)))
        .collect();
    (context.validate_topic_configs)(&overrides)
        .map_err(|message| ControllerErrorKind::InvalidConfig.with(message))?;
    Ok(overrides)
}

fn partitions_of(
    image: &MetadataImage,
    topic: &NewTopic,
    id: TopicId,
    defaults: Defaults,
) -> Result<Vec<PartitionImage>, ControllerError> {
    if !topic.assignments.is_empty() {
        return assigned_partitions(image, topic);
    }
    let replication_factor = match topic.replication_factor {
        -1 => defaults.replication_factor,
        asked => asked,
    };
    let replication_factor = usize::try_from(replication_factor)
        .ok()
        .filter(|count| *count > 0)
        .ok_or_else(|| {
            ControllerErrorKind::InvalidReplicationFactor
                .with("Replication factor must be larger than 0, or -1 to use the default value.")
        })?;
    let num_partitions = match topic.num_partitions {
        -1 => defaults.num_partitions,
        asked => asked,
    };
    let num_partitions = usize::try_from(num_partitions)
        .ok()
        .filter(|count| *count > 0)
        .ok_or_else(|| {
            ControllerErrorKind::InvalidPartitions
                .with("Number of partitions was set to an invalid non-positive value.")
        })?;
    place_replicas(image, id, 0, num_partitions, replication_factor)
}

fn assigned_partitions(
    image: &MetadataImage,
    topic: &NewTopic,
) -> Result<Vec<PartitionImage>, ControllerError> {
    let refuse = |text: &str| {
        Err(ControllerErrorKind::InvalidRequest.with(format!(
            "A manual partition assignment was specified, but {text} was not set to -1."
        )))
    };
    if topic.replication_factor != -1 {
        return refuse("replication factor");
    }
    if topic.num_partitions != -1 {
        return refuse("numPartitions");
    }
    let mut partitions = BTreeMap::new();
    let mut replication_factor = None;
    for ReplicaAssignment {
        partition,
        replicas,
    } in &topic.assignments
    {
        if partitions.contains_key(partition) {
            return Err(ControllerErrorKind::InvalidReplicaAssignment.with(format!(
                "Found multiple manual partition assignments for partition {partition}"
            )));
        }
        let placed = place_as_told(image, i64::from(*partition), replicas, replication_factor)?;
        replication_factor = Some(replicas.len());
        partitions.insert(*partition, placed);
    }
    if !partitions.keys().copied().eq((0..).take(partitions.len())) {
        return Err(ControllerErrorKind::InvalidReplicaAssignment
            .with("partitions should be a consecutive 0-based integer sequence"));
    }
    Ok(partitions.into_values().collect())
}

/// An upper bound of the partitions that the request would make.
fn partitions_asked(topics: &[NewTopic], defaults: Defaults) -> usize {
    topics.iter().fold(0, |sum: usize, topic| {
        let asked = match (topic.assignments.len(), topic.num_partitions) {
            (0, -1) => usize::try_from(defaults.num_partitions).unwrap_or(0),
            (0, count) => usize::try_from(count).unwrap_or(0),
            (count, _) => count,
        };
        sum.saturating_add(asked)
    })
}

/// Existing topics by their names with every `.` as `_`: Kafka's metric names do not tell the two
/// apart, so a new topic must not differ from an old one in nothing else.
struct CollisionIndex(HashMap<String, Arc<str>>);

impl CollisionIndex {
    /// Empty where no requested name could collide: most requests.
    fn of(image: &MetadataImage, topics: &[NewTopic]) -> Self {
        let can_collide = |name: &str| name.contains(['.', '_']);
        if !topics.iter().any(|topic| can_collide(&topic.name)) {
            return Self(HashMap::new());
        }
        // In reverse, so that of several the first in order of names stays.
        let mut names: Vec<&Arc<str>> = image.topics().map(|topic| &topic.name).collect();
        names.retain(|name| can_collide(name));
        Self(
            names
                .into_iter()
                .rev()
                .map(|name| (name.replace('.', "_"), name.clone()))
                .collect(),
        )
    }

    fn existing(&self, name: &str) -> Option<&Arc<str>> {
        self.0.get(&name.replace('.', "_"))
    }
}

pub(super) fn delete_topics(image: &MetadataImage, topics: &[TopicSelector]) -> Decision {
    let names = topics.iter().filter_map(|topic| topic.name.as_deref());
    let repeated_names = duplicates(names);
    let ids = || {
        topics
            .iter()
            .map(|topic| topic.id)
            .filter(|id| *id != TopicId::ZERO)
    };
    let repeated_ids = duplicates(ids());
    let given_ids: BTreeSet<TopicId> = ids().collect();
    let mut answered = BTreeSet::new();
    let mut records = Vec::new();
    let mut results = Vec::new();
    for selector in topics {
        let repeated = selector
            .name
            .as_deref()
            .is_some_and(|name| repeated_names.contains(name))
            || repeated_ids.contains(&selector.id);
        if repeated && !answered.insert((selector.name.clone(), selector.id)) {
            continue;
        }
        let mut answer = DeleteTopicResult {
            name: selector.name.clone(),
            id: selector.id,
            result: Ok(()),
        };
        let invalid = |message: &str| Err(ControllerErrorKind::InvalidRequest.with(message));
        answer.result = match (&selector.name, selector.id) {
            (None, TopicId::ZERO) => invalid("Neither topic name nor id were specified."),
            (Some(name), TopicId::ZERO) => match image.topic(name) {
                _ if repeated => Err(ControllerErrorKind::duplicate_topic_name()),
                None => Err(ControllerErrorKind::unknown_topic()),
                Some(topic) if given_ids.contains(&topic.id) => {
                    invalid("The provided topic name maps to an ID that was already supplied.")
                }
                Some(topic) => {
                    answer.id = topic.id;
                    Ok(())
                }
            },
            (None, id) => match image.topic_by_id(id) {
                _ if repeated => invalid("Duplicate topic id."),
                None => Err(ControllerErrorKind::unknown_topic_id()),
                Some(topic) => {
                    answer.name = Some(topic.name.to_string());
                    Ok(())
                }
            },
            (Some(_), _) => invalid("You may not specify both topic name and topic id."),
        };
        if answer.result.is_ok() {
            records.push(MetadataRecord::TopicDeleted { id: answer.id });
        }
        results.push(answer);
    }
    Decision {
        records,
        reply: Reply::TopicsDeleted(results),
    }
}
