//! Every setting that is known, in two tables: of topics and of the broker. Names, defaults and
//! meanings are Kafka 4.1's unless the row says otherwise.

use super::value::{Kind, Rule};

/// What a setting does here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// It is in force.
    Effective,
    /// Accepted, stored and described, without an effect yet; the text says why that is harmless.
    Inert(&'static str),
    /// Refused when set; the text says why.
    Refused(&'static str),
}

/// One setting.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    pub name: &'static str,
    pub kind: Kind,
    /// `None` where there is none: an optional setting.
    pub default: Option<&'static str>,
    pub rule: Rule,
    pub support: Support,
    pub documentation: &'static str,
    /// Of a topic's setting: the broker's setting that gives its default, the most specific
    /// first. Of a broker's: coarser spellings of itself, with their unit in milliseconds.
    pub synonyms: &'static [Synonym],
    /// Of a broker's setting: whether it may be changed while the broker runs.
    pub is_dynamic: bool,
}

/// Another name for the same thing, whose number counts `unit` of ours.
#[derive(Debug, Clone, Copy)]
pub struct Synonym {
    pub name: &'static str,
    pub unit: i64,
}

const fn same(name: &'static str) -> Synonym {
    Synonym { name, unit: 1 }
}

const fn minutes(name: &'static str) -> Synonym {
    Synonym { name, unit: 60_000 }
}

const fn hours(name: &'static str) -> Synonym {
    Synonym {
        name,
        unit: 3_600_000,
    }
}

impl Setting {
    const fn new(
        name: &'static str,
        kind: Kind,
        default: Option<&'static str>,
        rule: Rule,
        documentation: &'static str,
    ) -> Self {
        Self {
            name,
            kind,
            default,
            rule,
            support: Support::Effective,
            documentation,
            synonyms: &[],
            is_dynamic: false,
        }
    }

    const fn synonyms(mut self, synonyms: &'static [Synonym]) -> Self {
        self.synonyms = synonyms;
        self
    }

    const fn inert(mut self, why: &'static str) -> Self {
        self.support = Support::Inert(why);
        self
    }

    const fn refused(mut self, why: &'static str) -> Self {
        self.support = Support::Refused(why);
        self
    }

    const fn dynamic(mut self) -> Self {
        self.is_dynamic = true;
        self
    }
}

use Kind::{Boolean, Double, Int, List, Long, Text};
use Rule::{Any, AtLeast, Between, Fraction, OneOf, SubsetOf};

const NO_RETENTION: &str = "old segments are not removed yet";
const NO_COMPACTION: &str = "logs are not compacted yet";
const ONE_NODE: &str = "there is one node";
const NO_TIERS: &str = "there is no tiered storage";
const NO_SECURITY: &str = "TLS and SASL are not supported yet; remove it";
const NO_GROUPS: &str = "consumer groups are not served yet";
const NO_TRANSACTIONS: &str = "transactions are not served yet";
const SHARDS_INSTEAD: &str = "there is one thread a core; see ringmain.cores";

const COMPRESSION_TYPES: &[&str] = &["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"];
const TIMESTAMP_TYPES: &[&str] = &["CreateTime", "LogAppendTime"];

