//! What every record batch passes on its way through a core, each step alone:
//! `cargo bench --bench hot_paths`.
//!
//! One core at 1 GB/s handles about 4,000 batches of 256 KiB a second, or 60,000 of 16 KiB: the
//! steps that look at the bytes (CRC, records) count per byte, all others per batch.

use std::hint::black_box;

use bytes::{Bytes, BytesMut};
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use kafka_protocol::messages::{self, TopicName};
use kafka_protocol::protocol::{Encodable, StrBytes};
use ringmain::base::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs};
use ringmain::partition::producers::{AppendedBatch, ProducerStates};
use ringmain::protocol::batch::{BatchHeader, Compression, assign};
use ringmain::protocol::builder::BatchBuilder;
use ringmain::protocol::fetch::{
    FetchPartitionResponse, FetchRequest, FetchResponse, FetchTopicResponse, TopicRef,
    encode_response,
};
use ringmain::protocol::frame::RequestHeader;
use ringmain::protocol::produce::ProduceRequest;
use ringmain::protocol::records::{ValidationRules, validate};
use ringmain::storage::index::{IndexedBatch, SegmentIndex};

const NOW: TimestampMs = TimestampMs(1_700_000_000_000);
const RECORD_BYTES: usize = 1024;
const PARTITIONS: i32 = 8;

criterion_group!(hot_paths, batches, requests, producers, indexes);
criterion_main!(hot_paths);

/// Records of 1 KiB of which compression takes away about half.
fn batch(records: usize, compression: Compression) -> Bytes {
    let mut builder = BatchBuilder::new(NOW);
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..records {
        let mut value = Vec::with_capacity(RECORD_BYTES + 32);
        while value.len() < RECORD_BYTES {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            value.extend_from_slice(format!("{{\"reading\":\"{seed:016x}\"}}").as_bytes());
        }
        value.truncate(RECORD_BYTES);
        builder.push(NOW, None, Some(&value), &[]);
    }
    builder.build(compression)
}

/// A batch alone: its header, its checksum, its records, its offset.
fn batches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("batch");
    let large = batch(250, Compression::None);
    group.bench_function("header", |bencher| {
        bencher.iter(|| BatchHeader::parse(black_box(&large)));
    });
    group.bench_function("assign_offset", |bencher| {
        let mut bytes = large.to_vec();
        bencher.iter(|| assign(black_box(&mut bytes), Offset(12_345), LeaderEpoch(3)));
    });
    for records in [1, 15, 250] {
        let bytes = batch(records, Compression::None);
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_with_input(
            BenchmarkId::new("crc", records),
            &bytes,
            |bencher, bytes| {
                bencher.iter(|| BatchHeader::parse_checked(black_box(bytes)));
            },
        );
    }
    let rules = ValidationRules {
        produce_version: 9,
        batch_bytes_max: 1 << 20,
        keys_required: false,
        log_append_time: false,
        timestamp_before_ms_max: i64::MAX,
        timestamp_after_ms_max: 3_600_000,
        now: NOW,
    };
    for compression in [
        Compression::None,
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ] {
        let bytes = batch(250, compression);
        validate(&bytes, &rules).expect("the batch is sound");
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        let name = format!("{compression:?}").to_lowercase();
        group.bench_function(BenchmarkId::new("validate", name), |bencher| {
            bencher.iter(|| validate(black_box(&bytes), &rules));
        });
    }
    group.finish();
}

