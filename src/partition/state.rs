//! How far a partition's log has come on this node, and who has how much of it.
//!
//! ```text
//! log start ≤ high watermark ≤ durable ≤ log end (LEO)
//!     │              │             │          │
//! ────┴──────────────┴─────────────┴──────────┴──▶ offsets
//!     └─ consumers ──┘             └ in memory ┘
//!        read this
//! ```
//!
//! The high watermark is the smallest flushed offset of the in-sync replicas: on one node, the
//! durable offset. It never goes back while the node leads. Nothing that this file hands out to
//! consumers is above it.

use std::collections::BTreeSet;

use crate::base::{LeaderEpoch, NodeId, Offset, TimestampMs};

use super::error::PartitionError;

#[cfg(test)]
mod tests;

/// Who replicates the partition, as the metadata says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    pub leader: Option<NodeId>,
    pub leader_epoch: LeaderEpoch,
    /// In the order of preference.
    pub replicas: Vec<NodeId>,
    pub in_sync: BTreeSet<NodeId>,
}

impl Assignment {
    /// A partition whose one replica is here.
    pub fn single(node: NodeId, leader_epoch: LeaderEpoch) -> Self {
        Self {
            leader: Some(node),
            leader_epoch,
            replicas: vec![node],
            in_sync: BTreeSet::from([node]),
        }
    }
}

/// What recovery found in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogRange {
    pub start: Offset,
    /// Everything before it is on stable media.
    pub end: Offset,
}

/// How far another replica is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Follower {
    node: NodeId,
    fetched: Offset,
    flushed: Offset,
    caught_up_at: TimestampMs,
}

/// How much a fetch may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// Consumers, read_uncommitted: below the high watermark.
    HighWatermark,
    /// Consumers, read_committed: below the last stable offset.
    Committed,
    /// Followers: the whole log.
    LogEnd,
}

/// What a fetch at a valid offset may read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchRange {
    pub from: Offset,
    /// Exclusive; below `from` when the offset asked for is not visible yet.
    pub until: Offset,
    pub log_start: Offset,
    pub high_watermark: Offset,
    pub last_stable_offset: Offset,
}

#[derive(Debug, Clone)]
pub struct PartitionState {
    node: NodeId,
    assignment: Assignment,
    /// The log end when this node took up the current epoch.
    epoch_start: Offset,
    log_start: Offset,
    durable: Offset,
    log_end: Offset,
    high_watermark: Offset,
    followers: Vec<Follower>,
}

impl PartitionState {
    /// The state after recovery: what is in the log is durable.
    pub fn new(node: NodeId, assignment: Assignment, log: LogRange, now: TimestampMs) -> Self {
        let mut state = Self {
            node,
            assignment,
            epoch_start: log.end,
            log_start: log.start,
            durable: log.end,
            log_end: log.end,
            high_watermark: log.start,
            followers: Vec::new(),
        };
        state.track_followers(now);
        state.advance_high_watermark();
        state.assert_invariants();
        state
    }

    pub fn leader_epoch(&self) -> LeaderEpoch {
        self.assignment.leader_epoch
    }

    pub fn assignment(&self) -> &Assignment {
        &self.assignment
    }

    pub fn is_leader(&self) -> bool {
        self.assignment.leader == Some(self.node)
    }

    pub fn log_start(&self) -> Offset {
        self.log_start
    }

    /// The end of the contiguous prefix that is on stable media here.
    pub fn durable(&self) -> Offset {
        self.durable
    }

    pub fn log_end(&self) -> Offset {
        self.log_end
    }

    pub fn high_watermark(&self) -> Offset {
        self.high_watermark
    }

    /// Where the first open transaction begins; without transactions, the high watermark.
    pub fn last_stable_offset(&self) -> Offset {
        self.high_watermark
    }

    // --- events ------------------------------------------------------------------------------

    /// Records were appended up to `log_end`; not durable yet.
    pub fn appended(&mut self, log_end: Offset) {
        assert!(log_end >= self.log_end, "an append moved the log end back");
        self.log_end = log_end;
        self.assert_invariants();
    }

    /// Everything before `durable` is on stable media, or, where the flush settings are relaxed,
    /// with the device. The new high watermark, if it moved.
    pub fn flushed(&mut self, durable: Offset) -> Option<Offset> {
        assert!(durable <= self.log_end, "a flush covered what is not there");
        self.durable = self.durable.max(durable);
        self.advance_high_watermark()
    }

    /// A follower fetches from `fetched` on and has flushed everything before `flushed`. The new
    /// high watermark, if it moved.
    pub fn follower_progressed(
        &mut self,
        node: NodeId,
        fetched: Offset,
        flushed: Offset,
        now: TimestampMs,
    ) -> Option<Offset> {
        let log_end = self.log_end;
        let follower = self.followers.iter_mut().find(|one| one.node == node)?;
        // Claims from the wire: never beyond our own log.
        follower.fetched = fetched.min(log_end);
        follower.flushed = flushed.min(follower.fetched);
        if follower.fetched >= log_end {
            follower.caught_up_at = now;
        }
        self.advance_high_watermark()
    }

    /// DeleteRecords or retention asks to begin the log at `offset`; `None` means at the high
    /// watermark. The log start afterwards: an offset before it changes nothing.
    ///
    /// # Errors
    /// `OffsetOutOfRange` above the high watermark or below zero.
    pub fn move_log_start(&mut self, offset: Option<Offset>) -> Result<Offset, PartitionError> {
        let asked = offset.unwrap_or(self.high_watermark);
        if asked > self.high_watermark || asked < Offset::ZERO {
            return Err(PartitionError::OffsetOutOfRange {
                asked,
                log_start: self.log_start,
                end: self.high_watermark,
            });
        }
        self.log_start = self.log_start.max(asked);
        self.assert_invariants();
        Ok(self.log_start)
    }