/// Settings of topics. Each can be set for a topic; its default is the broker's synonym.
pub const TOPIC: &[Setting] = &[
    Setting::new("cleanup.policy", List, Some("delete"), SubsetOf(&["compact", "delete"]),
        "What happens to old segments: delete removes them after the retention time or size, compact keeps the newest record of each key. With compact, records without a key are refused.")
        .synonyms(&[same("log.cleanup.policy")]),
    Setting::new("compression.gzip.level", Int, Some("-1"), Between(-1, 9),
        "Level of gzip where compression.type is gzip.")
        .synonyms(&[same("compression.gzip.level")]).inert("batches are kept as they were sent"),
    Setting::new("compression.lz4.level", Int, Some("9"), Between(1, 17),
        "Level of lz4 where compression.type is lz4.")
        .synonyms(&[same("compression.lz4.level")]).inert("batches are kept as they were sent"),
    Setting::new("compression.type", Text, Some("producer"), OneOf(COMPRESSION_TYPES),
        "Compression of the log: producer keeps each batch as it was sent.")
        .synonyms(&[same("compression.type")]).inert("batches are kept as they were sent"),
    Setting::new("compression.zstd.level", Int, Some("3"), Between(-131_072, 22),
        "Level of zstd where compression.type is zstd.")
        .synonyms(&[same("compression.zstd.level")]).inert("batches are kept as they were sent"),
    Setting::new("delete.retention.ms", Long, Some("86400000"), AtLeast(0),
        "How long the tombstones of a compacted topic are kept, in milliseconds.")
        .synonyms(&[same("log.cleaner.delete.retention.ms")]).inert(NO_COMPACTION),
    Setting::new("file.delete.delay.ms", Long, Some("60000"), AtLeast(0),
        "How long a deleted segment file stays on disk, in milliseconds.")
        .synonyms(&[same("log.segment.delete.delay.ms")]).inert("deleted files are removed at once; readers keep theirs open"),
    Setting::new("flush.messages", Long, Some("1"), AtLeast(1),
        "Records after which a flush to stable media is forced. 1, our default, flushes before every acknowledgement; Kafka's default never flushes.")
        .synonyms(&[same("log.flush.interval.messages")]),
    Setting::new("flush.ms", Long, Some("9223372036854775807"), AtLeast(0),
        "The longest time that written records stay unflushed, in milliseconds, where flush.messages is above 1.")
        .synonyms(&[same("log.flush.interval.ms"), same("log.flush.scheduler.interval.ms")]),
    Setting::new("follower.replication.throttled.replicas", List, Some(""), Any,
        "Replicas whose replication is throttled as followers.").inert(ONE_NODE),
    Setting::new("index.interval.bytes", Int, Some("4096"), AtLeast(0),
        "Bytes of records between two entries of the offset index.")
        .synonyms(&[same("log.index.interval.bytes")]),
    Setting::new("leader.replication.throttled.replicas", List, Some(""), Any,
        "Replicas whose replication is throttled as leaders.").inert(ONE_NODE),
    Setting::new("local.retention.bytes", Long, Some("-2"), AtLeast(-2),
        "Bytes that stay local with tiered storage.").inert(NO_TIERS),
    Setting::new("local.retention.ms", Long, Some("-2"), AtLeast(-2),
        "Milliseconds that segments stay local with tiered storage.").inert(NO_TIERS),
    Setting::new("max.compaction.lag.ms", Long, Some("9223372036854775807"), AtLeast(1),
        "The longest time a record stays uncompacted, in milliseconds.")
        .synonyms(&[same("log.cleaner.max.compaction.lag.ms")]).inert(NO_COMPACTION),
    Setting::new("max.message.bytes", Int, Some("1048588"), AtLeast(0),
        "The largest record batch that is accepted, in bytes, after compression.")
        .synonyms(&[same("message.max.bytes")]),
    Setting::new("message.timestamp.after.max.ms", Long, Some("3600000"), AtLeast(0),
        "How far a record's timestamp may lie in the future, in milliseconds, where message.timestamp.type is CreateTime.")
        .synonyms(&[same("log.message.timestamp.after.max.ms")]),
    Setting::new("message.timestamp.before.max.ms", Long, Some("9223372036854775807"), AtLeast(0),
        "How far a record's timestamp may lie in the past, in milliseconds, where message.timestamp.type is CreateTime.")
        .synonyms(&[same("log.message.timestamp.before.max.ms")]),
    Setting::new("message.timestamp.type", Text, Some("CreateTime"), OneOf(TIMESTAMP_TYPES),
        "Whose clock timestamps come from: CreateTime is the producer's, LogAppendTime the broker's.")
        .synonyms(&[same("log.message.timestamp.type")]),
    Setting::new("min.cleanable.dirty.ratio", Double, Some("0.5"), Fraction(0.0, 1.0),
        "The share of a log that must be uncompacted before it is compacted.")
        .synonyms(&[same("log.cleaner.min.cleanable.ratio")]).inert(NO_COMPACTION),
    Setting::new("min.compaction.lag.ms", Long, Some("0"), AtLeast(0),
        "How long a record stays uncompacted at least, in milliseconds.")
        .synonyms(&[same("log.cleaner.min.compaction.lag.ms")]).inert(NO_COMPACTION),
    Setting::new("min.insync.replicas", Int, Some("1"), AtLeast(1),
        "Replicas that must be in sync for a write with acks=all; with fewer it fails with NOT_ENOUGH_REPLICAS.")
        .synonyms(&[same("min.insync.replicas")]),
    Setting::new("preallocate", Boolean, Some("false"), Any,
        "Whether segment files are allocated whole when they are made.")
        .synonyms(&[same("log.preallocate")]).inert("segments are always allocated in steps"),
    Setting::new("remote.log.copy.disable", Boolean, Some("false"), Any,
        "Whether segments stop to move to tiered storage.").inert(NO_TIERS),
    Setting::new("remote.log.delete.on.disable", Boolean, Some("false"), Any,
        "Whether tiered data goes when tiering is disabled.").inert(NO_TIERS),
    Setting::new("remote.storage.enable", Boolean, Some("false"), OneOf(&["false"]),
        "Whether a topic uses tiered storage. Only false is possible.").inert(NO_TIERS),
    Setting::new("retention.bytes", Long, Some("-1"), Any,
        "The size above which a partition's oldest segments are deleted, in bytes; -1 is no limit.")
        .synonyms(&[same("log.retention.bytes")]).inert(NO_RETENTION),
    Setting::new("retention.ms", Long, Some("604800000"), AtLeast(-1),
        "The age above which segments are deleted, in milliseconds; -1 is no limit.")
        .synonyms(&[same("log.retention.ms"), minutes("log.retention.minutes"), hours("log.retention.hours")])
        .inert(NO_RETENTION),
    Setting::new("segment.bytes", Int, Some("1073741824"), AtLeast(1024 * 1024),
        "The size at which a segment file is closed and the next begun, in bytes.")
        .synonyms(&[same("log.segment.bytes")]),
    Setting::new("segment.index.bytes", Int, Some("10485760"), AtLeast(4),
        "The size at which an offset index is full, in bytes; its segment is then closed.")
        .synonyms(&[same("log.index.size.max.bytes")]).inert("indexes grow with their segment"),
    Setting::new("segment.jitter.ms", Long, Some("0"), AtLeast(0),
        "A random time by which segments are closed early, at most, in milliseconds.")
        .synonyms(&[same("log.roll.jitter.ms"), hours("log.roll.jitter.hours")])
        .inert("closing a segment costs too little to be spread"),
    Setting::new("segment.ms", Long, Some("604800000"), AtLeast(1),
        "The age of its first record at which a segment file is closed, in milliseconds.")
        .synonyms(&[same("log.roll.ms"), hours("log.roll.hours")]),
    Setting::new("unclean.leader.election.enable", Boolean, Some("false"), Any,
        "Whether a replica that is not in sync may become leader, which loses records.")
        .synonyms(&[same("unclean.leader.election.enable")]).inert(ONE_NODE),
];

