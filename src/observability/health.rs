//! Whether the broker can do its work, and if not, why not.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use crate::base::{PartitionIndex, ShardId, TopicPartition};

/// The health of all shards; shared by all threads, changed rarely.
#[derive(Debug)]
pub struct Health(Mutex<State>);

#[derive(Debug)]
struct State {
    /// By shard: why it is not ready; `None` when it is.
    unready: Vec<Option<String>>,
    /// Reasons of the process as a whole, by who gives them.
    blockers: BTreeMap<&'static str, String>,
    offline: BTreeMap<TopicPartition, String>,
}

/// A partition that serves nobody until somebody has looked after it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OfflinePartition {
    pub topic: String,
    pub partition: PartitionIndex,
    /// Which file, which position, what to do.
    pub reason: String,
}

impl Health {
    /// All shards begin as not ready.
    pub fn new(shard_count: u16) -> Self {
        Self(Mutex::new(State {
            unready: vec![Some("starting".to_owned()); usize::from(shard_count)],
            blockers: BTreeMap::new(),
            offline: BTreeMap::new(),
        }))
    }

    pub fn set_ready(&self, shard: ShardId) {
        self.set_shard(shard, None);
    }

    pub fn set_unready(&self, shard: ShardId, reason: impl Into<String>) {
        self.set_shard(shard, Some(reason.into()));
    }

    /// Makes the whole process not ready (`stopping`, say) until [`Health::unblock`].
    pub fn block(&self, who: &'static str, reason: impl Into<String>) {
        self.state().blockers.insert(who, reason.into());
    }

    pub fn unblock(&self, who: &'static str) {
        self.state().blockers.remove(who);
    }

    /// Offline partitions do not make the process unready: the others serve.
    pub fn set_offline(&self, partition: TopicPartition, reason: impl Into<String>) {
        self.state().offline.insert(partition, reason.into());
    }

    /// The partition serves again, or is gone.
    pub fn set_online(&self, partition: &TopicPartition) {
        self.state().offline.remove(partition);
    }

    /// Why the broker is not ready; empty when it is.
    pub fn reasons(&self) -> Vec<String> {
        let state = self.state();
        let blockers = state
            .blockers
            .iter()
            .map(|(who, reason)| format!("{who}: {reason}"));
        let shards = state.unready.iter().enumerate();
        let shards = shards.filter_map(|(shard, reason)| {
            let reason = reason.as_ref()?;
            Some(format!("shard {shard}: {reason}"))
        });
        blockers.chain(shards).collect()
    }

    pub fn is_ready(&self) -> bool {
        let state = self.state();
        state.blockers.is_empty() && state.unready.iter().all(Option::is_none)
    }

    /// In order of topic and partition.
    pub fn offline_partitions(&self) -> Vec<OfflinePartition> {
        self.state()
            .offline
            .iter()
            .map(|(partition, reason)| OfflinePartition {
                topic: partition.topic.to_string(),
                partition: partition.partition,
                reason: reason.clone(),
            })
            .collect()
    }

    fn set_shard(&self, shard: ShardId, reason: Option<String>) {
        if let Some(slot) = self.state().unready.get_mut(usize::from(shard.0)) {
            *slot = reason;
        }
    }

    /// Every change is one assignment: a panic elsewhere cannot have left half of one.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_is_ready_when_every_shard_is_and_nobody_blocks() {
        let health = Health::new(2);
        assert_eq!(health.reasons(), ["shard 0: starting", "shard 1: starting"]);
        health.set_ready(ShardId(0));
        health.set_unready(ShardId(1), "recovering 3 partitions");
        assert_eq!(health.reasons(), ["shard 1: recovering 3 partitions"]);
        assert!(!health.is_ready());
        health.set_ready(ShardId(1));
        assert!(health.is_ready());
        health.block("process", "stopping");
        assert_eq!(health.reasons(), ["process: stopping"]);
        health.unblock("process");
        assert!(health.is_ready() && health.reasons().is_empty());
    }

    #[test]
    fn offline_partitions_are_listed_in_order_until_they_are_back() {
        let health = Health::new(0);
        let partition = |topic: &str, partition| TopicPartition {
            topic: topic.into(),
            partition,
        };
        health.set_offline(partition("b", 0), "no");
        health.set_offline(partition("a", 10), "no");
        health.set_offline(partition("a", 9), "no");
        health.set_online(&partition("b", 0));
        let listed: Vec<_> = health
            .offline_partitions()
            .into_iter()
            .map(|offline| (offline.topic, offline.partition))
            .collect();
        assert_eq!(listed, [("a".to_owned(), 9), ("a".to_owned(), 10)]);
    }
}
