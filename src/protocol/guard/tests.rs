use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::create_partitions_request::{
    CreatePartitionsAssignment, CreatePartitionsTopic,
};
use kafka_protocol::messages::create_topics_request::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig,
};
use kafka_protocol::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsTopic,
};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_topic_partitions_request::{Cursor, TopicRequest};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use kafka_protocol::messages::*;
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};
use proptest::prelude::*;

use super::*;
use crate::protocol::versions::APIS;

/// A request of each guarded API with something in every array, in all versions that it has.
fn samples() -> Vec<(ApiKey, i16, Bytes)> {
    let text = |text: &'static str| StrBytes::from_static_str(text);
    let name = || TopicName(text("a-topic"));
    let brokers = vec![BrokerId(1), BrokerId(2)];
    let mut samples = Vec::new();
    let mut add = |key: ApiKey, encode: &dyn Fn(i16, &mut BytesMut)| {
        let api = APIS.iter().find(|api| api.key == key).unwrap();
        for version in api.served_min..=api.max {
            let mut body = BytesMut::new();
            encode(version, &mut body);
            samples.push((key, version, body.freeze()));
        }
    };
    add(ApiKey::ListOffsets, &|version, body| {
        let partition = ListOffsetsPartition::default().with_timestamp(7);
        let topic = ListOffsetsTopic::default()
            .with_name(name())
            .with_partitions(vec![partition]);
        ListOffsetsRequest::default()
            .with_topics(vec![topic])
            .encode(body, version)
            .unwrap();
    });
    add(ApiKey::Metadata, &|version, body| {
        let topic = MetadataRequestTopic::default().with_name(Some(name()));
        let topics = Some(vec![topic.clone(), topic]);
        MetadataRequest::default()
            .with_topics(topics)
            .encode(body, version)
            .unwrap();
    });
    add(ApiKey::CreateTopics, &|version, body| {
        let assignment = CreatableReplicaAssignment::default().with_broker_ids(brokers.clone());
        let config = CreatableTopicConfig::default().with_name(text("retention.ms"));
        let topic = CreatableTopic::default()
            .with_name(name())
            .with_assignments(vec![assignment])
            .with_configs(vec![config]);
        CreateTopicsRequest::default()
            .with_topics(vec![topic])
            .encode(body, version)
            .unwrap();
    });
    add(ApiKey::DeleteTopics, &|version, body| {
        let request = if version >= 6 {
            let topic = DeleteTopicState::default().with_name(Some(name()));
            DeleteTopicsRequest::default().with_topics(vec![topic])
        } else {
            DeleteTopicsRequest::default().with_topic_names(vec![name(), name()])
        };
        request.encode(body, version).unwrap();
    });
    add(ApiKey::DeleteRecords, &|version, body| {
        let partitions = vec![DeleteRecordsPartition::default()];
        let topic = DeleteRecordsTopic::default()
            .with_name(name())
            .with_partitions(partitions);
        DeleteRecordsRequest::default()
            .with_topics(vec![topic])
            .encode(body, version)
            .unwrap();
    });
    add(ApiKey::InitProducerId, &|version, body| {
        InitProducerIdRequest::default()
            .encode(body, version)
            .unwrap();
    });
    add(ApiKey::OffsetForLeaderEpoch, &|version, body| {
        let partitions = vec![OffsetForLeaderPartition::default()];
        let topic = OffsetForLeaderTopic::default()
            .with_topic(name())
            .with_partitions(partitions);
        OffsetForLeaderEpochRequest::default()
            .with_topics(vec![topic])
            .encode(body, version)
            .unwrap();
    });
    add(ApiKey::DescribeConfigs, &|version, body| {
        let resource = DescribeConfigsResource::default()
            .with_resource_name(text("a-topic"))
            .with_configuration_keys(Some(vec![text("a"), text("b")]));
        DescribeConfigsRequest::default()
            .with_resources(vec![resource])
            .encode(body, version)
            .unwrap();
    });
    add(ApiKey::AlterConfigs, &|version, body| {
        use kafka_protocol::messages::alter_configs_request::*;
        let config = AlterableConfig::default().with_name(text("a"));
        let resource = AlterConfigsResource::default().with_configs(vec![config]);
        AlterConfigsRequest::default()
            .with_resources(vec![resource])
            .encode(body, version)
            .unwrap();
    });
    add(ApiKey::CreatePartitions, &|version, body| {
        let assignment = CreatePartitionsAssignment::default().with_broker_ids(brokers.clone());
        let topic = CreatePartitionsTopic::default()
            .with_name(name())
            .with_assignments(Some(vec![assignment]));
        CreatePartitionsRequest::default()
            .with_topics(vec![topic])
            .encode(body, version)
            .unwrap();
    });
    add(ApiKey::IncrementalAlterConfigs, &|version, body| {
        use kafka_protocol::messages::incremental_alter_configs_request::*;
        let config = AlterableConfig::default().with_name(text("a"));
        let resource = AlterConfigsResource::default().with_configs(vec![config]);
        IncrementalAlterConfigsRequest::default()
            .with_resources(vec![resource])
            .encode(body, version)
            .unwrap();
    });
    add(ApiKey::DescribeCluster, &|version, body| {
        DescribeClusterRequest::default()
            .encode(body, version)
            .unwrap();
    });
    add(ApiKey::DescribeTopicPartitions, &|version, body| {
        let cursor = Cursor::default().with_topic_name(name());
        DescribeTopicPartitionsRequest::default()
            .with_topics(vec![TopicRequest::default().with_name(name())])
            .with_cursor(Some(cursor))
            .encode(body, version)
            .unwrap();
    });
    samples
}

