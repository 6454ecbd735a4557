use super::*;

use proptest::prelude::*;

const NOW: TimestampMs = TimestampMs(1_700_000_000_000);
const DAY_MS: i64 = 86_400_000;
const PRODUCER: ProducerId = ProducerId(7);

fn epoch(number: i16) -> ProducerEpoch {
    ProducerEpoch(number)
}

/// A partition's end as the host sees it: checks, appends, updates.
struct Host {
    states: ProducerStates,
    log: Vec<AppendedBatch>,
    log_end: i64,
}

impl Host {
    fn new() -> Self {
        Self {
            states: ProducerStates::new(),
            log: Vec::new(),
            log_end: 0,
        }
    }

    fn produce(
        &mut self,
        producer_id: ProducerId,
        epoch: ProducerEpoch,
        first_sequence: i32,
        count: i32,
    ) -> Result<Verdict, PartitionError> {
        let last = last_sequence(first_sequence, count);
        let verdict = self
            .states
            .check(producer_id, epoch, first_sequence, last)?;
        if verdict == Verdict::Accept {
            let batch = AppendedBatch {
                producer_id,
                epoch,
                last_sequence: last,
                base_offset: Offset(self.log_end),
                last_offset: Offset(self.log_end + i64::from(count) - 1),
                timestamp: TimestampMs(self.log_end * 1_000),
                is_control: false,
            };
            self.log_end += i64::from(count);
            self.states.update(batch, NOW);
            self.log.push(batch);
        }
        Ok(verdict)
    }

    fn accepts(&mut self, epoch_number: i16, first_sequence: i32, count: i32) {
        let verdict = self.produce(PRODUCER, epoch(epoch_number), first_sequence, count);
        assert_eq!(verdict, Ok(Verdict::Accept), "sequence {first_sequence}");
    }
}

fn out_of_order(found: i32, last: i32) -> PartitionError {
    PartitionError::OutOfOrderSequence {
        producer_id: PRODUCER,
        found,
        last,
    }
}

#[test]
fn sequences_wrap_after_the_largest_number() {
    let max = i32::MAX;
    let table = [
        // first, count, last
        (0, 1, 0),
        (0, 10, 9),
        (max, 1, max),
        (max, 2, 0),
        (max - 1, 5, 2),
        (NO_SEQUENCE, 5, NO_SEQUENCE),
        (3, 0, 3),
    ];
    for (first, count, last) in table {
        assert_eq!(last_sequence(first, count), last, "{first} + {count}");
        if first >= 0 && count > 0 {
            assert_eq!(sequence_before(last, count - 1), first, "{last} - {count}");
        }
    }
}

#[test]
fn verdicts_follow_kafkas_rules() {
    // Appended before: epoch 3, sequences 0-9, 10-19, … 60-69; the first two are forgotten.
    let mut host = Host::new();
    for first in (0..70).step_by(10) {
        host.accepts(3, first, 10);
    }
    let duplicate = |base: i64| {
        Ok(Verdict::Duplicate(RememberedBatch {
            last_sequence: i32::try_from(base).expect("small") + 9,
            last_offset: Offset(base + 9),
            offset_delta: 9,
            timestamp: TimestampMs(base * 1_000),
        }))
    };
    let fenced = |found| {
        Err(PartitionError::InvalidProducerEpoch {
            producer_id: PRODUCER,
            found: epoch(found),
            current: epoch(3),
        })
    };
    let table = [
        ("the next one", 3, 70, 79, Ok(Verdict::Accept)),
        ("the last one again", 3, 60, 69, duplicate(60)),
        ("the oldest one remembered", 3, 20, 29, duplicate(20)),
        ("one older than that", 3, 10, 19, Err(out_of_order(10, 69))),
        ("a gap", 3, 71, 80, Err(out_of_order(71, 69))),
        (
            "a retry cut differently",
            3,
            60,
            64,
            Err(out_of_order(60, 69)),
        ),
        ("an overlap", 3, 65, 74, Err(out_of_order(65, 69))),
        ("an older epoch", 2, 70, 79, fenced(2)),
        ("a duplicate's range, older epoch", 2, 60, 69, fenced(2)),
        ("a new epoch from 0", 4, 0, 9, Ok(Verdict::Accept)),
        (
            "a new epoch from elsewhere",
            4,
            70,
            79,
            Err(out_of_order(70, NO_SEQUENCE)),
        ),
    ];
    for (name, epoch_number, first, last, expected) in table {
        let verdict = host
            .states
            .check(PRODUCER, epoch(epoch_number), first, last);
        assert_eq!(verdict, expected, "{name}");
    }
}

#[test]
fn without_a_stored_state_any_first_sequence_is_accepted() {
    let mut host = Host::new();
    host.accepts(5, 1_234, 3);
    host.accepts(5, 1_237, 1);
}

