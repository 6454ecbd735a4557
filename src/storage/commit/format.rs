//! The bytes of a commit log.
//!
//! ```text
//! file     block 0: header; from block 1 on: groups, each on a fresh block, one behind the other
//! header   "RMCL"  u32 version  u32 CRC-32C of what follows
//!          u64 generation  u16 shard  u16 shards
//! group    "RMCG"  u32 CRC-32C of what follows, up to `length`
//!          u64 generation  u64 sequence  u64 flushed sequence  u32 length  u32 entries
//!          entries, then zeros up to the block's end
//! entry    u8 kind  topic id (16)  i32 partition  u64 ownership  i32 leader epoch
//!          i64 segment base  u32 position, and by kind:
//!   1 inline     u32 length, batches v2 that lie there
//!   2 reference  i64 from offset  i64 end offset  u32 length  u32 CRC-32C of the batches' headers
//!   3 truncation i64 end offset: the log ends there, and its segment at the position
//!   4 deletion   the partition's log is gone, whatever came before
//!   5 move       u16 shard: entries of a greater ownership are in that shard's log
//! ```
//! Big-endian. A generation is one run of the process; `length` counts the group's header. Of one
//! partition the entries count by ownership first, which is greater with each run and each move,
//! and by their order in the log then.

use bytes::Bytes;

use crate::base::limits::{BATCH_HEADER_BYTES, DISK_BLOCK_BYTES};
use crate::base::{LeaderEpoch, Offset, PartitionIndex, ShardId, TopicId};
use crate::protocol::wire::{Reader, WireError};

#[cfg(test)]
mod tests;

pub const VERSION: u32 = 1;
const FILE_MAGIC: &[u8; 4] = b"RMCL";
const GROUP_MAGIC: &[u8; 4] = b"RMCG";
const FILE_HEADER_BYTES: usize = 24;
pub const GROUP_HEADER_BYTES: usize = 40;
/// Where what the checksum of a group covers begins.
const GROUP_BODY_START: usize = 8;

/// What every entry begins with, in bytes.
const ENTRY_PREFIX_BYTES: usize = 1 + 16 + 4 + 8 + 4 + 8 + 4;
/// What an inline entry takes beside its batches, in bytes.
pub const INLINE_OVERHEAD_BYTES: usize = ENTRY_PREFIX_BYTES + 4;

/// Whose file it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileHeader {
    pub generation: u64,
    pub shard: ShardId,
    /// How many shards the node had: whether another log may hold entries of the same partitions.
    pub shard_count: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeaderFault {
    /// Nothing was ever written there, or not to its end.
    #[error("it has no header")]
    Missing,
    #[error("its header is damaged")]
    Damaged,
    #[error(
        "it has version {0}; this broker knows version {VERSION}: start the newer broker that wrote it"
    )]
    Version(u32),
}

impl FileHeader {
    /// A whole block.
    pub fn encode(self) -> Vec<u8> {
        let mut block = Vec::with_capacity(DISK_BLOCK_BYTES);
        block.extend_from_slice(FILE_MAGIC);
        block.extend_from_slice(&VERSION.to_be_bytes());
        block.extend_from_slice(&[0; 4]);
        block.extend_from_slice(&self.generation.to_be_bytes());
        block.extend_from_slice(&self.shard.0.to_be_bytes());
        block.extend_from_slice(&self.shard_count.to_be_bytes());
        let checksum = crc32c::crc32c(&block[12..]);
        block[8..12].copy_from_slice(&checksum.to_be_bytes());
        block.resize(DISK_BLOCK_BYTES, 0);
        block
    }

    /// # Errors
    /// The file is not one of ours, not yet, or not of this version.
    pub fn decode(block: &[u8]) -> Result<Self, HeaderFault> {
        let header = block.get(..FILE_HEADER_BYTES).ok_or(HeaderFault::Missing)?;
        let mut reader = Reader::new(header);
        let parsed = (|| {
            let magic = reader.take(4)?;
            let version = reader.read_u32()?;
            let checksum = reader.read_u32()?;
            let generation = reader.read_u64()?;
            let shard = ShardId(reader.read_u16()?);
            let shard_count = reader.read_u16()?;
            Ok::<_, WireError>((magic, version, checksum, generation, shard, shard_count))
        })();
        let Ok((magic, version, checksum, generation, shard, shard_count)) = parsed else {
            return Err(HeaderFault::Missing);
        };
        if magic != FILE_MAGIC {
            // A file is zeros until its header is written.
            let is_empty = header.iter().all(|byte| *byte == 0);
            return Err(if is_empty {
                HeaderFault::Missing
            } else {
                HeaderFault::Damaged
            });
        }
        if version != VERSION {
            return Err(HeaderFault::Version(version));
        }
        if checksum != crc32c::crc32c(&header[12..]) {
            return Err(HeaderFault::Damaged);
        }
        Ok(Self {
            generation,
            shard,
            shard_count,
        })
    }
}