/// Settings of the broker.
pub const BROKER: &[Setting] = &[
    // Identity, addresses, directories.
    Setting::new(
        "node.id",
        Int,
        Some("1"),
        AtLeast(0),
        "The broker's number in its cluster.",
    ),
    Setting::new(
        "broker.id",
        Int,
        None,
        AtLeast(0),
        "The old name of node.id.",
    )
    .refused("use node.id"),
    Setting::new(
        "listeners",
        Text,
        Some("PLAINTEXT://127.0.0.1:9092"),
        Any,
        "The address on which clients connect, as PLAINTEXT://host:port. Kafka's default is every address; ours is loopback.",
    ),
    Setting::new(
        "advertised.listeners",
        Text,
        None,
        Any,
        "The address that clients are told to connect to; needed where listeners names a wildcard address.",
    ),
    Setting::new(
        "log.dirs",
        Text,
        None,
        Any,
        "The directory of all data; the same as log.dir. One directory is supported.",
    ),
    Setting::new(
        "log.dir",
        Text,
        Some("./ringmain-data"),
        Any,
        "The directory of all data.",
    ),
    Setting::new("broker.rack", Text, None, Any, "The rack of the broker.").inert(ONE_NODE),
    Setting::new(
        "ringmain.cores",
        Text,
        Some("all"),
        Any,
        "The cores to run on, one shard each: all, or a list such as 0,2-3.",
    ),
    Setting::new(
        "ringmain.admin.listener",
        Text,
        Some("127.0.0.1:9644"),
        Any,
        "The address of the admin HTTP, as host:port.",
    ),
    Setting::new(
        "ringmain.tail.cache.bytes",
        Long,
        Some("134217728"),
        AtLeast(1024 * 1024),
        "Memory for the newest records of all partitions of a core, in bytes.",
    ),
    Setting::new(
        "ringmain.network.memory.bytes",
        Long,
        Some("268435456"),
        AtLeast(1024 * 1024),
        "Memory for requests that a core is receiving or working on, in bytes. Beyond it the core stops reading from connections.",
    ),
    // Topics made without settings.
    Setting::new(
        "num.partitions",
        Int,
        Some("1"),
        AtLeast(1),
        "Partitions of a topic that is made without a number.",
    ),
    Setting::new(
        "default.replication.factor",
        Int,
        Some("1"),
        AtLeast(1),
        "Replicas of a topic that is made without a number.",
    ),
    Setting::new(
        "auto.create.topics.enable",
        Boolean,
        Some("true"),
        Any,
        "Whether asking for a topic makes it.",
    ),
    Setting::new(
        "delete.topic.enable",
        Boolean,
        Some("true"),
        Any,
        "Whether topics can be deleted.",
    ),
    // Requests.
    Setting::new(
        "socket.request.max.bytes",
        Int,
        Some("104857600"),
        AtLeast(1),
        "The largest request, in bytes.",
    ),
    Setting::new(
        "fetch.max.bytes",
        Int,
        Some("57671680"),
        AtLeast(1024),
        "The most that one fetch returns, in bytes, whatever the client asks for.",
    ),
    Setting::new(
        "connections.max.idle.ms",
        Long,
        Some("600000"),
        Any,
        "How long a connection may be silent, in milliseconds.",
    )
    .inert("silent connections are kept"),
    Setting::new(
        "max.incremental.fetch.session.cache.slots",
        Int,
        Some("1000"),
        AtLeast(0),
        "Fetch sessions that are kept, over all cores.",
    ),
    Setting::new(
        "queued.max.requests",
        Int,
        Some("500"),
        AtLeast(1),
        "Requests that wait for a thread.",
    )
    .inert(SHARDS_INSTEAD),
    Setting::new(
        "request.timeout.ms",
        Int,
        Some("30000"),
        AtLeast(0),
        "How long the broker waits for others.",
    )
    .inert(ONE_NODE),
    Setting::new(
        "num.network.threads",
        Int,
        Some("3"),
        AtLeast(1),
        "Network threads.",
    )
    .inert(SHARDS_INSTEAD),
    Setting::new(
        "num.io.threads",
        Int,
        Some("8"),
        AtLeast(1),
        "Request threads.",
    )
    .inert(SHARDS_INSTEAD),
    Setting::new(
        "background.threads",
        Int,
        Some("10"),
        AtLeast(1),
        "Background threads.",
    )
    .inert(SHARDS_INSTEAD),
    Setting::new(
        "num.recovery.threads.per.data.dir",
        Int,
        Some("2"),
        AtLeast(1),
        "Threads of recovery.",
    )
    .inert(SHARDS_INSTEAD),
    Setting::new(
        "num.replica.fetchers",
        Int,
        Some("1"),
        AtLeast(1),
        "Threads of replication.",
    )
    .inert(SHARDS_INSTEAD),
    Setting::new(
        "socket.send.buffer.bytes",
        Int,
        Some("102400"),
        AtLeast(-1),
        "Send buffer of sockets.",
    )
    .inert("the kernel sizes socket buffers itself"),
    Setting::new(
        "socket.receive.buffer.bytes",
        Int,
        Some("102400"),
        AtLeast(-1),
        "Receive buffer of sockets.",
    )
    .inert("the kernel sizes socket buffers itself"),
    Setting::new(
        "socket.listen.backlog.size",
        Int,
        Some("50"),
        AtLeast(1),
        "Connections waiting to be accepted.",
    )
    .inert("the backlog is 1024"),
    Setting::new(
        "max.connections",
        Int,
        Some("2147483647"),
        AtLeast(0),
        "Connections in all.",
    )
    .inert("bounded by the file descriptors"),
    Setting::new(
        "max.connections.per.ip",
        Int,
        Some("2147483647"),
        AtLeast(0),
        "Connections of one address.",
    )
    .inert("bounded by the file descriptors"),
    // Producers.
    Setting::new(
        "producer.id.expiration.ms",
        Int,
        Some("86400000"),
        AtLeast(1),
        "How long a producer that is silent is remembered, in milliseconds.",
    )
    .dynamic(),
    Setting::new(
        "producer.id.expiration.check.interval.ms",
        Int,
        Some("600000"),
        AtLeast(1),
        "How often silent producers are looked for, in milliseconds.",
    ),
    // The log.
    Setting::new(
        "message.max.bytes",
        Int,
        Some("1048588"),
        AtLeast(0),
        "Default of max.message.bytes.",
    )
    .dynamic(),
    Setting::new(
        "log.cleanup.policy",
        List,
        Some("delete"),
        SubsetOf(&["compact", "delete"]),
        "Default of cleanup.policy.",
    )
    .dynamic(),
    Setting::new(
        "log.flush.interval.messages",
        Long,
        Some("1"),
        AtLeast(1),
        "Default of flush.messages. Ours is 1, Kafka's is never.",
    )
    .dynamic(),
    Setting::new(
        "log.flush.interval.ms",
        Long,
        None,
        AtLeast(0),
        "Default of flush.ms.",
    )
    .dynamic(),
    Setting::new(
        "log.flush.scheduler.interval.ms",
        Long,
        Some("9223372036854775807"),
        AtLeast(0),
        "Default of flush.ms where log.flush.interval.ms is not set.",
    ),
    Setting::new(
        "log.flush.offset.checkpoint.interval.ms",
        Int,
        Some("60000"),
        AtLeast(1),
        "How often the recovery point is written, in milliseconds.",
    ),
    Setting::new(
        "log.flush.start.offset.checkpoint.interval.ms",
        Int,
        Some("60000"),
        AtLeast(0),
        "How often log start offsets are written.",
    )
    .inert("they are in the same checkpoint"),
    Setting::new(
        "log.index.interval.bytes",
        Int,
        Some("4096"),
        AtLeast(0),
        "Default of index.interval.bytes.",
    )
    .dynamic(),
    Setting::new(
        "log.index.size.max.bytes",
        Int,
        Some("10485760"),
        AtLeast(4),
        "Default of segment.index.bytes.",
    )
    .dynamic()
    .inert("indexes grow with their segment"),
    Setting::new(
        "log.message.timestamp.type",
        Text,
        Some("CreateTime"),
        OneOf(TIMESTAMP_TYPES),
        "Default of message.timestamp.type.",
    )
    .dynamic(),
    Setting::new(
        "log.message.timestamp.before.max.ms",
        Long,
        Some("9223372036854775807"),
        AtLeast(0),
        "Default of message.timestamp.before.max.ms.",
    )
    .dynamic(),
    Setting::new(
        "log.message.timestamp.after.max.ms",
        Long,
        Some("3600000"),
        AtLeast(0),
        "Default of message.timestamp.after.max.ms.",
    )
    .dynamic(),
    Setting::new(
        "log.preallocate",
        Boolean,
        Some("false"),
        Any,
        "Default of preallocate.",
    )
    .dynamic()
    .inert("segments are always allocated in steps"),
    Setting::new(
        "log.retention.bytes",
        Long,
        Some("-1"),
        Any,
        "Default of retention.bytes.",
    )
    .dynamic()
    .inert(NO_RETENTION),
    Setting::new(
        "log.retention.ms",
        Long,
        None,
        AtLeast(-1),
        "Default of retention.ms.",
    )
    .dynamic()
    .inert(NO_RETENTION),
    Setting::new(
        "log.retention.minutes",
        Int,
        None,
        AtLeast(-1),
        "The same in minutes.",
    )
    .inert(NO_RETENTION),
    Setting::new(
        "log.retention.hours",
        Int,
        Some("168"),
        AtLeast(-1),
        "The same in hours.",
    )
    .inert(NO_RETENTION),
    Setting::new(
        "log.retention.check.interval.ms",
        Long,
        Some("300000"),
        AtLeast(1),
        "How often old segments are looked for.",
    )
    .inert(NO_RETENTION),
    Setting::new(
        "log.roll.ms",
        Long,
        None,
        AtLeast(1),
        "Default of segment.ms.",
    )
    .dynamic(),
    Setting::new(
        "log.roll.hours",
        Int,
        Some("168"),
        AtLeast(1),
        "The same in hours.",
    ),
    Setting::new(
        "log.roll.jitter.ms",
        Long,
        None,
        AtLeast(0),
        "Default of segment.jitter.ms.",
    )
    .dynamic()
    .inert("closing a segment costs too little to be spread"),
    Setting::new(
        "log.roll.jitter.hours",
        Int,
        Some("0"),
        AtLeast(0),
        "The same in hours.",
    )
    .inert("closing a segment costs too little to be spread"),
    Setting::new(
        "log.segment.bytes",
        Int,
        Some("1073741824"),
        AtLeast(1024 * 1024),
        "Default of segment.bytes.",
    )
    .dynamic(),
    Setting::new(
        "log.segment.delete.delay.ms",
        Long,
        Some("60000"),
        AtLeast(0),
        "Default of file.delete.delay.ms.",
    )
    .dynamic()
    .inert("deleted files are removed at once; readers keep theirs open"),
    Setting::new(
        "log.cleaner.enable",
        Boolean,
        Some("true"),
        Any,
        "Whether logs are compacted.",
    )
    .inert(NO_COMPACTION),
    Setting::new(
        "log.cleaner.threads",
        Int,
        Some("1"),
        AtLeast(0),
        "Threads of compaction.",
    )
    .inert(NO_COMPACTION),
    Setting::new(
        "log.cleaner.delete.retention.ms",
        Long,
        Some("86400000"),
        AtLeast(0),
        "Default of delete.retention.ms.",
    )
    .dynamic()
    .inert(NO_COMPACTION),
    Setting::new(
        "log.cleaner.min.cleanable.ratio",
        Double,
        Some("0.5"),
        Fraction(0.0, 1.0),
        "Default of min.cleanable.dirty.ratio.",
    )
    .dynamic()
    .inert(NO_COMPACTION),
    Setting::new(
        "log.cleaner.min.compaction.lag.ms",
        Long,
        Some("0"),
        AtLeast(0),
        "Default of min.compaction.lag.ms.",
    )
    .dynamic()
    .inert(NO_COMPACTION),
    Setting::new(
        "log.cleaner.max.compaction.lag.ms",
        Long,
        Some("9223372036854775807"),
        AtLeast(1),
        "Default of max.compaction.lag.ms.",
    )
    .dynamic()
    .inert(NO_COMPACTION),
    Setting::new(
        "compression.type",
        Text,
        Some("producer"),
        OneOf(COMPRESSION_TYPES),
        "Default of the topics' compression.type.",
    )
    .dynamic()
    .inert("batches are kept as they were sent"),
    Setting::new(
        "compression.gzip.level",
        Int,
        Some("-1"),
        Between(-1, 9),
        "Default of the topics' compression.gzip.level.",
    )
    .dynamic()
    .inert("batches are kept as they were sent"),
    Setting::new(
        "compression.lz4.level",
        Int,
        Some("9"),
        Between(1, 17),
        "Default of the topics' compression.lz4.level.",
    )
    .dynamic()
    .inert("batches are kept as they were sent"),
    Setting::new(
        "compression.zstd.level",
        Int,
        Some("3"),
        Between(-131_072, 22),
        "Default of the topics' compression.zstd.level.",
    )
    .dynamic()
    .inert("batches are kept as they were sent"),
    // Replication.
    Setting::new(
        "min.insync.replicas",
        Int,
        Some("1"),
        AtLeast(1),
        "Default of the topics' min.insync.replicas.",
    )
    .dynamic(),
    Setting::new(
        "unclean.leader.election.enable",
        Boolean,
        Some("false"),
        Any,
        "Default of the topics' setting of this name.",
    )
    .dynamic()
    .inert(ONE_NODE),
    Setting::new(
        "replica.lag.time.max.ms",
        Long,
        Some("30000"),
        AtLeast(1),
        "How long a follower may lag before it leaves the ISR.",
    )
    .inert(ONE_NODE),
    Setting::new(
        "replica.fetch.max.bytes",
        Int,
        Some("1048576"),
        AtLeast(0),
        "Bytes a follower fetches of a partition.",
    )
    .inert(ONE_NODE),
    Setting::new(
        "replica.fetch.wait.max.ms",
        Int,
        Some("500"),
        Any,
        "How long a follower's fetch waits.",
    )
    .inert(ONE_NODE),
    Setting::new(
        "auto.leader.rebalance.enable",
        Boolean,
        Some("true"),
        Any,
        "Whether leadership returns to preferred replicas.",
    )
    .inert(ONE_NODE),
    Setting::new(
        "controlled.shutdown.enable",
        Boolean,
        Some("true"),
        Any,
        "Whether leadership moves away before a stop.",
    )
    .inert(ONE_NODE),
    Setting::new(
        "inter.broker.listener.name",
        Text,
        None,
        Any,
        "The listener between brokers.",
    )
    .inert(ONE_NODE),
    // KRaft.
    Setting::new(
        "process.roles",
        List,
        None,
        SubsetOf(&["broker", "controller"]),
        "The roles of the process.",
    )
    .inert("every process has both roles"),
    Setting::new(
        "controller.quorum.voters",
        List,
        None,
        Any,
        "The members of the metadata quorum.",
    )
    .refused("clusters of several nodes are not supported yet; remove it"),
    Setting::new(
        "controller.quorum.bootstrap.servers",
        List,
        None,
        Any,
        "Where to find the metadata quorum.",
    )
    .refused("clusters of several nodes are not supported yet; remove it"),
    Setting::new(
        "controller.listener.names",
        List,
        None,
        Any,
        "The listeners of the controller.",
    )
    .inert("there is no separate controller"),
    Setting::new("zookeeper.connect", Text, None, Any, "ZooKeeper.")
        .refused("there is no ZooKeeper here; remove it"),
    // Groups and transactions.
    Setting::new(
        "offsets.topic.num.partitions",
        Int,
        Some("50"),
        AtLeast(1),
        "Partitions of the offsets topic.",
    )
    .inert(NO_GROUPS),
    Setting::new(
        "offsets.topic.replication.factor",
        Int,
        Some("1"),
        AtLeast(1),
        "Replicas of the offsets topic.",
    )
    .inert(NO_GROUPS),
    Setting::new(
        "offsets.retention.minutes",
        Int,
        Some("10080"),
        AtLeast(1),
        "How long offsets of an empty group are kept.",
    )
    .inert(NO_GROUPS),
    Setting::new(
        "group.initial.rebalance.delay.ms",
        Int,
        Some("3000"),
        AtLeast(0),
        "How long a new group waits for members.",
    )
    .inert(NO_GROUPS),
    Setting::new(
        "group.min.session.timeout.ms",
        Int,
        Some("6000"),
        AtLeast(0),
        "The shortest session of a member.",
    )
    .inert(NO_GROUPS),
    Setting::new(
        "group.max.session.timeout.ms",
        Int,
        Some("1800000"),
        AtLeast(0),
        "The longest session of a member.",
    )
    .inert(NO_GROUPS),
    Setting::new(
        "group.max.size",
        Int,
        Some("2147483647"),
        AtLeast(1),
        "Members of a group, at most.",
    )
    .inert(NO_GROUPS),
    Setting::new(
        "transaction.state.log.num.partitions",
        Int,
        Some("50"),
        AtLeast(1),
        "Partitions of the transaction log.",
    )
    .inert(NO_TRANSACTIONS),
    Setting::new(
        "transaction.state.log.replication.factor",
        Int,
        Some("1"),
        AtLeast(1),
        "Replicas of the transaction log.",
    )
    .inert(NO_TRANSACTIONS),
    Setting::new(
        "transaction.state.log.min.isr",
        Int,
        Some("1"),
        AtLeast(1),
        "In-sync replicas of the transaction log.",
    )
    .inert(NO_TRANSACTIONS),
    Setting::new(
        "transaction.max.timeout.ms",
        Int,
        Some("900000"),
        AtLeast(1),
        "The longest transaction.",
    )
    .inert(NO_TRANSACTIONS),
    Setting::new(
        "transactional.id.expiration.ms",
        Int,
        Some("604800000"),
        AtLeast(1),
        "How long a silent transactional id is remembered.",
    )
    .inert(NO_TRANSACTIONS),
    // Security.
    Setting::new(
        "listener.security.protocol.map",
        Text,
        None,
        Any,
        "Security protocol of each listener.",
    )
    .inert("the only protocol is PLAINTEXT"),
    Setting::new(
        "security.inter.broker.protocol",
        Text,
        None,
        OneOf(&["PLAINTEXT"]),
        "Security between brokers.",
    )
    .inert(ONE_NODE),
    Setting::new(
        "authorizer.class.name",
        Text,
        None,
        Any,
        "What decides who may do what.",
    )
    .refused("authorization is not supported yet; remove it"),
    Setting::new(
        "sasl.enabled.mechanisms",
        List,
        None,
        Any,
        "How clients authenticate.",
    )
    .refused(NO_SECURITY),
    Setting::new(
        "sasl.mechanism.inter.broker.protocol",
        Text,
        None,
        Any,
        "How brokers authenticate.",
    )
    .refused(NO_SECURITY),
    Setting::new("ssl.keystore.location", Text, None, Any, "The key of TLS.").refused(NO_SECURITY),
    Setting::new(
        "ssl.truststore.location",
        Text,
        None,
        Any,
        "Whom TLS trusts.",
    )
    .refused(NO_SECURITY),
    Setting::new(
        "ssl.client.auth",
        Text,
        None,
        Any,
        "Whether TLS clients authenticate.",
    )
    .refused(NO_SECURITY),
    // Plug-ins.
    Setting::new("log4j2.configurationFile", Text, None, Any, "Logging.")
        .inert("the level of the log is in the variable RINGMAIN_LOG"),
    Setting::new("metric.reporters", List, None, Any, "Who gets metrics.")
        .inert("metrics are at /metrics of the admin HTTP"),
];

