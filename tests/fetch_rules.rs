//! Fetch with its sessions and its waiting, ListOffsets, OffsetForLeaderEpoch and DeleteRecords.
//! Every expectation was checked against Apache Kafka 4.1.

mod support;

use std::time::{Duration, Instant};

use kafka_protocol::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsTopic,
};
use kafka_protocol::messages::fetch_request::ForgottenTopic;
use kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use kafka_protocol::messages::offset_for_leader_epoch_response::EpochEndOffset;
use kafka_protocol::messages::{
    BrokerId, DeleteRecordsRequest, FetchRequest, FetchResponse, OffsetForLeaderEpochRequest,
};

use support::batch::{self, Batch};
use support::calls::{
    EARLIEST, FETCH_BY_NAME, LATEST, MAX_TIMESTAMP, batches, code, create_topic, create_topic_with,
    fetch, fetch_all, fetch_request, fetch_topic, list_offsets, list_offsets_request, name,
    produce_ok,
};
use support::wire::Wire;
use support::{Broker, needs_own_process, unique_topic};

/// A topic of one partition with three batches: offsets 0–2, 3–5, 6–8.
fn three_batches(wire: &mut Wire, prefix: &str) -> String {
    let topic = unique_topic(prefix);
    create_topic(wire, &topic, 1);
    for first in [0, 3, 6] {
        let values: Vec<String> = (first..first + 3).map(|it| it.to_string()).collect();
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        let batch = Batch::of(&values).timestamp(1_000_000 + first * 1000);
        assert_eq!(produce_ok(wire, &topic, 0, batch.build()), first);
    }
    topic
}

#[test]
fn a_fetch_inside_a_batch_returns_the_whole_batch() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    let topic = three_batches(&mut wire, "inside");
    for offset in 0..9 {
        let answer = fetch(&mut wire, &topic, 0, offset);
        assert_eq!(answer.error_code, 0);
        assert_eq!((answer.high_watermark, answer.last_stable_offset), (9, 9));
        assert_eq!(answer.log_start_offset, 0);
        let got = batches(&answer);
        assert_eq!(got[0].base_offset, offset / 3 * 3, "fetch at {offset}");
        assert_eq!(got.last().unwrap().last_offset(), 8, "fetch at {offset}");
    }
}

#[test]
fn a_fetch_at_the_end_is_empty_and_beyond_it_out_of_range() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    let topic = three_batches(&mut wire, "range");
    let answer = fetch(&mut wire, &topic, 0, 9);
    assert_eq!((answer.error_code, answer.high_watermark), (0, 9));
    assert_eq!(answer.records.map(|it| it.len()).unwrap_or(0), 0);
    for offset in [10, 1_000_000, i64::MAX, -1, -5] {
        let answer = fetch(&mut wire, &topic, 0, offset);
        assert_eq!(answer.error_code, code::OFFSET_OUT_OF_RANGE, "at {offset}");
        assert_eq!(answer.records.map(|it| it.len()).unwrap_or(0), 0);
    }
    for partition in [1, -1, i32::MAX] {
        let answer = fetch(&mut wire, &topic, partition, 0);
        assert_eq!(
            answer.error_code,
            code::UNKNOWN_TOPIC_OR_PARTITION,
            "{partition}"
        );
    }
    let answer = fetch(&mut wire, &unique_topic("unknown"), 0, 0);
    assert_eq!(answer.error_code, code::UNKNOWN_TOPIC_OR_PARTITION);
}

#[test]
fn a_fetch_with_a_wrong_leader_epoch_says_which_way() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    let topic = three_batches(&mut wire, "leader-epoch");
    for (epoch, error) in [(-1, 0), (0, 0), (1, code::UNKNOWN_LEADER_EPOCH)] {
        let mut request = fetch_request(&topic, 0, 0);
        request.topics[0].partitions[0].current_leader_epoch = epoch;
        let response = wire.call(FETCH_BY_NAME, &request);
        assert_eq!(
            response.responses[0].partitions[0].error_code, error,
            "epoch {epoch}"
        );
    }
}

