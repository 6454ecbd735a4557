//! The handshake traps that broke other brokers, one test each (KIP-511, KIP-482, KIP-584, KIP-896).

mod support;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes, BytesMut};
use kafka_protocol::messages::alter_configs_request::{AlterConfigsResource, AlterableConfig};
use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsTopic,
};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_topic_partitions_request::TopicRequest;
use kafka_protocol::messages::fetch_request::ForgottenTopic;
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource as IncrementalResource, AlterableConfig as IncrementalConfig,
};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use kafka_protocol::messages::{
    AlterConfigsRequest, ApiVersionsRequest, ApiVersionsResponse, BrokerId,
    CreatePartitionsRequest, DeleteRecordsRequest, DeleteTopicsRequest, DescribeClusterRequest,
    DescribeConfigsRequest, DescribeTopicPartitionsRequest, FetchRequest,
    IncrementalAlterConfigsRequest, MetadataRequest, OffsetForLeaderEpochRequest,
};
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};
use uuid::Uuid;

use support::calls::{
    self, code, create_topic, describe_topic, fetch_request, fetch_topic_by_id, metadata_request,
    name,
};
use support::wire::{Outcome, Wire, header_v1, request_header};
use support::{Broker, eventually, unique_topic};

const API_VERSIONS: i16 = 18;

fn api_versions(wire: &mut Wire, version: i16) -> ApiVersionsResponse {
    let request = ApiVersionsRequest::default()
        .with_client_software_name(StrBytes::from_static_str("ringmain-tests"))
        .with_client_software_version(StrBytes::from_static_str("1.0"));
    wire.call(version, &request)
}

/// Key to (min, max) of what the broker says it speaks.
fn advertised(wire: &mut Wire, version: i16) -> BTreeMap<i16, (i16, i16)> {
    let response = api_versions(wire, version);
    assert_eq!(response.error_code, 0);
    let ranges = response.api_keys.iter();
    ranges
        .map(|range| (range.api_key, (range.min_version, range.max_version)))
        .collect()
}

/// H1: the header of an ApiVersions response never has tagged fields, even where its body has.
#[test]
fn api_versions_answers_with_header_0_in_every_version() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    for version in 0..=4 {
        let header = request_header(API_VERSIONS, version, 4711);
        let mut frame = BytesMut::new();
        header
            .encode(&mut frame, if version >= 3 { 2 } else { 1 })
            .unwrap();
        ApiVersionsRequest::default()
            .with_client_software_name(StrBytes::from_static_str("tests"))
            .with_client_software_version(StrBytes::from_static_str("1"))
            .encode(&mut frame, version)
            .unwrap();
        wire.send_frame(&frame).unwrap();
        let mut answer = wire.read_frame().expect("an answer");
        assert_eq!(answer.get_i32(), 4711, "v{version}: correlation id");
        assert_eq!(
            answer.get_i16(),
            0,
            "v{version}: the error code follows at once"
        );
        let response = {
            let mut body = BytesMut::from(&[0u8, 0][..]);
            body.extend_from_slice(&answer);
            ApiVersionsResponse::decode(&mut body.freeze(), version)
        };
        assert!(response.is_ok(), "v{version}: {response:?}");
    }
}

/// H2: an ApiVersions from the future is answered in version 0, with error 35 and our own range of
/// ApiVersions, and the connection goes on.
#[test]
fn an_api_versions_from_the_future_is_answered_in_version_0() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    for version in [5, 99, i16::MAX] {
        let mut frame = BytesMut::new();
        request_header(API_VERSIONS, version, 7)
            .encode(&mut frame, 2)
            .unwrap();
        frame.extend_from_slice(b"\xff\xfe a body that nobody knows yet");
        wire.send_frame(&frame).unwrap();
        let mut answer = wire
            .read_frame()
            .expect("an answer, not a closed connection");
        assert_eq!(answer.get_i32(), 7, "v{version}: correlation id");
        let response = ApiVersionsResponse::decode(&mut answer, 0).expect("a version 0 body");
        assert!(answer.is_empty(), "v{version}: nothing after the body");
        assert_eq!(response.error_code, code::UNSUPPORTED_VERSION, "v{version}");
        let own = response
            .api_keys
            .iter()
            .find(|it| it.api_key == API_VERSIONS);
        let own = own.expect("the range of ApiVersions itself");
        assert_eq!((own.min_version, own.max_version), (0, 4), "v{version}");
    }
    assert_eq!(
        api_versions(&mut wire, 4).error_code,
        0,
        "the connection lives"
    );
}