#[test]
fn a_negative_sequence_is_an_invalid_record() {
    let states = ProducerStates::new();
    for found in [-1, i32::MIN] {
        assert_eq!(
            states.check(PRODUCER, epoch(0), found, found),
            Err(PartitionError::NegativeSequence {
                producer_id: PRODUCER,
                found
            })
        );
    }
}

#[test]
fn a_producer_goes_on_through_the_wrap() {
    let mut host = Host::new();
    host.accepts(0, i32::MAX - 2, 5); // MAX-2 … 1
    let again = host.produce(PRODUCER, epoch(0), i32::MAX - 2, 5);
    assert!(matches!(again, Ok(Verdict::Duplicate(batch)) if batch.base_offset() == Offset(0)));
    host.accepts(0, 2, 1);
}

#[test]
fn a_new_epoch_forgets_the_old_ones_batches() {
    let mut host = Host::new();
    host.accepts(0, 0, 10);
    host.accepts(1, 0, 5);
    assert_eq!(
        host.produce(PRODUCER, epoch(1), 0, 10),
        Err(out_of_order(0, 4)),
        "epoch 0's batch is no duplicate in epoch 1"
    );
}

#[test]
fn five_batches_in_flight_are_each_recognised() {
    let mut host = Host::new();
    for first in 0..5 {
        host.accepts(0, first, 1);
    }
    for first in 0..5 {
        let verdict = host.produce(PRODUCER, epoch(0), first, 1);
        assert!(
            matches!(verdict, Ok(Verdict::Duplicate(batch)) if batch.last_offset.0 == i64::from(first)),
            "sequence {first}: {verdict:?}"
        );
    }
}

#[test]
fn a_marker_of_a_newer_epoch_makes_the_next_batch_start_at_0() {
    let mut host = Host::new();
    host.accepts(0, 0, 10);
    let marker = AppendedBatch {
        epoch: epoch(1),
        last_sequence: NO_SEQUENCE,
        base_offset: Offset(10),
        last_offset: Offset(10),
        is_control: true,
        ..host.log[0]
    };
    host.states.replay(marker, NOW);
    assert_eq!(
        host.states.check(PRODUCER, epoch(1), 10, 10),
        Err(out_of_order(10, -1))
    );
    assert_eq!(
        host.states.check(PRODUCER, epoch(1), 0, 0),
        Ok(Verdict::Accept)
    );
    // And so after a restart: the snapshot holds the epoch although it has no batch.
    let mut restored = ProducerStates::new();
    restored
        .restore(&host.states.encode_snapshot(), NOW)
        .expect("our own snapshot");
    assert_eq!(
        restored.check(PRODUCER, epoch(1), 10, 10),
        Err(out_of_order(10, -1))
    );
}

#[test]
fn expiry_goes_by_the_brokers_clock() {
    let mut host = Host::new();
    host.accepts(0, 0, 10); // its records are from 1970
    let just_before = TimestampMs(NOW.0 + DAY_MS - 1);
    assert_eq!(host.states.expire(just_before, DAY_MS), 0);
    assert_eq!(host.states.expire(TimestampMs(NOW.0 + DAY_MS), DAY_MS), 1);
    assert!(host.states.is_empty());
    host.accepts(0, 500, 1); // as a producer that was never seen
}

#[test]
fn the_least_recently_used_producers_are_forgotten_beyond_the_limit() {
    let mut states = ProducerStates::with_limit(32);
    let batch = |id: i64, first: i32| AppendedBatch {
        producer_id: ProducerId(id),
        epoch: epoch(0),
        last_sequence: first,
        base_offset: Offset(id),
        last_offset: Offset(id),
        timestamp: NOW,
        is_control: false,
    };
    for id in 0..32 {
        states.update(batch(id, 0), NOW);
    }
    states.update(batch(0, 1), NOW); // used again
    for id in 32..100 {
        states.update(batch(id, 0), NOW);
        assert!(states.len() <= 32);
    }
    let knows = |id: i64| states.batches(ProducerId(id)).next().is_some();
    assert!(!knows(1) && !knows(40));
    assert!(knows(99) && knows(80));
}

#[test]
fn the_order_of_use_survives_a_restart() {
    let mut states = ProducerStates::with_limit(4);
    let batch = |id: i64| AppendedBatch {
        producer_id: ProducerId(id),
        epoch: epoch(0),
        last_sequence: 0,
        base_offset: Offset(id),
        last_offset: Offset(id),
        timestamp: NOW,
        is_control: false,
    };
    for id in [3, 1, 2, 0] {
        states.update(batch(id), NOW);
    }
    let file = states.encode_snapshot();
    states.restore(&file, NOW).expect("our own snapshot");
    states.update(batch(9), NOW);
    assert_eq!(states.len(), 4);
    assert!(
        states.batches(ProducerId(3)).next().is_none(),
        "3 was the oldest"
    );
}

