//! What one shard counts.

use std::sync::Arc;

use crate::base::ShardId;

use super::cells::{Counter, Gauge, Histogram, Maximum};

/// API keys that are counted by themselves; a larger one counts as the last.
pub const API_KEYS_MAX: usize = 128;

/// The figures of one shard. Only that shard's thread writes them. The alignment keeps the figures
/// of two shards out of one cache line (and out of the line that the prefetcher adds).
#[derive(Debug)]
#[repr(align(128))]
pub struct ShardMetrics {
    pub shard: ShardId,
    /// The core that the shard is pinned to.
    pub core: usize,

    /// Connections open now.
    pub connections_open: Gauge,
    pub connections_accepted: Counter,
    pub connections_closed: Counter,
    /// Bytes read from client connections.
    pub network_in_bytes: Counter,
    /// Bytes written to client connections.
    pub network_out_bytes: Counter,

    /// Requests by API key; see [`ShardMetrics::count_request`].
    requests: [Counter; API_KEYS_MAX],
    /// Responses that carry an error, at any place in them.
    pub request_errors: Counter,
    /// Frames that were no request: the connection was closed.
    pub malformed_frames: Counter,

    pub produce_records: Counter,
    pub produce_batches: Counter,
    pub produce_bytes: Counter,
    /// From a request's arrival to its response's being ready.
    pub produce_duration: Histogram,
    /// Record bytes sent from memory.
    pub fetch_memory_bytes: Counter,
    /// Record bytes sent from segment files.
    pub fetch_file_bytes: Counter,
    /// Fetches that wait for records now.
    pub fetches_parked: Gauge,

    /// Bytes written to segments.
    pub appended_bytes: Counter,
    /// Flushes that the device completed.
    pub flushes: Counter,
    /// Batches that these flushes made durable; divided by `flushes`, the group's size.
    pub flushed_batches: Counter,
    pub flush_duration: Histogram,

    /// Messages of other shards that wait in this one's mailbox.
    pub mailbox_depth: Gauge,
    pub mailbox_messages: Counter,
    /// Partitions that this shard owns.
    pub partitions: Gauge,

    /// How late the shard's periodic timer last fired, in nanoseconds: how long something kept the
    /// executor from its other tasks.
    pub lateness_last_ns: Gauge,
    pub lateness_max_ns: Maximum,
    /// Time that the executor spent at work, in nanoseconds.
    pub busy_ns: Counter,
}

impl ShardMetrics {
    pub fn new(shard: ShardId, core: usize) -> Arc<Self> {
        Arc::new(Self {
            shard,
            core,
            connections_open: Gauge::default(),
            connections_accepted: Counter::default(),
            connections_closed: Counter::default(),
            network_in_bytes: Counter::default(),
            network_out_bytes: Counter::default(),
            requests: std::array::from_fn(|_| Counter::default()),
            request_errors: Counter::default(),
            malformed_frames: Counter::default(),
            produce_records: Counter::default(),
            produce_batches: Counter::default(),
            produce_bytes: Counter::default(),
            produce_duration: Histogram::default(),
            fetch_memory_bytes: Counter::default(),
            fetch_file_bytes: Counter::default(),
            fetches_parked: Gauge::default(),
            appended_bytes: Counter::default(),
            flushes: Counter::default(),
            flushed_batches: Counter::default(),
            flush_duration: Histogram::default(),
            mailbox_depth: Gauge::default(),
            mailbox_messages: Counter::default(),
            partitions: Gauge::default(),
            lateness_last_ns: Gauge::default(),
            lateness_max_ns: Maximum::default(),
            busy_ns: Counter::default(),
        })
    }

    pub fn count_request(&self, api_key: i16) {
        let index = usize::try_from(api_key).unwrap_or(usize::MAX);
        self.requests[index.min(API_KEYS_MAX - 1)].increment();
    }

    pub fn connection_opened(&self) {
        self.connections_accepted.increment();
        self.connections_open.increment();
    }

    pub fn connection_closed(&self) {
        self.connections_closed.increment();
        self.connections_open.decrement();
    }

    pub fn observe_lateness(&self, lateness_ns: u64) {
        self.lateness_last_ns
            .set(i64::try_from(lateness_ns).unwrap_or(i64::MAX));
        self.lateness_max_ns.observe(lateness_ns);
    }

    /// API keys that were asked for, with their counts.
    pub fn requests(&self) -> impl Iterator<Item = (i16, u64)> {
        (0..)
            .zip(&self.requests)
            .map(|(api_key, count)| (api_key, count.get()))
            .filter(|(_, count)| *count > 0)
    }
}