/// H3: clients wait out a whole time-out when the broker hangs or closes instead.
#[test]
fn an_api_versions_from_the_future_is_answered_at_once() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    let started = Instant::now();
    // As a client would: header v2 with its tagged fields, then the fields of version 3.
    let mut frame = BytesMut::new();
    request_header(API_VERSIONS, 17, 1)
        .encode(&mut frame, 2)
        .unwrap();
    frame.extend_from_slice(b"\x06tests\x041.0\x00");
    wire.send_frame(&frame).unwrap();
    assert!(matches!(wire.outcome(), Outcome::Answered(_)));
    assert!(
        started.elapsed() < Duration::from_secs(1),
        "{:?}",
        started.elapsed()
    );
}

/// H4: the compact array of a version 3 response, read by hand.
#[test]
fn the_api_versions_body_of_version_3_is_a_compact_array() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    let mut frame = BytesMut::new();
    request_header(API_VERSIONS, 3, 1)
        .encode(&mut frame, 2)
        .unwrap();
    frame.extend_from_slice(b"\x06tests\x041.0\x00");
    wire.send_frame(&frame).unwrap();
    let mut answer = wire.read_frame().unwrap();
    assert_eq!(answer.get_i32(), 1);
    assert_eq!(answer.get_i16(), 0);
    let count = varint(&mut answer) - 1; // a compact array's length is one more than its count
    assert!((5..128).contains(&count), "{count} APIs");
    for _ in 0..count {
        let (key, min, max) = (answer.get_i16(), answer.get_i16(), answer.get_i16());
        assert!((0..=93).contains(&key), "api key {key}");
        assert!(0 <= min && min <= max, "api key {key}: {min}..{max}");
        assert_eq!(answer.get_u8(), 0, "api key {key}: tagged fields");
    }
    assert_eq!(answer.get_i32(), 0, "throttle time");
    let tags = varint(&mut answer);
    for _ in 0..tags {
        varint(&mut answer);
        let length = varint(&mut answer) as usize;
        answer.advance(length);
    }
    assert!(answer.is_empty(), "{} bytes too many", answer.len());
}

fn varint(bytes: &mut Bytes) -> u32 {
    let mut value = 0;
    let mut shift = 0;
    loop {
        let byte = bytes.get_u8();
        value |= u32::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return value;
        }
        shift += 7;
    }
}

/// H5: librdkafka before 2.11 sends uncompressed unless Produce is advertised from 0 (KAFKA-18659);
/// versions 0 to 2 are refused when somebody uses them.
#[test]
fn produce_is_advertised_from_version_0_but_refused_below_3() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    for version in 0..=4 {
        let (min, max) = advertised(&mut wire, version)[&0];
        assert_eq!(min, 0, "in ApiVersions v{version}");
        assert_eq!(max, 13, "in ApiVersions v{version}");
    }
    for version in 0..3 {
        let mut old = broker.wire();
        let mut frame = header_v1(0, version, 5);
        frame.extend_from_slice(&1i16.to_be_bytes()); // acks
        frame.extend_from_slice(&1000i32.to_be_bytes()); // timeout
        frame.extend_from_slice(&0i32.to_be_bytes()); // no topics
        old.send_frame(&frame).unwrap();
        refused(&mut old, &format!("Produce v{version}"));
    }
}

/// Kafka closes the connection on a version that it does not speak; an answer with error 35
/// is as good. Silence is not.
fn refused(wire: &mut Wire, what: &str) {
    wire.read_timeout(Duration::from_secs(5));
    match wire.outcome() {
        Outcome::Closed => {}
        Outcome::Answered(frame) => {
            let unsupported = code::UNSUPPORTED_VERSION.to_be_bytes();
            let found = frame[4..].windows(2).any(|pair| pair == unsupported);
            assert!(
                found,
                "{what}: answered without UNSUPPORTED_VERSION: {frame:?}"
            );
        }
        Outcome::Silent => panic!("{what}: neither answered nor closed"),
    }
}

