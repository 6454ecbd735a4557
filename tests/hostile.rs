//! Peers that mean harm or are broken: truncated frames, absurd lengths and counts, garbage, silence,
//! slowness. Whatever they do, a good client is served all the while and memory stays bounded.

mod support;

#[path = "support/clients.rs"]
mod clients;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::{
    ApiKey, ApiVersionsRequest, DescribeClusterRequest, InitProducerIdRequest, MetadataRequest,
};
use kafka_protocol::protocol::Encodable;
use rdkafka::producer::{BaseRecord, Producer};

use clients::{Deliveries, consume, consumer, producer, send};
use support::batch::{self, Batch};
use support::calls::{
    self, FETCH_BY_NAME, PRODUCE_BY_NAME, create_topic, create_topics, fetch_request,
    list_offsets_request, metadata_request, produce, produce_ok, produce_request,
};
use support::wire::{Outcome, Wire, encode_request, request_header};
use support::{Broker, needs_own_process, unique_topic};

/// What hostile peers may cost on top of the memory before them.
const GROWTH_BYTES_MAX: u64 = 256 << 20;
/// A record of the good client takes milliseconds; on a loaded machine this is still a lot.
const DELIVERY_MAX: Duration = Duration::from_secs(5);

/// A good client that produces one record after the other until it is stopped.
struct GoodClient {
    stop: Arc<AtomicBool>,
    worker: JoinHandle<(usize, Duration)>,
    topic: String,
    bootstrap: String,
}

impl GoodClient {
    fn start(broker: &Broker) -> Self {
        let topic = unique_topic("good");
        create_topic(&mut broker.wire(), &topic, 2);
        let bootstrap = broker.bootstrap();
        let stop = Arc::new(AtomicBool::new(false));
        let worker = {
            let (stop, topic, bootstrap) = (Arc::clone(&stop), topic.clone(), bootstrap.clone());
            thread::spawn(move || produce_steadily(&stop, &topic, &bootstrap))
        };
        Self {
            stop,
            worker,
            topic,
            bootstrap,
        }
    }

    /// Ends it, and checks that it was served well and that its records are there.
    fn finish(self) {
        self.stop.store(true, Ordering::Relaxed);
        let (count, slowest) = self.worker.join().expect("the good client");
        assert!(count > 0, "the good client was served");
        assert!(
            slowest < DELIVERY_MAX,
            "the slowest of {count} records took {slowest:?}"
        );
        let consumer = consumer(&self.bootstrap, &self.topic, 2);
        consume(&consumer, count, Duration::from_secs(30), |_| {});
    }
}

fn produce_steadily(stop: &AtomicBool, topic: &str, bootstrap: &str) -> (usize, Duration) {
    let deliveries = Deliveries::default();
    let mut config = clients::config(bootstrap);
    let producer = producer(config.set("linger.ms", "0"), &deliveries);
    let mut slowest = Duration::ZERO;
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        let started = Instant::now();
        let record = BaseRecord::with_opaque_to(topic, Box::new(count))
            .partition(count as i32 % 2)
            .key(&b"k"[..])
            .payload(&b"good"[..]);
        send(&producer, record);
        producer.flush(Duration::from_secs(30)).expect("a delivery");
        count += 1;
        assert_eq!(deliveries.acknowledged_count(), count, "record {count}");
        slowest = slowest.max(started.elapsed());
        thread::sleep(Duration::from_millis(10));
    }
    (count, slowest)
}

/// Runs `attack` beside a good client and checks the memory after it.
fn beside_a_good_client(attack: impl FnOnce(&Broker)) {
    let broker = Broker::start();
    let good = GoodClient::start(&broker);
    thread::sleep(Duration::from_millis(500));
    let before = memory(&broker, "VmRSS");
    attack(&broker);
    good.finish();
    let peak = memory(&broker, "VmHWM");
    let growth = peak.saturating_sub(before);
    assert!(
        growth < GROWTH_BYTES_MAX,
        "memory grew by {} MiB",
        growth >> 20
    );
    // A fresh connection works as if nothing had been.
    let request = MetadataRequest::default().with_topics(Some(vec![]));
    broker.wire().call(9, &request);
}

