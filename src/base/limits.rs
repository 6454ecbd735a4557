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
