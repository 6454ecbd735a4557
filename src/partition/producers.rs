//! What idempotent producers have written to one partition (KIP-98): for each producer id its
//! epoch and its last five batches. A retry of one of these is answered with the offsets that it
//! got the first time; anything else must follow the last sequence number without a gap.
//!
//! ```text
//! sequence   0 ..= 9   10 ..= 14   15 ..= 15   16 ..= 99   100 ..= 104   105 …
//!            └──────────── the last five batches ────────────────────┘   └ accepted next
//! ```
//!
//! [`check`](ProducerStates::check) decides, [`update`](ProducerStates::update) records with the
//! assigned offsets. Both happen before the batch is durable and without a wait between them, so
//! that batches in flight are checked against each other. The reply to a duplicate must therefore
//! wait, like the reply to the original, until the high watermark passes its last offset.
//!
//! Expiry and the least-recently-used order go by the broker's clock at the append, not by the
//! records' timestamps, which producers choose (Kafka goes by the latter, and forgets a producer
//! of old records at once).

use std::collections::{HashMap, VecDeque};

use crate::base::limits::{PRODUCER_BATCHES_REMEMBERED, PRODUCERS_PER_PARTITION_MAX};
use crate::base::{Offset, ProducerEpoch, ProducerId, TimestampMs};

use super::error::PartitionError;

mod snapshot;
#[cfg(test)]
mod tests;

/// "No sequence number" on the wire and in a snapshot.
pub const NO_SEQUENCE: i32 = -1;

/// The sequence number `count` after `sequence`: after 2^31-1 comes 0.
pub fn sequence_after(sequence: i32, count: i32) -> i32 {
    wrapped(i64::from(sequence) + i64::from(count))
}

/// The sequence number `count` before `sequence`.
pub fn sequence_before(sequence: i32, count: i32) -> i32 {
    wrapped(i64::from(sequence) - i64::from(count))
}

/// The last sequence number of a batch of `record_count` records.
pub fn last_sequence(first_sequence: i32, record_count: i32) -> i32 {
    if first_sequence == NO_SEQUENCE {
        return NO_SEQUENCE;
    }
    sequence_after(first_sequence, record_count.saturating_sub(1).max(0))
}

fn wrapped(sequence: i64) -> i32 {
    // Within 31 bits after the mask.
    (sequence & i64::from(i32::MAX)) as i32
}

/// May the batch be appended?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Accept,
    /// It is here already: answer with these offsets once they are below the high watermark.
    Duplicate(RememberedBatch),
}

/// One of a producer's last batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RememberedBatch {
    pub last_sequence: i32,
    pub last_offset: Offset,
    /// Last offset minus base offset, which is last sequence minus first sequence too.
    pub offset_delta: i32,
    /// The batch's largest timestamp.
    pub timestamp: TimestampMs,
}

impl RememberedBatch {
    pub fn first_sequence(&self) -> i32 {
        sequence_before(self.last_sequence, self.offset_delta)
    }

    pub fn base_offset(&self) -> Offset {
        self.last_offset.plus(-i64::from(self.offset_delta))
    }
}

/// A batch as it went into the log, or as its header is found there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppendedBatch {
    pub producer_id: ProducerId,
    pub epoch: ProducerEpoch,
    pub last_sequence: i32,
    pub base_offset: Offset,
    pub last_offset: Offset,
    /// The batch's largest timestamp.
    pub timestamp: TimestampMs,
    /// A transaction marker: it has no sequence and only tells the epoch.
    pub is_control: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Producer {
    epoch: ProducerEpoch,
    /// Oldest first, all of this epoch.
    batches: VecDeque<RememberedBatch>,
    coordinator_epoch: i32,
    /// Where the transaction in progress began; none yet, transactions come later.
    transaction_first_offset: Option<Offset>,
    last_timestamp: TimestampMs,
    /// The broker's clock at the last append, or at the restore.
    last_append: TimestampMs,
    /// The place in the order of use; larger is later.
    last_use: u64,
}