#[test]
fn the_first_batch_comes_whole_even_over_max_bytes() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    let topic = unique_topic("progress");
    create_topic(&mut wire, &topic, 1);
    for _ in 0..4 {
        produce_ok(&mut wire, &topic, 0, Batch::sized(1, 10_000).build());
    }
    for (partition_max, total_max) in [(1, 50 << 20), (10 << 20, 1), (1, 1), (0, 0)] {
        let mut request = fetch_request(&topic, 0, 1);
        request.max_bytes = total_max;
        request.topics[0].partitions[0].partition_max_bytes = partition_max;
        let response = wire.call(FETCH_BY_NAME, &request);
        let answer = &response.responses[0].partitions[0];
        let got = batches(answer);
        let what = format!("{partition_max}, {total_max}");
        assert_eq!(got.len(), 1, "{what}");
        assert_eq!(got[0].base_offset, 1, "{what}");
    }
    // Two batches fit, the third does not; whatever comes of it, no client sees it whole.
    let mut request = fetch_request(&topic, 0, 0);
    request.topics[0].partitions[0].partition_max_bytes = 25_000;
    let response = wire.call(FETCH_BY_NAME, &request);
    let answer = &response.responses[0].partitions[0];
    assert!(answer.records.as_ref().unwrap().len() <= 25_000);
    assert_eq!(batches(answer).len(), 2);
}

#[test]
fn max_bytes_is_shared_by_the_partitions_of_a_fetch() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    let topic = unique_topic("shared");
    create_topic(&mut wire, &topic, 6);
    for partition in 0..6 {
        for _ in 0..3 {
            produce_ok(
                &mut wire,
                &topic,
                partition,
                Batch::sized(1, 50_000).build(),
            );
        }
    }
    let mut request = fetch_request(&topic, 0, 0);
    request.max_bytes = 200_000;
    request.topics = vec![fetch_topic(&topic, &[0, 1, 2, 3, 4, 5].map(|it| (it, 0)))];
    let response = wire.call(FETCH_BY_NAME, &request);
    let partitions = &response.responses[0].partitions;
    assert_eq!(partitions.len(), 6);
    let sizes = partitions
        .iter()
        .map(|it| it.records.as_ref().map_or(0, |it| it.len()));
    let total: usize = sizes.sum();
    assert!((50_000..=260_000).contains(&total), "{total} bytes");
}

#[test]
fn fetch_waits_until_min_bytes_arrive() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    let mut producer = broker.wire();
    let topic = unique_topic("wait");
    create_topic(&mut wire, &topic, 2);
    let mut request = fetch_request(&topic, 0, 0);
    request.topics = vec![fetch_topic(&topic, &[(0, 0), (1, 0)])];
    request.max_wait_ms = 10_000;
    request.min_bytes = 1000;

    let started = Instant::now();
    let id = wire.send(FETCH_BY_NAME, &request);
    std::thread::sleep(Duration::from_millis(200));
    produce_ok(&mut producer, &topic, 0, Batch::sized(1, 100).build());
    std::thread::sleep(Duration::from_millis(200));
    // Both partitions count together.
    produce_ok(&mut producer, &topic, 1, Batch::sized(1, 1000).build());
    let response = wire.receive::<FetchRequest>(FETCH_BY_NAME, id);
    let waited = started.elapsed();
    assert!(waited >= Duration::from_millis(400), "{waited:?}");
    assert!(waited < Duration::from_secs(5), "{waited:?}");
    for partition in &response.responses[0].partitions {
        assert_eq!(batches(partition).len(), 1);
    }
}

#[test]
fn fetch_is_answered_at_max_wait_with_what_there_is() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    let topic = three_batches(&mut wire, "max-wait");
    for (offset, min_bytes, expected) in [(9, 1, 0), (0, 1 << 20, 3)] {
        let mut request = fetch_request(&topic, 0, offset);
        request.max_wait_ms = 500;
        request.min_bytes = min_bytes;
        let started = Instant::now();
        let response = wire.call(FETCH_BY_NAME, &request);
        let waited = started.elapsed();
        assert!(waited >= Duration::from_millis(490), "{waited:?}");
        assert!(waited < Duration::from_millis(1500), "{waited:?}");
        assert_eq!(
            batches(&response.responses[0].partitions[0]).len(),
            expected
        );
    }
}

#[test]
fn a_fetch_with_data_or_an_error_does_not_wait() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    let topic = three_batches(&mut wire, "no-wait");
    let rows = [
        ("enough bytes", 0, 0, 1),
        ("min_bytes 0", 0, 9, 0),
        ("an offset out of range", 0, 100, 1),
        ("an unknown partition", 5, 0, 1),
    ];
    for (what, partition, offset, min_bytes) in rows {
        let mut request = fetch_request(&topic, partition, offset);
        request.max_wait_ms = 10_000;
        request.min_bytes = min_bytes;
        let started = Instant::now();
        wire.call(FETCH_BY_NAME, &request);
        assert!(started.elapsed() < Duration::from_secs(3), "{what}");
    }
}

