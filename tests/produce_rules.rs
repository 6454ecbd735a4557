//! What Produce accepts and refuses, batch by batch, with Kafka's error for each. Every expectation
//! was checked against Apache Kafka 4.1.

mod support;

use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::produce_request::PartitionProduceData;
use kafka_protocol::messages::produce_response::PartitionProduceResponse;
use kafka_protocol::messages::{MetadataRequest, ProduceRequest};
use uuid::Uuid;

use support::batch::{self, Batch, Record};
use support::calls::{
    LATEST, PRODUCE_BY_NAME, batches, code, create_topic, create_topic_with, fetch, fetch_all,
    fetch_request, init_producer_id, list_offsets, produce, produce_ok, produce_request,
};
use support::wire::{Outcome, Wire};
use support::{Broker, needs_own_process, unique_topic};

fn now_ms() -> i64 {
    let since = std::time::UNIX_EPOCH.elapsed().expect("a clock after 1970");
    since.as_millis() as i64
}

/// Nothing of what was refused may be in the log, and the connection goes on.
fn assert_refused(wire: &mut Wire, topic: &str, records: Bytes, error: i16, what: &str) {
    let before = list_offsets(wire, topic, 0, LATEST).offset;
    let answer = produce(wire, topic, 0, records);
    assert_eq!(
        answer.error_code, error,
        "{what}: {:?}",
        answer.error_message
    );
    assert_eq!(answer.base_offset, -1, "{what}");
    let after = list_offsets(wire, topic, 0, LATEST).offset;
    assert_eq!(after, before, "{what}: nothing was appended");
}

#[test]
fn records_come_back_as_they_were_sent_in_every_compression() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    let topic = unique_topic("codecs");
    create_topic(&mut wire, &topic, 1);
    let codecs = [
        batch::NONE,
        batch::GZIP,
        batch::SNAPPY,
        batch::LZ4,
        batch::ZSTD,
    ];
    let mut sent = Vec::new();
    for (index, codec) in codecs.into_iter().enumerate() {
        let batch = Batch::of(&["a", "b", "c"])
            .compression(codec)
            .timestamp(now_ms());
        let base = produce_ok(&mut wire, &topic, 0, batch.build());
        assert_eq!(base, index as i64 * 3);
        sent.push(batch);
    }
    let got = fetch_all(&mut wire, &topic, 0, 0);
    assert_eq!(got.len(), sent.len());
    for (index, (got, sent)) in got.iter().zip(&sent).enumerate() {
        assert_eq!(got.base_offset, index as i64 * 3);
        assert_eq!(got.leader_epoch, 0, "the broker fills in the epoch");
        assert_eq!(got.attributes, sent.attributes, "kept as sent");
        assert_eq!(got.records, sent.records);
        let (kept, original) = (&got.bytes[21..], &sent.build()[21..]);
        assert_eq!(kept, original, "byte for byte after the CRC");
    }
}

#[test]
fn a_batch_over_max_message_bytes_is_too_large() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    let topic = unique_topic("large");
    create_topic_with(&mut wire, &topic, 1, &[("max.message.bytes", "1000")]);
    let large = Batch::sized(1, 1000).build();
    let error = code::MESSAGE_TOO_LARGE;
    assert_refused(&mut wire, &topic, large, error, "1000 bytes of value");
    // The limit counts the whole batch with its 12 bytes of offset and length.
    let exact = |bytes: usize| {
        let overhead = Batch::sized(1, 500).build().len() - 500;
        let batch = Batch::sized(1, bytes - overhead).build();
        assert_eq!(batch.len(), bytes);
        batch
    };
    produce_ok(&mut wire, &topic, 0, exact(1000));
    assert_refused(&mut wire, &topic, exact(1001), error, "1001 bytes");

    let default = unique_topic("large-default");
    create_topic(&mut wire, &default, 1);
    produce_ok(&mut wire, &default, 0, Batch::sized(1, 1_048_000).build());
    let larger = Batch::sized(1, 1_048_600).build();
    assert_refused(&mut wire, &default, larger, error, "over 1048588 bytes");
}