impl Producer {
    fn new(epoch: ProducerEpoch) -> Self {
        Self {
            epoch,
            batches: VecDeque::new(),
            coordinator_epoch: -1,
            transaction_first_offset: None,
            last_timestamp: TimestampMs::NONE,
            last_append: TimestampMs::NONE,
            last_use: 0,
        }
    }

    fn last_sequence(&self) -> i32 {
        self.batches
            .back()
            .map_or(NO_SEQUENCE, |batch| batch.last_sequence)
    }

    fn last_offset(&self) -> Offset {
        self.batches
            .back()
            .map_or(Offset::UNKNOWN, |batch| batch.last_offset)
    }

    /// The remembered batch of exactly these sequence numbers.
    fn known_batch(
        &self,
        epoch: ProducerEpoch,
        first_sequence: i32,
        last_sequence: i32,
    ) -> Option<RememberedBatch> {
        let is_it = |batch: &&RememberedBatch| {
            batch.first_sequence() == first_sequence && batch.last_sequence == last_sequence
        };
        (epoch == self.epoch)
            .then(|| self.batches.iter().find(is_it).copied())
            .flatten()
    }

    fn enter_epoch(&mut self, epoch: ProducerEpoch) {
        if self.epoch != epoch {
            self.epoch = epoch;
            self.batches.clear();
        }
    }

    fn remember(&mut self, batch: RememberedBatch) {
        if self.batches.len() == PRODUCER_BATCHES_REMEMBERED {
            self.batches.pop_front();
        }
        self.batches.push_back(batch);
    }
}

/// All producers of one partition.
#[derive(Debug, Clone)]
pub struct ProducerStates {
    producers: HashMap<ProducerId, Producer>,
    uses: u64,
    count_max: usize,
}

impl Default for ProducerStates {
    fn default() -> Self {
        Self::with_limit(PRODUCERS_PER_PARTITION_MAX)
    }
}

impl ProducerStates {
    pub fn new() -> Self {
        Self::default()
    }

    fn with_limit(count_max: usize) -> Self {
        Self {
            producers: HashMap::new(),
            uses: 0,
            count_max,
        }
    }

    /// How many producers are remembered.
    pub fn len(&self) -> usize {
        self.producers.len()
    }

    pub fn is_empty(&self) -> bool {
        self.producers.is_empty()
    }

    /// A producer's last batches, oldest first.
    pub fn batches(&self, producer_id: ProducerId) -> impl Iterator<Item = &RememberedBatch> {
        self.producers
            .get(&producer_id)
            .into_iter()
            .flat_map(|producer| &producer.batches)
    }

    /// Judges a client's batch by Kafka's rules. Call it only for batches with a producer id.
    ///
    /// Without a stored state any first sequence is good: the state may have expired, or gone
    /// with the log's old segments. A new epoch begins at sequence 0.
    ///
    /// # Errors
    /// `NegativeSequence`, `InvalidProducerEpoch` (an older epoch), `OutOfOrderSequence` (a gap,
    /// or a retry older than the batches remembered).
    pub fn check(
        &self,
        producer_id: ProducerId,
        epoch: ProducerEpoch,
        first_sequence: i32,
        last_sequence: i32,
    ) -> Result<Verdict, PartitionError> {
        if first_sequence < 0 {
            return Err(PartitionError::NegativeSequence {
                producer_id,
                found: first_sequence,
            });
        }
        let Some(producer) = self.producers.get(&producer_id) else {
            return Ok(Verdict::Accept);
        };
        let out_of_order = |last| PartitionError::OutOfOrderSequence {
            producer_id,
            found: first_sequence,
            last,
        };
        if let Some(batch) = producer.known_batch(epoch, first_sequence, last_sequence) {
            return Ok(Verdict::Duplicate(batch));
        }
        if producer.epoch == ProducerEpoch::NONE {
            return Ok(Verdict::Accept);
        }
        if epoch < producer.epoch {
            return Err(PartitionError::InvalidProducerEpoch {
                producer_id,
                found: epoch,
                current: producer.epoch,
            });
        }
        if epoch > producer.epoch {
            return if first_sequence == 0 {
                Ok(Verdict::Accept)
            } else {
                Err(out_of_order(NO_SEQUENCE))
            };
        }
        let last = producer.last_sequence();
        if first_sequence == sequence_after(last, 1) {
            Ok(Verdict::Accept)
        } else {
            Err(out_of_order(last))
        }
    }