#[test]
fn many_parked_fetches_wake_by_one_produce() {
    let broker = Broker::start();
    let mut producer = broker.wire();
    let topic = unique_topic("parked");
    create_topic(&mut producer, &topic, 1);
    let mut parked: Vec<(Wire, i32)> = (0..50)
        .map(|_| {
            let mut wire = broker.wire();
            let mut request = fetch_request(&topic, 0, 0);
            request.max_wait_ms = 15_000;
            let id = wire.send(FETCH_BY_NAME, &request);
            (wire, id)
        })
        .collect();
    std::thread::sleep(Duration::from_millis(300));
    let started = Instant::now();
    produce_ok(&mut producer, &topic, 0, Batch::of(&["wake"]).build());
    for (wire, id) in &mut parked {
        let response = wire.receive::<FetchRequest>(FETCH_BY_NAME, *id);
        let got = batches(&response.responses[0].partitions[0]);
        assert_eq!(got[0].values(), ["wake"]);
    }
    assert!(
        started.elapsed() < Duration::from_secs(3),
        "{:?}",
        started.elapsed()
    );
}

/// A fetch in a session: version 12, so that topics go by name.
fn in_session(id: i32, epoch: i32) -> FetchRequest {
    let mut request = fetch_request("", 0, 0);
    request.session_id = id;
    request.session_epoch = epoch;
    request.topics.clear();
    request
}

fn answered(response: &FetchResponse) -> Vec<(String, i32)> {
    let mut all = Vec::new();
    for topic in &response.responses {
        for partition in &topic.partitions {
            all.push((topic.topic.to_string(), partition.partition_index));
        }
    }
    all.sort();
    all
}

#[test]
fn a_session_answers_only_what_changed() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    let topic = unique_topic("session");
    create_topic(&mut wire, &topic, 3);
    let mut open = in_session(0, 0);
    open.topics = vec![fetch_topic(&topic, &[(0, 0), (1, 0), (2, 0)])];
    let response = wire.call(FETCH_BY_NAME, &open);
    assert_eq!(response.error_code, 0);
    let session = response.session_id;
    assert_ne!(session, 0);
    assert_eq!(
        answered(&response).len(),
        3,
        "a full fetch answers everything"
    );

    // Nothing new: nothing in the answer.
    let response = wire.call(FETCH_BY_NAME, &in_session(session, 1));
    assert_eq!((response.error_code, response.session_id), (0, session));
    assert_eq!(answered(&response), []);

    // One partition has news: only that.
    produce_ok(&mut wire, &topic, 1, Batch::of(&["a"]).build());
    let response = wire.call(FETCH_BY_NAME, &in_session(session, 2));
    assert_eq!(answered(&response), [(topic.clone(), 1)]);
    assert_eq!(
        batches(&response.responses[0].partitions[0])[0].values(),
        ["a"]
    );

    // Its offset moves with the request that says so.
    let mut moved = in_session(session, 3);
    moved.topics = vec![fetch_topic(&topic, &[(1, 1)])];
    let response = wire.call(FETCH_BY_NAME, &moved);
    assert_eq!(response.error_code, 0);
    let records = answered(&response);
    assert!(records.is_empty() || records == [(topic.clone(), 1)]);

    // A forgotten partition is silent, the others are not.
    for partition in [0, 2] {
        produce_ok(&mut wire, &topic, partition, Batch::of(&["b"]).build());
    }
    let mut forget = in_session(session, 4);
    forget.forgotten_topics_data = vec![
        ForgottenTopic::default()
            .with_topic(name(&topic))
            .with_partitions(vec![0]),
    ];
    let response = wire.call(FETCH_BY_NAME, &forget);
    assert_eq!(answered(&response), [(topic.clone(), 2)]);

    // From another connection the session goes on, or is not known there: it lives on the core of
    // its connection, and clients begin a new one then.
    let mut other = broker.wire();
    let response = other.call(FETCH_BY_NAME, &in_session(session, 5));
    let outcome = (response.error_code, response.session_id);
    let begins_anew = !broker.is_foreign() && outcome == (code::FETCH_SESSION_ID_NOT_FOUND, 0);
    assert!(begins_anew || outcome == (0, session), "{outcome:?}");
}