#[test]
fn a_batch_with_a_wrong_crc_is_corrupt() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    let topic = unique_topic("crc");
    create_topic(&mut wire, &topic, 1);
    let mut batch = Batch::of(&["a"]);
    batch.crc = Some(0xdead_beef);
    assert_refused(
        &mut wire,
        &topic,
        batch.build(),
        code::CORRUPT_MESSAGE,
        "a wrong CRC",
    );
    let mut flipped = Batch::of(&["abc"]).build().to_vec();
    *flipped.last_mut().unwrap() ^= 1;
    assert_refused(
        &mut wire,
        &topic,
        flipped.into(),
        code::CORRUPT_MESSAGE,
        "a flipped bit",
    );
}

#[test]
fn a_batch_with_malformed_framing_is_refused() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    let topic = unique_topic("frames");
    create_topic(&mut wire, &topic, 1);
    let good = Batch::of(&["a", "b"]);
    let build = |change: &dyn Fn(&mut Batch)| {
        let mut batch = good.clone();
        change(&mut batch);
        batch.build()
    };
    let mut two = good.build().to_vec();
    two.extend_from_slice(&good.build());
    let mut cut = good.build();
    cut.truncate(cut.len() - 1);
    let rows: [(&str, Bytes, i16); 14] = [
        ("magic 1", build(&|it| it.magic = 1), code::INVALID_RECORD),
        ("magic 0", build(&|it| it.magic = 0), code::INVALID_RECORD),
        ("magic 3", build(&|it| it.magic = 3), code::CORRUPT_MESSAGE),
        ("two batches", two.into(), code::INVALID_RECORD),
        ("no bytes", Bytes::new(), code::INVALID_RECORD),
        ("a batch cut short", cut, code::INVALID_RECORD),
        ("10 bytes", good.build().slice(..10), code::INVALID_RECORD),
        (
            "the header alone",
            good.build().slice(..61),
            code::INVALID_RECORD,
        ),
        (
            "a length below the header",
            build(&|it| it.length = Some(10)),
            code::CORRUPT_MESSAGE,
        ),
        (
            "a negative length",
            build(&|it| it.length = Some(-5)),
            code::CORRUPT_MESSAGE,
        ),
        (
            "a count too high",
            build(&|it| it.count = Some(3)),
            code::INVALID_RECORD,
        ),
        (
            "a count too low",
            build(&|it| it.count = Some(1)),
            code::INVALID_RECORD,
        ),
        (
            "a negative count",
            build(&|it| it.count = Some(-1)),
            code::INVALID_RECORD,
        ),
        (
            "a last offset delta that is not count - 1",
            build(&|it| it.last_offset_delta = Some(5)),
            code::INVALID_RECORD,
        ),
    ];
    let mut wrong = Vec::new();
    for (what, records, error) in rows {
        let before = list_offsets(&mut wire, &topic, 0, LATEST).offset;
        let mut own = broker.wire();
        own.send(PRODUCE_BY_NAME, &produce_request(&topic, 0, -1, records));
        own.read_timeout(Duration::from_secs(10));
        match own.outcome() {
            Outcome::Answered(frame) => {
                let answer =
                    support::wire::decode_response::<ProduceRequest>(PRODUCE_BY_NAME, 1, frame);
                let answer = &answer.responses[0].partition_responses[0];
                if answer.error_code != error {
                    wrong.push(format!(
                        "{what}: {} {:?}",
                        answer.error_code, answer.error_message
                    ));
                }
            }
            other => wrong.push(format!("{what}: {other:?}")),
        }
        let after = list_offsets(&mut wire, &topic, 0, LATEST).offset;
        if after != before {
            wrong.push(format!("{what}: it was appended"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Kafka refuses these with INVALID_RECORD, CORRUPT_MESSAGE or, where its decoder throws, with
/// UNKNOWN_SERVER_ERROR; from us the last would be a bug.
fn is_refusal(broker: &Broker, error: i16) -> bool {
    [code::INVALID_RECORD, code::CORRUPT_MESSAGE].contains(&error)
        || error == code::UNKNOWN_SERVER_ERROR && broker.is_foreign()
}

/// The batch with another attributes byte and the CRC that goes with it.
fn relabelled(batch: &Batch, codec: u8) -> Bytes {
    let mut bytes = batch.build().to_vec();
    bytes[22] = codec;
    let crc = crc32c::crc32c(&bytes[21..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    bytes.into()
}

#[test]
fn what_is_inside_a_batch_is_checked_too() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    let topic = unique_topic("inside");
    create_topic(&mut wire, &topic, 1);
    let mut rows = Vec::new();
    let compressed = [batch::GZIP, batch::SNAPPY, batch::LZ4, batch::ZSTD];
    for codec in [batch::NONE].into_iter().chain(compressed) {
        let two = Batch::of(&["a", "b"]).compression(codec);
        let mut counts_high = two.clone();
        counts_high.count = Some(3);
        counts_high.last_offset_delta = Some(2);
        rows.push((codec, "a count above the records", counts_high.build()));
        let mut counts_low = two.clone();
        counts_low.count = Some(1);
        counts_low.last_offset_delta = Some(0);
        rows.push((codec, "a count below the records", counts_low.build()));
        if codec == batch::NONE {
            continue; // Kafka does not look at the deltas of uncompressed records
        }
        let mut gap = two.clone();
        gap.records[1].offset_delta = 2;
        rows.push((codec, "a gap in the deltas", gap.build()));
        let mut backwards = two.clone();
        backwards.records[1].offset_delta = 0;
        rows.push((codec, "deltas that do not grow", backwards.build()));
        let plain = Batch::of(&["not", "compressed"]);
        let row = (codec, "plain records", relabelled(&plain, codec as u8));
        rows.push(row);
    }
    for codec in 5..=7 {
        let batch = relabelled(&Batch::of(&["a"]), codec);
        rows.push((codec.into(), "an unknown compression", batch));
    }
    let mut wrong = Vec::new();
    for (codec, what, records) in rows {
        let answer = produce(&mut wire, &topic, 0, records);
        if !is_refusal(&broker, answer.error_code) {
            let text = answer.error_message;
            wrong.push(format!(
                "codec {codec}, {what}: {} {text:?}",
                answer.error_code
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(
        produce_ok(&mut wire, &topic, 0, Batch::of(&["fine"]).build()),
        0
    );
}

#[test]
fn a_batch_whose_length_field_is_huge_is_refused() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    let topic = unique_topic("huge-length");
    create_topic(&mut wire, &topic, 1);
    for length in [i32::MAX, i32::MAX - 12, 1 << 30, i32::MIN] {
        let mut batch = Batch::of(&["a"]);
        batch.length = Some(length);
        let answer = produce(&mut wire, &topic, 0, batch.build());
        assert!(
            is_refusal(&broker, answer.error_code),
            "{length}: {}",
            answer.error_code
        );
    }
}

#[test]
fn a_control_batch_from_a_client_is_refused() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    let topic = unique_topic("control");
    create_topic(&mut wire, &topic, 1);
    let mut control = Batch::of(&["a"]).producer(1, 0, 0);
    control.attributes |= 0x20;
    let error = code::INVALID_RECORD;
    assert_refused(&mut wire, &topic, control.build(), error, "a control batch");
}

#[test]
fn an_unknown_topic_or_partition_is_an_error_of_that_partition_only() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    let topic = unique_topic("known");
    let id = create_topic(&mut wire, &topic, 1);
    let unknown = unique_topic("unknown");
    let error = code::UNKNOWN_TOPIC_OR_PARTITION;
    let answer = produce(&mut wire, &unknown, 0, Batch::of(&["a"]).build());
    assert_eq!(answer.error_code, error);
    let answer = produce(&mut wire, &topic, 7, Batch::of(&["a"]).build());
    assert_eq!(answer.error_code, error);
    let answer = produce(&mut wire, &topic, -1, Batch::of(&["a"]).build());
    assert_eq!(answer.error_code, error);
    // Beside them in one request, a good partition is served.
    let mut request = produce_request(&topic, 0, -1, Batch::of(&["good"]).build());
    request.topic_data[0].partition_data.push(
        PartitionProduceData::default()
            .with_index(9)
            .with_records(Some(Batch::of(&["a"]).build())),
    );
    let response = wire.call(PRODUCE_BY_NAME, &request);
    let mut partitions = response.responses[0].partition_responses.clone();
    partitions.sort_by_key(|it| it.index);
    assert_eq!((partitions[0].index, partitions[0].error_code), (0, 0));
    assert_eq!((partitions[1].index, partitions[1].error_code), (9, error));
    // Version 13 names topics by id.
    for (id, error) in [(id, 0), (Uuid::from_u128(77), code::UNKNOWN_TOPIC_ID)] {
        let mut request = produce_request("", 0, -1, Batch::of(&["by id"]).build());
        request.topic_data[0].topic_id = id;
        let response = wire.call(13, &request);
        assert_eq!(response.responses[0].topic_id, id);
        assert_eq!(
            response.responses[0].partition_responses[0].error_code, error,
            "{id}"
        );
    }
}

#[test]
fn a_compacted_topic_refuses_records_without_keys_and_names_them() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    let topic = unique_topic("compacted");
    create_topic_with(&mut wire, &topic, 1, &[("cleanup.policy", "compact")]);
    produce_ok(&mut wire, &topic, 0, Batch::of(&["a"]).build());
    for codec in [batch::NONE, batch::GZIP, batch::ZSTD] {
        let mut mixed = Batch::of(&["a", "b", "c"]).compression(codec);
        mixed.records[1].key = None;
        let answer = produce(&mut wire, &topic, 0, mixed.build());
        assert_eq!(answer.error_code, code::INVALID_RECORD, "codec {codec}");
        let indexes: Vec<i32> = answer
            .record_errors
            .iter()
            .map(|it| it.batch_index)
            .collect();
        assert_eq!(indexes, [1], "codec {codec}: {:?}", answer.record_errors);
        let text = answer.record_errors[0].batch_index_error_message.as_deref();
        assert!(text.is_some_and(|text| text.contains("key")), "{text:?}");
    }
    assert_eq!(list_offsets(&mut wire, &topic, 0, LATEST).offset, 1);
}

#[test]
fn other_acks_than_0_1_and_all_are_invalid() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    let topic = unique_topic("acks");
    create_topic(&mut wire, &topic, 1);
    for acks in [2, -2, 5, i16::MAX] {
        let request = produce_request(&topic, 0, acks, Batch::of(&["a"]).build());
        let response = wire.call(PRODUCE_BY_NAME, &request);
        let error = response.responses[0].partition_responses[0].error_code;
        assert_eq!(error, code::INVALID_REQUIRED_ACKS, "acks {acks}");
    }
    for (index, acks) in [1, -1].into_iter().enumerate() {
        let request = produce_request(&topic, 0, acks, Batch::of(&["a"]).build());
        let response = wire.call(PRODUCE_BY_NAME, &request);
        let answer = &response.responses[0].partition_responses[0];
        assert_eq!(
            (answer.error_code, answer.base_offset),
            (0, index as i64),
            "acks {acks}"
        );
        assert_eq!(answer.log_append_time_ms, -1, "CreateTime");
        assert_eq!(answer.log_start_offset, 0);
    }
}

#[test]
fn acks_0_is_never_answered() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    let topic = unique_topic("acks0");
    create_topic(&mut wire, &topic, 1);
    for _ in 0..10 {
        let request = produce_request(&topic, 0, 0, Batch::of(&["a"]).build());
        wire.send(PRODUCE_BY_NAME, &request);
    }
    // The next answer is that of the next request; `call` checks the correlation id.
    wire.call(9, &MetadataRequest::default().with_topics(Some(vec![])));
    support::eventually("the records arrive", Duration::from_secs(5), || {
        list_offsets(&mut wire, &topic, 0, LATEST).offset == 10
    });
    // An error cannot be told, so the connection ends.
    let request = produce_request(&unique_topic("unknown"), 0, 0, Batch::of(&["a"]).build());
    wire.send(PRODUCE_BY_NAME, &request);
    assert!(
        wire.is_closed_within(Duration::from_secs(5)),
        "closed after an error"
    );
}

#[test]
fn responses_keep_the_order_of_the_requests() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    let topic = unique_topic("order");
    create_topic(&mut wire, &topic, 4);
    // A parked fetch first: what follows is done meanwhile, but answered after it.
    let mut parked = fetch_request(&topic, 3, 0);
    parked.max_wait_ms = 700;
    let parked_id = wire.send(12, &parked);
    let mut sent = Vec::new();
    for round in 0..25 {
        let request = produce_request(&topic, round % 3, -1, Batch::of(&["a", "b"]).build());
        sent.push((wire.send(PRODUCE_BY_NAME, &request), round % 3));
        let metadata = MetadataRequest::default().with_topics(Some(vec![]));
        let id = wire.send(9, &metadata);
        sent.push((id, -1));
    }
    wire.receive::<kafka_protocol::messages::FetchRequest>(12, parked_id);
    let mut next = [0; 3];
    for (id, partition) in sent {
        if partition < 0 {
            wire.receive::<MetadataRequest>(9, id);
            continue;
        }
        let response = wire.receive::<ProduceRequest>(PRODUCE_BY_NAME, id);
        let answer = &response.responses[0].partition_responses[0];
        assert_eq!(answer.error_code, 0);
        assert_eq!(answer.base_offset, next[partition as usize], "in order");
        next[partition as usize] += 2;
    }
}

#[test]
fn timestamps_far_in_the_future_are_refused_and_named() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    let topic = unique_topic("future");
    create_topic(&mut wire, &topic, 1);
    // message.timestamp.after.max.ms is one hour.
    let mut batch = Batch::of(&["a", "b"]).timestamp(now_ms());
    batch.records[1].timestamp_delta = 2 * 3_600_000;
    let answer = produce(&mut wire, &topic, 0, batch.build());
    assert_eq!(
        answer.error_code,
        code::INVALID_TIMESTAMP,
        "{:?}",
        answer.error_message
    );
    let indexes: Vec<i32> = answer
        .record_errors
        .iter()
        .map(|it| it.batch_index)
        .collect();
    assert_eq!(indexes, [1]);
    // The past has no bound by default.
    produce_ok(
        &mut wire,
        &topic,
        0,
        Batch::of(&["old"]).timestamp(0).build(),
    );
}

#[test]
fn log_append_time_replaces_the_timestamps() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    let topic = unique_topic("append-time");
    let config = [("message.timestamp.type", "LogAppendTime")];
    create_topic_with(&mut wire, &topic, 1, &config);
    let before = now_ms();
    for codec in [batch::NONE, batch::ZSTD] {
        let batch = Batch::of(&["a", "b"]).timestamp(5).compression(codec);
        let answer = produce(&mut wire, &topic, 0, batch.build());
        assert_eq!(answer.error_code, 0);
        assert!(
            answer.log_append_time_ms >= before,
            "{}",
            answer.log_append_time_ms
        );
        let got = fetch_all(&mut wire, &topic, 0, answer.base_offset);
        assert_eq!(got[0].attributes & 8, 8, "the batch says so");
        assert_eq!(got[0].max_timestamp_ms, answer.log_append_time_ms);
        assert_eq!(got[0].values(), ["a", "b"]);
    }
}