#[test]
fn a_snapshot_is_kafkas_file_byte_for_byte() {
    let mut host = Host::new();
    host.accepts(2, 5, 3);
    let file = host.states.encode_snapshot();
    let entry = [
        &7_i64.to_be_bytes()[..],
        &2_i16.to_be_bytes(),
        &7_i32.to_be_bytes(),    // last sequence
        &2_i64.to_be_bytes(),    // last offset
        &2_i32.to_be_bytes(),    // offset delta
        &0_i64.to_be_bytes(),    // timestamp
        &(-1_i32).to_be_bytes(), // coordinator epoch
        &(-1_i64).to_be_bytes(), // first offset of the open transaction
    ]
    .concat();
    let body = [&1_i32.to_be_bytes()[..], &entry].concat();
    let expected = [
        &1_i16.to_be_bytes()[..],
        &crc32c::crc32c(&body).to_be_bytes(),
        &body,
    ]
    .concat();
    assert_eq!(file, expected);
}

#[test]
fn the_last_entry_of_a_producer_is_its_last_batch() {
    // Kafka's loader keeps the last entry of each producer id.
    let mut host = Host::new();
    for first in 0..8 {
        host.accepts(0, first, 1);
        let verdict = host.produce(ProducerId(8), epoch(1), first * 2, 2);
        assert_eq!(verdict, Ok(Verdict::Accept));
    }
    let file = host.states.encode_snapshot();
    let entries = &file[10..];
    assert_eq!(
        entries.len(),
        10 * 46,
        "five batches of each of two producers"
    );
    let last_sequence_of = |index: usize| {
        let at = index * 46 + 10;
        i32::from_be_bytes(entries[at..at + 4].try_into().expect("4 bytes"))
    };
    assert_eq!((last_sequence_of(4), last_sequence_of(9)), (7, 15));
}

#[test]
fn a_snapshot_that_kafka_wrote_restores_one_batch() {
    let mut host = Host::new();
    host.accepts(0, 0, 10);
    let mut states = ProducerStates::new();
    states
        .restore(&host.states.encode_snapshot(), NOW)
        .expect("one entry, as Kafka writes");
    assert!(matches!(
        states.check(PRODUCER, epoch(0), 0, 9),
        Ok(Verdict::Duplicate(_))
    ));
    assert_eq!(
        states.check(PRODUCER, epoch(0), 10, 10),
        Ok(Verdict::Accept)
    );
}

#[test]
fn a_damaged_snapshot_is_refused_with_its_reason() {
    let mut host = Host::new();
    host.accepts(0, 0, 10);
    let good = host.states.encode_snapshot();
    let mut flipped = good.clone();
    flipped[20] ^= 1;
    let mut other_version = good.clone();
    other_version[1] = 9;
    let mut greedy = good.clone();
    greedy[6..10].copy_from_slice(&i32::MAX.to_be_bytes());
    let crc = crc32c::crc32c(&greedy[6..]);
    greedy[2..6].copy_from_slice(&crc.to_be_bytes());
    let mut negative = good.clone();
    negative[6..10].copy_from_slice(&(-1_i32).to_be_bytes());
    let crc = crc32c::crc32c(&negative[6..]);
    negative[2..6].copy_from_slice(&crc.to_be_bytes());
    let table: [(&[u8], &str); 7] = [
        (b"", "only 0 bytes long"),
        (&good[..5], "only 5 bytes long"),
        (&good[..good.len() - 1], "CRC"),
        (&flipped, "CRC"),
        (&other_version, "version 9 is unknown"),
        (&greedy, "2147483647 entries claimed, 1 present"),
        (&negative, "-1 entries claimed"),
    ];
    for (file, reason) in table {
        let mut states = host.states.clone();
        let error = states.restore(file, NOW).expect_err(reason);
        assert!(error.to_string().contains(reason), "{error}");
        assert!(states.is_empty(), "{reason}");
    }
}

/// Every batch ever appended, and the rules applied to that list.
#[derive(Default)]
struct Model(Vec<(ProducerId, ProducerEpoch, i32, i32)>);

