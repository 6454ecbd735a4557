//! What a core knew to be durable, in one file per core: `core-NNN/checkpoint`. Recovery begins
//! there.
//!
//! ```text
//! "RMCP"  u32 version  u32 CRC-32C of all that follows
//! u64 generation  u64 sequence  u64 released group of the commit log  u32 partitions
//! each: topic id (16)  i32 partition  i64 log start  i64 durable offset
//!       i64 segment base  u64 position  i64 flushed offset  u8 has snapshot
//!       with one: i64 offset  u32 length  bytes
//! ```
//! Big-endian. A start writes its first checkpoint beside the last run's, as `checkpoint-next`,
//! which goes when all cores have theirs: partitions may have changed cores. A generation is one run
//! of the process; whatever the number of cores, the entry of the greatest generation and sequence
//! is the valid one of a partition.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use super::partition_files::replace_file;
use crate::base::{FilePosition, Offset, PartitionIndex, ShardId, TopicId};
use crate::io::disk::Disk;

#[cfg(test)]
mod tests;

const FILE_NAME: &str = "checkpoint";
const FIRST_FILE_NAME: &str = "checkpoint-next";
/// How the names of core folders that are being removed end.
const REMOVED_SUFFIX: &str = "-removed";
const MAGIC: &[u8; 4] = b"RMCP";
const VERSION: u32 = 2;
/// What was durable was all flushed in the segments; readable still.
const VERSION_WITHOUT_COMMIT_LOG: u32 = 1;
const FRAME_BYTES: usize = 12;

/// Where a log was known to be good, and from where recovery must look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionCheckpoint {
    /// Records below it were deleted.
    pub log_start: Offset,
    /// Records below it are on stable media, in the segments or in the commit log: damage there is
    /// corruption.
    pub durable_offset: Offset,
    /// The segment that was written, and the bytes of it that were flushed.
    pub segment_base: Offset,
    pub position: FilePosition,
    /// The offset at that position.
    pub flushed_offset: Offset,
    /// The derived state at an offset, where it is small enough to be kept here.
    pub snapshot: Option<(Offset, Vec<u8>)>,
}

/// A partition's checkpoint in its core's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointEntry {
    pub topic_id: TopicId,
    pub partition: PartitionIndex,
    pub state: PartitionCheckpoint,
}

/// One core's file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CoreCheckpoint {
    pub generation: u64,
    pub sequence: u64,
    /// The groups of this generation's commit log up to this one are needed no more, and their file
    /// may be in use again.
    pub released_group: u64,
    pub entries: Vec<CheckpointEntry>,
}

/// All cores' files, merged.
#[derive(Debug, Default)]
pub struct MergedCheckpoint {
    /// The greatest generation found: this run takes the next one.
    pub generation: u64,
    pub partitions: HashMap<(TopicId, PartitionIndex), PartitionCheckpoint>,
    /// By the core's folder: a generation, and the groups of its commit log that are not needed.
    pub released_groups: HashMap<PathBuf, (u64, u64)>,
    /// Files that were damaged and so ignored, each with its reason; their partitions are scanned
    /// whole.
    pub damaged: Vec<(PathBuf, String)>,
}

#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    #[error(
        "{} has version {version}; this broker knows version {VERSION}: start the newer broker that wrote it",
        file.display()
    )]
    UnknownVersion { file: PathBuf, version: u32 },
    #[error("cannot read the checkpoints in {}: {source}", dir.display())]
    Io { dir: PathBuf, source: io::Error },
}

/// The folder of a core, `core-000` and so on.
pub fn core_dir(data_dir: &Path, shard: ShardId) -> PathBuf {
    data_dir.join(format!("core-{:03}", shard.0))
}