/// Produces a batch of one record under an idempotent producer.
fn idempotent(
    wire: &mut Wire,
    topic: &str,
    producer: (i64, i16),
    sequence: i32,
) -> PartitionProduceResponse {
    let value = format!("sequence-{sequence}");
    let batch = Batch::of(&[&value]).producer(producer.0, producer.1, sequence);
    produce(wire, topic, 0, batch.build())
}

fn new_producer(wire: &mut Wire) -> (i64, i16) {
    let response = init_producer_id(wire, 4);
    assert!(response.producer_id.0 >= 0);
    assert_eq!(response.producer_epoch, 0);
    (response.producer_id.0, response.producer_epoch)
}

#[test]
fn each_init_producer_id_gives_a_new_id() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    let mut ids: Vec<i64> = (0..50).map(|_| new_producer(&mut wire).0).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 50);
}

#[test]
fn a_repeated_batch_of_the_last_five_keeps_its_offset() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    let topic = unique_topic("five");
    create_topic(&mut wire, &topic, 1);
    let producer = new_producer(&mut wire);
    for sequence in 0..8 {
        let answer = idempotent(&mut wire, &topic, producer, sequence);
        assert_eq!(
            (answer.error_code, answer.base_offset),
            (0, i64::from(sequence))
        );
    }
    for sequence in [7, 3, 5, 4, 6, 3] {
        let answer = idempotent(&mut wire, &topic, producer, sequence);
        let expected = (0, i64::from(sequence));
        assert_eq!(
            (answer.error_code, answer.base_offset),
            expected,
            "{sequence}"
        );
    }
    // Older than five batches: no longer known as a duplicate.
    let answer = idempotent(&mut wire, &topic, producer, 2);
    assert_eq!(answer.error_code, code::OUT_OF_ORDER_SEQUENCE_NUMBER);
    assert_eq!(
        list_offsets(&mut wire, &topic, 0, LATEST).offset,
        8,
        "no duplicate in the log"
    );
    let answer = idempotent(&mut wire, &topic, producer, 8);
    assert_eq!(
        (answer.error_code, answer.base_offset),
        (0, 8),
        "it goes on"
    );
}