pub fn find_topic(name: &str) -> Option<&'static Setting> {
    TOPIC.iter().find(|setting| setting.name == name)
}

pub fn find_broker(name: &str) -> Option<&'static Setting> {
    BROKER.iter().find(|setting| setting.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::value;

    #[test]
    fn names_are_unique_and_defaults_are_allowed() {
        for table in [TOPIC, BROKER] {
            for (index, setting) in table.iter().enumerate() {
                assert!(
                    table[..index]
                        .iter()
                        .all(|other| other.name != setting.name),
                    "{}",
                    setting.name
                );
                if let Some(default) = setting.default {
                    assert_eq!(
                        value::check(setting.kind, setting.rule, default),
                        Ok(()),
                        "{}",
                        setting.name
                    );
                }
            }
        }
    }

    #[test]
    fn every_synonym_is_a_setting_of_the_broker() {
        for setting in TOPIC {
            for synonym in setting.synonyms {
                let broker = find_broker(synonym.name);
                assert!(broker.is_some(), "{} of {}", synonym.name, setting.name);
            }
        }
    }

    #[test]
    fn a_topic_has_the_default_of_its_broker() {
        for setting in TOPIC.iter().filter(|setting| !setting.synonyms.is_empty()) {
            let inherited = setting.synonyms.iter().find_map(|synonym| {
                let default = find_broker(synonym.name)?.default?;
                Some(match synonym.unit {
                    1 => default.to_owned(),
                    unit => (default.parse::<i64>().unwrap() * unit).to_string(),
                })
            });
            assert_eq!(inherited.as_deref(), setting.default, "{}", setting.name);
        }
    }
}