/// Replaces the core's checkpoint; durable when it resolves. The core's folder must exist.
pub async fn write<D: Disk>(
    disk: &D,
    data_dir: &Path,
    shard: ShardId,
    checkpoint: &CoreCheckpoint,
) -> io::Result<()> {
    let bytes = checkpoint.encode();
    let dir = core_dir(data_dir, shard);
    replace_file(disk, &dir, FILE_NAME, &bytes).await?;
    match disk.remove_file(&dir.join(FIRST_FILE_NAME)).await {
        // Should it come back, its sequence is lower.
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Writes a start's first checkpoint beside the one of the last run; durable when it resolves. The
/// next [`write`] replaces both.
pub async fn write_first<D: Disk>(
    disk: &D,
    data_dir: &Path,
    shard: ShardId,
    checkpoint: &CoreCheckpoint,
) -> io::Result<()> {
    let bytes = checkpoint.encode();
    replace_file(disk, &core_dir(data_dir, shard), FIRST_FILE_NAME, &bytes).await
}

/// Reads the checkpoints of all cores there ever were and keeps the newest entry of each partition.
///
/// # Errors
/// A file of a version that is not ours, or a folder that cannot be read. A damaged file is
/// none: it is reported in [`MergedCheckpoint::damaged`].
pub async fn read_all<D: Disk>(
    disk: &D,
    data_dir: &Path,
) -> Result<MergedCheckpoint, CheckpointError> {
    let failed = |source| CheckpointError::Io {
        dir: data_dir.to_owned(),
        source,
    };
    let mut merged = MergedCheckpoint::default();
    let mut newest = HashMap::new();
    let dirs = core_dirs(disk, data_dir).await.map_err(failed)?;
    // A killed process may leave a file whose new name is not durable yet, and what is read now is
    // acted upon at once.
    for dir in &dirs {
        disk.sync_dir(dir).await.map_err(failed)?;
    }
    let in_each = |dir: PathBuf| [FILE_NAME, FIRST_FILE_NAME].map(|name| (dir.clone(), name));
    for (dir, name) in dirs.into_iter().flat_map(in_each) {
        let file = dir.join(name);
        let bytes = match disk.read_file(&file).await {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(failed(error)),
        };
        match CoreCheckpoint::decode(&bytes) {
            Ok(checkpoint) => {
                merged.generation = merged.generation.max(checkpoint.generation);
                let released = (checkpoint.generation, checkpoint.released_group);
                let known = merged.released_groups.entry(dir).or_insert(released);
                *known = released.max(*known);
                let age = (checkpoint.generation, checkpoint.sequence);
                for entry in checkpoint.entries {
                    let key = (entry.topic_id, entry.partition);
                    if newest.get(&key).is_none_or(|known| *known < age) {
                        newest.insert(key, age);
                        merged.partitions.insert(key, entry.state);
                    }
                }
            }
            Err(DecodeError::Version(version)) => {
                return Err(CheckpointError::UnknownVersion { file, version });
            }
            Err(DecodeError::Damaged(reason)) => merged.damaged.push((file, reason)),
        }
    }
    Ok(merged)
}

/// Removes the folders of cores that are not among the first `cores`: to be called when every
/// partition is in a checkpoint of this run, and all that their commit logs hold in its segment.
pub async fn remove_others<D: Disk>(disk: &D, data_dir: &Path, cores: usize) -> io::Result<()> {
    let kept: Vec<PathBuf> = (0..cores)
        .filter_map(|shard| Some(core_dir(data_dir, ShardId(shard.try_into().ok()?))))
        .collect();
    // Under its own name a folder is whole: half of a commit log looks like a damaged one.
    let mut renamed = false;
    for dir in core_dirs(disk, data_dir).await? {
        if !kept.contains(&dir) {
            let mut doomed = dir.clone().into_os_string();
            doomed.push(REMOVED_SUFFIX);
            let doomed = PathBuf::from(doomed);
            if disk.list_dir(&doomed).await.is_ok() {
                disk.remove_dir_all(&doomed).await?;
            }
            disk.rename(&dir, &doomed).await?;
            renamed = true;
        }
    }
    if renamed {
        disk.sync_dir(data_dir).await?;
    }
    for name in disk.list_dir(data_dir).await? {
        if name.starts_with("core-") && name.ends_with(REMOVED_SUFFIX) {
            disk.remove_dir_all(&data_dir.join(name)).await?;
        }
    }
    Ok(())
}

/// The folders of all cores that there ever were, in order.
pub(super) async fn core_dirs<D: Disk>(disk: &D, data_dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut names = disk.list_dir(data_dir).await?;
    names.retain(|name| {
        name.strip_prefix("core-").is_some_and(|number| {
            number.len() >= 3 && number.bytes().all(|byte| byte.is_ascii_digit())
        })
    });
    names.sort();
    Ok(names.into_iter().map(|name| data_dir.join(name)).collect())
}

#[derive(Debug, PartialEq, Eq)]
enum DecodeError {
    Version(u32),
    Damaged(String),
}

impl CoreCheckpoint {
    fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        body.extend_from_slice(&self.generation.to_be_bytes());
        body.extend_from_slice(&self.sequence.to_be_bytes());
        body.extend_from_slice(&self.released_group.to_be_bytes());
        body.extend_from_slice(&(self.entries.len() as u32).to_be_bytes());
        for entry in &self.entries {
            let state = &entry.state;
            body.extend_from_slice(entry.topic_id.0.as_bytes());
            body.extend_from_slice(&entry.partition.to_be_bytes());
            body.extend_from_slice(&state.log_start.0.to_be_bytes());
            body.extend_from_slice(&state.durable_offset.0.to_be_bytes());
            body.extend_from_slice(&state.segment_base.0.to_be_bytes());
            body.extend_from_slice(&state.position.0.to_be_bytes());
            body.extend_from_slice(&state.flushed_offset.0.to_be_bytes());
            match &state.snapshot {
                None => body.push(0),
                Some((offset, bytes)) => {
                    body.push(1);
                    body.extend_from_slice(&offset.0.to_be_bytes());
                    body.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
                    body.extend_from_slice(bytes);
                }
            }
        }
        let mut file = Vec::with_capacity(FRAME_BYTES + body.len());
        file.extend_from_slice(MAGIC);
        file.extend_from_slice(&VERSION.to_be_bytes());
        file.extend_from_slice(&crc32c::crc32c(&body).to_be_bytes());
        file.extend_from_slice(&body);
        file
    }

    fn decode(file: &[u8]) -> Result<Self, DecodeError> {
        let damaged = |reason: &str| DecodeError::Damaged(reason.to_owned());
        let mut frame = Reader { bytes: file };
        let short = || damaged("it is too short");
        if &frame.array::<4>().ok_or_else(short)? != MAGIC {
            return Err(damaged("it does not begin with RMCP"));
        }
        let version = u32::from_be_bytes(frame.array().ok_or_else(short)?);
        if version != VERSION && version != VERSION_WITHOUT_COMMIT_LOG {
            return Err(DecodeError::Version(version));
        }
        let checksum = u32::from_be_bytes(frame.array().ok_or_else(short)?);
        if checksum != crc32c::crc32c(frame.bytes) {
            return Err(damaged("its checksum does not match"));
        }
        Self::decode_body(frame, version).ok_or_else(short)
    }

    fn decode_body(mut body: Reader<'_>, version: u32) -> Option<Self> {
        let mut checkpoint = Self {
            generation: u64::from_be_bytes(body.array()?),
            sequence: u64::from_be_bytes(body.array()?),
            released_group: if version == VERSION_WITHOUT_COMMIT_LOG {
                0
            } else {
                u64::from_be_bytes(body.array()?)
            },
            entries: Vec::new(),
        };
        let count = u32::from_be_bytes(body.array()?);
        for _ in 0..count {
            let topic_id = TopicId(uuid::Uuid::from_bytes(body.array()?));
            let partition = i32::from_be_bytes(body.array()?);
            let log_start = Offset(i64::from_be_bytes(body.array()?));
            let durable_offset = Offset(i64::from_be_bytes(body.array()?));
            let segment_base = Offset(i64::from_be_bytes(body.array()?));
            let position = FilePosition(u64::from_be_bytes(body.array()?));
            let flushed_offset = if version == VERSION_WITHOUT_COMMIT_LOG {
                durable_offset
            } else {
                Offset(i64::from_be_bytes(body.array()?))
            };
            let snapshot = if body.array::<1>()? == [0] {
                None
            } else {
                let offset = Offset(i64::from_be_bytes(body.array()?));
                let len = u32::from_be_bytes(body.array()?);
                Some((offset, body.take(len as usize)?.to_vec()))
            };
            checkpoint.entries.push(CheckpointEntry {
                topic_id,
                partition,
                state: PartitionCheckpoint {
                    log_start,
                    durable_offset,
                    segment_base,
                    position,
                    flushed_offset,
                    snapshot,
                },
            });
        }
        body.bytes.is_empty().then_some(checkpoint)
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(len)?;
        self.bytes = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }
}
