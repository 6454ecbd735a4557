//! The metadata image: everything the cluster knows, at one version, never changed in place.
//!
//! ```text
//!   image (version n) --apply(record n)--> image (version n+1)
//! ```
//!
//! An image is cheap to clone: its tables are shared until one of them changes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::base::{LeaderEpoch, NodeId, PartitionIndex, ProducerId, TopicId};

use super::records::MetadataRecord;

/// Settings that somebody set, by Kafka's name. Defaults are not among them.
pub type Overrides = BTreeMap<String, String>;

/// One version of the cluster's metadata.
#[derive(Debug, Clone, PartialEq)]
pub struct MetadataImage {
    version: i64,
    cluster_id: Arc<str>,
    brokers: Arc<BTreeMap<NodeId, BrokerImage>>,
    topics_by_name: Arc<BTreeMap<Arc<str>, Arc<TopicImage>>>,
    topics_by_id: Arc<HashMap<TopicId, Arc<TopicImage>>>,
    partition_count: usize,
    broker_overrides: Arc<BTreeMap<NodeId, Overrides>>,
    broker_default_overrides: Arc<Overrides>,
    next_producer_id: ProducerId,
}

/// A broker as clients reach it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerImage {
    pub id: NodeId,
    /// The advertised host name or address.
    pub host: String,
    /// The advertised port.
    pub port: u16,
    /// Kafka's `broker.rack`.
    pub rack: Option<String>,
    /// Fenced brokers lead nothing and get no new replicas.
    pub fenced: bool,
}

/// A topic with its partitions, in order of their numbers from 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicImage {
    pub id: TopicId,
    pub name: Arc<str>,
    pub partitions: Vec<PartitionImage>,
    /// The topic's own settings; what is not here has its default.
    pub overrides: Overrides,
}

impl TopicImage {
    pub fn partition(&self, index: PartitionIndex) -> Option<&PartitionImage> {
        self.partitions.get(usize::try_from(index).ok()?)
    }

    /// The number of replicas of partition 0, as Kafka reports it for the topic.
    pub fn replication_factor(&self) -> i16 {
        let replicas = self.partitions.first().map_or(0, |p| p.replicas.len());
        i16::try_from(replicas).unwrap_or(i16::MAX)
    }
}

/// Who holds a partition and who leads it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "PartitionRow", into = "PartitionRow")]
pub struct PartitionImage {
    pub leader: NodeId,
    /// All replicas, the preferred leader first.
    pub replicas: Vec<NodeId>,
    /// The in-sync replicas, a subset of `replicas`.
    pub isr: Vec<NodeId>,
    /// Rises with every change of leader (KIP-101).
    pub leader_epoch: LeaderEpoch,
    /// Rises with every change of leader or ISR.
    pub partition_epoch: i32,
}

impl PartitionImage {
    /// A new partition: all replicas in sync, the first one leads, epochs at 0.
    pub fn new(replicas: Vec<NodeId>) -> Self {
        Self {
            leader: replicas.first().copied().unwrap_or(NodeId(-1)),
            isr: replicas.clone(),
            replicas,
            leader_epoch: LeaderEpoch(0),
            partition_epoch: 0,
        }
    }
}

/// The form in records: `[leader, [replicas], [isr], leader epoch, partition epoch]`.
#[derive(Serialize, Deserialize)]
struct PartitionRow(i32, Vec<i32>, Vec<i32>, i32, i32);

impl From<PartitionRow> for PartitionImage {
    fn from(row: PartitionRow) -> Self {
        Self {
            leader: NodeId(row.0),
            replicas: row.1.into_iter().map(NodeId).collect(),
            isr: row.2.into_iter().map(NodeId).collect(),
            leader_epoch: LeaderEpoch(row.3),
            partition_epoch: row.4,
        }
    }
}

impl From<PartitionImage> for PartitionRow {
    fn from(partition: PartitionImage) -> Self {
        Self(
            partition.leader.0,
            partition.replicas.iter().map(|node| node.0).collect(),
            partition.isr.iter().map(|node| node.0).collect(),
            partition.leader_epoch.0,
            partition.partition_epoch,
        )
    }
}

