use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages;
use kafka_protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use kafka_protocol::messages::produce_response::{PartitionProduceResponse, TopicProduceResponse};
use kafka_protocol::messages::{ResponseHeader, TopicName};
use kafka_protocol::protocol::{Encodable, StrBytes};
use proptest::prelude::*;

use super::fetching::{Cursor, put_fetch_request, read_fetch_response};
use super::meter::{listening_inodes, parse_stat};
use super::request::{ProduceRequest, ProduceShape, read_produce_response};
use super::units::{parse_bytes, show_bytes};
use crate::base::TimestampMs;
use crate::client::{PartitionInfo, TopicInfo};
use crate::protocol::batch::Compression;
use crate::protocol::builder::BatchBuilder;
use crate::protocol::frame::RequestHeader;
use crate::protocol::{fetch, produce};

fn batch(records: i32) -> Bytes {
    let mut builder = BatchBuilder::new(TimestampMs(1));
    for _ in 0..records {
        builder.push(TimestampMs(1), None, Some(b"value"), &[]);
    }
    builder.build(Compression::None)
}

#[test]
fn sizes_are_read_as_people_write_them() {
    for (text, bytes) in [
        ("0", 0),
        ("262144", 262_144),
        ("256KiB", 262_144),
        ("256 k", 262_144),
        ("2GiB", 2 << 30),
        ("1GB", 1_000_000_000),
    ] {
        assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
    }
    for text in ["", "GiB", "-1", "1.5GiB", "3 apples", "99999999TiB"] {
        assert!(parse_bytes(text).is_err(), "{text}");
    }
    assert_eq!(show_bytes(512), "512 B");
    assert_eq!(show_bytes(262_144), "256 KiB");
    assert_eq!(show_bytes(3 << 29), "1.5 GiB");
}

/// Takes few bytes at a time, so that requests are cut anywhere.
struct Trickle {
    taken: Vec<u8>,
    step: usize,
}

