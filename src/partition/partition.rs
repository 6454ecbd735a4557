//! A partition: the pure parts (state, producers, epochs) tied to the log.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use bytes::BytesMut;

use super::epochs::LeaderEpochs;
use super::error::PartitionError;
use super::lookup::TimeLookup;
use super::producers::{ProducerStates, Verdict};
use super::replayed::Replayed;
use crate::base::{LeaderEpoch, Offset, TimestampMs, TopicId, TopicPartition};
use crate::config::TopicConfig;
use crate::io::disk::{Disk, DiskFile, Extent};
use crate::protocol::batch::{self, BatchHeader};
use crate::protocol::records::{self, ValidationRules};
use crate::storage::{AppendBatch, Log};

/// What an append came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Produced {
    pub base_offset: Offset,
    pub last_offset: Offset,
    /// The broker's clock where the topic asks for it, else [`TimestampMs::NONE`].
    pub log_append_time: TimestampMs,
    pub log_start_offset: Offset,
    pub record_count: u64,
    pub bytes: u64,
}

/// What a reader learns beside the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadInfo {
    pub high_watermark: Offset,
    pub last_stable_offset: Offset,
    pub log_start_offset: Offset,
}

/// A record's place in time. `-1`s mean "none found".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimestampOffset {
    pub timestamp: TimestampMs,
    pub offset: Offset,
    pub leader_epoch: LeaderEpoch,
}

/// Where an epoch ended (KIP-101); `-1`s mean "unknown".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpochEnd {
    pub leader_epoch: LeaderEpoch,
    pub end_offset: Offset,
}

/// Hears that records of a partition became visible.
pub trait CommitListener {
    /// Called at most once per registration, from within the append path: it must not call back.
    fn committed(&self);
}

/// One partition of this node, on the executor that owns it.
pub struct Partition<D: Disk> {
    name: TopicPartition,
    topic_id: TopicId,
    leader_epoch: Cell<LeaderEpoch>,
    config: RefCell<Arc<TopicConfig>>,
    log: Log<D, Replayed>,
    replayed: Rc<RefCell<Replayed>>,
}