#[test]
fn a_gap_in_the_sequence_is_out_of_order() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    let topic = unique_topic("gap");
    create_topic(&mut wire, &topic, 1);
    let producer = new_producer(&mut wire);
    assert_eq!(idempotent(&mut wire, &topic, producer, 0).error_code, 0);
    let answer = idempotent(&mut wire, &topic, producer, 2);
    assert_eq!(answer.error_code, code::OUT_OF_ORDER_SEQUENCE_NUMBER);
    assert_eq!(idempotent(&mut wire, &topic, producer, 1).error_code, 0);
    // A producer that this partition does not know may start anywhere.
    let stranger = new_producer(&mut wire);
    assert_eq!(idempotent(&mut wire, &topic, stranger, 17).error_code, 0);
    assert_eq!(idempotent(&mut wire, &topic, stranger, 18).error_code, 0);
    let answer = idempotent(&mut wire, &topic, stranger, 20);
    assert_eq!(answer.error_code, code::OUT_OF_ORDER_SEQUENCE_NUMBER);
}

#[test]
fn a_new_epoch_starts_at_sequence_0_and_fences_the_old() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    let topic = unique_topic("epoch");
    create_topic(&mut wire, &topic, 1);
    let (id, epoch) = new_producer(&mut wire);
    for sequence in 0..3 {
        assert_eq!(
            idempotent(&mut wire, &topic, (id, epoch), sequence).error_code,
            0
        );
    }
    let answer = idempotent(&mut wire, &topic, (id, epoch + 1), 3);
    assert_eq!(
        answer.error_code,
        code::OUT_OF_ORDER_SEQUENCE_NUMBER,
        "not from 0"
    );
    let answer = idempotent(&mut wire, &topic, (id, epoch + 1), 0);
    assert_eq!((answer.error_code, answer.base_offset), (0, 3));
    let answer = idempotent(&mut wire, &topic, (id, epoch), 3);
    assert_eq!(
        answer.error_code,
        code::INVALID_PRODUCER_EPOCH,
        "the old epoch"
    );
    let answer = idempotent(&mut wire, &topic, (id, epoch + 1), 1);
    assert_eq!((answer.error_code, answer.base_offset), (0, 4));
}

