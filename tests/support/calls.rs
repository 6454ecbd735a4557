//! The requests that most wire tests make, with their usual fields filled in.

use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::list_offsets_response::ListOffsetsPartitionResponse;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::MetadataResponseTopic;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::produce_response::PartitionProduceResponse;
use kafka_protocol::messages::{
    BrokerId, CreateTopicsRequest, FetchRequest, InitProducerIdRequest, InitProducerIdResponse,
    ListOffsetsRequest, MetadataRequest, ProduceRequest, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::batch::{Received, read_batches};
use super::eventually;
use super::wire::Wire;

/// Kafka's error codes that the tests name.
pub mod code {
    pub const UNKNOWN_SERVER_ERROR: i16 = -1;
    pub const NONE: i16 = 0;
    pub const OFFSET_OUT_OF_RANGE: i16 = 1;
    pub const CORRUPT_MESSAGE: i16 = 2;
    pub const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
    pub const LEADER_NOT_AVAILABLE: i16 = 5;
    pub const NOT_LEADER_OR_FOLLOWER: i16 = 6;
    pub const MESSAGE_TOO_LARGE: i16 = 10;
    pub const COORDINATOR_LOAD_IN_PROGRESS: i16 = 14;
    pub const INVALID_TOPIC_EXCEPTION: i16 = 17;
    pub const NOT_ENOUGH_REPLICAS: i16 = 19;
    pub const INVALID_REQUIRED_ACKS: i16 = 21;
    pub const INVALID_TIMESTAMP: i16 = 32;
    pub const UNSUPPORTED_VERSION: i16 = 35;
    pub const TOPIC_ALREADY_EXISTS: i16 = 36;
    pub const INVALID_PARTITIONS: i16 = 37;
    pub const INVALID_REPLICATION_FACTOR: i16 = 38;
    pub const INVALID_REPLICA_ASSIGNMENT: i16 = 39;
    pub const INVALID_CONFIG: i16 = 40;
    pub const INVALID_REQUEST: i16 = 42;
    pub const UNSUPPORTED_FOR_MESSAGE_FORMAT: i16 = 43;
    pub const OUT_OF_ORDER_SEQUENCE_NUMBER: i16 = 45;
    pub const DUPLICATE_SEQUENCE_NUMBER: i16 = 46;
    pub const INVALID_PRODUCER_EPOCH: i16 = 47;
    pub const FETCH_SESSION_ID_NOT_FOUND: i16 = 70;
    pub const INVALID_FETCH_SESSION_EPOCH: i16 = 71;
    pub const FENCED_LEADER_EPOCH: i16 = 74;
    pub const UNKNOWN_LEADER_EPOCH: i16 = 75;
    pub const UNSUPPORTED_COMPRESSION_TYPE: i16 = 76;
    pub const INVALID_RECORD: i16 = 87;
    pub const UNKNOWN_TOPIC_ID: i16 = 100;
}

/// Names in requests up to here; ids from the version after it.
pub const PRODUCE_BY_NAME: i16 = 12;
pub const FETCH_BY_NAME: i16 = 12;

pub fn name(text: &str) -> TopicName {
    TopicName(StrBytes::from_string(text.to_owned()))
}

pub fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

/// Creates a topic, waits until every partition has a leader, and returns its id.
pub fn create_topic(wire: &mut Wire, topic: &str, partitions: i32) -> Uuid {
    create_topic_with(wire, topic, partitions, &[])
}

pub fn create_topic_with(
    wire: &mut Wire,
    topic: &str,
    partitions: i32,
    configs: &[(&str, &str)],
) -> Uuid {
    let response = wire.call(7, &create_topics(topic, partitions, configs));
    let result = &response.topics[0];
    assert_eq!(
        result.error_code, 0,
        "creating {topic}: {:?}",
        result.error_message
    );
    let id = result.topic_id;
    eventually(
        "a leader for each partition",
        Duration::from_secs(10),
        || {
            let topic = &describe_topic(wire, topic);
            topic.error_code == 0
                && topic.partitions.len() == partitions as usize
                && topic
                    .partitions
                    .iter()
                    .all(|it| it.error_code == 0 && it.leader_id.0 >= 0)
        },
    );
    // Kafka's metadata may run ahead of its partitions.
    for partition in 0..partitions {
        eventually("each leader answers", Duration::from_secs(10), || {
            list_offsets(wire, topic, partition, EARLIEST).error_code == 0
        });
    }
    id
}

pub fn create_topics(
    topic: &str,
    partitions: i32,
    configs: &[(&str, &str)],
) -> CreateTopicsRequest {
    let configs = configs.iter().map(|(key, value)| {
        CreatableTopicConfig::default()
            .with_name(text(key))
            .with_value(Some(text(value)))
    });
    CreateTopicsRequest::default()
        .with_timeout_ms(10_000)
        .with_topics(vec![
            CreatableTopic::default()
                .with_name(name(topic))
                .with_num_partitions(partitions)
                .with_replication_factor(1)
                .with_configs(configs.collect()),
        ])
}

/// Metadata of one topic, without creating it.
pub fn describe_topic(wire: &mut Wire, topic: &str) -> MetadataResponseTopic {
    let request = metadata_request(topic, false);
    wire.call(12, &request).topics.swap_remove(0)
}

pub fn metadata_request(topic: &str, auto_create: bool) -> MetadataRequest {
    MetadataRequest::default()
        .with_allow_auto_topic_creation(auto_create)
        .with_topics(Some(vec![
            MetadataRequestTopic::default().with_name(Some(name(topic))),
        ]))
}

pub fn produce_request(topic: &str, partition: i32, acks: i16, records: Bytes) -> ProduceRequest {
    ProduceRequest::default()
        .with_acks(acks)
        .with_timeout_ms(10_000)
        .with_topic_data(vec![
            TopicProduceData::default()
                .with_name(name(topic))
                .with_partition_data(vec![
                    PartitionProduceData::default()
                        .with_index(partition)
                        .with_records(Some(records)),
                ]),
        ])
}

/// Produces with acks=all and returns the partition's answer, whatever it is.
pub fn produce(
    wire: &mut Wire,
    topic: &str,
    partition: i32,
    records: Bytes,
) -> PartitionProduceResponse {
    let request = produce_request(topic, partition, -1, records);
    wire.call(PRODUCE_BY_NAME, &request)
        .responses
        .swap_remove(0)
        .partition_responses
        .swap_remove(0)
}

/// Produces and returns the base offset.
pub fn produce_ok(wire: &mut Wire, topic: &str, partition: i32, records: Bytes) -> i64 {
    let answer = produce(wire, topic, partition, records);
    assert_eq!(
        answer.error_code, 0,
        "produce to {topic}-{partition}: {:?}",
        answer.error_message
    );
    answer.base_offset
}

/// A fetch of one partition outside any session, answered at once.
pub fn fetch_request(topic: &str, partition: i32, offset: i64) -> FetchRequest {
    FetchRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_max_wait_ms(0)
        .with_min_bytes(1)
        .with_max_bytes(50 << 20)
        .with_session_id(0)
        .with_session_epoch(-1)
        .with_topics(vec![fetch_topic(topic, &[(partition, offset)])])
}

pub fn fetch_topic(topic: &str, partitions: &[(i32, i64)]) -> FetchTopic {
    FetchTopic::default()
        .with_topic(name(topic))
        .with_partitions(fetch_partitions(partitions))
}

pub fn fetch_topic_by_id(id: Uuid, partitions: &[(i32, i64)]) -> FetchTopic {
    FetchTopic::default()
        .with_topic_id(id)
        .with_partitions(fetch_partitions(partitions))
}

fn fetch_partitions(partitions: &[(i32, i64)]) -> Vec<FetchPartition> {
    let one = |&(partition, offset): &(i32, i64)| {
        FetchPartition::default()
            .with_partition(partition)
            .with_current_leader_epoch(-1)
            .with_fetch_offset(offset)
            .with_partition_max_bytes(10 << 20)
    };
    partitions.iter().map(one).collect()
}

pub fn fetch(wire: &mut Wire, topic: &str, partition: i32, offset: i64) -> PartitionData {
    let request = fetch_request(topic, partition, offset);
    wire.call(FETCH_BY_NAME, &request)
        .responses
        .swap_remove(0)
        .partitions
        .swap_remove(0)
}

pub fn batches(partition: &PartitionData) -> Vec<Received> {
    read_batches(partition.records.clone().unwrap_or_default())
}

/// Everything from `offset` to the high watermark.
pub fn fetch_all(wire: &mut Wire, topic: &str, partition: i32, mut offset: i64) -> Vec<Received> {
    let mut all = Vec::new();
    loop {
        let answer = fetch(wire, topic, partition, offset);
        assert_eq!(
            answer.error_code, 0,
            "fetch of {topic}-{partition}@{offset}"
        );
        let got = batches(&answer);
        let Some(last) = got.last() else {
            assert_eq!(
                offset, answer.high_watermark,
                "the fetch ends at the high watermark"
            );
            return all;
        };
        offset = last.last_offset() + 1;
        all.extend(got);
    }
}

pub const EARLIEST: i64 = -2;
pub const LATEST: i64 = -1;
pub const MAX_TIMESTAMP: i64 = -3;

pub fn list_offsets_request(topic: &str, partition: i32, timestamp: i64) -> ListOffsetsRequest {
    ListOffsetsRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_topics(vec![
            ListOffsetsTopic::default()
                .with_name(name(topic))
                .with_partitions(vec![
                    ListOffsetsPartition::default()
                        .with_partition_index(partition)
                        .with_current_leader_epoch(-1)
                        .with_timestamp(timestamp),
                ]),
        ])
}

pub fn list_offsets(
    wire: &mut Wire,
    topic: &str,
    partition: i32,
    timestamp: i64,
) -> ListOffsetsPartitionResponse {
    let request = list_offsets_request(topic, partition, timestamp);
    wire.call(7, &request)
        .topics
        .swap_remove(0)
        .partitions
        .swap_remove(0)
}

/// A new producer id and its epoch.
pub fn init_producer_id(wire: &mut Wire, version: i16) -> InitProducerIdResponse {
    let request = InitProducerIdRequest::default()
        .with_transactional_id(None)
        .with_transaction_timeout_ms(60_000);
    let mut response = wire.call(version, &request);
    // Kafka's first answer may be "not yet, ask again".
    for _ in 0..100 {
        if response.error_code != code::COORDINATOR_LOAD_IN_PROGRESS {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
        response = wire.call(version, &request);
    }
    assert_eq!(response.error_code, 0, "InitProducerId v{version}");
    response
}
