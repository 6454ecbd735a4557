//! What one shard counts.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Counted apart are the API keys below this; Kafka 4.1's highest is 92. The rest share one
/// place, whatever number a client sends.
const API_KEYS: usize = 128;

/// The counters of one shard, written by that shard and read by the admin thread.
///
/// Each is a relaxed atomic of its own: a scrape may see one of two that belong together a moment
/// before the other. The struct has cache lines to itself, so that the counting of one core does
/// not slow another.
#[derive(Debug)]
#[repr(align(128))]
pub struct ShardMetrics {
    /// The shard's place among the shards.
    shard: u16,
    /// The number of the core that it is pinned to.
    core: usize,
    requests: PerApi,
    request_errors: PerApi,
    pub(super) received_bytes: Count,
    pub(super) sent_bytes: Count,
    pub(super) connections_opened: Count,
    pub(super) connections_closed: Count,
    pub(super) appended_records: Count,
    pub(super) appended_bytes: Count,
    pub(super) fetched_memory_bytes: Count,
    pub(super) fetched_file_bytes: Count,
    pub(super) commits: Count,
    pub(super) heartbeats: Count,
    pub(super) heartbeat_late_ns: Count,
    pub(super) heartbeat_late_ns_max: Count,
    pub(super) mailbox_depth: Count,
    pub(super) parked_fetches: Count,
    /// `topic-partition` to reason. Touched when a partition opens, fails or goes: never on the
    /// way of a record.
    offline_partitions: Mutex<BTreeMap<String, String>>,
}

impl ShardMetrics {
    pub fn new(shard: u16, core: usize) -> Self {
        Self {
            shard,
            core,
            requests: PerApi::default(),
            request_errors: PerApi::default(),
            received_bytes: Count::default(),
            sent_bytes: Count::default(),
            connections_opened: Count::default(),
            connections_closed: Count::default(),
            appended_records: Count::default(),
            appended_bytes: Count::default(),
            fetched_memory_bytes: Count::default(),
            fetched_file_bytes: Count::default(),
            commits: Count::default(),
            heartbeats: Count::default(),
            heartbeat_late_ns: Count::default(),
            heartbeat_late_ns_max: Count::default(),
            mailbox_depth: Count::default(),
            parked_fetches: Count::default(),
            offline_partitions: Mutex::default(),
        }
    }

    pub fn shard(&self) -> u16 {
        self.shard
    }

    pub fn core(&self) -> usize {
        self.core
    }

    /// Records accepted into a log of this shard, and the bytes of their batches.
    pub fn count_append(&self, records: u64, bytes: u64) {
        self.appended_records.add(records);
        self.appended_bytes.add(bytes);
    }

    /// A request whose header was understood.
    pub fn count_request(&self, api_key: i16) {
        self.requests.count(api_key);
    }

    /// A request that was answered with an error of the whole, or ended its connection.
    pub fn count_error(&self, api_key: i16) {
        self.request_errors.count(api_key);
    }

    /// Bytes of frames, length prefixes included.
    pub fn count_bytes(&self, received: u64, sent: u64) {
        self.received_bytes.add(received);
        self.sent_bytes.add(sent);
    }

    pub fn connection_opened(&self) {
        self.connections_opened.add(1);
    }

    pub fn connection_closed(&self) {
        self.connections_closed.add(1);
    }

    /// Bytes of batches given to consumers, by where they came from.
    pub fn count_fetch(&self, memory_bytes: u64, file_bytes: u64) {
        self.fetched_memory_bytes.add(memory_bytes);
        self.fetched_file_bytes.add(file_bytes);
    }

    /// A group of batches of one partition became committed, with one flush.
    pub fn count_commit(&self) {
        self.commits.add(1);
    }

    /// Requests of other shards that wait.
    pub fn set_mailbox_depth(&self, requests: u64) {
        self.mailbox_depth.set(requests);
    }

    /// Fetches that wait for data.
    pub fn set_parked_fetches(&self, fetches: u64) {
        self.parked_fetches.set(fetches);
    }

    /// The executor's heartbeat, `late` behind its time: how long a ready task waits at worst.
    pub fn heartbeat_late_ns(&self, late: u64) {
        self.heartbeats.add(1);
        self.heartbeat_late_ns.add(late);
        self.heartbeat_late_ns_max.raise(late);
    }

