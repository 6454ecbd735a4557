//! Metadata on stable media: a log of record batches, and snapshots that let the log stay short.
//!
//! ```text
//! <data-dir>/metadata/
//!   00000000000000012000.snapshot   the image before record 12000
//!   00000000000000012000.log        record 12000 and what came after
//! ```
//!
//! Every file appears whole under its name (written as `.tmp`, flushed, renamed, directory
//! flushed). A batch is one frame, appended with one write and one fdatasync before anybody hears
//! of it. A snapshot is durable before the log that it replaces is removed.
//!
//! | found at start | meaning | what happens |
//! |---|---|---|
//! | `*.tmp` | a crash while a file was made | removed |
//! | bad frame at the end of the last log, no whole frame behind it | a crash during an append | cut |
//! | bad frame with a whole one behind it, or in an earlier log | damage | refusal |
//! | bad snapshot, missing log, gap between logs | damage | refusal |
//! | another cluster's id in a header | a directory of another cluster | refusal |
//! | several snapshots or logs before the snapshot | a crash while tidying up | removed |

use std::io;
use std::path::{Path, PathBuf};

use super::image::MetadataImage;
use super::records::MetadataRecord;

pub mod files;
mod frame;
mod recovery;

pub use files::{MetadataFile, MetadataFiles, RealFiles};
pub use frame::{BATCH_BYTES_MAX, Damage};

use files::{publish_file, temporary_path};
use frame::{
    FILE_HEADER_BYTES, FRAME_BYTES_MAX, FileHeader, FileKind, FrameTooLarge, encode_frame,
};

/// Where decided records become durable. The local log now, the quorum later.
pub trait MetadataStore {
    /// Makes a batch durable, all of it or nothing, and returns the offset after it. Records must
    /// not be applied before this has returned.
    fn append(&mut self, records: &[MetadataRecord]) -> Result<i64, StoreError>;
    /// Whether enough was appended that a snapshot is worth its cost.
    fn is_snapshot_due(&self) -> bool;
    /// Lets the store forget the records up to the image's version; the image must hold all that
    /// was appended.
    fn snapshot(&mut self, image: &MetadataImage) -> Result<(), StoreError>;
}

/// What went wrong in the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("cannot {action} {}: {error}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        error: io::Error,
    },
    #[error(
        "the disk of {} is full: the change was not made; free some space and repeat it",
        path.display()
    )]
    DiskFull { path: PathBuf },
    #[error(transparent)]
    TooLarge(#[from] FrameTooLarge),
    #[error(
        "the metadata is damaged: {}, position {position}: {damage}. Nothing was changed. Restore \
         the directory `metadata` from a copy made while the broker was stopped; to continue \
         without it means to lose topics",
        path.display()
    )]
    Damaged {
        path: PathBuf,
        position: u64,
        damage: Damage,
    },
    #[error(
        "the metadata is damaged: {} does not fit what comes before it: {reason}. Nothing was \
         changed. Restore the directory `metadata` from a copy made while the broker was stopped",
        path.display()
    )]
    Inconsistent { path: PathBuf, reason: String },
    #[error(
        "{} was written by a newer version of Ringmain (format {version}); start that version",
        path.display()
    )]
    TooNew { path: PathBuf, version: u16 },
    #[error(
        "{} belongs to cluster {found}, but this directory is of cluster {expected}: put back the \
         `metadata` directory or the `ringmain.json` that belong together",
        path.display()
    )]
    OtherCluster {
        path: PathBuf,
        expected: String,
        found: String,
    },
    #[error(
        "the metadata store stopped after a failed write: restart the broker, so that recovery \
         finds out what is on the disk"
    )]
    Stopped,
}

impl StoreError {
    /// Whether the store works on: the change was refused, and nothing else happened.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::DiskFull { .. } | Self::TooLarge(_))
    }
}

/// When a snapshot is worth its cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotPolicy {
    /// Records since the last snapshot.
    pub records_max: u64,
    /// Bytes of log since the last snapshot; at least as many as that snapshot has, so that a
    /// large image is not written again for every few changes.
    pub log_bytes_max: u64,
}