/// A record that does not fit the image it was applied to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    #[error("topic `{0}` is created twice")]
    TopicExists(Arc<str>),
    #[error("topic id {0} is created twice")]
    TopicIdExists(TopicId),
    #[error("topic id {0} does not exist")]
    UnknownTopicId(TopicId),
    #[error("topic `{0}` would have more partitions than can be numbered")]
    TooManyPartitions(Arc<str>),
    #[error("the next producer id would go back from {from} to {to}")]
    ProducerIdGoesBack { from: ProducerId, to: ProducerId },
}

impl MetadataImage {
    /// The image before the first record: version 0, nothing in it.
    pub fn empty(cluster_id: &str) -> Self {
        Self {
            version: 0,
            cluster_id: cluster_id.into(),
            brokers: Arc::default(),
            topics_by_name: Arc::default(),
            topics_by_id: Arc::default(),
            partition_count: 0,
            broker_overrides: Arc::default(),
            broker_default_overrides: Arc::default(),
            next_producer_id: ProducerId(0),
        }
    }

    /// The number of records applied since the cluster began: the offset of the next one.
    pub fn version(&self) -> i64 {
        self.version
    }

    /// The cluster's id in Kafka's base64 form.
    pub fn cluster_id(&self) -> &Arc<str> {
        &self.cluster_id
    }

    /// All brokers, by id.
    pub fn brokers(&self) -> impl ExactSizeIterator<Item = &BrokerImage> {
        self.brokers.values()
    }

    pub fn broker(&self, id: NodeId) -> Option<&BrokerImage> {
        self.brokers.get(&id)
    }

    /// All topics, in order of their names.
    pub fn topics(&self) -> impl ExactSizeIterator<Item = &Arc<TopicImage>> {
        self.topics_by_name.values()
    }

    /// The topics from `name` on (itself included), in order: a page of a long listing.
    pub fn topics_from(&self, name: &str) -> impl Iterator<Item = &Arc<TopicImage>> {
        use std::ops::Bound;
        self.topics_by_name
            .range::<str, _>((Bound::Included(name), Bound::Unbounded))
            .map(|(_, topic)| topic)
    }

    pub fn topic(&self, name: &str) -> Option<&Arc<TopicImage>> {
        self.topics_by_name.get(name)
    }

    pub fn topic_by_id(&self, id: TopicId) -> Option<&Arc<TopicImage>> {
        self.topics_by_id.get(&id)
    }

    pub fn topic_count(&self) -> usize {
        self.topics_by_name.len()
    }

    /// The number of partitions of all topics together.
    pub fn partition_count(&self) -> usize {
        self.partition_count
    }

    /// The settings of one broker that were set at run time; empty where none were.
    pub fn broker_overrides(&self, id: NodeId) -> &Overrides {
        static NONE: Overrides = Overrides::new();
        self.broker_overrides.get(&id).unwrap_or(&NONE)
    }

    /// The settings of all brokers that were set at run time (Kafka's cluster-wide default).
    pub fn broker_default_overrides(&self) -> &Overrides {
        &self.broker_default_overrides
    }

    /// The first producer id that no block holds yet.
    pub fn next_producer_id(&self) -> ProducerId {
        self.next_producer_id
    }