/// H6: what the clients of the field need to find in each range, where the API is there at all.
#[test]
fn the_advertised_ranges_overlap_those_of_the_clients_in_use() {
    let broker = Broker::start();
    let ranges = advertised(&mut broker.wire(), 3);
    // Name, key, versions that must all be inside, whether the API must be there.
    let needed: [(&str, i16, &[i16], bool); 27] = [
        ("Produce", 0, &[3, 7], true), // magic 2; zstd
        ("Fetch", 1, &[4, 10, 12], true),
        ("ListOffsets", 2, &[1, 3, 5], true),
        ("Metadata", 3, &[0, 4, 9], true),
        ("OffsetCommit", 8, &[2, 3, 8], false),
        ("OffsetFetch", 9, &[1, 3, 8], false),
        ("FindCoordinator", 10, &[0, 1, 4], false),
        ("JoinGroup", 11, &[0, 5, 6], false),
        ("Heartbeat", 12, &[0, 1, 4], false),
        ("LeaveGroup", 13, &[0, 1, 4], false),
        ("SyncGroup", 14, &[0, 3, 4], false),
        ("DescribeGroups", 15, &[0, 2, 5], false),
        ("ListGroups", 16, &[0, 2, 4], false),
        ("SaslHandshake", 17, &[0, 1], false),
        ("ApiVersions", 18, &[0, 2, 3], true),
        ("CreateTopics", 19, &[3, 7], true),
        ("DeleteTopics", 20, &[1, 6], true),
        ("DeleteRecords", 21, &[0, 2], true),
        ("InitProducerId", 22, &[0, 3], true),
        ("OffsetForLeaderEpoch", 23, &[2, 4], true),
        ("DescribeConfigs", 32, &[1, 2], true),
        ("AlterConfigs", 33, &[1, 2], true),
        ("SaslAuthenticate", 36, &[0, 1, 2], false),
        ("CreatePartitions", 37, &[1], true),
        ("IncrementalAlterConfigs", 44, &[1], true),
        ("DescribeCluster", 60, &[0], true),
        ("DescribeTopicPartitions", 75, &[0], true),
    ];
    for (api, key, versions, must_be_there) in needed {
        let Some((min, max)) = ranges.get(&key) else {
            assert!(!must_be_there, "{api} is not advertised");
            continue;
        };
        for version in versions {
            assert!(
                (min..=max).contains(&version),
                "{api}: {min}..{max} lacks {version}"
            );
        }
    }
}

/// H7: ApiVersions needs no authentication, and may come again at any time.
#[test]
fn api_versions_may_be_repeated_between_other_requests() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    let first = advertised(&mut wire, 3);
    wire.call(9, &MetadataRequest::default().with_topics(Some(vec![])));
    for version in [0, 1, 2, 3, 4, 3, 0] {
        assert_eq!(advertised(&mut wire, version), first, "v{version}");
    }
    let mut without_any = broker.wire();
    without_any.call(9, &MetadataRequest::default().with_topics(Some(vec![])));
}

/// H8: a feature with minimum 0 breaks clients of version 3 (KAFKA-17011).
#[test]
fn version_3_names_no_feature_whose_minimum_is_0() {
    let broker = Broker::start();
    let response = api_versions(&mut broker.wire(), 3);
    for feature in &response.supported_features {
        assert!(feature.min_version > 0, "{:?}", feature);
    }
}

/// H10: which request header precedes the body depends on key and version.
#[test]
fn request_headers_are_read_as_key_and_version_demand() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    // Metadata: header v1 to version 8, v2 from 9. An unknown tag in a v2 header is skipped.
    for version in 0..=13i16 {
        let mut header = request_header(3, version, 100 + i32::from(version));
        if version >= 9 {
            header
                .unknown_tagged_fields
                .insert(77, Bytes::from_static(b"from the future"));
        }
        let mut frame = BytesMut::new();
        header
            .encode(&mut frame, if version >= 9 { 2 } else { 1 })
            .unwrap();
        let request = if version == 0 {
            MetadataRequest::default().with_topics(Some(vec![]))
        } else {
            MetadataRequest::default().with_topics(None)
        };
        request.encode(&mut frame, version).unwrap();
        wire.send_frame(&frame).unwrap();
        let response = wire.receive::<MetadataRequest>(version, 100 + i32::from(version));
        assert_eq!(response.brokers.len(), 1, "v{version}");
    }
    // A null client id is legal in every header.
    for (version, tail) in [(8i16, &b""[..]), (9, &b"\x00"[..])] {
        let mut frame = Vec::new();
        frame.extend_from_slice(&3i16.to_be_bytes());
        frame.extend_from_slice(&version.to_be_bytes());
        frame.extend_from_slice(&9i32.to_be_bytes());
        frame.extend_from_slice(&(-1i16).to_be_bytes());
        frame.extend_from_slice(tail);
        let mut body = BytesMut::new();
        MetadataRequest::default()
            .with_topics(Some(vec![]))
            .encode(&mut body, version)
            .unwrap();
        frame.extend_from_slice(&body);
        wire.send_frame(&frame).unwrap();
        wire.receive::<MetadataRequest>(version, 9);
    }
    // ControlledShutdown v0, the one request that had header v0, is gone.
    let mut old = broker.wire();
    let mut frame = Vec::new();
    frame.extend_from_slice(&7i16.to_be_bytes());
    frame.extend_from_slice(&0i16.to_be_bytes());
    frame.extend_from_slice(&1i32.to_be_bytes());
    frame.extend_from_slice(&1i32.to_be_bytes());
    old.send_frame(&frame).unwrap();
    refused(&mut old, "ControlledShutdown v0");
    api_versions(&mut wire, 3);
}

