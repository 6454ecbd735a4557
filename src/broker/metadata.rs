//! Metadata, DescribeCluster and DescribeTopicPartitions: what the cluster looks like.

use std::sync::Arc;

use kafka_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use kafka_protocol::messages::describe_topic_partitions_response::{
    Cursor, DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic,
};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{
    BrokerId, DescribeClusterRequest, DescribeClusterResponse, DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse, MetadataRequest, MetadataResponse, TopicName,
};
use kafka_protocol::protocol::StrBytes;

use super::Broker;
use super::errors::{ResponseError, text};
use crate::base::{NodeId, TopicId};
use crate::cluster::controller::validate_topic_name;
use crate::cluster::{PartitionImage, TopicImage};

/// The bits of operations on a topic that the anonymous principal may do without an authorizer:
/// READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS (KIP-430).
const TOPIC_OPERATIONS: i32 =
    1 << 3 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8 | 1 << 10 | 1 << 11;
/// Likewise on the cluster: CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS,
/// ALTER_CONFIGS, IDEMPOTENT_WRITE.
const CLUSTER_OPERATIONS: i32 = 1 << 5 | 1 << 7 | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 12;
/// "Not asked for."
const OPERATIONS_OMITTED: i32 = i32::MIN;

pub async fn metadata(broker: &Broker, version: i16, request: MetadataRequest) -> MetadataResponse {
    let image = broker.image();
    let asked_operations = request.include_topic_authorized_operations;
    let topics = match wanted_topics(version, request.topics) {
        None => image.topics().map(known_topic).collect(),
        Some(wanted) => {
            // Before version 4 the field did not exist and creation was implied.
            let create = version < 4 || request.allow_auto_topic_creation;
            let mut topics = Vec::with_capacity(wanted.len());
            for topic in wanted {
                topics.push(describe_wanted(broker, version, topic, create).await);
            }
            topics
        }
    };
    let topics = topics
        .into_iter()
        .map(|topic: MetadataResponseTopic| {
            let operations = if asked_operations && topic.error_code == 0 {
                TOPIC_OPERATIONS
            } else {
                OPERATIONS_OMITTED
            };
            topic.with_topic_authorized_operations(operations)
        })
        .collect();
    let image = broker.image();
    let cluster_operations = if request.include_cluster_authorized_operations {
        CLUSTER_OPERATIONS
    } else {
        OPERATIONS_OMITTED
    };
    MetadataResponse::default()
        .with_brokers(
            image
                .brokers()
                .map(|node| {
                    MetadataResponseBroker::default()
                        .with_node_id(BrokerId(node.id.0))
                        .with_host(StrBytes::from_string(node.host.to_string()))
                        .with_port(i32::from(node.port))
                })
                .collect(),
        )
        .with_cluster_id(Some(text(image.cluster_id())))
        .with_controller_id(BrokerId(broker.node_id().0))
        .with_topics(topics)
        .with_cluster_authorized_operations(cluster_operations)
}

/// The topics that the request names; `None` means all.
fn wanted_topics(
    version: i16,
    topics: Option<Vec<MetadataRequestTopic>>,
) -> Option<Vec<MetadataRequestTopic>> {
    // In version 0 an empty list means all topics; afterwards null does.
    topics.filter(|topics| version > 0 || !topics.is_empty())
}

async fn describe_wanted(
    broker: &Broker,
    version: i16,
    wanted: MetadataRequestTopic,
    create: bool,
) -> MetadataResponseTopic {
    let image = broker.image();
    let id = TopicId(wanted.topic_id);
    let failed = |error: ResponseError, name: Option<TopicName>| {
        MetadataResponseTopic::default()
            .with_error_code(error.code())
            .with_name(name)
            .with_topic_id(id.0)
    };
    if id != TopicId::ZERO {
        // Versions 10 and 11 carry the field, but ids may be asked for from version 12 on only.
        if version < 12 {
            return failed(
                ResponseError::InvalidRequest,
                Some(wanted.name.unwrap_or_default()),
            );
        }
        return match image.topic_by_id(id) {
            Some(topic) => known_topic(topic),
            None => failed(ResponseError::UnknownTopicId, None),
        };
    }
    let Some(name) = wanted.name else {
        return failed(ResponseError::InvalidRequest, Some(TopicName::default()));
    };
    if let Some(topic) = image.topic(&name) {
        return known_topic(topic);
    }
    if validate_topic_name(&name).is_err() {
        return failed(ResponseError::InvalidTopicException, Some(name));
    }
    if !(create && broker.config().auto_create_topics_enable) {
        return failed(ResponseError::UnknownTopicOrPartition, Some(name));
    }
    match broker.auto_create(&name).await {
        Ok(()) => match broker.image().topic(&name) {
            Some(topic) => known_topic(topic),
            None => failed(ResponseError::LeaderNotAvailable, Some(name)),
        },
        Err(error) => failed(error, Some(name)),
    }
}

fn known_topic(topic: &Arc<TopicImage>) -> MetadataResponseTopic {
    let partitions = topic.partitions.iter().zip(0..).map(|(partition, index)| {
        MetadataResponsePartition::default()
            .with_partition_index(index)
            .with_leader_id(BrokerId(partition.leader.0))
            .with_leader_epoch(partition.leader_epoch.0)
            .with_replica_nodes(broker_ids(&partition.replicas))
            .with_isr_nodes(broker_ids(&partition.isr))
    });
    MetadataResponseTopic::default()
        .with_name(Some(TopicName(text(&topic.name))))
        .with_topic_id(topic.id.0)
        .with_is_internal(is_internal(&topic.name))
        .with_partitions(partitions.collect())
}