/// What a group's header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupHeader {
    pub generation: u64,
    /// Ascending by one within a generation, from 1 on.
    pub sequence: u64,
    /// All groups up to this one were flushed when this one was written.
    pub flushed: u64,
    /// Bytes of the group, this header included, without the zeros behind.
    pub len: usize,
    pub entry_count: u32,
}

impl GroupHeader {
    /// The header at the front of `bytes`, whatever its group's checksum.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let header = bytes.get(..GROUP_HEADER_BYTES)?;
        let mut reader = Reader::new(header);
        if reader.take(4).ok()? != GROUP_MAGIC {
            return None;
        }
        let _checksum = reader.read_u32().ok()?;
        let header = Self {
            generation: reader.read_u64().ok()?,
            sequence: reader.read_u64().ok()?,
            flushed: reader.read_u64().ok()?,
            len: reader.read_u32().ok()? as usize,
            entry_count: reader.read_u32().ok()?,
        };
        (header.len >= GROUP_HEADER_BYTES).then_some(header)
    }

    /// The group at the front of `bytes`, where it is whole.
    pub fn decode_whole(bytes: &[u8]) -> Option<Self> {
        let header = Self::decode(bytes)?;
        let group = bytes.get(..header.len)?;
        let stored = group.get(4..GROUP_BODY_START)?;
        let computed = crc32c::crc32c(&group[GROUP_BODY_START..]);
        (stored == computed.to_be_bytes()).then_some(header)
    }

    /// Bytes of the group in its file.
    pub fn padded_len(&self) -> usize {
        self.len.next_multiple_of(DISK_BLOCK_BYTES)
    }
}

/// Where an entry belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryPlace {
    pub topic_id: TopicId,
    pub partition: PartitionIndex,
    /// Greater with each run of the process and each move of the partition.
    pub ownership: u64,
    pub leader_epoch: LeaderEpoch,
    pub segment_base: Offset,
    /// In the segment's file, which is below 2 GiB.
    pub position: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryKind {
    /// Whole batches, one behind the other.
    Inline(Bytes),
    Reference(Reference),
    Truncation {
        end: Offset,
    },
    Deletion,
    Move {
        to: ShardId,
    },
}

/// Batches that were flushed in their segment before the entry was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reference {
    pub from: Offset,
    pub end: Offset,
    pub len: u32,
    /// Over the batches' headers, each of which has a checksum of the batch's records.
    pub headers_checksum: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub place: EntryPlace,
    pub kind: EntryKind,
}

const INLINE: u8 = 1;
const REFERENCE: u8 = 2;
const TRUNCATION: u8 = 3;
const DELETION: u8 = 4;
const MOVE: u8 = 5;

impl Entry {
    /// Bytes in a group.
    pub fn encoded_len(&self) -> usize {
        ENTRY_PREFIX_BYTES
            + match &self.kind {
                EntryKind::Inline(batches) => 4 + batches.len(),
                EntryKind::Reference(_) => 8 + 8 + 4 + 4,
                EntryKind::Truncation { .. } => 8,
                EntryKind::Deletion => 0,
                EntryKind::Move { .. } => 2,
            }
    }

    fn encode(&self, out: &mut Cursor<'_>) {
        let kind = match &self.kind {
            EntryKind::Inline(_) => INLINE,
            EntryKind::Reference(_) => REFERENCE,
            EntryKind::Truncation { .. } => TRUNCATION,
            EntryKind::Deletion => DELETION,
            EntryKind::Move { .. } => MOVE,
        };
        out.put(&[kind]);
        out.put(self.place.topic_id.0.as_bytes());
        out.put(&self.place.partition.to_be_bytes());
        out.put(&self.place.ownership.to_be_bytes());
        out.put(&self.place.leader_epoch.0.to_be_bytes());
        out.put(&self.place.segment_base.0.to_be_bytes());
        out.put(&self.place.position.to_be_bytes());
        match &self.kind {
            EntryKind::Inline(batches) => {
                out.put(&(batches.len() as u32).to_be_bytes());
                out.put(batches);
            }
            EntryKind::Reference(reference) => {
                out.put(&reference.from.0.to_be_bytes());
                out.put(&reference.end.0.to_be_bytes());
                out.put(&reference.len.to_be_bytes());
                out.put(&reference.headers_checksum.to_be_bytes());
            }
            EntryKind::Truncation { end } => out.put(&end.0.to_be_bytes()),
            EntryKind::Deletion => {}
            EntryKind::Move { to } => out.put(&to.0.to_be_bytes()),
        }
    }