/// H11: a range that is not fully implemented is worse than a small one, so each version of each
/// API is used once.
#[test]
fn every_advertised_version_really_works() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    let ranges = advertised(&mut wire, 4);
    let topic = unique_topic("h11");
    let id = create_topic(&mut wire, &topic, 1);
    let mut probed = 0;
    for (&key, &(min, max)) in &ranges {
        for version in min..=max {
            if key == 0 && version < 3 {
                continue; // listed for librdkafka's sake only
            }
            match probe(&mut wire, key, version, &topic, id) {
                Some(error) => assert_eq!(error, 0, "api key {key} v{version}"),
                None if broker.is_foreign() => {}
                None => panic!("api key {key} is advertised, but this test has no request for it"),
            }
            probed += 1;
        }
    }
    assert!(probed > 90, "{probed} versions");
}

/// Makes a plain request that must succeed; its error code, or `None` for an API not known here.
fn probe(wire: &mut Wire, key: i16, version: i16, topic: &str, id: Uuid) -> Option<i16> {
    let config = "retention.ms";
    Some(match key {
        0 => {
            let batch = support::batch::Batch::of(&["probe"]).build();
            let mut request = calls::produce_request(topic, 0, -1, batch);
            if version > calls::PRODUCE_BY_NAME {
                request.topic_data[0].name = name("");
                request.topic_data[0].topic_id = id;
            }
            let response = wire.call(version, &request);
            response.responses[0].partition_responses[0].error_code
        }
        1 => {
            let mut request = fetch_request(topic, 0, 0);
            if version > calls::FETCH_BY_NAME {
                request.topics = vec![fetch_topic_by_id(id, &[(0, 0)])];
            }
            let response = wire.call(version, &request);
            let partition = &response.responses[0].partitions[0];
            assert!(
                !calls::batches(partition).is_empty(),
                "Fetch v{version}: records"
            );
            partition.error_code.max(response.error_code)
        }
        2 => {
            let response = wire.call(
                version,
                &calls::list_offsets_request(topic, 0, calls::LATEST),
            );
            let partition = &response.topics[0].partitions[0];
            assert!(
                partition.offset > 0,
                "ListOffsets v{version}: {partition:?}"
            );
            partition.error_code
        }
        3 => wire.call(version, &metadata_request(topic, true)).topics[0].error_code,
        18 => api_versions(wire, version).error_code,
        19 => {
            let other = unique_topic("h11-made");
            let response = wire.call(version, &calls::create_topics(&other, 1, &[]));
            response.topics[0].error_code
        }
        20 => {
            let other = unique_topic("h11-deleted");
            create_topic(wire, &other, 1);
            let mut request = DeleteTopicsRequest::default().with_timeout_ms(10_000);
            if version >= 6 {
                request.topics = vec![DeleteTopicState::default().with_name(Some(name(&other)))];
            } else {
                request.topic_names = vec![name(&other)];
            }
            wire.call(version, &request).responses[0].error_code
        }
        21 => {
            let partition = DeleteRecordsPartition::default().with_offset(0);
            let request = DeleteRecordsRequest::default()
                .with_timeout_ms(10_000)
                .with_topics(vec![
                    DeleteRecordsTopic::default()
                        .with_name(name(topic))
                        .with_partitions(vec![partition]),
                ]);
            wire.call(version, &request).topics[0].partitions[0].error_code
        }
        22 => calls::init_producer_id(wire, version).error_code,
        23 => {
            let partition = OffsetForLeaderPartition::default()
                .with_current_leader_epoch(-1)
                .with_leader_epoch(0);
            let mut request = OffsetForLeaderEpochRequest::default().with_topics(vec![
                OffsetForLeaderTopic::default()
                    .with_topic(name(topic))
                    .with_partitions(vec![partition]),
            ]);
            if version >= 3 {
                request.replica_id = BrokerId(-1);
            }
            wire.call(version, &request).topics[0].partitions[0].error_code
        }
        32 => {
            let resource = DescribeConfigsResource::default()
                .with_resource_type(2)
                .with_resource_name(calls::text(topic));
            let request = DescribeConfigsRequest::default().with_resources(vec![resource]);
            let response = wire.call(version, &request);
            assert!(
                response.results[0].configs.len() > 20,
                "DescribeConfigs v{version}"
            );
            response.results[0].error_code
        }
        33 => {
            let entry = AlterableConfig::default()
                .with_name(calls::text(config))
                .with_value(Some(calls::text("3600000")));
            let resource = AlterConfigsResource::default()
                .with_resource_type(2)
                .with_resource_name(calls::text(topic))
                .with_configs(vec![entry]);
            let request = AlterConfigsRequest::default().with_resources(vec![resource]);
            wire.call(version, &request).responses[0].error_code
        }
        37 => {
            let other = unique_topic("h11-grown");
            create_topic(wire, &other, 1);
            let grown = CreatePartitionsTopic::default()
                .with_name(name(&other))
                .with_count(2)
                .with_assignments(None);
            let request = CreatePartitionsRequest::default()
                .with_timeout_ms(10_000)
                .with_topics(vec![grown]);
            wire.call(version, &request).results[0].error_code
        }
        44 => {
            let entry = IncrementalConfig::default()
                .with_name(calls::text(config))
                .with_config_operation(0)
                .with_value(Some(calls::text("7200000")));
            let resource = IncrementalResource::default()
                .with_resource_type(2)
                .with_resource_name(calls::text(topic))
                .with_configs(vec![entry]);
            let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
            wire.call(version, &request).responses[0].error_code
        }
        60 => {
            let response = wire.call(version, &DescribeClusterRequest::default());
            assert_eq!(response.brokers.len(), 1, "DescribeCluster v{version}");
            response.error_code
        }
        75 => {
            let request = DescribeTopicPartitionsRequest::default()
                .with_response_partition_limit(100)
                .with_topics(vec![TopicRequest::default().with_name(name(topic))]);
            wire.call(version, &request).topics[0].error_code
        }
        _ => return None,
    })
}