/// Whether Kafka keeps the topic for itself.
fn is_internal(name: &str) -> bool {
    matches!(
        name,
        "__consumer_offsets" | "__transaction_state" | "__share_group_state"
    )
}

fn broker_ids(nodes: &[NodeId]) -> Vec<BrokerId> {
    nodes.iter().map(|node| BrokerId(node.0)).collect()
}

pub fn describe_cluster(
    broker: &Broker,
    request: DescribeClusterRequest,
) -> DescribeClusterResponse {
    const ENDPOINT_BROKERS: i8 = 1;
    let response = DescribeClusterResponse::default().with_endpoint_type(request.endpoint_type);
    if request.endpoint_type != ENDPOINT_BROKERS {
        // Kafka's own answer of a broker that is asked for controllers (KIP-919).
        let (error, message) = if request.endpoint_type == 2 {
            (
                ResponseError::MismatchedEndpointType,
                "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER",
            )
        } else {
            (
                ResponseError::UnsupportedEndpointType,
                "Unsupported endpoint type",
            )
        };
        return response
            .with_error_code(error.code())
            .with_error_message(Some(StrBytes::from_static_str(message)))
            .with_cluster_authorized_operations(OPERATIONS_OMITTED);
    }
    let image = broker.image();
    let operations = if request.include_cluster_authorized_operations {
        CLUSTER_OPERATIONS
    } else {
        OPERATIONS_OMITTED
    };
    response
        .with_cluster_id(text(image.cluster_id()))
        .with_controller_id(BrokerId(broker.node_id().0))
        .with_brokers(
            image
                .brokers()
                .map(|node| {
                    DescribeClusterBroker::default()
                        .with_broker_id(BrokerId(node.id.0))
                        .with_host(text(&node.host))
                        .with_port(i32::from(node.port))
                })
                .collect(),
        )
        .with_cluster_authorized_operations(operations)
}

/// Topics in order of name, cut after a number of partitions; the cursor says where to go on
/// (KIP-966).
pub fn describe_topic_partitions(
    broker: &Broker,
    request: DescribeTopicPartitionsRequest,
) -> DescribeTopicPartitionsResponse {
    let image = broker.image();
    let mut names: Vec<TopicName> = request.topics.into_iter().map(|topic| topic.name).collect();
    let asked_for_all = names.is_empty();
    if asked_for_all {
        names = image
            .topics()
            .map(|topic| TopicName(text(&topic.name)))
            .collect();
    }
    names.sort();
    names.dedup();
    let mut skip_partitions = 0;
    if let Some(cursor) = &request.cursor {
        names.retain(|name| *name >= cursor.topic_name);
        if names.first() == Some(&cursor.topic_name) {
            skip_partitions = usize::try_from(cursor.partition_index).unwrap_or(0);
        }
    }
    let mut room = usize::try_from(request.response_partition_limit)
        .unwrap_or(0)
        .clamp(1, broker.config().max_request_partition_size_limit);
    let mut response = DescribeTopicPartitionsResponse::default();
    for name in names {
        if room == 0 {
            response.next_cursor = Some(
                Cursor::default()
                    .with_topic_name(name)
                    .with_partition_index(0),
            );
            break;
        }
        let Some(topic) = image.topic(&name) else {
            let error = match validate_topic_name(&name) {
                Ok(()) => ResponseError::UnknownTopicOrPartition,
                Err(_) => ResponseError::InvalidTopicException,
            };
            response.topics.push(
                DescribeTopicPartitionsResponseTopic::default()
                    .with_error_code(error.code())
                    .with_name(Some(name))
                    .with_topic_authorized_operations(OPERATIONS_OMITTED),
            );
            continue;
        };
        let described = described_partitions(topic, skip_partitions, room);
        let next_partition = skip_partitions + described.len();
        room -= described.len();
        skip_partitions = 0;
        let is_cut = next_partition < topic.partitions.len();
        response.topics.push(
            DescribeTopicPartitionsResponseTopic::default()
                .with_name(Some(name.clone()))
                .with_topic_id(topic.id.0)
                .with_is_internal(is_internal(&name))
                .with_partitions(described)
                .with_topic_authorized_operations(TOPIC_OPERATIONS),
        );
        if is_cut {
            response.next_cursor = Some(
                Cursor::default()
                    .with_topic_name(name)
                    .with_partition_index(next_partition as i32),
            );
            break;
        }
    }
    response
}

fn described_partitions(
    topic: &TopicImage,
    skip: usize,
    count_max: usize,
) -> Vec<DescribeTopicPartitionsResponsePartition> {
    let describe = |(partition, index): (&PartitionImage, i32)| {
        DescribeTopicPartitionsResponsePartition::default()
            .with_partition_index(index)
            .with_leader_id(BrokerId(partition.leader.0))
            .with_leader_epoch(partition.leader_epoch.0)
            .with_replica_nodes(broker_ids(&partition.replicas))
            .with_isr_nodes(broker_ids(&partition.isr))
            .with_eligible_leader_replicas(Some(Vec::new()))
            .with_last_known_elr(Some(Vec::new()))
    };
    topic
        .partitions
        .iter()
        .zip(0..)
        .skip(skip)
        .take(count_max)
        .map(describe)
        .collect()
}
