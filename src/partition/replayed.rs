//! What follows from a partition's batches, as the log replays them: producers and leader epochs.

use super::epochs::LeaderEpochs;
use super::producers::{AppendedBatch, ProducerStates, last_sequence};
use crate::base::TimestampMs;
use crate::storage::{BatchView, DerivedState};

/// Producers are in the log's snapshots; leader epochs in a file of their own, which Kafka's tools
/// know, and which recovery brings up to date with the batches that it scans.
#[derive(Debug)]
pub struct Replayed {
    pub producers: ProducerStates,
    pub epochs: LeaderEpochs,
    /// The clock when the log is opened: what a producer's silence is counted from.
    opened_at: TimestampMs,
}

impl Replayed {
    pub fn new(epochs: LeaderEpochs, opened_at: TimestampMs) -> Self {
        Self {
            producers: ProducerStates::new(),
            epochs,
            opened_at,
        }
    }
}

impl DerivedState for Replayed {
    fn encode_snapshot(&self) -> Vec<u8> {
        self.producers.encode_snapshot()
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), String> {
        self.producers
            .restore(snapshot, self.opened_at)
            .map_err(|error| error.to_string())
    }

    fn replay(&mut self, batch: &BatchView<'_>) {
        const CONTROL: i16 = 1 << 5;
        let appended = AppendedBatch {
            producer_id: batch.producer_id(),
            epoch: batch.producer_epoch(),
            last_sequence: last_sequence(batch.base_sequence(), batch.records_count()),
            base_offset: batch.base_offset(),
            last_offset: batch.last_offset(),
            timestamp: batch.max_timestamp(),
            is_control: batch.attributes() & CONTROL != 0,
        };
        self.producers.replay(appended, self.opened_at);
    }

    fn scanned(&mut self, batch: &BatchView<'_>) {
        self.epochs
            .assign(batch.leader_epoch(), batch.base_offset());
    }

    fn clear(&mut self) {
        self.producers.clear();
    }
}
