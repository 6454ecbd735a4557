//! A record batch v2 as the storage engine sees it: the 61 bytes of its header and its extent.
//!
//! ```text
//! byte  0 i64 base offset        21 i16 attributes         43 i64 producer id
//!       8 i32 length after here  23 i32 last offset delta  51 i16 producer epoch
//!      12 i32 leader epoch       27 i64 base timestamp     53 i32 base sequence
//!      16 i8  magic, 2           35 i64 max timestamp      57 i32 records
//!      17 u32 CRC-32C of all from byte 21                  61 records
//! ```
//! Big-endian. Source: Kafka protocol, record batch; KIP-98.

use crate::base::limits::BATCH_HEADER_BYTES;
use crate::base::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs};

/// Bytes before those that the length field counts.
const LENGTH_OVERHEAD_BYTES: usize = 12;
const CRC_START: usize = 21;

/// Why bytes are not a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BatchFault {
    #[error("the file ends inside a batch ({missing} bytes are missing)")]
    Truncated { missing: u64 },
    #[error("batch length {0} is impossible")]
    Length(i32),
    #[error("magic {0} is not 2")]
    Magic(i8),
    #[error("last offset delta {0} is negative")]
    LastOffsetDelta(i32),
    #[error("checksum {computed:#010x} does not match the stored {stored:#010x}")]
    Checksum { stored: u32, computed: u32 },
    #[error("base offset {found} where {expected} was due")]
    BaseOffset { expected: Offset, found: Offset },
}

/// One whole batch, or at least its header.
#[derive(Debug, Clone, Copy)]
pub struct BatchView<'a> {
    bytes: &'a [u8],
}

impl<'a> BatchView<'a> {
    /// Looks at the header at the front of `bytes`; the records need not be there.
    ///
    /// # Errors
    /// The fault, where no header of a batch v2 is there.
    pub fn header(bytes: &'a [u8]) -> Result<Self, BatchFault> {
        if bytes.len() < BATCH_HEADER_BYTES {
            return Err(BatchFault::Truncated {
                missing: (BATCH_HEADER_BYTES - bytes.len()) as u64,
            });
        }
        let view = Self { bytes };
        let length = view.i32_at(8);
        if length < (BATCH_HEADER_BYTES - LENGTH_OVERHEAD_BYTES) as i32 {
            return Err(BatchFault::Length(length));
        }
        let magic = i8::from_be_bytes([bytes[16]]);
        if magic != 2 {
            return Err(BatchFault::Magic(magic));
        }
        if view.i32_at(23) < 0 {
            return Err(BatchFault::LastOffsetDelta(view.i32_at(23)));
        }
        Ok(view)
    }

    /// The batch at the front of `bytes`, whole and with the right checksum.
    ///
    /// # Errors
    /// The fault, where it is not.
    pub fn whole(bytes: &'a [u8]) -> Result<Self, BatchFault> {
        let header = Self::header(bytes)?;
        let len = header.len();
        let Some(own) = bytes.get(..len) else {
            return Err(BatchFault::Truncated {
                missing: (len - bytes.len()) as u64,
            });
        };
        let view = Self { bytes: own };
        let stored = u32::from_be_bytes(view.array_at(17));
        let computed = crc32c::crc32c(&own[CRC_START..]);
        if stored != computed {
            return Err(BatchFault::Checksum { stored, computed });
        }
        Ok(view)
    }