/// What a client does after it lost its connection: it names its old session and begins anew.
#[test]
fn a_first_fetch_that_names_an_old_session_opens_a_new_one() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    let topic = three_batches(&mut wire, "session-again");
    let mut open = in_session(0, 0);
    open.topics = vec![fetch_topic(&topic, &[(0, 0)])];
    let session = wire.call(FETCH_BY_NAME, &open).session_id;
    for old in [session, 123_456_789] {
        let mut again = in_session(old, 0);
        again.topics = vec![fetch_topic(&topic, &[(0, 3)])];
        let mut other = broker.wire();
        let response = other.call(FETCH_BY_NAME, &again);
        assert_eq!(response.error_code, 0);
        assert!(![0, old].contains(&response.session_id), "a new session");
        assert_eq!(
            batches(&response.responses[0].partitions[0])[0].base_offset,
            3
        );
    }
}

#[test]
fn wrong_session_ids_and_epochs_have_their_errors() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    let topic = three_batches(&mut wire, "session-errors");
    let response = wire.call(FETCH_BY_NAME, &in_session(123_456_789, 1));
    assert_eq!(response.error_code, code::FETCH_SESSION_ID_NOT_FOUND);
    assert!(response.responses.is_empty());

    let mut open = in_session(0, 0);
    open.topics = vec![fetch_topic(&topic, &[(0, 0)])];
    let session = wire.call(FETCH_BY_NAME, &open).session_id;
    let response = wire.call(FETCH_BY_NAME, &in_session(session, 7));
    assert_eq!(response.error_code, code::INVALID_FETCH_SESSION_EPOCH);
    assert_eq!(
        wire.call(FETCH_BY_NAME, &in_session(session, 1)).error_code,
        0
    );
    let response = wire.call(FETCH_BY_NAME, &in_session(session, 1));
    assert_eq!(
        response.error_code,
        code::INVALID_FETCH_SESSION_EPOCH,
        "the epoch was used"
    );

    // Epoch -1 closes the session.
    let mut close = in_session(session, -1);
    close.topics = vec![fetch_topic(&topic, &[(0, 9)])];
    let response = wire.call(FETCH_BY_NAME, &close);
    assert_eq!((response.error_code, response.session_id), (0, 0));
    let response = wire.call(FETCH_BY_NAME, &in_session(session, 2));
    assert_eq!(response.error_code, code::FETCH_SESSION_ID_NOT_FOUND);
}

#[test]
fn an_error_stays_in_the_answers_of_a_session() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    let topic = three_batches(&mut wire, "session-range");
    let mut open = in_session(0, 0);
    open.topics = vec![fetch_topic(&topic, &[(0, 500)])];
    let response = wire.call(FETCH_BY_NAME, &open);
    for epoch in 1..4 {
        let response = wire.call(FETCH_BY_NAME, &in_session(response.session_id, epoch));
        assert_eq!(answered(&response), [(topic.clone(), 0)], "epoch {epoch}");
        let error = response.responses[0].partitions[0].error_code;
        assert_eq!(error, code::OFFSET_OUT_OF_RANGE, "epoch {epoch}");
    }
}

#[test]
fn list_offsets_finds_the_ends_and_the_times() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    // Timestamps: 0–2 at 1000000, +1, +2; 3–5 at 1003000…; 6–8 at 1006000….
    let topic = three_batches(&mut wire, "times");
    let rows = [
        (EARLIEST, (-1, 0)),
        (LATEST, (-1, 9)),
        (MAX_TIMESTAMP, (1_006_002, 8)),
        (0, (1_000_000, 0)),
        (1_000_000, (1_000_000, 0)),
        (1_000_001, (1_000_001, 1)),
        (1_000_002, (1_000_002, 2)),
        (1_000_003, (1_003_000, 3)),
        (1_003_001, (1_003_001, 4)),
        (1_006_002, (1_006_002, 8)),
        (1_006_003, (-1, -1)),
        (i64::MAX, (-1, -1)),
    ];
    for (timestamp, expected) in rows {
        let answer = list_offsets(&mut wire, &topic, 0, timestamp);
        assert_eq!(answer.error_code, 0, "{timestamp}");
        assert_eq!((answer.timestamp, answer.offset), expected, "{timestamp}");
        if expected.1 >= 0 {
            assert_eq!(answer.leader_epoch, 0, "{timestamp}");
        }
    }
    // Versions 8 and 9 know the tiers, which a broker without tiers answers like this.
    let local = wire.call(8, &list_offsets_request(&topic, 0, -4));
    let local = &local.topics[0].partitions[0];
    assert_eq!((local.error_code, local.offset), (0, 0), "earliest local");
    let tiered = wire.call(9, &list_offsets_request(&topic, 0, -5));
    let tiered = &tiered.topics[0].partitions[0];
    assert_eq!((tiered.error_code, tiered.offset), (0, -1), "latest tiered");
    let answer = list_offsets(&mut wire, &topic, 3, LATEST);
    assert_eq!(answer.error_code, code::UNKNOWN_TOPIC_OR_PARTITION);
    for isolation_level in [0, 1] {
        let mut request = list_offsets_request(&topic, 0, LATEST);
        request.isolation_level = isolation_level;
        let response = wire.call(7, &request);
        assert_eq!(response.topics[0].partitions[0].offset, 9);
    }
}