#[test]
fn sequences_wrap_at_the_largest_int() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    let topic = unique_topic("wrap");
    create_topic(&mut wire, &topic, 1);
    let producer = new_producer(&mut wire);
    assert_eq!(
        idempotent(&mut wire, &topic, producer, i32::MAX - 1).error_code,
        0
    );
    let batch = Batch::of(&["a", "b"]).producer(producer.0, producer.1, i32::MAX);
    let answer = produce(&mut wire, &topic, 0, batch.build());
    assert_eq!(
        (answer.error_code, answer.base_offset),
        (0, 1),
        "MAX, then 0"
    );
    assert_eq!(idempotent(&mut wire, &topic, producer, 1).error_code, 0);
    let answer = produce(&mut wire, &topic, 0, batch.build());
    assert_eq!(
        (answer.error_code, answer.base_offset),
        (0, 1),
        "a duplicate across the wrap"
    );
}

#[test]
fn five_batches_in_flight_are_taken_in_order() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    let topic = unique_topic("flight");
    create_topic(&mut wire, &topic, 1);
    let (id, epoch) = new_producer(&mut wire);
    let mut in_flight = Vec::new();
    for sequence in 0..200 {
        let batch = Batch::of(&["x"]).producer(id, epoch, sequence);
        let request = produce_request(&topic, 0, -1, batch.build());
        in_flight.push((wire.send(PRODUCE_BY_NAME, &request), sequence));
        if in_flight.len() == 5 {
            let (correlation_id, sequence) = in_flight.remove(0);
            check(&mut wire, correlation_id, sequence);
        }
    }
    for (correlation_id, sequence) in in_flight {
        check(&mut wire, correlation_id, sequence);
    }

    fn check(wire: &mut Wire, correlation_id: i32, sequence: i32) {
        let response = wire.receive::<ProduceRequest>(PRODUCE_BY_NAME, correlation_id);
        let answer = &response.responses[0].partition_responses[0];
        let expected = (0, i64::from(sequence));
        assert_eq!(
            (answer.error_code, answer.base_offset),
            expected,
            "{sequence}"
        );
    }
}

