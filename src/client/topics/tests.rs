use bytes::BytesMut;
use kafka_protocol::messages::create_topics_response::CreatableTopicResult;
use kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{CreateTopicsResponse, ListOffsetsResponse, MetadataResponse};
use kafka_protocol::protocol::Encodable;
use proptest::prelude::*;

use super::*;

fn encoded(response: &impl Encodable, version: i16) -> BytesMut {
    let mut body = BytesMut::new();
    response.encode(&mut body, version).unwrap();
    body
}

#[test]
fn metadata_of_every_version_is_read() {
    let broker = |id, host| {
        MetadataResponseBroker::default()
            .with_node_id(BrokerId(id))
            .with_host(StrBytes::from_static_str(host))
            .with_port(9092)
    };
    let partition = |index, leader| {
        MetadataResponsePartition::default()
            .with_partition_index(index)
            .with_leader_id(BrokerId(leader))
            .with_replica_nodes(vec![BrokerId(4), BrokerId(5)])
            .with_isr_nodes(vec![BrokerId(4)])
    };
    let topic = MetadataResponseTopic::default()
        .with_name(Some(topic_name("a-topic")))
        .with_partitions(vec![partition(1, 5), partition(0, 4), partition(2, -1)]);
    let response = MetadataResponse::default()
        .with_brokers(vec![broker(4, "a.example"), broker(5, "::1")])
        .with_topics(vec![topic.clone(), topic]);
    for version in 1..=12 {
        let topics = read_metadata(&encoded(&response, version), version).unwrap();
        assert_eq!(topics.len(), 2, "version {version}");
        assert_eq!(topics[1].name, "a-topic");
        let leaders: Vec<_> = topics[1]
            .partitions
            .iter()
            .map(|partition| (partition.index, partition.leader.as_deref()))
            .collect();
        let wanted = [
            (0, Some("a.example:9092")),
            (1, Some("[::1]:9092")),
            (2, None),
        ];
        assert_eq!(leaders, wanted, "version {version}");
    }
}

#[test]
fn results_of_topic_creation_are_read() {
    let result = CreatableTopicResult::default()
        .with_name(topic_name("a-topic"))
        .with_error_code(38)
        .with_error_message(Some(StrBytes::from_static_str("too many")));
    let response = CreateTopicsResponse::default().with_topics(vec![result]);
    for version in 2..=4 {
        assert_eq!(
            read_create_topics(&encoded(&response, version)).unwrap(),
            [("a-topic".to_owned(), 38, Some("too many".to_owned()))]
        );
    }
}

#[test]
fn offsets_are_read() {
    let partition = ListOffsetsPartitionResponse::default()
        .with_partition_index(3)
        .with_error_code(6)
        .with_offset(77);
    let topic = ListOffsetsTopicResponse::default()
        .with_name(topic_name("a-topic"))
        .with_partitions(vec![partition.clone(), partition]);
    let response = ListOffsetsResponse::default().with_topics(vec![topic]);
    for version in 1..=2 {
        assert_eq!(
            read_list_offsets(&encoded(&response, version), version).unwrap(),
            [(3, 6, 77), (3, 6, 77)],
            "version {version}"
        );
    }
}

proptest! {
    #[test]
    fn no_bytes_make_a_reader_panic(body: Vec<u8>, version in 1_i16..=12) {
        let _ = read_metadata(&body, version);
        let _ = read_create_topics(&body);
        let _ = read_list_offsets(&body, version);
    }
}