    /// The entry at the front of the reader, which stands in `group`.
    fn decode(group: &Bytes, reader: &mut Reader<'_>) -> Result<Self, EntryFault> {
        let kind = reader.read_u8()?;
        let mut id = [0; 16];
        id.copy_from_slice(reader.take(16)?);
        let place = EntryPlace {
            topic_id: TopicId(uuid::Uuid::from_bytes(id)),
            partition: reader.read_i32()?,
            ownership: reader.read_u64()?,
            leader_epoch: LeaderEpoch(reader.read_i32()?),
            segment_base: Offset(reader.read_i64()?),
            position: reader.read_u32()?,
        };
        let kind = match kind {
            INLINE => {
                let len = reader.read_u32()? as usize;
                let at = reader.position();
                reader.take(len)?;
                EntryKind::Inline(group.slice(at..at + len))
            }
            REFERENCE => EntryKind::Reference(Reference {
                from: Offset(reader.read_i64()?),
                end: Offset(reader.read_i64()?),
                len: reader.read_u32()?,
                headers_checksum: reader.read_u32()?,
            }),
            TRUNCATION => EntryKind::Truncation {
                end: Offset(reader.read_i64()?),
            },
            DELETION => EntryKind::Deletion,
            MOVE => EntryKind::Move {
                to: ShardId(reader.read_u16()?),
            },
            other => return Err(EntryFault::Kind(other)),
        };
        Ok(Self { place, kind })
    }
}

/// A group whose checksum is right and whose entries make no sense: written by another version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EntryFault {
    #[error("an entry of kind {0}, which this broker does not know")]
    Kind(u8),
    #[error("an entry that does not fit its group: {0}")]
    Wire(#[from] WireError),
}

/// The entries of a whole group.
///
/// # Errors
/// They are not what this version writes.
pub fn decode_entries(group: &Bytes, header: &GroupHeader) -> Result<Vec<Entry>, EntryFault> {
    let own = group.slice(..header.len.min(group.len()));
    let mut reader = Reader::new(&own);
    reader.take(GROUP_HEADER_BYTES)?;
    let mut entries = Vec::new();
    for _ in 0..header.entry_count {
        entries.push(Entry::decode(&own, &mut reader)?);
    }
    Ok(entries)
}

/// Writes a group into `buffer`, which has a whole number of blocks and room for it; zeros follow.
pub fn encode_group<'a>(
    buffer: &mut [u8],
    generation: u64,
    sequence: u64,
    flushed: u64,
    entries: impl Iterator<Item = &'a Entry>,
) {
    let mut out = Cursor { buffer, at: 0 };
    out.put(GROUP_MAGIC);
    out.put(&[0; 4]);
    out.put(&generation.to_be_bytes());
    out.put(&sequence.to_be_bytes());
    out.put(&flushed.to_be_bytes());
    out.put(&[0; 8]);
    let mut entry_count = 0_u32;
    for entry in entries {
        entry.encode(&mut out);
        entry_count += 1;
    }
    let len = out.at;
    let buffer = out.buffer;
    buffer[32..36].copy_from_slice(&(len as u32).to_be_bytes());
    buffer[36..40].copy_from_slice(&entry_count.to_be_bytes());
    let checksum = crc32c::crc32c(&buffer[GROUP_BODY_START..len]);
    buffer[4..GROUP_BODY_START].copy_from_slice(&checksum.to_be_bytes());
    buffer[len..].fill(0);
}

struct Cursor<'a> {
    buffer: &'a mut [u8],
    at: usize,
}

impl Cursor<'_> {
    fn put(&mut self, bytes: &[u8]) {
        self.buffer[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }
}

/// The checksum of a [`Reference`], fed batch by batch.
#[derive(Debug, Clone, Copy, Default)]
pub struct HeadersChecksum(u32);

impl HeadersChecksum {
    /// `batch` is whole, or at least its header.
    pub fn add(&mut self, batch: &[u8]) {
        let header = batch.get(..BATCH_HEADER_BYTES).unwrap_or(batch);
        self.0 = crc32c::crc32c_append(self.0, header);
    }

    pub fn value(self) -> u32 {
        self.0
    }
}