#[test]
fn look_ups_by_time_see_each_record_of_a_compressed_batch() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    let topic = unique_topic("times-inside");
    create_topic(&mut wire, &topic, 1);
    for (index, codec) in [batch::GZIP, batch::SNAPPY, batch::LZ4, batch::ZSTD]
        .into_iter()
        .enumerate()
    {
        let first = index as i64 * 10;
        let base_ms = 1_000_000 + first * 1000;
        let mut batch = Batch::sized(10, 20).compression(codec).timestamp(base_ms);
        for record in &mut batch.records {
            record.timestamp_delta = record.offset_delta * 100;
        }
        // The newest record is not the last.
        batch.records[7].timestamp_delta = 5000;
        assert_eq!(produce_ok(&mut wire, &topic, 0, batch.build()), first);
        let answer = list_offsets(&mut wire, &topic, 0, base_ms + 301);
        assert_eq!(
            (answer.timestamp, answer.offset),
            (base_ms + 400, first + 4),
            "{codec}"
        );
        let answer = list_offsets(&mut wire, &topic, 0, base_ms + 901);
        assert_eq!(
            (answer.timestamp, answer.offset),
            (base_ms + 5000, first + 7),
            "{codec}"
        );
        let answer = list_offsets(&mut wire, &topic, 0, MAX_TIMESTAMP);
        assert_eq!(
            (answer.timestamp, answer.offset),
            (base_ms + 5000, first + 7),
            "{codec}"
        );
    }
}

#[test]
fn an_empty_partition_has_both_ends_at_0() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    let topic = unique_topic("empty");
    create_topic(&mut wire, &topic, 1);
    for (timestamp, offset) in [(EARLIEST, 0), (LATEST, 0), (MAX_TIMESTAMP, -1), (0, -1)] {
        let answer = list_offsets(&mut wire, &topic, 0, timestamp);
        let got = (answer.error_code, answer.timestamp, answer.offset);
        assert_eq!(got, (0, -1, offset), "{timestamp}");
    }
}

#[test]
fn look_ups_work_across_many_segments() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    let topic = unique_topic("segments");
    let configs = [
        ("segment.bytes", "1048576"),
        ("index.interval.bytes", "4096"),
    ];
    create_topic_with(&mut wire, &topic, 1, &configs);
    // 300 batches of 20 KiB are six segments.
    for index in 0..300 {
        let batch = Batch::sized(2, 10_000).timestamp(1_000_000 + index * 10);
        assert_eq!(produce_ok(&mut wire, &topic, 0, batch.build()), index * 2);
    }
    for index in [0, 1, 50, 51, 52, 103, 150, 200, 249, 298, 299] {
        let got = batches(&fetch(&mut wire, &topic, 0, index * 2 + 1));
        assert_eq!(got[0].base_offset, index * 2);
        let answer = list_offsets(&mut wire, &topic, 0, 1_000_000 + index * 10);
        assert_eq!(answer.offset, index * 2, "by time");
    }
    let all = fetch_all(&mut wire, &topic, 0, 0);
    assert_eq!(all.len(), 300);
    let offsets = all.iter().map(|it| it.base_offset);
    assert!(
        offsets.eq((0..300).map(|it| it * 2)),
        "in order, without a gap"
    );
}

fn delete_records(wire: &mut Wire, topic: &str, partition: i32, offset: i64) -> (i16, i64) {
    let partition = DeleteRecordsPartition::default()
        .with_partition_index(partition)
        .with_offset(offset);
    let request = DeleteRecordsRequest::default()
        .with_timeout_ms(10_000)
        .with_topics(vec![
            DeleteRecordsTopic::default()
                .with_name(name(topic))
                .with_partitions(vec![partition]),
        ]);
    let response = wire.call(2, &request);
    let answer = &response.topics[0].partitions[0];
    (answer.error_code, answer.low_watermark)
}

