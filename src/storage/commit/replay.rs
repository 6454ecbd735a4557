//! What the next start finds in the commit logs.
//!
//! A file counts from its front as far as its groups are whole and follow each other. Behind that
//! lie the remains of its former use, or a torn tail. Groups that the core's checkpoint calls
//! released do not count: their file may be in use again, and half overwritten. Neither does a log of
//! a former run than the core's checkpoint: a run writes none before all partitions are open. All
//! files of a log together must be without a gap; where a group is missing that a later one calls
//! flushed, acknowledged appends are gone, and nobody but a person may decide about that.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::files::{FILE_COUNT, file_path};
use super::format::{Entry, EntryKind, FileHeader, GroupHeader, HeaderFault, decode_entries};
use crate::base::limits::DISK_BLOCK_BYTES;
use crate::base::{PartitionIndex, ShardId, TopicId};
use crate::io::disk::{Disk, DiskFile, OpenMode};
use crate::storage::checkpoint::{MergedCheckpoint, core_dir, core_dirs};

#[cfg(test)]
mod tests;

/// Read at a time, in bytes: more than the largest group.
const WINDOW_BYTES: usize = 4 << 20;

const BLOCK: u64 = DISK_BLOCK_BYTES as u64;

#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error(
        "the commit log {} is damaged at byte {position}: {reason}. Acknowledged records of any partition of this core may be only there, so nothing was changed. Restore the data directory from a backup, or move the file away to start without what it held",
        file.display()
    )]
    Damaged {
        file: PathBuf,
        position: u64,
        reason: String,
    },
    #[error("the commit log {} cannot be read: {reason}", file.display())]
    Unknown { file: PathBuf, reason: String },
    #[error("cannot read the commit logs in {}: {source}", dir.display())]
    Io { dir: PathBuf, source: io::Error },
}

/// The entries of the partitions that were asked for, each partition's in the order in which they
/// count, from behind its last deletion on.
#[derive(Debug, Default)]
pub struct LoggedEntries {
    pub partitions: HashMap<(TopicId, PartitionIndex), Vec<Entry>>,
    /// The greatest generation of any file.
    pub generation: u64,
    /// Groups behind the last whole one, which were never acknowledged.
    pub torn_groups: usize,
}

/// Reads what all commit logs of a data directory hold of the partitions that `is_wanted` names.
/// While the number of shards stays the same, a partition's entries are all in its own shard's log.
///
/// # Errors
/// A log is damaged where it was acknowledged, or cannot be read.
pub async fn read_all<D: Disk>(
    disk: &D,
    data_dir: &Path,
    checkpoints: &MergedCheckpoint,
    shard: ShardId,
    shard_count: u16,
    is_wanted: impl Fn(TopicId, PartitionIndex) -> bool,
) -> Result<LoggedEntries, ReplayError> {
    let failed = |source| ReplayError::Io {
        dir: data_dir.to_owned(),
        source,
    };
    let mut logs = Vec::new();
    for dir in core_dirs(disk, data_dir).await.map_err(failed)? {
        logs.push((dir.clone(), headers(disk, &dir).await?));
    }
    let is_spread = logs
        .iter()
        .flat_map(|(_, headers)| headers)
        .any(|(_, header)| header.shard_count != shard_count);
    let own = core_dir(data_dir, shard);
    let mut merged = LoggedEntries::default();
    for (dir, headers) in logs {
        let generation = headers.iter().map(|(_, header)| header.generation).max();
        let Some(generation) = generation else {
            continue;
        };
        merged.generation = merged.generation.max(generation);
        if !is_spread && dir != own {
            continue;
        }
        // Where a start was interrupted, files of the former run may stand beside those of the new
        // one: by then all that they say was in the segments.
        let files = headers
            .into_iter()
            .filter(|(_, header)| header.generation == generation)
            .map(|(file, _)| file)
            .collect();
        let released = match checkpoints.released_groups.get(&dir) {
            // It was written when all that former logs say was in the segments.
            Some((released_in, _)) if *released_in > generation => continue,
            Some((released_in, group)) if *released_in == generation => Some(*group),
            Some(_) => Some(0),
            None => None,
        };
        let log = read_log(disk, files, generation, released).await?;
        merged.torn_groups += log.torn_groups;
        for entry in log.entries {
            let key = (entry.place.topic_id, entry.place.partition);
            if is_wanted(key.0, key.1) {
                merged.partitions.entry(key).or_default().push(entry);
            }
        }
    }
    for entries in merged.partitions.values_mut() {
        // Stable: within an ownership the order is that of the log.
        entries.sort_by_key(|entry| entry.place.ownership);
        let deleted = entries
            .iter()
            .rposition(|entry| entry.kind == EntryKind::Deletion);
        if let Some(last) = deleted {
            entries.drain(..=last);
        }
    }
    Ok(merged)
}

