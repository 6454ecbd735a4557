//! What ListOffsets asks for, and what can be answered without looking into the log.

use crate::base::{LeaderEpoch, Offset, TimestampMs};

use super::epochs::LeaderEpochs;
use super::error::PartitionError;
use super::state::{Isolation, PartitionState};

#[cfg(test)]
mod tests;

/// The special timestamps, with the first version of ListOffsets that knows each.
const LATEST: (i64, i16) = (-1, 1);
const EARLIEST: (i64, i16) = (-2, 1);
/// KIP-734.
const MAX_TIMESTAMP: (i64, i16) = (-3, 7);
/// KIP-405.
const EARLIEST_LOCAL: (i64, i16) = (-4, 8);
/// KIP-1005.
const LATEST_TIERED: (i64, i16) = (-5, 9);

/// A record's place as ListOffsets reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListedOffset {
    pub timestamp: TimestampMs,
    pub offset: Offset,
    pub leader_epoch: LeaderEpoch,
}

impl ListedOffset {
    /// "No such record": all -1.
    pub const NONE: Self = Self {
        timestamp: TimestampMs::NONE,
        offset: Offset::UNKNOWN,
        leader_epoch: LeaderEpoch::UNKNOWN,
    };
}

/// What to do for one partition. What is found by looking counts only below `below`; see
/// [`confine`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plan {
    Answer(ListedOffset),
    /// The first record at or after the timestamp.
    FindTimestamp {
        timestamp: TimestampMs,
        below: Offset,
    },
    /// The first record with the largest timestamp of the log.
    FindMaxTimestamp {
        below: Offset,
    },
}

/// Plans the answer of a log without tiered storage: its local start is its start, and nothing is
/// tiered.
///
/// # Errors
/// Those of `check_leadership`; `UnsupportedTimestamp`; `OffsetNotAvailable` for "latest" just
/// after an election.
pub fn plan(
    timestamp: i64,
    version: i16,
    claimed_epoch: LeaderEpoch,
    isolation: Isolation,
    state: &PartitionState,
    epochs: &LeaderEpochs,
) -> Result<Plan, PartitionError> {
    check_version(timestamp, version)?;
    state.check_leadership(claimed_epoch)?;
    let below = state.visible_end(isolation);
    if timestamp == LATEST.0 {
        state.check_latest_known(isolation)?;
        return Ok(Plan::Answer(ListedOffset {
            timestamp: TimestampMs::NONE,
            offset: below,
            leader_epoch: state.leader_epoch(),
        }));
    }
    if timestamp == EARLIEST.0 || timestamp == EARLIEST_LOCAL.0 {
        let offset = state.log_start();
        return Ok(Plan::Answer(ListedOffset {
            timestamp: TimestampMs::NONE,
            offset,
            leader_epoch: epochs.epoch_at(offset).unwrap_or(LeaderEpoch::UNKNOWN),
        }));
    }
    if timestamp == LATEST_TIERED.0 {
        return Ok(Plan::Answer(ListedOffset::NONE));
    }
    if timestamp == MAX_TIMESTAMP.0 {
        return Ok(Plan::FindMaxTimestamp { below });
    }
    Ok(Plan::FindTimestamp {
        timestamp: TimestampMs(timestamp),
        below,
    })
}

fn check_version(timestamp: i64, version: i16) -> Result<(), PartitionError> {
    let known = [
        LATEST,
        EARLIEST,
        MAX_TIMESTAMP,
        EARLIEST_LOCAL,
        LATEST_TIERED,
    ];
    let is_known = known
        .iter()
        .any(|(special, since)| *special == timestamp && version >= *since);
    if timestamp >= 0 || is_known {
        Ok(())
    } else {
        Err(PartitionError::UnsupportedTimestamp { timestamp, version })
    }
}

/// The answer to a look into the log: what was found, unless it may not be seen yet.
///
/// # Errors
/// `OffsetNotAvailable` when nothing visible was found just after an election.
pub fn confine(
    found: Option<ListedOffset>,
    below: Offset,
    isolation: Isolation,
    state: &PartitionState,
) -> Result<ListedOffset, PartitionError> {
    match found {
        Some(listed) if listed.offset < below => Ok(listed),
        _ => {
            state.check_latest_known(isolation)?;
            Ok(ListedOffset::NONE)
        }
    }
}
