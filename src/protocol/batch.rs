//! The header of a record batch of magic 2, and what may be changed in place.
//!
//! ```text
//! byte  0  base offset               i64   outside the CRC: patched by the broker
//!       8  batch length              i32   bytes behind this field
//!      12  partition leader epoch    i32   outside the CRC: patched by the broker
//!      16  magic                     i8    2
//!      17  CRC-32C                   u32   of everything from byte 21 to the end
//!      21  attributes                i16   compression, timestamp type, transactional, control
//!      23  last offset delta         i32
//!      27  base timestamp            i64
//!      35  max timestamp             i64
//!      43  producer id               i64
//!      51  producer epoch            i16
//!      53  base sequence             i32
//!      57  record count              i32
//!      61  records
//! ```
//! Source: Kafka documentation, "Record Batch". Big-endian.

use crate::base::limits::BATCH_HEADER_BYTES;
use crate::base::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs};

/// Bytes in front of what the batch length counts.
pub const LOG_OVERHEAD_BYTES: usize = 12;
const MAGIC_AT: usize = 16;
const CRC_AT: usize = 17;
const CHECKED_FROM: usize = 21;
const MAX_TIMESTAMP_AT: usize = 35;
/// The only batch format that is written today.
pub const MAGIC: i8 = 2;

/// How the records of a batch are compressed (attributes, bits 0 to 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

impl Compression {
    pub fn from_code(code: i16) -> Option<Self> {
        [Self::None, Self::Gzip, Self::Snappy, Self::Lz4, Self::Zstd]
            .into_iter()
            .find(|compression| compression.code() == code)
    }

    pub fn code(self) -> i16 {
        match self {
            Self::None => 0,
            Self::Gzip => 1,
            Self::Snappy => 2,
            Self::Lz4 => 3,
            Self::Zstd => 4,
        }
    }
}

/// The flags of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes(pub i16);

impl Attributes {
    const LOG_APPEND_TIME: i16 = 1 << 3;

    /// `None` for a code that no one has defined.
    pub fn compression(self) -> Option<Compression> {
        Compression::from_code(self.0 & 7)
    }

    pub fn is_log_append_time(self) -> bool {
        self.0 & Self::LOG_APPEND_TIME != 0
    }

    pub fn is_transactional(self) -> bool {
        self.0 & 1 << 4 != 0
    }

    pub fn is_control(self) -> bool {
        self.0 & 1 << 5 != 0
    }
}

/// Why bytes are not a sound batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    #[error("{available} bytes are too few for a record batch, which has a header of 61")]
    Short { available: usize },
    #[error("a record batch claims a length of {length} bytes, which is impossible")]
    Length { length: i32 },
    #[error("a record batch of {total} bytes has only {available} bytes there")]
    Incomplete { total: usize, available: usize },
    #[error("record batch of magic {magic}; only magic 2 is supported")]
    Magic { magic: i8 },
    #[error("the CRC-32C of a record batch is {found:#010x} but should be {stored:#010x}")]
    Crc { stored: u32, found: u32 },
}

/// A parsed header. Nothing is checked beyond what [`BatchHeader::parse`] says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchHeader {
    pub base_offset: Offset,
    /// Size of the whole batch, in bytes.
    pub total_bytes: usize,
    pub leader_epoch: LeaderEpoch,
    pub crc: u32,
    pub attributes: Attributes,
    pub last_offset_delta: i32,
    pub base_timestamp: TimestampMs,
    pub max_timestamp: TimestampMs,
    pub producer_id: ProducerId,
    pub producer_epoch: ProducerEpoch,
    pub base_sequence: i32,
    pub record_count: i32,
}

impl BatchHeader {
    /// Reads a header from the front of `bytes`, which may hold less than the whole batch, and
    /// more. Checks the magic and that the length holds a header.
    pub fn parse(bytes: &[u8]) -> Result<Self, BatchError> {
        let short = BatchError::Short {
            available: bytes.len(),
        };
        // The length and the magic come first: they explain older formats better than "short".
        let length = i32::from_be_bytes(field(bytes, 8).ok_or(short)?);
        let [magic] = field::<1>(bytes, MAGIC_AT).ok_or(short)?;
        if magic as i8 != MAGIC {
            return Err(BatchError::Magic { magic: magic as i8 });
        }
        let total_bytes = usize::try_from(length)
            .ok()
            .and_then(|length| length.checked_add(LOG_OVERHEAD_BYTES))
            .filter(|total| *total >= BATCH_HEADER_BYTES)
            .ok_or(BatchError::Length { length })?;
        if bytes.len() < BATCH_HEADER_BYTES {
            return Err(short);
        }
        let i32_at = |at| Some(i32::from_be_bytes(field(bytes, at)?));
        let i64_at = |at| Some(i64::from_be_bytes(field(bytes, at)?));
        let i16_at = |at| Some(i16::from_be_bytes(field(bytes, at)?));
        let header = || {
            Some(Self {
                base_offset: Offset(i64_at(0)?),
                total_bytes,
                leader_epoch: LeaderEpoch(i32_at(12)?),
                crc: u32::from_be_bytes(field(bytes, CRC_AT)?),
                attributes: Attributes(i16_at(CHECKED_FROM)?),
                last_offset_delta: i32_at(23)?,
                base_timestamp: TimestampMs(i64_at(27)?),
                max_timestamp: TimestampMs(i64_at(MAX_TIMESTAMP_AT)?),
                producer_id: ProducerId(i64_at(43)?),
                producer_epoch: ProducerEpoch(i16_at(51)?),
                base_sequence: i32_at(53)?,
                record_count: i32_at(57)?,
            })
        };
        header().ok_or(short)
    }