    fn array_at<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut array = [0; N];
        // The header's length was checked when the view was made.
        array.copy_from_slice(&self.bytes[at..at + N]);
        array
    }

    fn i32_at(&self, at: usize) -> i32 {
        i32::from_be_bytes(self.array_at(at))
    }

    fn i64_at(&self, at: usize) -> i64 {
        i64::from_be_bytes(self.array_at(at))
    }

    /// The bytes that the view was made of.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The batch's extent in bytes, header included.
    #[allow(clippy::len_without_is_empty)] // at least a header
    pub fn len(&self) -> usize {
        // Not negative: checked when the view was made.
        LENGTH_OVERHEAD_BYTES + self.i32_at(8) as usize
    }

    pub fn base_offset(&self) -> Offset {
        Offset(self.i64_at(0))
    }

    pub fn last_offset(&self) -> Offset {
        self.base_offset().plus(i64::from(self.i32_at(23)))
    }

    pub fn leader_epoch(&self) -> LeaderEpoch {
        LeaderEpoch(self.i32_at(12))
    }

    pub fn attributes(&self) -> i16 {
        i16::from_be_bytes(self.array_at(21))
    }

    pub fn base_timestamp(&self) -> TimestampMs {
        TimestampMs(self.i64_at(27))
    }

    pub fn max_timestamp(&self) -> TimestampMs {
        TimestampMs(self.i64_at(35))
    }

    pub fn producer_id(&self) -> ProducerId {
        ProducerId(self.i64_at(43))
    }

    pub fn producer_epoch(&self) -> ProducerEpoch {
        ProducerEpoch(i16::from_be_bytes(self.array_at(51)))
    }

    pub fn base_sequence(&self) -> i32 {
        self.i32_at(53)
    }

    pub fn records_count(&self) -> i32 {
        self.i32_at(57)
    }
}

/// Makes batches for the tests of this folder.
#[cfg(test)]
pub(super) mod testing {
    use super::*;

    /// A batch of `records` offsets from `base` whose records are `payload_bytes` of a pattern
    /// drawn from `seed`.
    pub fn batch(
        base: Offset,
        records: i32,
        payload_bytes: usize,
        max_timestamp: TimestampMs,
        seed: u64,
    ) -> Vec<u8> {
        let mut bytes = vec![0u8; BATCH_HEADER_BYTES + payload_bytes];
        bytes[0..8].copy_from_slice(&base.0.to_be_bytes());
        let length = (bytes.len() - LENGTH_OVERHEAD_BYTES) as i32;
        bytes[8..12].copy_from_slice(&length.to_be_bytes());
        bytes[12..16].copy_from_slice(&7i32.to_be_bytes());
        bytes[16] = 2;
        bytes[23..27].copy_from_slice(&(records - 1).to_be_bytes());
        bytes[27..35].copy_from_slice(&max_timestamp.0.to_be_bytes());
        bytes[35..43].copy_from_slice(&max_timestamp.0.to_be_bytes());
        bytes[43..51].copy_from_slice(&(-1i64).to_be_bytes());
        bytes[57..61].copy_from_slice(&records.to_be_bytes());
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        for byte in &mut bytes[BATCH_HEADER_BYTES..] {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            *byte = (state >> 32) as u8;
        }
        let checksum = crc32c::crc32c(&bytes[CRC_START..]);
        bytes[17..21].copy_from_slice(&checksum.to_be_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_seen_as_it_was_made_and_any_flipped_byte_shows() {
        let bytes = testing::batch(Offset(42), 5, 100, TimestampMs(1_000), 3);
        let view = BatchView::whole(&bytes).unwrap();
        assert_eq!(view.base_offset(), Offset(42));
        assert_eq!(view.last_offset(), Offset(46));
        assert_eq!(view.len(), 161);
        assert_eq!(view.max_timestamp(), TimestampMs(1_000));
        assert_eq!(view.leader_epoch(), LeaderEpoch(7));
        for at in CRC_START..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            assert!(BatchView::whole(&damaged).is_err(), "byte {at}");
        }
    }

    #[test]
    fn zeros_and_short_bytes_are_no_batch() {
        assert_eq!(
            BatchView::header(&[0; 200]).unwrap_err(),
            BatchFault::Length(0)
        );
        assert_eq!(
            BatchView::header(&[0; 60]).unwrap_err(),
            BatchFault::Truncated { missing: 1 }
        );
        let bytes = testing::batch(Offset(0), 1, 100, TimestampMs(1), 1);
        assert_eq!(
            BatchView::whole(&bytes[..150]).unwrap_err(),
            BatchFault::Truncated { missing: 11 }
        );
    }
}
