//! Every limit of the broker that is not a setting, in one place. Each states its unit, its
//! reason, and what a caller gets beyond it.

/// Alignment of every direct read and write, in bytes: the block of the file systems that we
/// support. Not a choice of the caller's.
pub const DISK_BLOCK_BYTES: usize = 4096;

/// The longest topic name, in characters: a folder is named after it. Beyond it:
/// INVALID_TOPIC_EXCEPTION.
pub const TOPIC_NAME_CHARS_MAX: usize = 249;

/// The fixed part of a record batch of magic 2, in bytes (Kafka protocol, record batch).
pub const BATCH_HEADER_BYTES: usize = 61;

/// Batches remembered per producer and partition, to answer a retry with the offset that it got
/// the first time. Clients keep at most five in flight (KIP-98). An older retry:
/// OUT_OF_ORDER_SEQUENCE_NUMBER.
pub const PRODUCER_BATCHES_REMEMBERED: usize = 5;

/// Producers remembered per partition. Short-lived producers each bring an id of their own, and
/// an id costs about 300 bytes until it expires. Beyond it the least recently used are forgotten:
/// their next batch is accepted with any sequence, as after an expiry.
pub const PRODUCERS_PER_PARTITION_MAX: usize = 10_000;

/// Partitions remembered by all fetch sessions of a shard, about 200 bytes each. Beyond it a full
/// fetch gets no session, and a session that grows is closed (FETCH_SESSION_ID_NOT_FOUND): both
/// kinds of clients go on with full fetches.
pub const FETCH_SESSION_PARTITIONS_PER_SHARD_MAX: usize = 100_000;