#[test]
fn duplicates_are_known_after_a_clean_restart_and_after_a_kill() {
    if needs_own_process("duplicates_are_known_after_a_clean_restart_and_after_a_kill") {
        return;
    }
    let mut broker = Broker::start();
    let mut wire = broker.wire();
    let topic = unique_topic("restart");
    create_topic(&mut wire, &topic, 1);
    let producer = new_producer(&mut wire);
    let mut next = 0;
    let mut ids = vec![producer.0];
    for kill in [false, true, true, false] {
        for _ in 0..7 {
            let answer = idempotent(&mut wire, &topic, producer, next);
            assert_eq!(
                (answer.error_code, answer.base_offset),
                (0, i64::from(next))
            );
            next += 1;
        }
        if kill {
            broker.kill_and_restart();
        } else {
            broker.restart();
        }
        wire = broker.wire();
        for back in 1..=5 {
            let answer = idempotent(&mut wire, &topic, producer, next - back);
            let expected = (0, i64::from(next - back));
            assert_eq!(
                (answer.error_code, answer.base_offset),
                expected,
                "kill {kill}, {back}"
            );
        }
        let answer = idempotent(&mut wire, &topic, producer, next + 3);
        assert_eq!(
            answer.error_code,
            code::OUT_OF_ORDER_SEQUENCE_NUMBER,
            "kill {kill}"
        );
        assert_eq!(
            list_offsets(&mut wire, &topic, 0, LATEST).offset,
            i64::from(next)
        );
        let id = new_producer(&mut wire).0;
        assert!(!ids.contains(&id), "producer id {id} was given out before");
        ids.push(id);
    }
}

