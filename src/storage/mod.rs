//! A partition's log on the disk, in Kafka's files.
//!
//! Reading order: the batch and what is derived from it ([`batch_view`], [`index`]), the memory of
//! the newest batches ([`tail`]), the log itself ([`log`]), what makes small appends of all logs
//! durable together ([`commit`]), and the files that outlive them ([`checkpoint`],
//! [`partition_files`]).
//!
//! Absent: what offsets mean to clients (high watermark, leader epochs, producers), which is the
//! partition's; compaction and transaction indexes, which come later.

pub mod batch_view;
pub mod budget;
pub mod checkpoint;
pub mod commit;
pub mod derived;
pub mod error;
pub mod index;
pub mod log;
pub mod names;
pub mod partition_files;
pub mod tail;

mod waiters;

pub use batch_view::{BatchFault, BatchView};
pub use checkpoint::PartitionCheckpoint;
pub use derived::DerivedState;
pub use error::{AppendError, LogError, OpenError, ReadError};
pub use log::{
    AppendBatch, CoreStorage, Log, LogConfig, LogEvents, LogIdentity, LogSetup, ReadOutcome,
    RecoveryReport, SegmentInfo, TimestampedOffset, keep_logged,
};