impl std::io::Write for Trickle {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let count = bytes.len().min(self.step);
        self.taken.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn produce_requests_of_every_version_are_what_the_broker_reads() {
    let batch = batch(3);
    for version in 3..=12 {
        let shape = ProduceShape {
            version,
            acks: -1,
            timeout_ms: 1_500,
            topic: "a-topic",
        };
        let mut request = ProduceRequest::new(&shape, &[4, 7], &batch);
        request.set_correlation_id(99);
        let mut out = Trickle {
            taken: Vec::new(),
            step: 7,
        };
        let mut sent = 0;
        while sent < request.total_bytes() {
            sent = request.write_from(sent, &mut out).unwrap();
        }
        let (length, frame) = out.taken.split_first_chunk::<4>().unwrap();
        assert_eq!(u32::from_be_bytes(*length) as usize, frame.len());
        let header = RequestHeader::parse(frame).unwrap();
        assert_eq!((header.api_version, header.correlation_id), (version, 99));
        let read = produce::ProduceRequest::decode(BytesMut::from(frame), &header).unwrap();
        assert_eq!(
            (read.acks, read.timeout_ms),
            (-1, 1_500),
            "version {version}"
        );
        let partitions: Vec<_> = read.topics[0]
            .partitions
            .iter()
            .map(|partition| (partition.index, &partition.records[..]))
            .collect();
        assert_eq!(
            partitions,
            [(4, &batch[..]), (7, &batch[..])],
            "version {version}"
        );
    }
}

/// A response without its length, as a broker sends it.
fn response_frame(api: messages::ApiKey, version: i16, body: &impl Encodable) -> BytesMut {
    let mut frame = BytesMut::new();
    ResponseHeader::default()
        .with_correlation_id(5)
        .encode(&mut frame, api.response_header_version(version))
        .unwrap();
    body.encode(&mut frame, version).unwrap();
    frame
}

#[test]
fn a_refused_batch_is_told_with_the_broker_s_reason() {
    for version in 3..=12 {
        let partition = |index, code| {
            PartitionProduceResponse::default()
                .with_index(index)
                .with_error_code(code)
        };
        let topic = TopicProduceResponse::default()
            .with_name(TopicName(StrBytes::from_static_str("a-topic")))
            .with_partition_responses(vec![partition(0, 0), partition(1, 10)]);
        let body = messages::ProduceResponse::default().with_responses(vec![topic]);
        let frame = response_frame(messages::ApiKey::Produce, version, &body);
        let answer = read_produce_response(&frame, version).unwrap();
        assert_eq!(answer.correlation_id, 5);
        let refusal = answer.refusal.unwrap();
        assert!(
            refusal.contains("partition 1 of `a-topic`: MessageTooLarge"),
            "{refusal}"
        );
    }
}

#[test]
fn fetch_requests_of_every_version_are_what_the_broker_reads() {
    let cursors = [
        Cursor::new(2, 10, 20, 1).unwrap(),
        Cursor::new(6, 30, 40, 1).unwrap(),
    ];
    for version in 4..=12 {
        let mut frame = BytesMut::new();
        put_fetch_request(&mut frame, version, 77, "a-topic", 4_096, &cursors);
        let header = RequestHeader::parse(&frame).unwrap();
        assert_eq!((header.api_version, header.correlation_id), (version, 77));
        let read = fetch::FetchRequest::decode(&frame[header.body_start..], version).unwrap();
        assert_eq!(
            (read.max_bytes, read.session_epoch),
            (4_096, -1),
            "version {version}"
        );
        let offsets: Vec<_> = read.topics[0]
            .partitions
            .iter()
            .map(|partition| (partition.partition, partition.fetch_offset.0))
            .collect();
        assert_eq!(offsets, [(2, 10), (6, 30)], "version {version}");
    }
}

/// Batches of three records from offset 0 on, the last of them cut off.
fn batches(count: i64) -> Bytes {
    let mut bytes = BytesMut::new();
    for number in 0..count {
        let mut batch = batch(3).to_vec();
        batch[..8].copy_from_slice(&(number * 3).to_be_bytes());
        bytes.extend_from_slice(&batch);
    }
    bytes.extend_from_slice(&batch(3)[..40]);
    bytes.freeze()
}

fn fetch_frame(version: i16, code: i16, records: Bytes) -> BytesMut {
    let partition = PartitionData::default()
        .with_partition_index(2)
        .with_error_code(code)
        .with_records(Some(records));
    let topic = FetchableTopicResponse::default()
        .with_topic(TopicName(StrBytes::from_static_str("a-topic")))
        .with_partitions(vec![partition]);
    let body = messages::FetchResponse::default().with_responses(vec![topic]);
    response_frame(messages::ApiKey::Fetch, version, &body)
}

#[test]
fn whole_batches_are_counted_and_move_the_offset() {
    for version in 4..=12 {
        let frame = fetch_frame(version, 0, batches(2));
        let mut cursor = Cursor::new(2, 0, 100, 1).unwrap();
        let mut cursors = BTreeMap::from([(2, &mut cursor)]);
        let fetched = read_fetch_response(&frame, version, &mut cursors).unwrap();
        assert_eq!(fetched.refusal, None);
        assert_eq!(fetched.records, 6, "version {version}");
        assert_eq!(fetched.bytes, 2 * batch(3).len() as u64);
        let mut next = BytesMut::new();
        put_fetch_request(&mut next, 12, 0, "a-topic", 1, &[cursor]);
        let header = RequestHeader::parse(&next).unwrap();
        let read = fetch::FetchRequest::decode(&next[header.body_start..], 12).unwrap();
        assert_eq!(read.topics[0].partitions[0].fetch_offset.0, 6);
    }
}

#[test]
fn a_partition_is_read_as_often_as_asked() {
    let mut cursor = Cursor::new(2, 0, 6, 2).unwrap();
    for (round, done) in [(1, false), (2, true)] {
        let frame = fetch_frame(12, 0, batches(2));
        let mut cursors = BTreeMap::from([(2, &mut cursor)]);
        read_fetch_response(&frame, 12, &mut cursors).unwrap();
        assert_eq!(cursor.is_done(), done, "round {round}");
    }
    assert_eq!(Cursor::new(2, 6, 6, 1), None);
}

#[test]
fn a_refused_fetch_is_told_with_the_broker_s_reason() {
    let frame = fetch_frame(12, 1, Bytes::new());
    let fetched = read_fetch_response(&frame, 12, &mut BTreeMap::new()).unwrap();
    let refusal = fetched.refusal.unwrap();
    assert!(
        refusal.contains("partition 2: OffsetOutOfRange"),
        "{refusal}"
    );
}

proptest! {
    #[test]
    fn no_bytes_make_a_response_reader_panic(frame: Vec<u8>, version in 3_i16..=12) {
        let _ = read_produce_response(&frame, version);
        let _ = read_fetch_response(&frame, version.max(4), &mut BTreeMap::new());
    }

    #[test]
    fn no_records_make_the_walk_over_batches_panic(records: Vec<u8>, place in 0_usize..70, byte: u8) {
        let _ = read_fetch_response(&fetch_frame(12, 0, records.into()), 12, &mut BTreeMap::new());
        let mut damaged = batches(1).to_vec();
        damaged[place] = byte;
        let mut cursor = Cursor::new(2, 0, 6, 1).unwrap();
        let mut cursors = BTreeMap::from([(2, &mut cursor)]);
        let _ = read_fetch_response(&fetch_frame(12, 0, damaged.into()), 12, &mut cursors);
    }
}

#[test]
fn partitions_are_shared_out_without_overlap_while_they_last() {
    let partition = |index: i32| PartitionInfo {
        index,
        error_code: 0,
        leader: Some(if index < 6 { "a:1" } else { "b:1" }.to_owned()),
    };
    let topic = TopicInfo {
        name: "a-topic".to_owned(),
        error_code: 0,
        partitions: (0..8).map(partition).collect(),
    };
    let share = |connections| super::produce::share_partitions(&topic, connections);
    let own = |leader: &str, partitions: &[i32]| (leader.to_owned(), partitions.to_vec());
    assert_eq!(
        share(2).unwrap(),
        [own("a:1", &[0, 1, 2, 3, 4, 5]), own("b:1", &[6, 7])]
    );
    assert_eq!(
        share(5).unwrap(),
        [
            own("a:1", &[0, 3]),
            own("b:1", &[6]),
            own("a:1", &[1, 4]),
            own("b:1", &[7]),
            own("a:1", &[2, 5]),
        ]
    );
    assert_eq!(share(20).unwrap()[19], own("b:1", &[7]));
    assert!(share(1).unwrap_err().contains("2 leaders"));
}

#[test]
fn proc_files_are_read() {
    let stat = "7 (a) b) S 1 7 7 0 -1 0 0 0 0 0 250 150 0 0 20 0 3";
    assert_eq!(parse_stat(stat), Some(4.0));
    assert_eq!(parse_stat(""), None);
    let table = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:2384 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4242 1
   1: 0100007F:2384 0100007F:9999 01 00000000:00000000 00:00000000 00000000     0        0 4243 1
   2: 0100007F:2385 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4244 1
";
    assert_eq!(listening_inodes(table, 9_092), ["4242"]);
}

#[test]
fn a_listener_of_ours_is_found_by_its_port() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    assert_eq!(
        super::meter::find_listener(&address),
        Some(std::process::id())
    );
}
