//! What can go wrong with a log, one enum an operation.

use std::io;
use std::path::PathBuf;

use crate::base::Offset;

/// A log could not be opened: its partition is offline until a person acted.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Acknowledged records are damaged or missing; nothing was changed.
    #[error(
        "{} is damaged at byte {position}: {reason}. Records below offset {durable_offset} were acknowledged and are not all readable, so nothing was cut. Restore the folder from a replica or a backup, or move it away to start the partition empty",
        file.display()
    )]
    Corrupt {
        file: PathBuf,
        position: u64,
        durable_offset: Offset,
        reason: String,
    },
    #[error("cannot open the log in {}: {source}", dir.display())]
    Io { dir: PathBuf, source: io::Error },
}

/// An append was refused; nothing changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// The caller's batch does not continue the log.
    #[error(
        "batch {base_offset}..={last_offset} does not continue the log, which ends at {expected}"
    )]
    OutOfOrder {
        expected: Offset,
        base_offset: Offset,
        last_offset: Offset,
    },
    #[error("a batch of {len} bytes exceeds the segment size of {segment_bytes} bytes")]
    TooLarge { len: usize, segment_bytes: u64 },
    #[error(transparent)]
    Log(#[from] LogError),
}

/// Why a log takes or confirms nothing at present.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// Retriable: what is pending is written when there is space again.
    #[error("no space left on the device")]
    StorageFull,
    /// For good: a write or a flush failed, and what is on the device is unknown until recovery.
    #[error("the log has failed: {reason}")]
    Failed { reason: String },
    #[error("the log is closed")]
    Closed,
}

/// A read brought nothing.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("offset {offset} is outside of {start}..={end}")]
    OffsetOutOfRange {
        offset: Offset,
        start: Offset,
        end: Offset,
    },
    #[error("{} is damaged at byte {position}: {reason}", file.display())]
    Corrupt {
        file: PathBuf,
        position: u64,
        reason: String,
    },
    #[error("cannot read {}: {source}", file.display())]
    Io { file: PathBuf, source: io::Error },
    #[error("the log is closed")]
    Closed,
}