    /// Records an accepted batch with its offsets.
    pub fn update(&mut self, batch: AppendedBatch, now: TimestampMs) {
        self.record(batch, now);
    }

    /// Records a batch found in the log after the snapshot, without judging it. Batches that the
    /// state covers already, and batches without a producer id, change nothing.
    pub fn replay(&mut self, batch: AppendedBatch, now: TimestampMs) {
        let covered = self
            .producers
            .get(&batch.producer_id)
            .is_some_and(|producer| batch.last_offset <= producer.last_offset());
        if batch.producer_id.0 >= 0 && !covered {
            self.record(batch, now);
        }
    }

    fn record(&mut self, batch: AppendedBatch, now: TimestampMs) {
        let producer = self.touch(batch.producer_id, batch.epoch, now);
        producer.enter_epoch(batch.epoch);
        producer.last_timestamp = batch.timestamp;
        if batch.is_control {
            producer.transaction_first_offset = None;
            return;
        }
        let delta = batch.last_offset.0.saturating_sub(batch.base_offset.0);
        producer.remember(RememberedBatch {
            last_sequence: batch.last_sequence,
            last_offset: batch.last_offset,
            offset_delta: i32::try_from(delta).unwrap_or(i32::MAX),
            timestamp: batch.timestamp,
        });
    }

    /// The producer's entry, made where it is missing, now the most recently used one.
    fn touch(
        &mut self,
        producer_id: ProducerId,
        epoch: ProducerEpoch,
        now: TimestampMs,
    ) -> &mut Producer {
        self.make_room_for(producer_id);
        self.uses += 1;
        let producer = self
            .producers
            .entry(producer_id)
            .or_insert_with(|| Producer::new(epoch));
        producer.last_append = now;
        producer.last_use = self.uses;
        producer
    }

    /// Forgets the least recently used ones when a new producer finds no room: a sixteenth at a
    /// time, so that the scan is paid for by many newcomers. Open transactions stay.
    fn make_room_for(&mut self, producer_id: ProducerId) {
        if self.producers.len() < self.count_max || self.producers.contains_key(&producer_id) {
            return;
        }
        let mut idle: Vec<(u64, ProducerId)> = self
            .producers
            .iter()
            .filter(|(_, producer)| producer.transaction_first_offset.is_none())
            .map(|(id, producer)| (producer.last_use, *id))
            .collect();
        idle.sort_unstable_by_key(|(last_use, _)| *last_use);
        for (_, id) in idle.iter().take(self.count_max / 16 + 1) {
            self.producers.remove(id);
        }
    }

    /// Forgets producers that appended nothing for `expiration_ms` (`producer.id.expiration.ms`)
    /// and have no open transaction. How many it were.
    pub fn expire(&mut self, now: TimestampMs, expiration_ms: i64) -> usize {
        let before = self.producers.len();
        self.producers.retain(|_, producer| {
            producer.transaction_first_offset.is_some()
                || now.0.saturating_sub(producer.last_append.0) < expiration_ms
        });
        before - self.producers.len()
    }

    /// Forgets everything: the log was cut or emptied, and what remains will be replayed.
    pub fn clear(&mut self) {
        self.producers.clear();
    }
}
