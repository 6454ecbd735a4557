//! Records that memory holds no longer come from the segment files, spliced or copied.

mod support;

use kafka_protocol::messages::FetchRequest;
use sha2::{Digest, Sha256};

use support::Settings;
use support::batch::{Batch, Received, read_batches};
use support::calls::{FETCH_BY_NAME, create_topic, fetch_request, produce_ok};
use support::unique_topic;
use support::wire::Wire;

/// Less than what the tests write.
const TAIL_CACHE: &str = "ringmain.tail.cache.bytes = 1048576\n";

/// A value that no other record has, of `len` bytes.
fn value(seed: u64, len: usize) -> String {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut text = String::with_capacity(len + 16);
    while text.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        text.push_str(&format!("{state:016x}"));
    }
    text.truncate(len);
    text
}

/// Sizes of batches, in bytes of their one record: below and above a block, a pipe, and what is
/// copied.
fn sizes() -> impl Iterator<Item = usize> {
    [300, 5_000, 70_000, 4_096, 262_144, 900_000, 1, 33_333]
        .into_iter()
        .cycle()
}

fn fetch_with(wire: &mut Wire, topic: &str, offset: i64, bytes_max: i32) -> Vec<Received> {
    let mut request: FetchRequest = fetch_request(topic, 0, offset).with_max_bytes(bytes_max);
    request.topics[0].partitions[0].partition_max_bytes = bytes_max;
    let mut response = wire.call(FETCH_BY_NAME, &request);
    let partition = response.responses.swap_remove(0).partitions.swap_remove(0);
    assert_eq!(partition.error_code, 0, "fetch at {offset}");
    read_batches(partition.records.unwrap_or_default())
}

/// Reads `count` records in fetches of up to `bytes_max` and gives the digest of their values;
/// `read_batches` checks the CRC of each batch.
fn digest(wire: &mut Wire, topic: &str, count: i64, bytes_max: i32) -> Vec<u8> {
    let mut hash = Sha256::new();
    let mut offset = 0;
    while offset < count {
        let got = fetch_with(wire, topic, offset, bytes_max);
        assert!(!got.is_empty(), "nothing at {offset} of {count}");
        for batch in got {
            assert_eq!(batch.base_offset, offset);
            offset = batch.last_offset() + 1;
            for value in batch.values() {
                hash.update(value);
            }
        }
    }
    hash.finalize().to_vec()
}

#[test]
fn cold_records_arrive_whole_in_fetches_of_any_size() {
    const BATCHES: usize = 160;
    let mut broker = Settings::default().config(TAIL_CACHE).start();
    let mut wire = broker.wire();
    let topic = unique_topic("cold");
    create_topic(&mut wire, &topic, 1);
    let mut hash = Sha256::new();
    for (number, len) in sizes().take(BATCHES).enumerate() {
        let value = value(number as u64, len);
        hash.update(&value);
        let batch = Batch::of(&[&value]).build();
        assert_eq!(produce_ok(&mut wire, &topic, 0, batch), number as i64);
    }
    let expected = hash.finalize().to_vec();
    for bytes_max in [1, 100_000, 1 << 20, 3_000_001, 50 << 20] {
        let got = digest(&mut wire, &topic, BATCHES as i64, bytes_max);
        assert_eq!(got, expected, "fetches of {bytes_max} bytes");
    }
    broker.restart();
    let mut wire = broker.wire();
    let got = digest(&mut wire, &topic, BATCHES as i64, 2 << 20);
    assert_eq!(got, expected, "after a restart");
}

/// Readers follow close behind a producer, so that blocks are read, and cached, which the next
/// writes fill up.
#[test]
fn a_reader_behind_the_tail_sees_every_byte_of_a_growing_segment() {
    const BATCHES: usize = 300;
    let broker = Settings::default()
        .config("ringmain.tail.cache.bytes = 0\n")
        .start();
    let mut wire = broker.wire();
    let topic = unique_topic("growing");
    create_topic(&mut wire, &topic, 1);
    let mut reader = broker.wire();
    let mut offset = 0;
    for (number, len) in [90_000, 1_000, 150_001, 65_536]
        .into_iter()
        .cycle()
        .take(BATCHES)
        .enumerate()
    {
        let batch = Batch::of(&[&value(number as u64, len)]).build();
        produce_ok(&mut wire, &topic, 0, batch);
        for batch in fetch_with(&mut reader, &topic, offset, 1 << 20) {
            assert_eq!(batch.base_offset, offset);
            let expected = value(
                offset as u64,
                [90_000, 1_000, 150_001, 65_536][offset as usize % 4],
            );
            assert_eq!(batch.values(), [expected], "at {offset}");
            offset += 1;
        }
    }
    assert_eq!(offset, BATCHES as i64);
}

/// A peer that asks for everything and reads nothing: others are served as before, and the broker's
/// memory stays bounded.
#[test]
fn a_peer_that_does_not_read_its_records_is_no_burden() {
    let broker = Settings::default().start();
    let mut wire = broker.wire();
    let topic = unique_topic("deaf");
    create_topic(&mut wire, &topic, 1);
    for number in 0..40 {
        let batch = Batch::of(&[&value(number, 1_000_000)]).build();
        produce_ok(&mut wire, &topic, 0, batch);
    }
    let before = broker.memory_bytes("VmRSS");
    let mut deaf: Vec<Wire> = (0..8).map(|_| broker.wire()).collect();
    for wire in &mut deaf {
        for _ in 0..20 {
            wire.send(FETCH_BY_NAME, &fetch_request(&topic, 0, 0));
        }
    }
    for _ in 0..20 {
        assert!(!fetch_with(&mut wire, &topic, 0, 1 << 20).is_empty());
    }
    let grown = broker.memory_bytes("VmRSS").saturating_sub(before);
    assert!(grown < 128 << 20, "grown by {grown} bytes");
}
