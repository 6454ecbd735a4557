//! Settings of a topic (Kafka 4.1, `LogConfig`).

use super::reasons::*;
use super::{Setting, settings};

pub(super) const ROWS: &[Setting] = settings! {
    ["cleanup.policy", List, "delete", EachOf(&["compact", "delete"]), Medium, ClusterWide,
      Inert(CLEANUP),
      "What happens to old segments: `delete` removes them by age and size, `compact` keeps the \
       last record of each key; both may be combined."],
    ["compression.gzip.level", Int, "-1", GzipLevel, Medium, ClusterWide, Inert(RECOMPRESS),
      "The gzip level used where the broker compresses; -1 is the library's own choice."],
    ["compression.lz4.level", Int, "9", Between(1, 17), Medium, ClusterWide, Inert(RECOMPRESS),
      "The LZ4 level used where the broker compresses."],
    ["compression.type", String, "producer", OneOf(&["uncompressed", "zstd", "lz4", "snappy",
      "gzip", "producer"]), Medium, ClusterWide, Inert(RECOMPRESS),
      "The compression in which records are stored; `producer` keeps what the producer sent."],
    ["compression.zstd.level", Int, "3", Between(-131072, 22), Medium, ClusterWide,
      Inert(RECOMPRESS),
      "The Zstandard level used where the broker compresses."],
    ["delete.retention.ms", Long, "86400000", AtLeast(0), Medium, ClusterWide, Inert(COMPACTION),
      "How long a delete marker of a compacted topic stays readable, in milliseconds."],
    ["file.delete.delay.ms", Long, "60000", AtLeast(0), Medium, ClusterWide, Inert(RETENTION),
      "How long a removed segment's file stays on disk before it is unlinked, in milliseconds."],
    ["flush.messages", Long, "1", AtLeast(1), Medium, ClusterWide, Effective,
      "How many records may be acknowledged before they are flushed to stable media. 1, \
       Ringmain's default, flushes before every acknowledgement; Kafka's default never does."],
    ["flush.ms", Long, "9223372036854775807", AtLeast(0), Medium, ClusterWide, Effective,
      "The longest time a record waits for its flush where `flush.messages` allows it to wait, \
       in milliseconds."],
    ["follower.replication.throttled.replicas", List, "", ThrottledReplicas, Medium, ClusterWide,
      Inert(REPLICATION),
      "Replicas whose fetching is throttled on the follower: `*` or a list of partition:broker."],
    ["index.interval.bytes", Int, "4096", AtLeast(0), Medium, ClusterWide, Effective,
      "How many bytes of log lie between two entries of the offset index; smaller finds faster \
       and takes more memory."],
    ["leader.replication.throttled.replicas", List, "", ThrottledReplicas, Medium, ClusterWide,
      Inert(REPLICATION),
      "Replicas whose fetching is throttled on the leader: `*` or a list of partition:broker."],
    ["local.retention.bytes", Long, "-2", AtLeast(-2), Medium, ClusterWide, Inert(TIERED),
      "Size of the log kept locally once segments are in remote storage, in bytes; -2 takes \
       `retention.bytes`."],
    ["local.retention.ms", Long, "-2", AtLeast(-2), Medium, ClusterWide, Inert(TIERED),
      "Age up to which segments are kept locally once they are in remote storage, in \
       milliseconds; -2 takes `retention.ms`."],
    ["max.compaction.lag.ms", Long, "9223372036854775807", AtLeast(1), Medium, ClusterWide,
      Inert(COMPACTION),
      "The longest time that a record may stay uncompacted, in milliseconds."],
    ["max.message.bytes", Int, "1048588", AtLeast(0), Medium, ClusterWide, Effective,
      "The largest record batch accepted, after compression, in bytes."],
    ["message.timestamp.after.max.ms", Long, "3600000", AtLeast(0), Medium, ClusterWide, Effective,
      "How far a record's timestamp may lie ahead of the broker's clock, in milliseconds; \
       beyond it the record is refused."],
    ["message.timestamp.before.max.ms", Long, "9223372036854775807", AtLeast(0), Medium,
      ClusterWide, Effective,
      "How far a record's timestamp may lie behind the broker's clock, in milliseconds; beyond \
       it the record is refused."],
    ["message.timestamp.type", String, "CreateTime", OneOf(&["CreateTime", "LogAppendTime"]),
      Medium, ClusterWide, Effective,
      "Whose clock dates the records: the producer's (`CreateTime`) or the broker's \
       (`LogAppendTime`)."],
    ["min.cleanable.dirty.ratio", Double, "0.5", Between(0, 1), Medium, ClusterWide,
      Inert(COMPACTION),
      "The share of the log that must be uncompacted before compaction runs."],
    ["min.compaction.lag.ms", Long, "0", AtLeast(0), Medium, ClusterWide, Inert(COMPACTION),
      "The shortest time that a record stays uncompacted, in milliseconds."],
    ["min.insync.replicas", Int, "1", AtLeast(1), Medium, ClusterWide, Effective,
      "How many replicas must be in sync for a produce with acks=all to succeed."],
    ["preallocate", Boolean, "false", Any, Medium, ClusterWide, Inert(PREALLOCATE),
      "Whether segment files are allocated at full size when created."],
    ["remote.log.copy.disable", Boolean, "false", Any, Medium, ClusterWide, Inert(TIERED),
      "Whether new segments stop being copied to remote storage."],
    ["remote.log.delete.on.disable", Boolean, "false", Any, Medium, ClusterWide, Inert(TIERED),
      "Whether remote data is deleted when remote storage is switched off for the topic."],
    ["remote.storage.enable", Boolean, "false", Any, Medium, ClusterWide, Inert(TIERED),
      "Whether the topic's segments are moved to remote storage. Only `false` can be set: there \
       is no remote storage."],
    ["retention.bytes", Long, "-1", Any, Medium, ClusterWide, Inert(RETENTION),
      "The size beyond which a partition's oldest segments are removed, in bytes; -1 is no \
       limit."],
    ["retention.ms", Long, "604800000", AtLeast(-1), Medium, ClusterWide, Inert(RETENTION),
      "The age beyond which segments are removed, in milliseconds; -1 keeps them for ever."],
    ["segment.bytes", Int, "1073741824", AtLeast(1048576), Medium, ClusterWide, Effective,
      "The size at which a segment is closed and the next one begun, in bytes."],
    ["segment.index.bytes", Int, "10485760", AtLeast(4), Medium, ClusterWide, Effective,
      "The largest size of a segment's offset index, in bytes; a full index closes the segment."],
    ["segment.jitter.ms", Long, "0", AtLeast(0), Medium, ClusterWide, Inert(JITTER),
      "The most that is taken at random from `segment.ms`, so that segments do not all roll at \
       once, in milliseconds."],
    ["segment.ms", Long, "604800000", AtLeast(1), Medium, ClusterWide, Effective,
      "The age at which a segment is closed even if it is not full, in milliseconds."],
    ["unclean.leader.election.enable", Boolean, "false", Any, Medium, ClusterWide,
      Inert(REPLICATION),
      "Whether a replica that is not in sync may lead when no other can, at the price of lost \
       records."],
};