impl Default for SnapshotPolicy {
    fn default() -> Self {
        Self {
            records_max: 20_000,
            log_bytes_max: 4 << 20,
        }
    }
}

/// Records per frame of a snapshot, where they fit: a frame is read into memory whole.
const SNAPSHOT_FRAME_RECORDS: usize = 256;

/// The store of one directory, which must be locked by the caller (see
/// [`identity`](super::identity)). Its calls block.
#[derive(Debug)]
pub struct LocalMetadataStore<F: MetadataFiles = RealFiles> {
    files: F,
    directory: PathBuf,
    cluster_id: String,
    policy: SnapshotPolicy,
    log: ActiveLog<F::File>,
    last_snapshot_bytes: u64,
    /// A write or a flush failed: what the disk holds is unknown until recovery.
    is_stopped: bool,
}

/// The log that is appended to.
#[derive(Debug)]
struct ActiveLog<File> {
    path: PathBuf,
    file: File,
    base_offset: i64,
    /// The offset of the next record.
    next_offset: i64,
    /// The end of the last whole frame, in bytes from the file's start.
    end_position: u64,
}

impl LocalMetadataStore<RealFiles> {
    /// Opens `<data_dir>/metadata`, made where it is missing, and recovers the image.
    pub fn open(data_dir: &Path, cluster_id: &str) -> Result<(Self, MetadataImage), StoreError> {
        Self::open_on(RealFiles, data_dir, cluster_id, SnapshotPolicy::default())
    }
}

impl<F: MetadataFiles> LocalMetadataStore<F> {
    /// [`LocalMetadataStore::open`] on any file system.
    pub fn open_on(
        files: F,
        data_dir: &Path,
        cluster_id: &str,
        policy: SnapshotPolicy,
    ) -> Result<(Self, MetadataImage), StoreError> {
        let directory = data_dir.join("metadata");
        files
            .create_dir_all(&directory)
            .map_err(|error| io_error("create", &directory, error))?;
        files
            .sync_dir(data_dir)
            .map_err(|error| io_error("flush", data_dir, error))?;
        let recovered = recovery::recover(&files, &directory, cluster_id)?;
        let store = Self {
            files,
            directory,
            cluster_id: cluster_id.to_owned(),
            policy,
            log: recovered.log,
            last_snapshot_bytes: recovered.snapshot_bytes,
            is_stopped: false,
        };
        Ok((store, recovered.image))
    }

    fn append_frame(&mut self, frame: &[u8]) -> Result<(), StoreError> {
        let log = &mut self.log;
        if let Err(error) = log.file.write_all_at(frame, log.end_position) {
            // A full disk is no damage where the log's old end can be put back.
            if is_disk_full(&error) && log.file.set_len(log.end_position).is_ok() {
                return Err(StoreError::DiskFull {
                    path: log.path.clone(),
                });
            }
            self.is_stopped = true;
            return Err(io_error("write to", &log.path, error));
        }
        // Never repeated: after a failed flush the kernel may have dropped the bytes.
        log.file.sync_data().map_err(|error| {
            self.is_stopped = true;
            io_error("flush", &log.path, error)
        })?;
        log.end_position += frame.len() as u64;
        Ok(())
    }

    fn publish_snapshot(&mut self, image: &MetadataImage) -> Result<u64, StoreError> {
        let snapshot = encode_snapshot(image)?;
        let name = file_name(FileKind::Snapshot, image.version());
        let path = self.directory.join(name);
        publish_file(&self.files, &path, &snapshot).map_err(|error| {
            if is_disk_full(&error) {
                // Best effort: it would be removed at the next start.
                let _ = self.files.remove(&temporary_path(&path));
                return StoreError::DiskFull { path: path.clone() };
            }
            self.is_stopped = true;
            io_error("write", &path, error)
        })?;
        Ok(snapshot.len() as u64)
    }

    fn replace_log(&mut self, offset: i64) -> Result<(), StoreError> {
        self.log = create_log(&self.files, &self.directory, &self.cluster_id, offset)?;
        recovery::remove_outdated(&self.files, &self.directory, offset)
    }
}

