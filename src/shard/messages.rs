//! What shards say to each other. All owned, all `Send`.

use std::sync::Arc;

use bytes::BytesMut;

use crate::base::{LeaderEpoch, Offset, PartitionIndex, ShardId, TopicId};
use crate::cluster::MetadataImage;
use crate::io::disk::{Disk, DiskFile, Extent};
use crate::io::real_disk::RealDisk;
use crate::partition::state::Isolation;
use crate::partition::{EpochEnd, ListedOffset, PartitionError, Produced};

/// The disk that shards run on.
pub type ShardDisk = RealDisk;
/// A segment file as it crosses cores.
pub type SharedFile = <<ShardDisk as Disk>::File as DiskFile>::Shared;
pub type SharedExtent = Extent<SharedFile>;
pub type PartitionRead = crate::partition::PartitionRead<SharedFile>;

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
    /// Forgets the wish of a parked fetch to be woken.
    Unwatch {
        watch: Watcher,
        keys: Vec<PartitionKey>,
    },
    ListOffsets(Vec<OffsetQuestion>),
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
    ListOffsets(Vec<Result<ListedOffset, PartitionError>>),
    EndOfEpochs(Vec<Result<EpochEnd, PartitionError>>),
    DeleteRecords(Vec<Result<Offset, PartitionError>>),
}

/// One partition's records of a Produce request.
#[derive(Debug)]
pub struct ProduceItem {
    pub key: PartitionKey,
    pub records: BytesMut,
    pub produce_version: i16,
    /// Whether all replicas in sync must have the records, and be enough (acks=all).
    pub requires_all: bool,
}

/// Reads several partitions in one go.
#[derive(Debug)]
pub struct ReadCall {
    pub partitions: Vec<ReadItem>,
    /// Bytes for the whole call; the first batch found is returned even if it is larger (KIP-74).
    pub bytes_max: usize,
    /// Register for a wake-up on these partitions where the call finds less than is wanted.
    pub watch: Option<Watch>,
}

/// Who wants to hear of new data, and when what is there is enough.
#[derive(Debug, Clone, Copy)]
pub struct Watch {
    pub watcher: Watcher,
    pub bytes_wanted: u64,
}

/// A parked fetch and the shard that it is parked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Watcher {
    pub shard: ShardId,
    pub id: WatchId,
}

/// A parked fetch of one shard, unique there for as long as it is parked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WatchId(pub u64);

#[derive(Debug, Clone, Copy)]
pub struct ReadItem {
    pub key: PartitionKey,
    pub offset: Offset,
    pub bytes_max: usize,
    /// The leader epoch that the client claims; -1 claims none.
    pub leader_epoch: LeaderEpoch,
    pub isolation: Isolation,
}

/// One partition of a ListOffsets request.
#[derive(Debug, Clone, Copy)]
pub struct OffsetQuestion {
    pub key: PartitionKey,
    /// Milliseconds, or one of the special values.
    pub timestamp: i64,
    pub version: i16,
    pub leader_epoch: LeaderEpoch,
    pub isolation: Isolation,
}

/// One partition of an OffsetForLeaderEpoch request.
#[derive(Debug, Clone, Copy)]
pub struct EpochQuestion {
    pub key: PartitionKey,
    pub current_epoch: LeaderEpoch,
    pub asked_epoch: LeaderEpoch,
}

/// What the answer channel of a shard carries.
#[derive(Debug)]
pub enum Answer {
    Reply {
        call_id: usize,
        reply: CallReply,
    },
    /// A watched partition has new data; comes at most once a registration.
    Wake(WatchId),
}

/// What the request channel of a shard carries.
#[derive(Debug)]
pub enum Request {
    Call {
        from: ShardId,
        call_id: usize,
        call: Call,
    },
    /// A new picture of the cluster; `applied` hears when the shard acts on it.
    Image {
        image: Arc<MetadataImage>,
        applied: flume::Sender<ShardId>,
    },
    /// All shards have opened their partitions: write a first checkpoint. `saved` hears when it is
    /// durable.
    Save { saved: flume::Sender<ShardId> },
    /// All shards have saved: begin a commit log, accept connections, write checkpoints. `started`
    /// hears when the shard does.
    Start { started: flume::Sender<ShardId> },
    /// Flush, write a checkpoint and end.
    Stop,
}