/// H12: some clients ignore the ranges. They get an answer or a closed connection at once, other
/// connections go on, and the log names the API.
#[test]
fn a_version_outside_the_range_is_refused_at_once_and_logged() {
    let broker = Broker::start();
    let mut good = broker.wire();
    let rows: [(&str, i16, i16); 7] = [
        ("Fetch", 1, 3),
        ("Fetch", 1, 19),
        ("Metadata", 3, 14),
        ("ListOffsets", 2, 0),
        ("Produce", 0, -1),
        ("CreateTopics", 19, 1),
        ("an unknown API", 1000, 0),
    ];
    for (api, key, version) in rows {
        let mut wire = broker.wire();
        let mut frame = header_v1(key, version, 3);
        frame.extend_from_slice(&[0; 32]);
        wire.send_frame(&frame).unwrap();
        refused(&mut wire, &format!("{api} v{version}"));
        api_versions(&mut good, 3);
    }
    if !broker.is_foreign() {
        let log = broker.stderr();
        assert!(
            log.contains("Fetch") && log.contains("19"),
            "the log tells of it:\n{log}"
        );
    }
}

/// H13: Metadata has topic ids since version 10, but looking topics up by id only since 12.
#[test]
fn metadata_looks_topics_up_by_id_only_from_version_12() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    let topic = unique_topic("h13");
    let id = create_topic(&mut wire, &topic, 1);
    for version in [10, 11] {
        // The codec cannot say "null name" in the versions that forbid it, so this is by hand.
        let correlation_id = 50 + i32::from(version);
        let mut frame = BytesMut::new();
        request_header(3, version, correlation_id)
            .encode(&mut frame, 2)
            .unwrap();
        frame.extend_from_slice(&[2]); // one topic
        frame.extend_from_slice(id.as_bytes());
        frame.extend_from_slice(&[0, 0]); // null name, no tags
        frame.extend_from_slice(&[0]); // no auto creation
        if version == 10 {
            frame.extend_from_slice(&[0]); // no cluster operations
        }
        frame.extend_from_slice(&[0, 0]); // no topic operations, no tags
        wire.send_frame(&frame).unwrap();
        let response = wire.receive::<MetadataRequest>(version, correlation_id);
        let topic = &response.topics[0];
        assert_eq!(
            topic.error_code,
            code::INVALID_REQUEST,
            "v{version}: {topic:?}"
        );
    }
    for version in [12, 13] {
        let by_id = |id: Uuid| {
            MetadataRequest::default().with_topics(Some(vec![
                MetadataRequestTopic::default()
                    .with_topic_id(id)
                    .with_name(None),
            ]))
        };
        let response = wire.call(version, &by_id(id));
        assert_eq!(response.topics[0].error_code, 0, "v{version}");
        assert_eq!(response.topics[0].name, Some(name(&topic)), "v{version}");
        assert_eq!(response.topics[0].topic_id, id, "v{version}");
        let unknown = Uuid::from_u128(0xdead_beef);
        let response = wire.call(version, &by_id(unknown));
        assert_eq!(
            response.topics[0].error_code,
            code::UNKNOWN_TOPIC_ID,
            "v{version}"
        );
        assert_eq!(response.topics[0].topic_id, unknown, "v{version}");
        assert_eq!(response.topics[0].name, None, "v{version}");
    }
}