impl<F: MetadataFiles> MetadataStore for LocalMetadataStore<F> {
    fn append(&mut self, records: &[MetadataRecord]) -> Result<i64, StoreError> {
        if self.is_stopped {
            return Err(StoreError::Stopped);
        }
        if !records.is_empty() {
            let frame = encode_frame(self.log.next_offset, records, BATCH_BYTES_MAX)?;
            self.append_frame(&frame)?;
            self.log.next_offset += records.len() as i64;
        }
        Ok(self.log.next_offset)
    }

    fn is_snapshot_due(&self) -> bool {
        let records = self.log.next_offset.abs_diff(self.log.base_offset);
        let bytes_max = self.policy.log_bytes_max.max(self.last_snapshot_bytes);
        records > 0 && (records >= self.policy.records_max || self.log.end_position >= bytes_max)
    }

    fn snapshot(&mut self, image: &MetadataImage) -> Result<(), StoreError> {
        assert_eq!(image.version(), self.log.next_offset, "a stale image");
        if self.is_stopped {
            return Err(StoreError::Stopped);
        }
        if self.log.base_offset == self.log.next_offset {
            return Ok(());
        }
        // Up to here the old log goes on as if nothing had happened. Behind it, a new log may be
        // there already, and recovery would no longer look at the end of the old one.
        let snapshot_bytes = self.publish_snapshot(image)?;
        self.replace_log(image.version())
            .inspect_err(|_| self.is_stopped = true)?;
        self.last_snapshot_bytes = snapshot_bytes;
        Ok(())
    }
}

/// A snapshot's whole file.
fn encode_snapshot(image: &MetadataImage) -> Result<Vec<u8>, StoreError> {
    let records = image.to_records();
    let header = FileHeader {
        kind: FileKind::Snapshot,
        base_offset: image.version(),
        record_count: u32::try_from(records.len()).unwrap_or(u32::MAX),
        cluster_id: image.cluster_id().to_string(),
    };
    let mut bytes = header.encode().to_vec();
    for (index, chunk) in records.chunks(SNAPSHOT_FRAME_RECORDS).enumerate() {
        let base_offset = (index * SNAPSHOT_FRAME_RECORDS) as i64;
        append_snapshot_frames(&mut bytes, base_offset, chunk)?;
    }
    Ok(bytes)
}

/// One frame, or several where the records are too large for one.
fn append_snapshot_frames(
    bytes: &mut Vec<u8>,
    base_offset: i64,
    records: &[MetadataRecord],
) -> Result<(), StoreError> {
    match encode_frame(base_offset, records, FRAME_BYTES_MAX) {
        Ok(frame) => bytes.extend_from_slice(&frame),
        Err(_) if records.len() > 1 => {
            let (first, second) = records.split_at(records.len() / 2);
            append_snapshot_frames(bytes, base_offset, first)?;
            append_snapshot_frames(bytes, base_offset + first.len() as i64, second)?;
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// A new, empty log that is there after a crash.
fn create_log<F: MetadataFiles>(
    files: &F,
    directory: &Path,
    cluster_id: &str,
    base_offset: i64,
) -> Result<ActiveLog<F::File>, StoreError> {
    let path = directory.join(file_name(FileKind::Log, base_offset));
    let header = FileHeader {
        kind: FileKind::Log,
        base_offset,
        record_count: 0,
        cluster_id: cluster_id.to_owned(),
    };
    let file = publish_file(files, &path, &header.encode())
        .map_err(|error| io_error("create", &path, error))?;
    Ok(ActiveLog {
        path,
        file,
        base_offset,
        next_offset: base_offset,
        end_position: FILE_HEADER_BYTES as u64,
    })
}

/// `00000000000000012000.log`
fn file_name(kind: FileKind, offset: i64) -> String {
    let extension = match kind {
        FileKind::Log => "log",
        FileKind::Snapshot => "snapshot",
    };
    format!("{offset:020}.{extension}")
}

fn io_error(action: &'static str, path: &Path, error: io::Error) -> StoreError {
    StoreError::Io {
        action,
        path: path.to_owned(),
        error,
    }
}

fn is_disk_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::WriteZero
    )
}

#[cfg(test)]
mod sim;
#[cfg(test)]
mod tests;