impl Model {
    fn judge(&self, id: ProducerId, epoch: ProducerEpoch, first: i32, last: i32) -> &'static str {
        let of_producer: Vec<_> = self.0.iter().filter(|batch| batch.0 == id).collect();
        let Some(newest) = of_producer.last() else {
            return "accept";
        };
        if epoch < newest.1 {
            return "fenced";
        }
        let of_epoch: Vec<_> = of_producer
            .iter()
            .rev()
            .take_while(|batch| batch.1 == epoch)
            .collect();
        if of_epoch
            .iter()
            .take(5)
            .any(|batch| (batch.2, batch.3) == (first, last))
        {
            return "duplicate";
        }
        let expected = of_epoch
            .first()
            .map_or(0, |batch| if batch.3 == i32::MAX { 0 } else { batch.3 + 1 });
        if first == expected {
            "accept"
        } else {
            "out of order"
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    /// The next batch of the producer's epoch, `skip` sequences too far.
    Next { id: i64, skip: i32, count: i32 },
    /// The batch `back` places before the end of the log again.
    Retry { back: usize },
    Fresh {
        id: i64,
        epoch: i16,
        first: i32,
        count: i32,
    },
    /// A restart from a snapshot taken `behind` batches ago, and the log replayed from there.
    Restart { behind: usize, overlap: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let near_the_wrap = prop_oneof![Just(0), 0..20, (i32::MAX - 10)..=i32::MAX];
    prop_oneof![
        6 => (0_i64..3, prop_oneof![8 => Just(0), 1 => 1..3], 1..8)
            .prop_map(|(id, skip, count)| Step::Next { id, skip, count }),
        4 => (0_usize..12).prop_map(|back| Step::Retry { back }),
        2 => (0_i64..3, 0_i16..4, near_the_wrap, 1..8)
            .prop_map(|(id, epoch, first, count)| Step::Fresh { id, epoch, first, count }),
        1 => (0_usize..12, 0_usize..4)
            .prop_map(|(behind, overlap)| Step::Restart { behind, overlap }),
    ]
}

proptest! {
    #[test]
    fn verdicts_agree_with_the_model_across_restarts(steps in prop::collection::vec(step(), 1..120)) {
        let mut host = Host::new();
        let mut model = Model::default();
        let mut snapshots: Vec<Vec<u8>> = vec![host.states.encode_snapshot()];
        for step in steps {
            let (id, batch_epoch, first, count) = match step {
                Step::Next { id, skip, count } => {
                    let newest = model.0.iter().rev().find(|batch| batch.0.0 == id);
                    let (of_epoch, first) = newest
                        .map_or((epoch(0), 0), |batch| (batch.1, sequence_after(batch.3, 1 + skip)));
                    (ProducerId(id), of_epoch, first, count)
                }
                Step::Retry { back } => {
                    let Some(batch) = model.0.iter().rev().nth(back) else { continue };
                    let count = batch.3.wrapping_sub(batch.2) & i32::MAX;
                    (batch.0, batch.1, batch.2, count + 1)
                }
                Step::Fresh { id, epoch: number, first, count } => {
                    (ProducerId(id), epoch(number), first, count)
                }
                Step::Restart { behind, overlap } => {
                    let at = snapshots.len().saturating_sub(1 + behind);
                    host.states.restore(&snapshots[at], NOW).expect("our own snapshot");
                    for batch in &host.log[at.saturating_sub(overlap)..] {
                        host.states.replay(*batch, NOW);
                    }
                    continue;
                }
            };
            let last = last_sequence(first, count);
            let expected = model.judge(id, batch_epoch, first, last);
            let verdict = host.produce(id, batch_epoch, first, count);
            let found = match &verdict {
                Ok(Verdict::Accept) => "accept",
                Ok(Verdict::Duplicate(batch)) => {
                    let original = host.log.iter().rev().find(|one| {
                        one.producer_id == id && one.epoch == batch_epoch && one.last_sequence == last
                    });
                    prop_assert_eq!(Some(batch.base_offset()), original.map(|one| one.base_offset));
                    "duplicate"
                }
                Err(PartitionError::InvalidProducerEpoch { .. }) => "fenced",
                Err(PartitionError::OutOfOrderSequence { .. }) => "out of order",
                Err(other) => panic!("{other}"),
            };
            prop_assert_eq!(found, expected, "{:?} {} {}+{}", id, batch_epoch.0, first, count);
            if verdict == Ok(Verdict::Accept) {
                model.0.push((id, batch_epoch, first, last));
                snapshots.push(host.states.encode_snapshot());
            }
        }
    }

    #[test]
    fn foreign_bytes_never_panic(file in prop::collection::vec(any::<u8>(), 0..200), fix_crc: bool) {
        let mut file = file;
        if fix_crc && file.len() >= 10 {
            file[..2].copy_from_slice(&1_i16.to_be_bytes());
            file[6..9].fill(0);
            file[9] &= 3;
            let crc = crc32c::crc32c(&file[6..]);
            file[2..6].copy_from_slice(&crc.to_be_bytes());
        }
        let mut states = ProducerStates::new();
        if states.restore(&file, NOW).is_ok() {
            // Whatever was in it can be asked, replayed over and written again.
            let ids: Vec<_> = states.producers.keys().copied().collect();
            for id in ids {
                let _ = states.check(id, epoch(0), 0, 0);
            }
            let again = states.encode_snapshot();
            states.restore(&again, NOW).expect("our own snapshot");
        }
    }
}