#[test]
fn delete_records_moves_the_log_start() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    let topic = three_batches(&mut wire, "delete");
    assert_eq!(delete_records(&mut wire, &topic, 0, 4), (0, 4));
    assert_eq!(list_offsets(&mut wire, &topic, 0, EARLIEST).offset, 4);
    for offset in 0..4 {
        let answer = fetch(&mut wire, &topic, 0, offset);
        assert_eq!(answer.error_code, code::OFFSET_OUT_OF_RANGE, "{offset}");
    }
    let answer = fetch(&mut wire, &topic, 0, 4);
    assert_eq!((answer.error_code, answer.log_start_offset), (0, 4));
    assert_eq!(batches(&answer)[0].base_offset, 3, "the batch around it");
    assert_eq!(
        delete_records(&mut wire, &topic, 0, 2),
        (0, 4),
        "it never goes back"
    );
    let out_of_range = (code::OFFSET_OUT_OF_RANGE, -1);
    assert_eq!(delete_records(&mut wire, &topic, 0, 10), out_of_range);
    assert_eq!(delete_records(&mut wire, &topic, 0, -2), out_of_range);
    let unknown = (code::UNKNOWN_TOPIC_OR_PARTITION, -1);
    assert_eq!(delete_records(&mut wire, &topic, 5, 0), unknown);
    assert_eq!(
        delete_records(&mut wire, &unique_topic("unknown"), 0, 0),
        unknown
    );
    assert_eq!(
        delete_records(&mut wire, &topic, 0, -1),
        (0, 9),
        "-1: up to the high watermark"
    );
    assert_eq!(list_offsets(&mut wire, &topic, 0, EARLIEST).offset, 9);
    assert_eq!(
        produce_ok(&mut wire, &topic, 0, Batch::of(&["next"]).build()),
        9
    );
}

#[test]
fn deleted_records_stay_deleted_after_a_kill() {
    if needs_own_process("deleted_records_stay_deleted_after_a_kill") {
        return;
    }
    let mut broker = Broker::start();
    let mut wire = broker.wire();
    let topic = three_batches(&mut wire, "delete-kill");
    assert_eq!(delete_records(&mut wire, &topic, 0, 5), (0, 5));
    broker.kill_and_restart();
    let mut wire = broker.wire();
    assert_eq!(list_offsets(&mut wire, &topic, 0, EARLIEST).offset, 5);
    assert_eq!(list_offsets(&mut wire, &topic, 0, LATEST).offset, 9);
    broker.restart();
    let mut wire = broker.wire();
    assert_eq!(list_offsets(&mut wire, &topic, 0, EARLIEST).offset, 5);
    assert_eq!(fetch(&mut wire, &topic, 0, 5).error_code, 0);
}

fn epoch_end(
    wire: &mut Wire,
    topic: &str,
    partition: i32,
    current: i32,
    epoch: i32,
) -> EpochEndOffset {
    let partition = OffsetForLeaderPartition::default()
        .with_partition(partition)
        .with_current_leader_epoch(current)
        .with_leader_epoch(epoch);
    let request = OffsetForLeaderEpochRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_topics(vec![
            OffsetForLeaderTopic::default()
                .with_topic(name(topic))
                .with_partitions(vec![partition]),
        ]);
    let mut response = wire.call(4, &request);
    response.topics.swap_remove(0).partitions.swap_remove(0)
}

#[test]
fn an_epochs_end_is_the_log_end_for_the_current_one() {
    let broker = Broker::start();
    let mut wire = broker.wire();
    let topic = three_batches(&mut wire, "epoch-end");
    let answer = epoch_end(&mut wire, &topic, 0, -1, 0);
    assert_eq!(
        (answer.error_code, answer.leader_epoch, answer.end_offset),
        (0, 0, 9)
    );
    let answer = epoch_end(&mut wire, &topic, 0, 0, 5);
    assert_eq!(
        (answer.error_code, answer.leader_epoch, answer.end_offset),
        (0, -1, -1)
    );
    let answer = epoch_end(&mut wire, &topic, 0, 9, 0);
    assert_eq!(answer.error_code, code::UNKNOWN_LEADER_EPOCH);
    let answer = epoch_end(&mut wire, &topic, 4, -1, 0);
    assert_eq!(answer.error_code, code::UNKNOWN_TOPIC_OR_PARTITION);
    assert_eq!(answer.end_offset, -1);
}
