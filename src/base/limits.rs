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

/// A piece of a reply up to this size, in bytes, is copied into one buffer with its neighbours
/// instead of being referenced: below it a copy costs less than the bookkeeping.
pub const COPIED_PIECE_BYTES_MAX: usize = 16 * 1024;

/// One direct read of a segment on its way to a socket, in bytes: large enough for the device's
/// full rate with one read ahead, small enough to bound what a connection holds.
pub const FILE_READ_BYTES: usize = 512 * 1024;

/// A stretch of a segment of at least so many bytes is spliced to the socket; below it a direct read
/// and a copy cost less than the pipe's system calls.
pub const SPLICED_BYTES_MIN: u64 = 64 << 10;

/// What a pipe between file and socket holds, in bytes: the most that an ordinary user may ask for
/// (`fs.pipe-max-size`), since each filling costs a round through the side ring.
pub const PIPE_BYTES: usize = 1 << 20;

/// Pipes of one reply: one is filled while the other drains.
pub const PIPES_PER_REPLY_MAX: usize = 2;

/// Pipes of an executor and of the process. `fs.pipe-user-pages-soft` gives a user 64 MiB for all
/// pipes of all processes; we take half at most. Beyond it replies are read and copied.
pub const PIPES_PER_EXECUTOR_MAX: usize = 16;
pub const PIPES_PER_PROCESS_MAX: usize = 32;

/// Empty pipes that an executor keeps open; more are closed.
pub const IDLE_PIPES_PER_EXECUTOR_MAX: usize = 4;

/// What one call moves from a pipe to a socket, in bytes: over loopback it does the receiver's work
/// too, and other tasks wait meanwhile.
pub const SPLICED_AT_ONCE_BYTES_MAX: usize = 256 << 10;

/// The page cache keeps so many bytes behind a reader of spliced data, which the socket may still
/// hold; what lies before is dropped.
pub const CACHED_BEHIND_READER_BYTES: u64 = 4 << 20;

/// Frames up to this size, in bytes, are cut out of a connection's shared read buffer; larger ones
/// get a buffer of their own, which becomes the log's memory without a copy.
pub const SMALL_FRAME_BYTES_MAX: usize = 32 * 1024;

/// The smallest and largest size, in bytes, of one read from a socket while no large frame is on
/// its way. It follows how much a connection sends, so that an idle one costs the smallest.
pub const SOCKET_READ_BYTES_MIN: usize = 4 * 1024;
pub const SOCKET_READ_BYTES_MAX: usize = 64 * 1024;

/// How much of a large frame is charged to the network-in budget at a time, in bytes: a peer that
/// announces much and sends little holds one step only.
pub const FRAME_CHARGE_BYTES: usize = 256 * 1024;

/// How long, in milliseconds, a frame that is being received may wait for the network-in budget.
/// Beyond it the connection is closed, since what it holds already may be what others wait for.
pub const FRAME_BUDGET_WAIT_MS_MAX: u64 = 10_000;

/// Requests of one connection that may be unanswered; beyond it the broker stops reading from it.
pub const IN_FLIGHT_REQUESTS_MAX: usize = 64;

/// Bytes in memory of unsent replies of one connection, and those that its unanswered fetches ask
/// for; beyond it the broker starts no further request of it. A single reply may be larger.
pub const UNSENT_REPLY_BYTES_MAX: usize = 16 << 20;

/// Bytes in memory of unsent replies of one core: tail cache and pending memory that slow readers
/// keep alive are among them. Beyond it a connection's next request waits until its own replies are
/// sent, and a fetch brings at most [`FETCH_BYTES_OVER_LIMIT`] beside its first batch.
pub const UNSENT_REPLY_BYTES_PER_CORE_MAX: usize = 256 << 20;

/// What a fetch brings at most, in bytes, while the core holds too many unsent replies.
pub const FETCH_BYTES_OVER_LIMIT: usize = 256 << 10;

/// Replies of one connection that are ready are sent together until they are so many bytes.
pub const GATHERED_REPLY_BYTES_MAX: u64 = 64 << 10;

const _: () = assert!(PIPES_PER_PROCESS_MAX * PIPE_BYTES <= (16_384 / 2) * DISK_BLOCK_BYTES);
const _: () = assert!(PIPES_PER_REPLY_MAX <= PIPES_PER_EXECUTOR_MAX);
const _: () = assert!(UNSENT_REPLY_BYTES_MAX <= UNSENT_REPLY_BYTES_PER_CORE_MAX);
const _: () = assert!(SOCKET_READ_BYTES_MIN <= SOCKET_READ_BYTES_MAX);
const _: () = assert!(SMALL_FRAME_BYTES_MAX <= SOCKET_READ_BYTES_MAX);

/// Calls of one shard to one other that may be unanswered. Beyond it callers wait, and with them
/// their connections. Enough for 64 connections with 16 requests each.
pub const CALLS_IN_FLIGHT_MAX: usize = 1024;

/// Elements of all arrays of one request together. A count costs few bytes on the wire but about a
/// hundred in memory, so the size of the frame alone is no bound. Beyond it the connection is
/// closed, as for any malformed request.
pub const REQUEST_ELEMENTS_MAX: usize = 200_000;

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

/// Partitions that a shard opens or closes at the same time: enough to keep the disk busy with
/// small reads, few enough to leave memory and file descriptors to the rest.
pub const PARTITIONS_OPENED_AT_A_TIME: usize = 32;

/// Memory for indexes of closed segments, in bytes a core. What does not fit is read again.
pub const INDEX_CACHE_BYTES: usize = 32 << 20;

/// Segment files that the process keeps open; the least used are closed and opened again on
/// demand. Leaves most of a usual limit (65,536) to connections.
pub const OPEN_SEGMENTS_PER_PROCESS_MAX: usize = 16_384;

/// Records in one Fetch response, in bytes, whatever `fetch.max.bytes` says: a frame's length is 31
/// bits. A single batch may add to it.
pub const FETCH_RESPONSE_BYTES_MAX: usize = 1 << 30;