fn memory(broker: &Broker, name: &str) -> u64 {
    if broker.is_foreign() {
        return 0;
    }
    broker.memory_bytes(name)
}

/// Key to (min, max) of what the broker says it speaks.
fn advertised(wire: &mut Wire) -> BTreeMap<i16, (i16, i16)> {
    let response = wire.call(0, &ApiVersionsRequest::default());
    let ranges = response.api_keys.iter();
    ranges
        .map(|it| (it.api_key, (it.min_version, it.max_version)))
        .collect()
}

/// The request header for any API, by the codec crate's table.
fn header(key: i16, version: i16) -> Option<BytesMut> {
    let api = ApiKey::try_from(key).ok()?;
    let mut frame = BytesMut::new();
    request_header(key, version, 1)
        .encode(&mut frame, api.request_header_version(version))
        .expect("a header");
    Some(frame)
}

/// Sends a frame on a connection of its own; it must be answered or closed, not left hanging.
fn assert_settled(broker: &Broker, frame: &[u8], what: &str) {
    let mut wire = broker.wire();
    let _ = wire.send_frame(frame);
    wire.read_timeout(Duration::from_secs(10));
    assert_ne!(
        wire.outcome(),
        Outcome::Silent,
        "{what}: neither answered nor closed"
    );
}

#[test]
fn counts_that_claim_more_than_the_frame_holds_are_refused() {
    beside_a_good_client(|broker| {
        let ranges = advertised(&mut broker.wire());
        // An i32 count, a compact count (varint of 2^31 - 1 and of 2^28), an i16 length.
        let claims: [&[u8]; 4] = [
            &[0x7f, 0xff, 0xff, 0xff],
            &[0xff, 0xff, 0xff, 0xff, 0x07],
            &[0x80, 0x80, 0x80, 0x80, 0x01],
            &[0x7f, 0xff],
        ];
        for (&key, &(min, max)) in &ranges {
            for version in min..=max {
                let Some(header) = header(key, version) else {
                    continue;
                };
                for claim in claims {
                    // Wherever a count stands in the body: shifted by 0 to 19 plain bytes.
                    for shift in 0..20 {
                        let mut frame = header.to_vec();
                        frame.extend_from_slice(&vec![0; shift]);
                        frame.extend_from_slice(&claim.repeat(8));
                        let mut wire = broker.wire();
                        let _ = wire.send_frame(&frame);
                        // A fetch may park, and acks 0 has no answer.
                        let may_be_silent = key == 0 || key == 1;
                        let patience = if may_be_silent { 5 } else { 10_000 };
                        wire.read_timeout(Duration::from_millis(patience));
                        let what = format!("key {key} v{version}, {claim:?} at {shift}");
                        let silent = wire.outcome() == Outcome::Silent;
                        assert!(may_be_silent || !silent, "{what}");
                    }
                }
            }
        }
    });
}

#[test]
fn truncated_requests_are_refused_at_every_length() {
    beside_a_good_client(|broker| {
        let topic = unique_topic("cut");
        let id = create_topic(&mut broker.wire(), &topic, 1);
        let records = Batch::of(&["a", "b"]).build();
        let produce = produce_request(&topic, 0, 1, records.clone());
        let mut by_id = produce_request("", 0, 1, records);
        by_id.topic_data[0].topic_id = id;
        let mut fetch_by_id = fetch_request(&topic, 0, 0);
        fetch_by_id.topics = vec![calls::fetch_topic_by_id(id, &[(0, 0)])];
        let ids = InitProducerIdRequest::default().with_transactional_id(None);
        let requests: [(&str, Bytes); 11] = [
            ("Produce 3", encode_request(3, 1, &produce)),
            ("Produce 9", encode_request(9, 1, &produce)),
            ("Produce 13", encode_request(13, 1, &by_id)),
            (
                "Fetch 4",
                encode_request(4, 1, &fetch_request(&topic, 0, 0)),
            ),
            (
                "Fetch 12",
                encode_request(FETCH_BY_NAME, 1, &fetch_request(&topic, 0, 0)),
            ),
            ("Fetch 17", encode_request(17, 1, &fetch_by_id)),
            (
                "ListOffsets 7",
                encode_request(7, 1, &list_offsets_request(&topic, 0, -1)),
            ),
            (
                "Metadata 12",
                encode_request(12, 1, &metadata_request(&topic, false)),
            ),
            (
                "CreateTopics 7",
                encode_request(
                    7,
                    1,
                    &create_topics(&unique_topic("made"), 1, &[("retention.ms", "1")]),
                ),
            ),
            ("InitProducerId 4", encode_request(4, 1, &ids)),
            (
                "DescribeCluster 1",
                encode_request(1, 1, &DescribeClusterRequest::default()),
            ),
        ];
        for (what, frame) in requests {
            for length in 0..frame.len() {
                assert_settled(broker, &frame[..length], &format!("{what}, {length} bytes"));
            }
            // And complete, with a byte too many.
            let mut longer = frame.to_vec();
            longer.push(0);
            let mut wire = broker.wire();
            wire.send_frame(&longer).unwrap();
            wire.read_timeout(Duration::from_secs(10));
            assert_ne!(wire.outcome(), Outcome::Silent, "{what}: a byte too many");
        }
    });
}

