//! The `.snapshot` file: producer state at the offset that names the file, in Kafka's format.
//!
//! ```text
//! version                  int16   1
//! crc                      uint32  CRC-32C of all that follows
//! entries                  int32   how many, then each, 46 bytes:
//!   producer_id              int64
//!   producer_epoch           int16
//!   last_sequence            int32   -1 without a batch
//!   last_offset              int64   -1 without a batch
//!   offset_delta             int32
//!   timestamp                int64
//!   coordinator_epoch        int32   -1 without
//!   current_txn_first_offset int64   -1 without
//! ```
//!
//! All big-endian. Kafka writes one entry a producer, its last batch. We write one for each
//! batch remembered, the newest last: Kafka's loader keeps the last entry of a producer id, so it
//! reads the state that it would have written itself, and its tools print the older ones too.
//! That way all five batches survive a restart whatever part of the log is replayed. A file that
//! Kafka wrote restores one batch a producer.
//!
//! Producers stand in the order of their use, so that the order survives as well.

use bytes::{Buf, BufMut};

use super::{NO_SEQUENCE, ProducerStates, RememberedBatch};
use crate::base::{Offset, ProducerEpoch, ProducerId, TimestampMs};
use crate::partition::error::CorruptCheckpoint;

const VERSION: i16 = 1;
const ENTRIES_START: usize = 6;
const ENTRY_BYTES: usize = 46;

/// One entry of the file.
#[derive(Debug, Clone, Copy)]
struct Entry {
    producer_id: ProducerId,
    epoch: ProducerEpoch,
    /// With last offset -1 for "none".
    batch: RememberedBatch,
    coordinator_epoch: i32,
    transaction_first_offset: Offset,
}

impl ProducerStates {
    /// The contents of a `.snapshot` file.
    pub fn encode_snapshot(&self) -> Vec<u8> {
        let mut ordered: Vec<_> = self.producers.iter().collect();
        ordered.sort_unstable_by_key(|(_, producer)| producer.last_use);

        let mut entries = Vec::with_capacity(ordered.len() * ENTRY_BYTES);
        let mut count = 0_i32;
        for (producer_id, producer) in ordered {
            let no_batch = RememberedBatch {
                last_sequence: NO_SEQUENCE,
                last_offset: Offset::UNKNOWN,
                offset_delta: 0,
                timestamp: producer.last_timestamp,
            };
            let placeholder = producer.batches.is_empty().then_some(no_batch);
            for batch in producer.batches.iter().copied().chain(placeholder) {
                count += 1;
                let entry = Entry {
                    producer_id: *producer_id,
                    epoch: producer.epoch,
                    batch,
                    coordinator_epoch: producer.coordinator_epoch,
                    transaction_first_offset: producer
                        .transaction_first_offset
                        .unwrap_or(Offset::UNKNOWN),
                };
                entry.write(&mut entries);
            }
        }

        let mut file = Vec::with_capacity(ENTRIES_START + 4 + entries.len());
        file.put_i16(VERSION);
        file.put_u32(0); // the CRC, below
        file.put_i32(count);
        file.put_slice(&entries);
        let crc = crc32c::crc32c(&file[ENTRIES_START..]);
        file[2..ENTRIES_START].copy_from_slice(&crc.to_be_bytes());
        file
    }

    /// Replaces the state by that of a `.snapshot` file, written by us or by Kafka. `now` starts
    /// the time to expiry. On an error the state is empty.
    ///
    /// # Errors
    /// The file is cut, damaged or of another version: use an older one, or replay the log.
    pub fn restore(&mut self, file: &[u8], now: TimestampMs) -> Result<(), CorruptCheckpoint> {
        self.clear();
        for entry in decode(file)? {
            self.restore_entry(entry, now);
        }
        Ok(())
    }

    fn restore_entry(&mut self, entry: Entry, now: TimestampMs) {
        let producer = self.touch(entry.producer_id, entry.epoch, now);
        producer.enter_epoch(entry.epoch);
        producer.coordinator_epoch = entry.coordinator_epoch;
        producer.transaction_first_offset =
            (entry.transaction_first_offset.0 >= 0).then_some(entry.transaction_first_offset);
        producer.last_timestamp = entry.batch.timestamp;
        if entry.batch.last_offset.0 >= 0 {
            producer.remember(entry.batch);
        }
    }
}

fn decode(file: &[u8]) -> Result<Vec<Entry>, CorruptCheckpoint> {
    let corrupt = |text: String| Err(CorruptCheckpoint(format!("producer snapshot: {text}")));
    let mut header = file;
    let (Ok(version), Ok(stored_crc)) = (header.try_get_i16(), header.try_get_u32()) else {
        return corrupt(format!("only {} bytes long", file.len()));
    };
    if version != VERSION {
        return corrupt(format!("version {version} is unknown, {VERSION} is known"));
    }
    let computed_crc = crc32c::crc32c(header);
    if stored_crc != computed_crc {
        return corrupt(format!(
            "its CRC is {computed_crc:#010x}, it claims {stored_crc:#010x}"
        ));
    }
    let mut entries = header;
    let count = entries.try_get_i32().unwrap_or(-1);
    let available = entries.len() / ENTRY_BYTES;
    match usize::try_from(count) {
        Ok(count) if count <= available => Ok((0..count)
            .filter_map(|_| Entry::read(&mut entries))
            .collect()),
        _ => corrupt(format!("{count} entries claimed, {available} present")),
    }
}

impl Entry {
    fn write(&self, file: &mut Vec<u8>) {
        file.put_i64(self.producer_id.0);
        file.put_i16(self.epoch.0);
        file.put_i32(self.batch.last_sequence);
        file.put_i64(self.batch.last_offset.0);
        file.put_i32(self.batch.offset_delta);
        file.put_i64(self.batch.timestamp.0);
        file.put_i32(self.coordinator_epoch);
        file.put_i64(self.transaction_first_offset.0);
    }

    fn read(file: &mut &[u8]) -> Option<Self> {
        let mut bytes = file.split_off(..ENTRY_BYTES)?;
        Some(Self {
            producer_id: ProducerId(bytes.get_i64()),
            epoch: ProducerEpoch(bytes.get_i16()),
            batch: RememberedBatch {
                last_sequence: bytes.get_i32(),
                last_offset: Offset(bytes.get_i64()),
                offset_delta: bytes.get_i32(),
                timestamp: TimestampMs(bytes.get_i64()),
            },
            coordinator_epoch: bytes.get_i32(),
            transaction_first_offset: Offset(bytes.get_i64()),
        })
    }
}