#[test]
fn every_api_that_the_crate_decodes_has_a_schema() {
    let ours = [ApiKey::Produce, ApiKey::Fetch, ApiKey::ApiVersions];
    for api in APIS.iter().filter(|api| !ours.contains(&api.key)) {
        assert!(
            SCHEMAS.iter().any(|schema| schema.key == api.key),
            "{:?}",
            api.key
        );
    }
}

#[test]
fn honest_requests_pass_and_every_truncation_is_refused() {
    for (key, version, body) in samples() {
        let check = |body: &[u8]| check(key as i16, version, body);
        assert_eq!(check(&body), Ok(()), "{key:?} {version}");
        for len in 0..body.len() {
            assert!(
                check(&body[..len]).is_err(),
                "{key:?} {version} cut to {len}"
            );
        }
    }
}

#[test]
fn a_count_that_claims_more_than_the_frame_holds_is_refused() {
    for count in [i32::MAX, 1 << 20, 1000] {
        let mut body = BytesMut::new();
        body.put_i32(count);
        body.put_slice(&[0; 500]);
        let refused = check(ApiKey::Metadata as i16, 1, &body);
        assert!(
            matches!(refused, Err(WireError::Count { .. })),
            "{count}: {refused:?}"
        );
    }
}

#[test]
fn a_null_array_is_no_error_of_the_guard() {
    let mut body = BytesMut::new();
    MetadataRequest::default()
        .with_topics(None)
        .encode(&mut body, 12)
        .unwrap();
    assert_eq!(check(ApiKey::Metadata as i16, 12, &body), Ok(()));
}

proptest! {
    /// The decoder sees only what passed the guard, and must not panic on it.
    #[test]
    fn what_passes_the_guard_decodes_without_panic(
        which in 0_usize..1000,
        at in any::<prop::sample::Index>(),
        value: u8,
        tail in prop::collection::vec(any::<u8>(), 0..8),
    ) {
        let samples = samples();
        let (key, version, body) = &samples[which % samples.len()];
        let mut body = body.to_vec();
        let at = at.index(body.len());
        body[at] = value;
        body.extend(tail);
        if check(*key as i16, *version, &body).is_ok() {
            let _ = RequestKind::decode_any(*key, Bytes::from(body), *version);
        }
    }
}

struct RequestKind;

impl RequestKind {
    fn decode_any(key: ApiKey, mut body: Bytes, version: i16) -> bool {
        let body = &mut body;
        match key {
            ApiKey::ListOffsets => ListOffsetsRequest::decode(body, version).is_ok(),
            ApiKey::Metadata => MetadataRequest::decode(body, version).is_ok(),
            ApiKey::CreateTopics => CreateTopicsRequest::decode(body, version).is_ok(),
            ApiKey::DeleteTopics => DeleteTopicsRequest::decode(body, version).is_ok(),
            ApiKey::DeleteRecords => DeleteRecordsRequest::decode(body, version).is_ok(),
            ApiKey::InitProducerId => InitProducerIdRequest::decode(body, version).is_ok(),
            ApiKey::OffsetForLeaderEpoch => {
                OffsetForLeaderEpochRequest::decode(body, version).is_ok()
            }
            ApiKey::DescribeConfigs => DescribeConfigsRequest::decode(body, version).is_ok(),
            ApiKey::AlterConfigs => AlterConfigsRequest::decode(body, version).is_ok(),
            ApiKey::CreatePartitions => CreatePartitionsRequest::decode(body, version).is_ok(),
            ApiKey::IncrementalAlterConfigs => {
                IncrementalAlterConfigsRequest::decode(body, version).is_ok()
            }
            ApiKey::DescribeCluster => DescribeClusterRequest::decode(body, version).is_ok(),
            _ => DescribeTopicPartitionsRequest::decode(body, version).is_ok(),
        }
    }
}