/// The files of a core that have a header.
async fn headers<D: Disk>(disk: &D, dir: &Path) -> Result<Vec<(PathBuf, FileHeader)>, ReplayError> {
    let mut headers = Vec::new();
    for number in 0..FILE_COUNT {
        let path = file_path(dir, number);
        let failed = |source| ReplayError::Io {
            dir: dir.to_owned(),
            source,
        };
        let file = match disk.open(&path, OpenMode::Existing).await {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(failed(error)),
        };
        let block = file.read_at(0, DISK_BLOCK_BYTES).await.map_err(failed)?;
        match FileHeader::decode(&block) {
            Ok(header) => headers.push((path, header)),
            // It was being made: nothing was ever logged there.
            Err(HeaderFault::Missing) => {}
            Err(fault @ HeaderFault::Damaged) => {
                return Err(ReplayError::Damaged {
                    file: path,
                    position: 0,
                    reason: fault.to_string(),
                });
            }
            Err(fault @ HeaderFault::Version(_)) => {
                return Err(ReplayError::Unknown {
                    file: path,
                    reason: fault.to_string(),
                });
            }
        }
    }
    Ok(headers)
}

/// The groups of one log.
struct OneLog {
    entries: Vec<Entry>,
    torn_groups: usize,
}

/// What one file holds.
#[derive(Default)]
struct Chain {
    file: PathBuf,
    /// Of the first and the last group that follow each other from the front on; none is 0.
    first: u64,
    last: u64,
    /// Where the last group ends.
    end: u64,
    entries: Vec<Entry>,
    /// The greatest flushed sequence that the chain's groups know.
    flushed: u64,
    /// The sequences and flushed sequences of whole groups of this run behind the chain.
    beyond: Vec<(u64, u64)>,
}

async fn read_log<D: Disk>(
    disk: &D,
    files: Vec<PathBuf>,
    generation: u64,
    released: Option<u64>,
) -> Result<OneLog, ReplayError> {
    let mut chains: Vec<Chain> = Vec::new();
    for file in files {
        chains.push(read_file(disk, &file, generation).await?);
    }
    // Without a checkpoint, the oldest files that are whole tell what was not released.
    let released = released.unwrap_or_else(|| {
        let firsts = chains.iter().map(|chain| chain.first);
        firsts.filter(|first| *first > 0).min().unwrap_or(1) - 1
    });
    for chain in &mut chains {
        if chain.last <= released {
            // The remains of a file that is in use again, or about to be.
            chain.first = 0;
        }
    }
    chains.sort_by_key(|chain| chain.first);
    let beyond: Vec<(u64, u64)> = chains
        .iter_mut()
        .flat_map(|chain| std::mem::take(&mut chain.beyond))
        .collect();
    let mut log = OneLog {
        entries: Vec::new(),
        torn_groups: 0,
    };
    let mut last = released;
    let mut end: Option<(PathBuf, u64)> = None;
    let mut flushed = 0;
    for chain in chains {
        flushed = flushed.max(chain.flushed);
        if chain.first == 0 {
            end = end.or(Some((chain.file, BLOCK)));
        } else if chain.first <= last.saturating_add(1) {
            last = chain.last;
            end = Some((chain.file, chain.end));
            log.entries.extend(chain.entries);
        } else {
            log.torn_groups +=
                usize::try_from((chain.last - chain.first).saturating_add(1)).unwrap_or(usize::MAX);
        }
    }
    for (sequence, flushed_then) in beyond {
        if sequence > last {
            log.torn_groups += 1;
            flushed = flushed.max(flushed_then);
        }
    }
    if flushed > last {
        let (file, position) = end.unwrap_or_default();
        return Err(ReplayError::Damaged {
            file,
            position,
            reason: format!(
                "group {} is not readable, and a later one says that all up to {flushed} were flushed",
                last.saturating_add(1)
            ),
        });
    }
    Ok(log)
}