#[test]
fn absurd_length_prefixes_close_the_connection() {
    beside_a_good_client(|broker| {
        for length in [-1, i32::MIN, i32::MAX, 104_857_601, 1 << 30, -104_857_600] {
            let mut wire = broker.wire();
            let _ = wire.send_bytes(&length.to_be_bytes());
            let _ = wire.send_bytes(&[0; 64]);
            assert!(
                wire.is_closed_within(Duration::from_secs(10)),
                "a length of {length}"
            );
        }
        // Too short for any header.
        for length in 0..8 {
            let mut wire = broker.wire();
            let _ = wire.send_frame(&vec![0; length]);
            assert!(
                wire.is_closed_within(Duration::from_secs(10)),
                "{length} bytes"
            );
        }
    });
}

#[test]
fn lengths_that_are_never_filled_cost_no_memory() {
    if needs_own_process("lengths_that_are_never_filled_cost_no_memory") {
        return; // Kafka allocates each claim at once
    }
    beside_a_good_client(|broker| {
        // 100 connections, each of which claims the largest legal frame and sends a little of it.
        let mut open: Vec<Wire> = (0..100).map(|_| broker.wire()).collect();
        for wire in &mut open {
            wire.send_bytes(&104_857_600i32.to_be_bytes()).unwrap();
            wire.send_bytes(&header(3, 9).unwrap()).unwrap();
            wire.send_bytes(&[0; 1000]).unwrap();
        }
        thread::sleep(Duration::from_secs(2));
    });
}

#[test]
fn garbage_disturbs_nobody() {
    beside_a_good_client(|broker| {
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let keys: Vec<i16> = advertised(&mut broker.wire()).into_keys().collect();
        for round in 0..600 {
            let length = random() as usize % 300;
            let mut bytes: Vec<u8> = (0..length).map(|_| random() as u8).collect();
            let mut wire = broker.wire();
            match round % 3 {
                // No frame at all.
                0 => {
                    let _ = wire.send_bytes(&bytes);
                }
                // A frame of garbage.
                1 => {
                    let _ = wire.send_frame(&bytes);
                }
                // A good header before garbage.
                _ => {
                    let key = keys[random() as usize % keys.len()];
                    let mut frame = header(key, (random() % 10) as i16)
                        .unwrap_or_default()
                        .to_vec();
                    frame.append(&mut bytes);
                    let _ = wire.send_frame(&frame);
                }
            }
            wire.read_timeout(Duration::from_millis(2));
            let _ = wire.outcome();
        }
        // Other protocols that find the port.
        for hello in [
            &b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"[..],
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            b"SSH-2.0-OpenSSH_9.2\r\n",
        ] {
            let mut wire = broker.wire();
            let _ = wire.send_bytes(hello);
            wire.read_timeout(Duration::from_millis(100));
            let _ = wire.outcome();
        }
    });
}

