//! What the commit logs hold of a partition that cannot be opened. The commit logs are used again by
//! the run that finds it so; the entries stay in the partition's folder, as one group of a commit log,
//! until a start opens it. An unreadable sector may be readable at that start.

use std::io;
use std::path::Path;

use bytes::Bytes;

use super::Recovery;
use crate::io::disk::Disk;
use crate::storage::commit::format::{
    Entry, GROUP_HEADER_BYTES, GroupHeader, decode_entries, encode_group,
};
use crate::storage::derived::DerivedState;
use crate::storage::error::OpenError;
use crate::storage::partition_files::replace_file;

pub(super) const KEPT_ENTRIES: &str = "commit-log-entries";

/// Keeps the entries in the partition's folder, behind those that are kept there. Durable when it
/// resolves.
///
/// # Errors
/// The device failed or is full, or what is kept is damaged.
pub async fn keep_logged<D: Disk>(disk: &D, dir: &Path, logged: &[Entry]) -> io::Result<()> {
    disk.create_dir_all(dir).await?;
    let mut entries = match disk.read_file(&dir.join(KEPT_ENTRIES)).await {
        Ok(bytes) => decode(bytes).map_err(io::Error::other)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error),
    };
    // A start that was interrupted here is repeated.
    if !entries.ends_with(logged) {
        entries.extend_from_slice(logged);
        let len = entries.iter().map(Entry::encoded_len).sum::<usize>() + GROUP_HEADER_BYTES;
        if u32::try_from(len).is_err() {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let mut group = vec![0; len];
        encode_group(&mut group, 0, 1, 0, entries.iter());
        replace_file(disk, dir, KEPT_ENTRIES, &group).await?;
    }
    match dir.parent() {
        Some(parent) => disk.sync_dir(parent).await,
        None => Ok(()),
    }
}

fn decode(bytes: Vec<u8>) -> Result<Vec<Entry>, String> {
    let header = GroupHeader::decode_whole(&bytes).ok_or("its checksum does not match")?;
    decode_entries(&Bytes::from(bytes), &header).map_err(|fault| format!("it has {fault}"))
}

impl<D: Disk, S: DerivedState> Recovery<'_, D, S> {
    /// What former starts kept, before `logged`.
    pub(super) async fn with_kept(&self, logged: Vec<Entry>) -> Result<Vec<Entry>, OpenError> {
        if !self.folder.has_kept_entries {
            return Ok(logged);
        }
        let path = self.dir.join(KEPT_ENTRIES);
        let bytes = self.io(self.core.disk.read_file(&path).await)?;
        let mut entries = decode(bytes).map_err(|reason| OpenError::Corrupt {
            file: path,
            position: 0,
            durable_offset: self.durable_offset,
            reason,
        })?;
        entries.extend(logged);
        Ok(entries)
    }

    /// To be called when all entries are in flushed segments.
    pub(super) async fn remove_kept(&self) -> Result<(), OpenError> {
        if !self.folder.has_kept_entries {
            return Ok(());
        }
        let disk = &self.core.disk;
        self.io(disk.remove_file(&self.dir.join(KEPT_ENTRIES)).await)?;
        self.io(disk.sync_dir(self.dir).await)
    }
}
