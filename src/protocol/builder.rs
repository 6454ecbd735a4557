//! Builds record batches as a client does: for the load generator and for tests.

use bytes::{BufMut, Bytes, BytesMut};

use super::batch::{self, Compression, MAGIC};
use super::compression::compress;
use super::wire::Writer;
use crate::base::limits::BATCH_HEADER_BYTES;
use crate::base::{ProducerEpoch, ProducerId, TimestampMs};

/// Gathers records and makes a batch of them, with base offset 0 and no leader epoch.
#[derive(Debug, Clone)]
pub struct BatchBuilder {
    base_timestamp: TimestampMs,
    max_timestamp: TimestampMs,
    producer_id: ProducerId,
    producer_epoch: ProducerEpoch,
    base_sequence: i32,
    attributes: i16,
    record_count: i32,
    records: BytesMut,
    record: BytesMut,
}

impl BatchBuilder {
    pub fn new(base_timestamp: TimestampMs) -> Self {
        Self {
            base_timestamp,
            max_timestamp: TimestampMs::NONE,
            producer_id: ProducerId::NONE,
            producer_epoch: ProducerEpoch::NONE,
            base_sequence: -1,
            attributes: 0,
            record_count: 0,
            records: BytesMut::new(),
            record: BytesMut::new(),
        }
    }

    /// Makes the batch an idempotent producer's (KIP-98).
    pub fn producer(mut self, id: ProducerId, epoch: ProducerEpoch, base_sequence: i32) -> Self {
        self.producer_id = id;
        self.producer_epoch = epoch;
        self.base_sequence = base_sequence;
        self
    }

    /// Sets attribute bits beside the compression's.
    pub fn attributes(mut self, attributes: i16) -> Self {
        self.attributes = attributes;
        self
    }

    pub fn push(
        &mut self,
        timestamp: TimestampMs,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[(&str, Option<&[u8]>)],
    ) {
        let record = &mut self.record;
        record.clear();
        record.put_i8(0);
        record.put_varlong(timestamp.0 - self.base_timestamp.0);
        record.put_varint(self.record_count);
        put_field(record, key);
        put_field(record, value);
        record.put_varint(headers.len() as i32);
        for (name, value) in headers {
            put_field(record, Some(name.as_bytes()));
            put_field(record, *value);
        }
        self.records.put_varint(record.len() as i32);
        self.records.put_slice(record);
        self.max_timestamp = self.max_timestamp.max(timestamp);
        self.record_count += 1;
    }

    pub fn record_count(&self) -> i32 {
        self.record_count
    }

    /// Size of the batch without compression, in bytes.
    pub fn size_bytes(&self) -> usize {
        BATCH_HEADER_BYTES + self.records.len()
    }

    pub fn build(&self, compression: Compression) -> Bytes {
        let packed = match compression {
            Compression::None => None,
            _ => Some(compress(compression, &self.records).expect("memory takes all bytes")),
        };
        let records = packed.as_deref().unwrap_or(&self.records);
        let mut batch = BytesMut::with_capacity(BATCH_HEADER_BYTES + records.len());
        batch.put_i64(0);
        batch.put_i32((BATCH_HEADER_BYTES - batch::LOG_OVERHEAD_BYTES + records.len()) as i32);
        batch.put_i32(-1);
        batch.put_i8(MAGIC);
        batch.put_u32(0);
        batch.put_i16(self.attributes | compression.code());
        batch.put_i32(self.record_count - 1);
        batch.put_i64(self.base_timestamp.0);
        batch.put_i64(self.max_timestamp.0);
        batch.put_i64(self.producer_id.0);
        batch.put_i16(self.producer_epoch.0);
        batch.put_i32(self.base_sequence);
        batch.put_i32(self.record_count);
        batch.put_slice(records);
        batch::write_crc(&mut batch);
        batch.freeze()
    }
}

fn put_field(record: &mut BytesMut, field: Option<&[u8]>) {
    match field {
        Some(bytes) => {
            record.put_varint(bytes.len() as i32);
            record.put_slice(bytes);
        }
        None => record.put_varint(-1),
    }
}