    /// The metadata changed leader, epoch, replicas or ISR. An older epoch than the current one
    /// is ignored. The new high watermark, if it moved: a smaller ISR may raise it.
    pub fn reassigned(&mut self, assignment: Assignment, now: TimestampMs) -> Option<Offset> {
        if assignment.leader_epoch < self.assignment.leader_epoch {
            return None;
        }
        if assignment.leader_epoch > self.assignment.leader_epoch {
            self.epoch_start = self.log_end;
        }
        self.assignment = assignment;
        self.track_followers(now);
        self.advance_high_watermark()
    }

    fn track_followers(&mut self, now: TimestampMs) {
        let node = self.node;
        let replicas = &self.assignment.replicas;
        self.followers.retain(|one| replicas.contains(&one.node));
        for replica in replicas.iter().filter(|replica| **replica != node) {
            if !self.followers.iter().any(|one| one.node == *replica) {
                self.followers.push(Follower {
                    node: *replica,
                    fetched: Offset::ZERO,
                    flushed: Offset::ZERO,
                    caught_up_at: now,
                });
            }
        }
    }

    fn advance_high_watermark(&mut self) -> Option<Offset> {
        let in_sync = &self.assignment.in_sync;
        let flushed_by_all = self
            .followers
            .iter()
            .filter(|one| in_sync.contains(&one.node))
            .map(|one| one.flushed)
            .fold(self.durable, Offset::min);
        let moved = self.is_leader() && flushed_by_all > self.high_watermark;
        if moved {
            self.high_watermark = flushed_by_all;
        }
        self.assert_invariants();
        moved.then_some(self.high_watermark)
    }

    fn assert_invariants(&self) {
        assert!(self.log_start <= self.high_watermark, "log start above HW");
        assert!(self.high_watermark <= self.durable, "HW above durable");
        assert!(self.durable <= self.log_end, "durable above LEO");
    }

    // --- questions ---------------------------------------------------------------------------

    /// Compares the leader epoch that a request claims with ours (KIP-320); -1 claims nothing.
    ///
    /// # Errors
    /// `FencedLeaderEpoch` for an older one, `UnknownLeaderEpoch` for a newer one.
    pub fn check_leader_epoch(&self, claimed: LeaderEpoch) -> Result<(), PartitionError> {
        let current = self.leader_epoch();
        if claimed.0 < 0 || claimed == current {
            Ok(())
        } else if claimed < current {
            Err(PartitionError::FencedLeaderEpoch {
                asked: claimed,
                current,
            })
        } else {
            Err(PartitionError::UnknownLeaderEpoch {
                asked: claimed,
                current,
            })
        }
    }

    /// As [`check_leader_epoch`](Self::check_leader_epoch), and this node must lead.
    ///
    /// # Errors
    /// As there, and `NotLeader`.
    pub fn check_leadership(&self, claimed: LeaderEpoch) -> Result<(), PartitionError> {
        self.check_leader_epoch(claimed)?;
        if self.is_leader() {
            Ok(())
        } else {
            Err(PartitionError::NotLeader)
        }
    }

    /// What a fetch may read. An offset between the visible end and the log end is valid and
    /// reads nothing yet; one outside of the log is an error, which clients answer by resetting.
    ///
    /// # Errors
    /// Those of [`check_leadership`](Self::check_leadership), and `OffsetOutOfRange`.
    pub fn fetch_range(
        &self,
        claimed: LeaderEpoch,
        offset: Offset,
        isolation: Isolation,
    ) -> Result<FetchRange, PartitionError> {
        self.check_leadership(claimed)?;
        if offset < self.log_start || offset > self.log_end {
            return Err(PartitionError::OffsetOutOfRange {
                asked: offset,
                log_start: self.log_start,
                end: self.log_end,
            });
        }
        Ok(FetchRange {
            from: offset,
            until: self.visible_end(isolation),
            log_start: self.log_start,
            high_watermark: self.high_watermark,
            last_stable_offset: self.last_stable_offset(),
        })
    }

    /// The offset after the last one that may be seen.
    pub fn visible_end(&self, isolation: Isolation) -> Offset {
        match isolation {
            Isolation::HighWatermark => self.high_watermark,
            Isolation::Committed => self.last_stable_offset(),
            Isolation::LogEnd => self.log_end,
        }
    }

    /// A new leader's high watermark may lag behind what the old one had shown: until it has
    /// reached the epoch's start, "latest" is not known (KIP-207).
    ///
    /// # Errors
    /// `OffsetNotAvailable`.
    pub fn check_latest_known(&self, isolation: Isolation) -> Result<(), PartitionError> {
        let lags = self.epoch_start > self.visible_end(isolation);
        if isolation != Isolation::LogEnd && lags {
            return Err(PartitionError::OffsetNotAvailable {
                current: self.leader_epoch(),
            });
        }
        Ok(())
    }

    /// Replicas in the ISR that have not caught up within `lag_ms_max`
    /// (`replica.lag.time.max.ms`) and should leave it.
    pub fn laggards(&self, now: TimestampMs, lag_ms_max: i64) -> impl Iterator<Item = NodeId> {
        self.followers
            .iter()
            .filter(|one| self.assignment.in_sync.contains(&one.node))
            .filter(move |one| {
                one.fetched < self.log_end && now.0.saturating_sub(one.caught_up_at.0) > lag_ms_max
            })
            .map(|one| one.node)
    }
}
