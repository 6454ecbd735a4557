//! The bytes of the store's files. Numbers are big-endian, as in all of Kafka's files.
//!
//! ```text
//! file header, 64 bytes                       frame: one batch of records
//!   0  8  "RMMETALG" log, "RMMETASN" snapshot    0  4  length of what follows this field
//!   8  2  format version                         4  4  CRC-32C of what follows this field
//!  10  2  zero                                   8  2  format version
//!  12  4  snapshot: number of records; log: 0   10  8  offset of the first record
//!  16  8  base offset                           18  4  number of records
//!  24 32  cluster id, padded with zeros         22  …  records (JSON, see `cluster::records`)
//!  56  4  zero
//!  60  4  CRC-32C of the 60 bytes before
//! ```
//!
//! A log's base offset is that of its first record; a snapshot's is the offset of the first
//! record that it does *not* hold. In a snapshot, frames count their records from 0.

use super::super::records::{MetadataRecord, decode_records, encode_records};

/// The format that this version writes, and the only one that it reads.
pub const FORMAT_VERSION: u16 = 1;
pub const FILE_HEADER_BYTES: usize = 64;
pub const FRAME_HEADER_BYTES: usize = 22;
/// The largest frame in a file; a length beyond it is damage.
pub const FRAME_BYTES_MAX: usize = 64 << 20;
/// The largest batch that may be appended; beyond it the change is refused before anything is
/// written. Half a frame, so that a topic made by several changes fits a frame of a snapshot.
pub const BATCH_BYTES_MAX: usize = FRAME_BYTES_MAX / 2;
const CLUSTER_ID_BYTES_MAX: usize = 32;

/// Which of the two files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    Log,
    Snapshot,
}

impl FileKind {
    fn magic(self) -> &'static [u8; 8] {
        match self {
            Self::Log => b"RMMETALG",
            Self::Snapshot => b"RMMETASN",
        }
    }
}

/// The first 64 bytes of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileHeader {
    pub kind: FileKind,
    pub base_offset: i64,
    pub record_count: u32,
    pub cluster_id: String,
}

/// What is wrong with bytes. The caller knows the file and the position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    #[error("the file ends within a header")]
    TruncatedHeader,
    #[error("the file does not begin as a metadata file does")]
    WrongMagic,
    #[error("it was written in format {0}, and this version reads format {FORMAT_VERSION} only")]
    UnknownVersion(u16),
    #[error("the length {0} is impossible")]
    ImpossibleLength(u32),
    #[error("the checksum is wrong")]
    WrongChecksum,
    #[error("the record offset is {found}, but {expected} comes next")]
    WrongOffset { expected: i64, found: i64 },
    #[error("it announces {announced} records and holds {found}")]
    WrongRecordCount { announced: u32, found: usize },
    #[error("{0}")]
    UnreadableRecords(String),
}

impl FileHeader {
    pub fn encode(&self) -> [u8; FILE_HEADER_BYTES] {
        let mut bytes = [0; FILE_HEADER_BYTES];
        bytes[..8].copy_from_slice(self.kind.magic());
        bytes[8..10].copy_from_slice(&FORMAT_VERSION.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.record_count.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.base_offset.to_be_bytes());
        let id_len = self.cluster_id.len().min(CLUSTER_ID_BYTES_MAX);
        bytes[24..24 + id_len].copy_from_slice(&self.cluster_id.as_bytes()[..id_len]);
        let crc = crc32c::crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_be_bytes());
        bytes
    }

    pub fn decode(kind: FileKind, bytes: &[u8]) -> Result<Self, Damage> {
        let header: &[u8; FILE_HEADER_BYTES] =
            bytes.first_chunk().ok_or(Damage::TruncatedHeader)?;
        if !header.starts_with(kind.magic()) {
            return Err(Damage::WrongMagic);
        }
        let version = u16::from_be_bytes(field(header, 8)?);
        if version != FORMAT_VERSION {
            return Err(Damage::UnknownVersion(version));
        }
        if u32::from_be_bytes(field(header, 60)?) != crc32c::crc32c(&header[..60]) {
            return Err(Damage::WrongChecksum);
        }
        let id = &header[24..24 + CLUSTER_ID_BYTES_MAX];
        let id_len = id.iter().position(|byte| *byte == 0).unwrap_or(id.len());
        Ok(Self {
            kind,
            base_offset: i64::from_be_bytes(field(header, 16)?),
            record_count: u32::from_be_bytes(field(header, 12)?),
            cluster_id: String::from_utf8_lossy(&id[..id_len]).into_owned(),
        })
    }
}

