//! Fetch requests without sessions, and the reading of their responses down to batch headers.

use std::collections::BTreeMap;

use bytes::{BufMut, BytesMut};
use kafka_protocol::messages::ApiKey;

use super::request::put_header;
use crate::client::error::error_name;
use crate::protocol::batch::LOG_OVERHEAD_BYTES;
use crate::protocol::wire::{Reader, WireError, Writer};

const FLEXIBLE_FROM: i16 = 12;

/// How far a partition was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    pub partition: i32,
    first_offset: i64,
    /// Behind the last offset that was there at the start.
    end_offset: i64,
    next_offset: i64,
    loops_left: u32,
}

impl Cursor {
    /// None if the partition is empty.
    pub fn new(partition: i32, first_offset: i64, end_offset: i64, loops: u32) -> Option<Self> {
        (first_offset < end_offset && loops > 0).then_some(Self {
            partition,
            first_offset,
            end_offset,
            next_offset: first_offset,
            loops_left: loops,
        })
    }

    /// Goes on behind a batch; at the end, from the start again.
    fn advance(&mut self, next_offset: i64) {
        if next_offset <= self.next_offset || self.is_done() {
            return;
        }
        self.next_offset = next_offset;
        if next_offset >= self.end_offset {
            self.next_offset = self.first_offset;
            if self.loops_left != u32::MAX {
                self.loops_left -= 1;
            }
        }
    }

    pub fn is_done(&self) -> bool {
        self.loops_left == 0
    }
}

/// Header and body of a request for all cursors, versions 4 to 12.
pub fn put_fetch_request(
    buffer: &mut BytesMut,
    version: i16,
    correlation_id: i32,
    topic: &str,
    fetch_bytes: i32,
    cursors: &[Cursor],
) {
    const WAIT_MS_MAX: i32 = 500;
    let flexible = version >= FLEXIBLE_FROM;
    let correlation_at = buffer.len() + 4;
    put_header(buffer, ApiKey::Fetch, version, flexible);
    buffer[correlation_at..correlation_at + 4].copy_from_slice(&correlation_id.to_be_bytes());
    buffer.put_i32(-1); // replica id of a consumer
    buffer.put_i32(WAIT_MS_MAX);
    buffer.put_i32(1); // least bytes to answer with
    buffer.put_i32(fetch_bytes);
    buffer.put_i8(0); // read uncommitted
    if version >= 7 {
        buffer.put_i32(0); // session id
        buffer.put_i32(-1); // session epoch: no session
    }
    buffer.put_count(1, flexible);
    buffer.put_string(topic, flexible);
    buffer.put_count(cursors.len(), flexible);
    for cursor in cursors {
        buffer.put_i32(cursor.partition);
        if version >= 9 {
            buffer.put_i32(-1); // leader epoch
        }
        buffer.put_i64(cursor.next_offset);
        if version >= 12 {
            buffer.put_i32(-1); // last fetched epoch
        }
        if version >= 5 {
            buffer.put_i64(-1); // log start offset
        }
        buffer.put_i32(fetch_bytes);
        buffer.put_no_tags(flexible);
    }
    buffer.put_no_tags(flexible);
    if version >= 7 {
        buffer.put_count(0, flexible); // forgotten topics
    }
    if version >= 11 {
        buffer.put_string("", flexible); // rack
    }
    buffer.put_no_tags(flexible);
}

/// What a response brought.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Fetched {
    pub correlation_id: i32,
    /// Of whole batches; a batch that begins before the wanted offset counts whole.
    pub records: u64,
    pub bytes: u64,
    /// The first error.
    pub refusal: Option<String>,
}

/// Reads a response frame (without its length) and moves the cursors on.
pub fn read_fetch_response(
    frame: &[u8],
    version: i16,
    cursors: &mut BTreeMap<i32, &mut Cursor>,
) -> Result<Fetched, WireError> {
    let flexible = version >= FLEXIBLE_FROM;
    let mut reader = Reader::new(frame);
    let mut fetched = Fetched {
        correlation_id: reader.read_i32()?,
        ..Fetched::default()
    };
    reader.skip_tagged_fields(flexible)?;
    reader.read_i32()?; // throttle time
    if version >= 7 {
        let code = reader.read_i16()?;
        reader.read_i32()?; // session id
        fetched.refuse(code, "a fetch");
    }
    for _ in 0..reader.read_count(flexible, 2)? {
        reader.read_string(flexible)?;
        for _ in 0..reader.read_count(flexible, 22)? {
            let partition = reader.read_i32()?;
            let code = reader.read_i16()?;
            reader.read_i64()?; // high watermark
            reader.read_i64()?; // last stable offset
            if version >= 5 {
                reader.read_i64()?; // log start offset
            }
            for _ in 0..reader.read_count(flexible, 16)? {
                reader.take(16)?; // an aborted transaction
                reader.skip_tagged_fields(flexible)?;
            }
            if version >= 11 {
                reader.read_i32()?; // preferred read replica
            }
            let len = reader.read_bytes_length(flexible)?.unwrap_or(0);
            let batches = reader.take(len)?;
            reader.skip_tagged_fields(flexible)?;
            fetched.refuse(code, &format!("partition {partition}"));
            let (records, bytes, next_offset) = walk_batches(batches)?;
            fetched.records += records;
            fetched.bytes += bytes;
            if let (Some(cursor), Some(next)) = (cursors.get_mut(&partition), next_offset) {
                cursor.advance(next);
            }
        }
        reader.skip_tagged_fields(flexible)?;
    }
    Ok(fetched)
}

impl Fetched {
    fn refuse(&mut self, code: i16, what: &str) {
        if code != 0 && self.refusal.is_none() {
            let name = error_name(code);
            self.refusal = Some(format!("the broker refused {what}: {name} (error {code})"));
        }
    }
}

/// Counts records and bytes of whole batches, and gives the offset behind the last. A batch that is
/// cut off at the end is none: brokers may send one (KIP-74).
fn walk_batches(batches: &[u8]) -> Result<(u64, u64, Option<i64>), WireError> {
    let mut reader = Reader::new(batches);
    let (mut records, mut next_offset) = (0, None);
    let mut whole_bytes = 0;
    while reader.remaining() >= LOG_OVERHEAD_BYTES {
        let at = reader.position();
        let base_offset = reader.read_i64()?;
        let length = reader.read_i32()?;
        let len = usize::try_from(length).map_err(|_| WireError::Length {
            at,
            value: length.into(),
        })?;
        if len > reader.remaining() {
            break;
        }
        // Leader epoch, magic, CRC, attributes; then the last offset's delta.
        let mut batch = Reader::new(reader.take(len)?);
        batch.take(4 + 1 + 4 + 2)?;
        let last_delta = batch.read_i32()?;
        // Two timestamps, producer id and epoch, sequence; then the number of records.
        batch.take(8 + 8 + 8 + 2 + 4)?;
        records += u64::try_from(batch.read_i32()?).unwrap_or(0);
        next_offset = Some(
            base_offset
                .saturating_add(last_delta.into())
                .saturating_add(1),
        );
        whole_bytes = reader.position() as u64;
    }
    Ok((records, whole_bytes, next_offset))
}