    /// Like [`BatchHeader::parse`], for a batch that must be there whole with a right CRC.
    pub fn parse_checked(bytes: &[u8]) -> Result<Self, BatchError> {
        let header = Self::parse(bytes)?;
        let available = bytes.len();
        let batch = bytes
            .get(..header.total_bytes)
            .ok_or(BatchError::Incomplete {
                total: header.total_bytes,
                available,
            })?;
        let found = crc32c::crc32c(&batch[CHECKED_FROM..]);
        if found != header.crc {
            return Err(BatchError::Crc {
                stored: header.crc,
                found,
            });
        }
        Ok(header)
    }

    pub fn last_offset(&self) -> Offset {
        self.base_offset.plus(i64::from(self.last_offset_delta))
    }

    /// The offset behind the batch.
    pub fn next_offset(&self) -> Offset {
        self.last_offset().next()
    }

    pub fn has_producer(&self) -> bool {
        self.producer_id != ProducerId::NONE
    }

    /// The sequence number of the last record; it wraps from `i32::MAX` to 0 (KIP-98).
    pub fn last_sequence(&self) -> i32 {
        if self.base_sequence < 0 {
            return self.base_sequence;
        }
        let sequence = i64::from(self.base_sequence) + i64::from(self.last_offset_delta.max(0));
        (sequence % (i64::from(i32::MAX) + 1)) as i32
    }
}

fn field<const LEN: usize>(bytes: &[u8], at: usize) -> Option<[u8; LEN]> {
    bytes.get(at..at.checked_add(LEN)?)?.try_into().ok()
}

/// Writes the offset and epoch that the broker assigned. `batch` holds a parsed header.
pub fn assign(batch: &mut [u8], base_offset: Offset, leader_epoch: LeaderEpoch) {
    batch[..8].copy_from_slice(&base_offset.0.to_be_bytes());
    batch[12..MAGIC_AT].copy_from_slice(&leader_epoch.0.to_be_bytes());
}

/// Sets the greatest timestamp of the batch and the CRC anew. `log_append_time` says whether it is
/// the broker's clock, which then counts for every record.
pub fn set_max_timestamp(batch: &mut [u8], timestamp: TimestampMs, log_append_time: bool) {
    let mut attributes = i16::from_be_bytes([batch[CHECKED_FROM], batch[CHECKED_FROM + 1]]);
    if log_append_time {
        attributes |= Attributes::LOG_APPEND_TIME;
    } else {
        attributes &= !Attributes::LOG_APPEND_TIME;
    }
    batch[CHECKED_FROM..CHECKED_FROM + 2].copy_from_slice(&attributes.to_be_bytes());
    batch[MAX_TIMESTAMP_AT..MAX_TIMESTAMP_AT + 8].copy_from_slice(&timestamp.0.to_be_bytes());
    write_crc(batch);
}

/// Computes the CRC-32C of a batch and stores it.
pub fn write_crc(batch: &mut [u8]) {
    let crc = crc32c::crc32c(&batch[CHECKED_FROM..]);
    batch[CRC_AT..CHECKED_FROM].copy_from_slice(&crc.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::protocol::builder::BatchBuilder;

    fn sample() -> Vec<u8> {
        let mut builder = BatchBuilder::new(TimestampMs(1000));
        builder.push(TimestampMs(1000), Some(b"key"), Some(b"value"), &[]);
        builder.push(TimestampMs(1005), None, Some(b"second"), &[]);
        builder.build(Compression::None).to_vec()
    }

    #[test]
    fn a_batch_that_was_assigned_and_stamped_is_still_sound() {
        let mut batch = sample();
        assign(&mut batch, Offset(41), LeaderEpoch(3));
        set_max_timestamp(&mut batch, TimestampMs(77), true);
        let header = BatchHeader::parse_checked(&batch).unwrap();
        assert_eq!(header.base_offset, Offset(41));
        assert_eq!(header.last_offset(), Offset(42));
        assert_eq!(header.leader_epoch, LeaderEpoch(3));
        assert_eq!(header.max_timestamp, TimestampMs(77));
        assert!(header.attributes.is_log_append_time());
    }

    #[test]
    fn every_kind_of_damage_has_its_reason() {
        let batch = sample();
        let total = batch.len();
        let damaged = |at: usize, value: u8| {
            let mut copy = batch.clone();
            copy[at] = value;
            BatchHeader::parse_checked(&copy)
        };
        assert_eq!(damaged(16, 1), Err(BatchError::Magic { magic: 1 }));
        assert!(matches!(damaged(8, 0xff), Err(BatchError::Length { .. })));
        assert!(matches!(damaged(9, 1), Err(BatchError::Incomplete { .. })));
        assert!(matches!(
            damaged(total - 1, 0xff),
            Err(BatchError::Crc { .. })
        ));
        assert_eq!(
            BatchHeader::parse_checked(&batch[..total - 1]),
            Err(BatchError::Incomplete {
                total,
                available: total - 1
            })
        );
        assert_eq!(
            BatchHeader::parse(&[0; 5]),
            Err(BatchError::Short { available: 5 })
        );
    }

    #[test]
    fn sequences_wrap_to_zero() {
        let mut header = BatchHeader::parse(&sample()).unwrap();
        header.base_sequence = i32::MAX;
        assert_eq!(header.last_sequence(), 0);
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_header_parser_panic(bytes: Vec<u8>) {
            let _ = BatchHeader::parse_checked(&bytes);
        }
    }
}