    /// [`Self::heartbeat_late_ns`] for a duration.
    pub fn heartbeat(&self, late: Duration) {
        self.heartbeat_late_ns(u64::try_from(late.as_nanos()).unwrap_or(u64::MAX));
    }

    /// A partition (`topic-0`) that cannot be served, and why, with what to do.
    pub fn partition_offline(&self, partition: &str, reason: &str) {
        self.offline()
            .insert(partition.to_owned(), reason.to_owned());
    }

    /// The partition is served again, or gone.
    pub fn partition_not_offline(&self, partition: &str) {
        self.offline().remove(partition);
    }

    /// The partitions that cannot be served, with their reasons.
    pub fn offline_partitions(&self) -> BTreeMap<String, String> {
        self.offline().clone()
    }

    /// Connections that are open now.
    pub fn open_connections(&self) -> u64 {
        // The closed are read first: each was opened before it was closed.
        let closed = self.connections_closed.get();
        self.connections_opened.get().saturating_sub(closed)
    }

    /// API keys and numbers of requests, where there were any; `None` is all unknown keys.
    pub(super) fn requests(&self) -> impl Iterator<Item = (Option<i16>, u64)> + '_ {
        self.requests.counted()
    }

    pub(super) fn request_errors(&self) -> impl Iterator<Item = (Option<i16>, u64)> + '_ {
        self.request_errors.counted()
    }

    fn offline(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, String>> {
        // Whole entries go in and out: a panic elsewhere leaves none half done.
        self.offline_partitions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// One number.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    fn add(&self, count: u64) {
        self.0.fetch_add(count, Relaxed);
    }

    fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    fn raise(&self, value: u64) {
        self.0.fetch_max(value, Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// One number for each API key; the last place is for those that we do not know.
#[derive(Debug)]
struct PerApi([Count; API_KEYS + 1]);

impl Default for PerApi {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Count::default()))
    }
}

impl PerApi {
    fn count(&self, api_key: i16) {
        let place = usize::try_from(api_key).map_or(API_KEYS, |key| key.min(API_KEYS));
        self.0[place].add(1);
    }

    fn counted(&self) -> impl Iterator<Item = (Option<i16>, u64)> + '_ {
        let keys = (0..).map(|place| {
            usize::try_from(place)
                .is_ok_and(|p| p < API_KEYS)
                .then_some(place)
        });
        keys.zip(&self.0)
            .map(|(key, count)| (key, count.get()))
            .filter(|(_, count)| *count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_key_and_foreign_keys_together() {
        let metrics = ShardMetrics::new(0, 0);
        for key in [0, 0, 18, i16::MIN, -1, 128, i16::MAX, 127] {
            metrics.count_request(key);
        }
        let counted: Vec<_> = metrics.requests().collect();
        let expected = [(Some(0), 2), (Some(18), 1), (Some(127), 1), (None, 4)];
        assert_eq!(counted, expected);
        assert_eq!(metrics.request_errors().count(), 0);
    }

    #[test]
    fn the_latest_heartbeat_of_all_is_kept() {
        let metrics = ShardMetrics::new(0, 0);
        metrics.heartbeat(Duration::from_nanos(700));
        metrics.heartbeat_late_ns(50);
        assert_eq!(metrics.heartbeats.get(), 2);
        assert_eq!(metrics.heartbeat_late_ns.get(), 750);
        assert_eq!(metrics.heartbeat_late_ns_max.get(), 700);
    }

    #[test]
    fn an_offline_partition_keeps_its_last_reason_until_it_is_back() {
        let metrics = ShardMetrics::new(0, 0);
        metrics.partition_offline("a-0", "first");
        metrics.partition_offline("a-0", "second");
        metrics.partition_offline("b-1", "other");
        assert_eq!(metrics.offline_partitions()["a-0"], "second");
        metrics.partition_not_offline("a-0");
        assert_eq!(
            metrics.offline_partitions(),
            BTreeMap::from([("b-1".to_owned(), "other".to_owned())])
        );
    }

    #[test]
    fn open_connections_are_those_opened_less_those_closed() {
        let metrics = ShardMetrics::new(0, 0);
        metrics.connection_opened();
        metrics.connection_opened();
        metrics.connection_closed();
        assert_eq!(metrics.open_connections(), 1);
    }
}