    /// The image after the records, or the first one that does not fit.
    pub fn with<'a>(
        &self,
        records: impl IntoIterator<Item = &'a MetadataRecord>,
    ) -> Result<Self, ApplyError> {
        let mut next = self.clone();
        for record in records {
            next.apply(record)?;
        }
        Ok(next)
    }

    /// Moves to the next version. The only way an image changes; on an error it has not changed.
    pub fn apply(&mut self, record: &MetadataRecord) -> Result<(), ApplyError> {
        match record {
            MetadataRecord::BrokerRegistered(broker) => {
                Arc::make_mut(&mut self.brokers).insert(broker.id, broker.clone());
            }
            MetadataRecord::TopicCreated {
                id,
                name,
                partitions,
                overrides,
            } => {
                if self.topics_by_name.contains_key(name) {
                    return Err(ApplyError::TopicExists(name.clone()));
                }
                if self.topics_by_id.contains_key(id) {
                    return Err(ApplyError::TopicIdExists(*id));
                }
                self.put_topic(TopicImage {
                    id: *id,
                    name: name.clone(),
                    partitions: partitions.clone(),
                    overrides: overrides.clone(),
                })?;
            }
            MetadataRecord::TopicDeleted { id } => {
                let topic = self.existing_topic(*id)?;
                Arc::make_mut(&mut self.topics_by_name).remove(&topic.name);
                Arc::make_mut(&mut self.topics_by_id).remove(id);
                self.partition_count -= topic.partitions.len();
            }
            MetadataRecord::PartitionsAdded { id, partitions } => {
                let mut topic = TopicImage::clone(&*self.existing_topic(*id)?);
                topic.partitions.extend_from_slice(partitions);
                self.put_topic(topic)?;
            }
            MetadataRecord::TopicConfigsReplaced { id, overrides } => {
                let mut topic = TopicImage::clone(&*self.existing_topic(*id)?);
                topic.overrides = overrides.clone();
                self.put_topic(topic)?;
            }
            MetadataRecord::BrokerConfigsReplaced { broker, overrides } => match broker {
                Some(id) if overrides.is_empty() => {
                    Arc::make_mut(&mut self.broker_overrides).remove(id);
                }
                Some(id) => {
                    Arc::make_mut(&mut self.broker_overrides).insert(*id, overrides.clone());
                }
                None => self.broker_default_overrides = Arc::new(overrides.clone()),
            },
            MetadataRecord::ProducerIdsAllocated { next_producer_id } => {
                if *next_producer_id < self.next_producer_id {
                    return Err(ApplyError::ProducerIdGoesBack {
                        from: self.next_producer_id,
                        to: *next_producer_id,
                    });
                }
                self.next_producer_id = *next_producer_id;
            }
        }
        self.version += 1;
        Ok(())
    }

    /// Records that lead from the empty image to this one's contents (its version aside).
    pub fn to_records(&self) -> Vec<MetadataRecord> {
        let brokers = self
            .brokers
            .values()
            .cloned()
            .map(MetadataRecord::BrokerRegistered);
        let topics = self
            .topics_by_name
            .values()
            .map(|topic| MetadataRecord::TopicCreated {
                id: topic.id,
                name: topic.name.clone(),
                partitions: topic.partitions.clone(),
                overrides: topic.overrides.clone(),
            });
        let broker_configs = self.broker_overrides.iter().map(|(id, overrides)| {
            MetadataRecord::BrokerConfigsReplaced {
                broker: Some(*id),
                overrides: overrides.clone(),
            }
        });
        let rest = [
            MetadataRecord::BrokerConfigsReplaced {
                broker: None,
                overrides: Overrides::clone(&self.broker_default_overrides),
            },
            MetadataRecord::ProducerIdsAllocated {
                next_producer_id: self.next_producer_id,
            },
        ];
        brokers
            .chain(topics)
            .chain(broker_configs)
            .chain(rest)
            .collect()
    }

    /// The same contents under another version: a snapshot's records are fewer than those it
    /// stands for.
    pub(super) fn at_version(mut self, version: i64) -> Self {
        self.version = version;
        self
    }

    fn existing_topic(&self, id: TopicId) -> Result<Arc<TopicImage>, ApplyError> {
        self.topics_by_id
            .get(&id)
            .cloned()
            .ok_or(ApplyError::UnknownTopicId(id))
    }

    fn put_topic(&mut self, topic: TopicImage) -> Result<(), ApplyError> {
        if PartitionIndex::try_from(topic.partitions.len()).is_err() {
            return Err(ApplyError::TooManyPartitions(topic.name));
        }
        let topic = Arc::new(topic);
        let replaced =
            Arc::make_mut(&mut self.topics_by_name).insert(topic.name.clone(), topic.clone());
        self.partition_count += topic.partitions.len();
        self.partition_count -= replaced.map_or(0, |old| old.partitions.len());
        Arc::make_mut(&mut self.topics_by_id).insert(topic.id, topic);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