/// Requests and responses around the batches, which must not be copied: the times hold for
/// batches of any size.
fn requests(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("request");
    let header = |api_key, api_version| RequestHeader {
        api_key,
        api_version,
        correlation_id: 1,
        client_id: None,
        body_start: 0,
    };
    let produce = produce_body(&batch(15, Compression::None));
    group.bench_function("decode_produce_8_partitions", |bencher| {
        bencher.iter_batched(
            || produce.clone(),
            |body| ProduceRequest::decode(body, &header(0, 9)),
            BatchSize::SmallInput,
        );
    });
    let fetch = fetch_body();
    group.bench_function("decode_fetch_8_partitions", |bencher| {
        bencher.iter(|| FetchRequest::decode(black_box(&fetch), 12));
    });
    let records = batch(250, Compression::None);
    group.bench_function("encode_fetch_8_partitions", |bencher| {
        bencher.iter_batched(
            || fetch_response(&records),
            |response| encode_response(&header(1, 12), response),
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

fn topic_name() -> TopicName {
    TopicName(StrBytes::from_static_str("hot-paths"))
}

fn encoded(message: &impl Encodable, version: i16) -> BytesMut {
    let mut body = BytesMut::new();
    message
        .encode(&mut body, version)
        .expect("the message suits its version");
    body
}

fn produce_body(records: &Bytes) -> BytesMut {
    use messages::produce_request::{PartitionProduceData, TopicProduceData};
    let partitions = (0..PARTITIONS).map(|index| {
        PartitionProduceData::default()
            .with_index(index)
            .with_records(Some(records.clone()))
    });
    let topic = TopicProduceData::default()
        .with_name(topic_name())
        .with_partition_data(partitions.collect());
    let request = messages::ProduceRequest::default()
        .with_acks(-1)
        .with_timeout_ms(30_000)
        .with_topic_data(vec![topic]);
    encoded(&request, 9)
}

fn fetch_body() -> BytesMut {
    use messages::fetch_request::{FetchPartition, FetchTopic};
    let partitions = (0..PARTITIONS).map(|index| {
        FetchPartition::default()
            .with_partition(index)
            .with_fetch_offset(1_000_000)
            .with_partition_max_bytes(1 << 20)
    });
    let topic = FetchTopic::default()
        .with_topic(topic_name())
        .with_partitions(partitions.collect());
    let request = messages::FetchRequest::default()
        .with_max_wait_ms(500)
        .with_max_bytes(8 << 20)
        .with_topics(vec![topic]);
    encoded(&request, 12)
}

fn fetch_response(records: &Bytes) -> FetchResponse<Bytes> {
    let partitions = (0..PARTITIONS).map(|partition| FetchPartitionResponse {
        partition,
        error_code: 0,
        high_watermark: Offset(2_000_000),
        last_stable_offset: Offset(2_000_000),
        log_start_offset: Offset::ZERO,
        records: records.clone(),
        record_bytes: records.len(),
    });
    let topic = FetchTopicResponse {
        topic: TopicRef::Name("hot-paths".to_owned()),
        partitions: partitions.collect(),
    };
    FetchResponse {
        error_code: 0,
        session_id: 0,
        topics: vec![topic],
    }
}

/// The sequence check of an idempotent producer, among few and among many.
fn producers(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("producer");
    for count in [1_i64, 10_000] {
        group.bench_function(BenchmarkId::new("check_and_update", count), |bencher| {
            let mut states = ProducerStates::new();
            let mut turn = 0_i64;
            bencher.iter(|| {
                let producer_id = ProducerId(turn % count);
                let sequence = ((turn / count) & i64::from(i32::MAX)) as i32;
                let epoch = ProducerEpoch(0);
                let verdict = states.check(producer_id, epoch, sequence, sequence);
                let batch = AppendedBatch {
                    producer_id,
                    epoch,
                    last_sequence: sequence,
                    base_offset: Offset(turn),
                    last_offset: Offset(turn),
                    timestamp: NOW,
                    is_control: false,
                };
                states.update(batch, NOW);
                turn += 1;
                verdict
            });
        });
    }
    group.finish();
}

/// The indexes of a full segment: 1 GiB of batches of 16 KiB, an entry each.
fn indexes(criterion: &mut Criterion) {
    const BATCH_BYTES: u64 = 16 << 10;
    const BATCH_RECORDS: i64 = 15;
    let batches = (1 << 30) / BATCH_BYTES;
    let fill = |index: &mut SegmentIndex, at: u64| {
        let batch = IndexedBatch {
            last_offset: Offset((at as i64 + 1) * BATCH_RECORDS - 1),
            position: at * BATCH_BYTES,
            len: BATCH_BYTES as usize,
            max_timestamp: TimestampMs(NOW.0 + at as i64),
        };
        index.note(batch, 4096);
    };
    let mut group = criterion.benchmark_group("index");
    group.bench_function("note", |bencher| {
        let mut index = SegmentIndex::new(Offset::ZERO);
        let mut at = 0;
        bencher.iter(|| {
            if at == batches {
                index = SegmentIndex::new(Offset::ZERO);
                at = 0;
            }
            fill(&mut index, at);
            at += 1;
        });
    });
    let mut index = SegmentIndex::new(Offset::ZERO);
    (0..batches).for_each(|at| fill(&mut index, at));
    group.bench_function("find_offset", |bencher| {
        let mut offset = 1_i64;
        bencher.iter(|| {
            // Jumps about, as fetches of many consumers do.
            offset = (offset * 48_271) % (batches as i64 * BATCH_RECORDS);
            index.position_at_or_before(black_box(Offset(offset)))
        });
    });
    group.finish();
}