async fn read_file<D: Disk>(disk: &D, path: &Path, generation: u64) -> Result<Chain, ReplayError> {
    let failed = |source| ReplayError::Io {
        dir: path.to_owned(),
        source,
    };
    let file = disk.open(path, OpenMode::Existing).await.map_err(failed)?;
    let size_bytes = file.size().await.map_err(failed)?;
    let mut window = Window {
        file: &file,
        start: 0,
        bytes: Bytes::new(),
    };
    let mut chain = Chain {
        file: path.to_owned(),
        end: BLOCK,
        ..Chain::default()
    };
    let mut is_in_chain = true;
    let mut position = BLOCK;
    while position < size_bytes {
        let group = window.group_at(position).await.map_err(failed)?;
        let found = group
            .as_ref()
            .and_then(|bytes| GroupHeader::decode_whole(bytes))
            .filter(|header| header.generation == generation);
        let (Some(header), Some(bytes)) = (found, group) else {
            is_in_chain = false;
            position += BLOCK;
            continue;
        };
        is_in_chain &= chain.last == 0 || chain.last.checked_add(1) == Some(header.sequence);
        position += header.padded_len() as u64;
        if !is_in_chain {
            chain.beyond.push((header.sequence, header.flushed));
            continue;
        }
        if chain.first == 0 {
            chain.first = header.sequence;
        }
        chain.last = header.sequence;
        chain.end = position;
        chain.flushed = chain.flushed.max(header.flushed);
        let entries = decode_entries(&bytes, &header).map_err(|fault| ReplayError::Unknown {
            file: path.to_owned(),
            reason: format!("group {} has {fault}", header.sequence),
        })?;
        chain.entries.extend(entries);
    }
    Ok(chain)
}

/// A part of a file in memory.
struct Window<'a, F: DiskFile> {
    file: &'a F,
    start: u64,
    bytes: Bytes,
}

impl<F: DiskFile> Window<'_, F> {
    /// The bytes of the group whose header is at `position`, as far as the file has them; nothing
    /// where no header is there.
    async fn group_at(&mut self, position: u64) -> io::Result<Option<Bytes>> {
        self.load(position, DISK_BLOCK_BYTES).await?;
        let Some(header) = GroupHeader::decode(self.from(position)) else {
            return Ok(None);
        };
        if header.len > WINDOW_BYTES {
            return Ok(None);
        }
        self.load(position, header.len).await?;
        let skip = (position - self.start) as usize;
        let end = (skip + header.len).min(self.bytes.len());
        Ok(Some(self.bytes.slice(skip.min(end)..end)))
    }

    fn from(&self, position: u64) -> &[u8] {
        let skip = usize::try_from(position - self.start).unwrap_or(usize::MAX);
        self.bytes.get(skip..).unwrap_or_default()
    }

    async fn load(&mut self, position: u64, len: usize) -> io::Result<()> {
        if position >= self.start && self.from(position).len() >= len {
            return Ok(());
        }
        let read = self.file.read_at(position, WINDOW_BYTES).await?;
        self.start = position;
        self.bytes = Bytes::copy_from_slice(&read);
        Ok(())
    }
}