#[test]
fn half_open_and_silent_connections_are_borne() {
    beside_a_good_client(|broker| {
        let mut open: Vec<Wire> = (0..300).map(|_| broker.wire()).collect();
        for (index, wire) in open.iter_mut().enumerate() {
            match index % 4 {
                0 => {}
                1 => wire.send_bytes(&[0, 0]).unwrap(),
                2 => wire.send_bytes(&[0, 0, 0, 40, 0, 3]).unwrap(),
                _ => wire.finish_writing(),
            }
        }
        thread::sleep(Duration::from_secs(1));
        drop(open);
        // Connections that come and go.
        for _ in 0..500 {
            drop(broker.wire());
        }
    });
}

#[test]
fn a_slow_writer_is_answered_in_the_end() {
    beside_a_good_client(|broker| {
        let mut wire = broker.wire();
        let request = MetadataRequest::default().with_topics(Some(vec![]));
        let frame = encode_request(9, 1, &request);
        wire.send_bytes(&(frame.len() as u32).to_be_bytes()[..1])
            .unwrap();
        thread::sleep(Duration::from_millis(100));
        wire.send_bytes(&(frame.len() as u32).to_be_bytes()[1..])
            .unwrap();
        for byte in &frame[..] {
            wire.send_bytes(&[*byte]).unwrap();
            thread::sleep(Duration::from_millis(20));
        }
        wire.receive::<MetadataRequest>(9, 1);
    });
}

#[test]
fn a_peer_that_never_reads_its_answers_costs_bounded_memory() {
    beside_a_good_client(|broker| {
        let topic = unique_topic("unread");
        let mut writer = broker.wire();
        create_topic(&mut writer, &topic, 1);
        for _ in 0..20 {
            produce_ok(&mut writer, &topic, 0, Batch::sized(1, 1_000_000).build());
        }
        let mut open: Vec<Wire> = (0..20).map(|_| broker.wire()).collect();
        let fetch = encode_request(FETCH_BY_NAME, 1, &fetch_request(&topic, 0, 0));
        let mut metadata = BytesMut::new();
        request_header(3, 9, 1).encode(&mut metadata, 2).unwrap();
        MetadataRequest::default()
            .with_topics(None)
            .encode(&mut metadata, 9)
            .unwrap();
        for wire in &mut open {
            // 2 GB of answers are asked for, if every connection could have its 10 fetches.
            for _ in 0..10 {
                let _ = wire.send_frame(&fetch);
            }
            for _ in 0..200 {
                let _ = wire.send_frame(&metadata);
            }
        }
        thread::sleep(Duration::from_secs(2));
    });
}

#[test]
fn small_batches_that_unpack_to_much_cost_bounded_memory() {
    beside_a_good_client(|broker| {
        let topic = unique_topic("bomb");
        let mut wire = broker.wire();
        create_topic(&mut wire, &topic, 1);
        let zeros = Bytes::from(vec![0; 300 << 20]);
        for codec in [batch::GZIP, batch::ZSTD, batch::LZ4] {
            let mut bomb = Batch::of(&["a"]).compression(codec);
            bomb.records[0].value = Some(zeros.clone());
            let packed = bomb.build();
            println!("codec {codec}: {} bytes", packed.len());
            // Taken or refused, but answered.
            let answer = produce(&mut wire, &topic, 0, packed);
            println!("codec {codec}: error {}", answer.error_code);
        }
    });
}

#[test]
fn pipelined_requests_beyond_reason_are_answered_in_order() {
    beside_a_good_client(|broker| {
        let mut wire = broker.wire();
        let topic = unique_topic("pipeline");
        create_topic(&mut wire, &topic, 2);
        let reader_ids: Vec<i32> = (0..2000)
            .map(|index| {
                let batch = Batch::of(&["a"]).build();
                let request = produce_request(&topic, index % 2, 1, batch);
                wire.send(PRODUCE_BY_NAME, &request)
            })
            .collect();
        for id in reader_ids {
            let response =
                wire.receive::<kafka_protocol::messages::ProduceRequest>(PRODUCE_BY_NAME, id);
            assert_eq!(response.responses[0].partition_responses[0].error_code, 0);
        }
    });
}