/// A batch as read.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame {
    pub base_offset: i64,
    pub records: Vec<MetadataRecord>,
    /// Its length in the file.
    pub len: usize,
}

/// The batch would not fit a frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the change takes {len} bytes of metadata, and one may take {len_max}: make it in parts")]
pub struct FrameTooLarge {
    pub len: usize,
    pub len_max: usize,
}

/// A frame of at most `len_max` bytes, itself at most [`FRAME_BYTES_MAX`].
pub fn encode_frame(
    base_offset: i64,
    records: &[MetadataRecord],
    len_max: usize,
) -> Result<Vec<u8>, FrameTooLarge> {
    let payload = encode_records(records);
    let len = FRAME_HEADER_BYTES + payload.len();
    let (Ok(body_len), Ok(count), true) = (
        u32::try_from(len - 4),
        u32::try_from(records.len()),
        len <= len_max,
    ) else {
        return Err(FrameTooLarge { len, len_max });
    };
    let mut frame = Vec::with_capacity(len);
    frame.extend_from_slice(&body_len.to_be_bytes());
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(&FORMAT_VERSION.to_be_bytes());
    frame.extend_from_slice(&base_offset.to_be_bytes());
    frame.extend_from_slice(&count.to_be_bytes());
    frame.extend_from_slice(&payload);
    let crc = crc32c::crc32c(&frame[8..]);
    frame[4..8].copy_from_slice(&crc.to_be_bytes());
    Ok(frame)
}

/// The frame at the beginning of `bytes`, whose first record must have offset `expected_offset`.
pub fn decode_frame(bytes: &[u8], expected_offset: i64) -> Result<Frame, Damage> {
    let (frame, base_offset) = checked_frame(bytes)?;
    if base_offset != expected_offset {
        return Err(Damage::WrongOffset {
            expected: expected_offset,
            found: base_offset,
        });
    }
    let announced = u32::from_be_bytes(field(frame, 18)?);
    let records = decode_records(&frame[FRAME_HEADER_BYTES..])
        .map_err(|error| Damage::UnreadableRecords(error.to_string()))?;
    if usize::try_from(announced) != Ok(records.len()) {
        return Err(Damage::WrongRecordCount {
            announced,
            found: records.len(),
        });
    }
    Ok(Frame {
        base_offset,
        records,
        len: frame.len(),
    })
}

/// Whether a whole frame begins anywhere in `bytes`: what a torn write cannot leave behind, since
/// nothing is written after a frame before that is flushed.
pub fn contains_frame(bytes: &[u8]) -> bool {
    (0..bytes.len().saturating_sub(FRAME_HEADER_BYTES - 1))
        .any(|start| checked_frame(&bytes[start..]).is_ok())
}

/// A frame whose length and checksum are right, and the offset of its first record. The version
/// is looked at last: only bytes that are whole can say that they are new.
fn checked_frame(bytes: &[u8]) -> Result<(&[u8], i64), Damage> {
    if bytes.len() < FRAME_HEADER_BYTES {
        return Err(Damage::TruncatedHeader);
    }
    let body_len = u32::from_be_bytes(field(bytes, 0)?);
    let frame = usize::try_from(body_len)
        .ok()
        .and_then(|len| len.checked_add(4))
        .filter(|len| (FRAME_HEADER_BYTES..=FRAME_BYTES_MAX).contains(len))
        .and_then(|len| bytes.get(..len))
        .ok_or(Damage::ImpossibleLength(body_len))?;
    if u32::from_be_bytes(field(frame, 4)?) != crc32c::crc32c(&frame[8..]) {
        return Err(Damage::WrongChecksum);
    }
    let version = u16::from_be_bytes(field(frame, 8)?);
    if version != FORMAT_VERSION {
        return Err(Damage::UnknownVersion(version));
    }
    Ok((frame, i64::from_be_bytes(field(frame, 10)?)))
}

fn field<const N: usize>(bytes: &[u8], position: usize) -> Result<[u8; N], Damage> {
    bytes
        .get(position..)
        .and_then(|rest| rest.first_chunk().copied())
        .ok_or(Damage::TruncatedHeader)
}
