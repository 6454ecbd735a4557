//! What shards say to each other. All owned, all `Send`.

use std::sync::Arc;

use bytes::BytesMut;

use crate::base::{LeaderEpoch, Offset, PartitionIndex, ShardId, TimestampMs, TopicId};
use crate::io::disk::{Disk, DiskFile, Extent};
use crate::io::real_disk::RealDisk;
use crate::partition::{EpochEnd, PartitionError, Produced, ReadInfo, TimeLookup, TimestampOffset};

/// The disk that shards run on.
pub type ShardDisk = RealDisk;
/// A segment file as it crosses cores.
pub type SharedFile = <<ShardDisk as Disk>::File as DiskFile>::Shared;
pub type SharedExtent = Extent<SharedFile>;

/// A partition, by what never changes its meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartitionKey {
    pub topic_id: TopicId,
    pub partition: PartitionIndex,
}

/// Work for the shard that owns the partitions named.
#[derive(Debug)]
pub enum Call {
    /// Appends batches. Answered when all of them are committed, or failed.
    Produce(Vec<ProduceItem>),
    Read(ReadCall),
    /// Forgets the wish to be woken.
    Unwatch { watch: WatchId, keys: Vec<PartitionKey> },
    LookUpOffsets(Vec<(PartitionKey, TimeLookup, Option<LeaderEpoch>)>),
    EndOfEpochs(Vec<EpochQuestion>),
    /// Moves log starts up; `None` means up to the high watermark.
    DeleteRecords(Vec<(PartitionKey, Option<Offset>)>),
}

/// The answer to a [`Call`], of the same name and in the order of its items.
#[derive(Debug)]
pub enum CallReply {
    Produce(Vec<Result<Produced, PartitionError>>),
    Read(Vec<Result<PartitionRead, PartitionError>>),
    Unwatch,
    LookUpOffsets(Vec<Result<TimestampOffset, PartitionError>>),
    EndOfEpochs(Vec<Result<EpochEnd, PartitionError>>),
    DeleteRecords(Vec<Result<Offset, PartitionError>>),
}

/// One partition's records of a Produce request.
#[derive(Debug)]
pub struct ProduceItem {
    pub key: PartitionKey,
    pub records: BytesMut,
    pub produce_version: i16,
    /// Whether the answer may wait for the commit (acks=0 asks for none).
    pub acknowledged: bool,
}

/// Reads several partitions in one go.
#[derive(Debug)]
pub struct ReadCall {
    pub partitions: Vec<ReadItem>,
    /// Bytes for the whole call; the first batch found is returned even if it is larger (KIP-74).
    pub bytes_max: usize,
    /// Register for a wake-up on these partitions where the call finds less than `bytes_wanted`.
    pub watch: Option<Watch>,
}

/// Who wants to hear of new data, and when what is there is enough.
#[derive(Debug, Clone, Copy)]
pub struct Watch {
    pub id: WatchId,
    pub shard: ShardId,
    pub bytes_wanted: u64,
}

#[derive(Debug, Clone, Copy)]
pub struct ReadItem {
    pub key: PartitionKey,
    pub offset: Offset,
    pub bytes_max: usize,
    pub leader_epoch: Option<LeaderEpoch>,
    pub last_fetched_epoch: Option<LeaderEpoch>,
}

/// What a read found.
#[derive(Debug)]
pub struct PartitionRead {
    pub extents: Vec<SharedExtent>,
    pub info: ReadInfo,
}

#[derive(Debug, Clone, Copy)]
pub struct EpochQuestion {
    pub key: PartitionKey,
    pub current_epoch: Option<LeaderEpoch>,
    pub asked_epoch: LeaderEpoch,
}

/// A parked fetch of one shard, unique there for as long as it is parked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WatchId(pub u64);

/// What the reply channel of a shard carries.
#[derive(Debug)]
pub enum Answer {
    Reply { call: usize, reply: CallReply },
    /// A watched partition has new data; comes at most once a registration.
    Wake(WatchId),
}

/// What the request channel of a shard carries.
#[derive(Debug)]
pub enum Request {
    Call { from: ShardId, call_id: usize, call: Call },
    /// A new picture of the cluster; `applied` hears of it when the shard acts on it.
    Image { image: Arc<crate::cluster::MetadataImage>, applied: flume::Sender<ShardId> },
    /// Flush, write checkpoints and end.
    Stop { at: TimestampMs },
}