/// H14: Fetch 13 and above knows topics by id; an unknown or zero id is an error of that topic.
#[test]
fn a_fetch_by_an_unknown_topic_id_says_so() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    let topic = unique_topic("h14");
    let id = create_topic(&mut wire, &topic, 1);
    let template = FetchRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_min_bytes(0)
        .with_max_bytes(1 << 20)
        .with_session_epoch(-1);
    for version in 13..=18 {
        for unknown in [Uuid::from_u128(0xdead_beef), Uuid::nil()] {
            let mut request = template.clone().with_topics(vec![
                fetch_topic_by_id(unknown, &[(0, 0)]),
                fetch_topic_by_id(id, &[(0, 0)]),
            ]);
            if version >= 15 {
                request.replica_id = BrokerId(-1);
            }
            let response = wire.call(version, &request);
            assert_eq!(response.error_code, 0, "v{version}");
            let find = |id| {
                let topic = response.responses.iter().find(|it| it.topic_id == id);
                topic.unwrap_or_else(|| panic!("v{version}: {id} in the answer"))
            };
            let error = find(unknown).partitions[0].error_code;
            assert_eq!(error, code::UNKNOWN_TOPIC_ID, "v{version} {unknown}");
            assert_eq!(find(id).partitions[0].error_code, 0, "v{version}");
        }
        // A forgotten topic with the zero id, inside a session.
        let open = template
            .clone()
            .with_session_epoch(0)
            .with_topics(vec![fetch_topic_by_id(id, &[(0, 0)])]);
        let opened = wire.call(version, &open);
        assert_ne!(opened.session_id, 0, "v{version}: a session");
        let forget = template
            .clone()
            .with_session_id(opened.session_id)
            .with_session_epoch(1)
            .with_forgotten_topics_data(vec![
                ForgottenTopic::default()
                    .with_topic_id(Uuid::nil())
                    .with_partitions(vec![0]),
            ]);
        let error = wire.call(version, &forget).error_code;
        // Kafka 4.1 trips over it: -1.
        let expected = [0, code::UNKNOWN_TOPIC_ID].contains(&error);
        assert!(expected || broker.is_foreign(), "v{version}: {error}");
    }
}