#[test]
fn transactional_ids_are_refused_with_a_text_for_now() {
    if needs_own_process("transactional_ids_are_refused_with_a_text_for_now") {
        return;
    }
    let broker = Broker::start();
    let mut wire = broker.wire();
    let topic = unique_topic("transactional");
    create_topic(&mut wire, &topic, 1);
    let mut request = produce_request(&topic, 0, -1, Batch::of(&["a"]).build());
    request.transactional_id = Some(support::calls::text("tx").into());
    let response = wire.call(PRODUCE_BY_NAME, &request);
    let answer = &response.responses[0].partition_responses[0];
    assert_eq!(answer.error_code, code::INVALID_REQUEST);
    assert!(answer.error_message.is_some(), "with a text");
    assert_eq!(list_offsets(&mut wire, &topic, 0, LATEST).offset, 0);
}

#[test]
fn null_keys_values_and_empty_strings_survive() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    let topic = unique_topic("nulls");
    create_topic(&mut wire, &topic, 1);
    let record = |delta, key: Option<&'static [u8]>, value: Option<&'static [u8]>| Record {
        offset_delta: delta,
        timestamp_delta: 0,
        key: key.map(Bytes::from_static),
        value: value.map(Bytes::from_static),
    };
    let records = vec![
        record(0, None, None),
        record(1, Some(b""), Some(b"")),
        record(2, Some(b"k"), None),
        record(3, None, Some(b"v")),
    ];
    let batch = Batch::with_records(records.clone());
    produce_ok(&mut wire, &topic, 0, batch.build());
    let answer = fetch(&mut wire, &topic, 0, 0);
    assert_eq!(batches(&answer)[0].records, records);
}