/// H15: unknown tags are skipped. A tag that belongs to another version (0 in a partition of
/// Fetch 16 is the directory id of 17) must not disturb other connections.
#[test]
fn unknown_tags_are_skipped() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    let topic = unique_topic("h15");
    let id = create_topic(&mut wire, &topic, 1);
    let unknown = |tag: i32| BTreeMap::from([(tag, Bytes::from_static(b"later"))]);

    let mut request = metadata_request(&topic, false);
    request.unknown_tagged_fields = unknown(40);
    request.topics.as_mut().unwrap()[0].unknown_tagged_fields = unknown(41);
    assert_eq!(wire.call(12, &request).topics[0].error_code, 0);

    let mut request = fetch_request(&topic, 0, 0);
    request.unknown_tagged_fields = unknown(90);
    request.topics[0].unknown_tagged_fields = unknown(91);
    request.topics[0].partitions[0].unknown_tagged_fields = unknown(92);
    let response = wire.call(12, &request);
    assert_eq!(response.responses[0].partitions[0].error_code, 0);

    let mut request = calls::produce_request(
        &topic,
        0,
        -1,
        support::batch::Batch::of(&["tagged"]).build(),
    );
    request.unknown_tagged_fields = unknown(90);
    request.topic_data[0].unknown_tagged_fields = unknown(91);
    request.topic_data[0].partition_data[0].unknown_tagged_fields = unknown(92);
    let response = wire.call(9, &request);
    assert_eq!(response.responses[0].partition_responses[0].error_code, 0);

    // Misplaced: a 16-byte directory id under tag 0 in version 16.
    let mut misplaced = FetchRequest::default()
        .with_session_epoch(-1)
        .with_max_bytes(1 << 20)
        .with_topics(vec![fetch_topic_by_id(id, &[(0, 0)])]);
    misplaced.topics[0].partitions[0].unknown_tagged_fields =
        BTreeMap::from([(0, Bytes::copy_from_slice(&[7; 16]))]);
    let mut odd = broker.wire();
    odd.send(16, &misplaced);
    odd.read_timeout(Duration::from_secs(5));
    // Kafka closes the connection; an answer would do as well.
    assert_ne!(odd.outcome(), Outcome::Silent, "a misplaced tag");
    api_versions(&mut wire, 3);
}

/// H16: finalized features decide what Java clients use; none may be claimed before it is there.
#[test]
fn no_feature_is_finalized_before_it_is_there() {
    let broker = Broker::start();
    if broker.is_foreign() {
        return;
    }
    let mut wire = broker.wire();
    let ranges = advertised(&mut wire, 4);
    let response = api_versions(&mut wire, 4);
    for feature in &response.finalized_features {
        let needs = match feature.name.as_str() {
            "transaction.version" => 26, // EndTxn
            "group.version" => 68,       // ConsumerGroupHeartbeat
            "share.version" => 76,       // ShareGroupHeartbeat
            _ => continue,
        };
        assert!(ranges.contains_key(&needs), "{:?}", feature);
    }
}

/// H17: Metadata creates topics, if both sides allow it, with `num.partitions` partitions.
#[test]
fn metadata_creates_a_topic_where_the_client_allows_it() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    let topic = unique_topic("h17");
    for _ in 0..2 {
        let answer = describe_topic(&mut wire, &topic);
        assert_eq!(
            answer.error_code,
            code::UNKNOWN_TOPIC_OR_PARTITION,
            "not allowed"
        );
    }
    let answer = wire
        .call(12, &metadata_request(&topic, true))
        .topics
        .swap_remove(0);
    let expected = [
        0,
        code::LEADER_NOT_AVAILABLE,
        code::UNKNOWN_TOPIC_OR_PARTITION,
    ];
    assert!(
        expected.contains(&answer.error_code),
        "retriable: {}",
        answer.error_code
    );
    eventually(
        "the created topic has a leader",
        Duration::from_secs(5),
        || {
            let answer = wire
                .call(12, &metadata_request(&topic, true))
                .topics
                .swap_remove(0);
            answer.error_code == 0
                && answer.partitions.len() == 1
                && answer.partitions[0].leader_id.0 > 0
        },
    );
    // Versions below 4 cannot forbid it.
    let topic = unique_topic("h17-old");
    wire.call(1, &metadata_request(&topic, true));
    eventually(
        "versions below 4 always create",
        Duration::from_secs(5),
        || describe_topic(&mut wire, &topic).error_code == 0,
    );
    for bad in ["", ".", "..", "a b", "ü", &"x".repeat(250), "a/b"] {
        let answer = wire
            .call(12, &metadata_request(bad, true))
            .topics
            .swap_remove(0);
        assert_eq!(answer.error_code, code::INVALID_TOPIC_EXCEPTION, "{bad:?}");
    }
}
