use super::*;

use crate::base::NodeId;
use crate::partition::state::{Assignment, LogRange};

const NODE: NodeId = NodeId(1);

/// A log from 10 to 30, durable to 20, in epochs 2 (from 0) and 5 (from 15).
fn partition() -> (PartitionState, LeaderEpochs) {
    let log = LogRange {
        start: Offset(10),
        end: Offset(20),
    };
    let assignment = Assignment::single(NODE, LeaderEpoch(5));
    let mut state = PartitionState::new(NODE, assignment, log, TimestampMs(0));
    state.appended(Offset(30));
    let mut epochs = LeaderEpochs::new();
    epochs.assign(LeaderEpoch(2), Offset(0));
    epochs.assign(LeaderEpoch(5), Offset(15));
    (state, epochs)
}

#[test]
fn special_timestamps_are_answered_by_version() {
    let (state, epochs) = partition();
    let answer = |offset, epoch| {
        Ok(Plan::Answer(ListedOffset {
            timestamp: TimestampMs::NONE,
            offset: Offset(offset),
            leader_epoch: LeaderEpoch(epoch),
        }))
    };
    let unsupported =
        |timestamp, version| Err(PartitionError::UnsupportedTimestamp { timestamp, version });
    let below = Offset(20);
    let table = [
        (-1, 1, answer(20, 5)),
        (-1, 10, answer(20, 5)),
        (-2, 1, answer(10, 2)),
        (-3, 6, unsupported(-3, 6)),
        (-3, 7, Ok(Plan::FindMaxTimestamp { below })),
        (-4, 7, unsupported(-4, 7)),
        (-4, 8, answer(10, 2)),
        (-5, 8, unsupported(-5, 8)),
        (-5, 9, Ok(Plan::Answer(ListedOffset::NONE))),
        (-6, 10, unsupported(-6, 10)),
        (i64::MIN, 10, unsupported(i64::MIN, 10)),
        (
            0,
            1,
            Ok(Plan::FindTimestamp {
                timestamp: TimestampMs(0),
                below,
            }),
        ),
    ];
    for (timestamp, version, expected) in table {
        let found = plan(
            timestamp,
            version,
            LeaderEpoch::UNKNOWN,
            Isolation::HighWatermark,
            &state,
            &epochs,
        );
        assert_eq!(found, expected, "timestamp {timestamp}, version {version}");
    }
}

#[test]
fn a_follower_sees_the_log_end_as_latest() {
    let (state, epochs) = partition();
    let found = plan(-1, 5, LeaderEpoch(5), Isolation::LogEnd, &state, &epochs);
    assert!(matches!(found, Ok(Plan::Answer(listed)) if listed.offset == Offset(30)));
}

#[test]
fn a_stale_epoch_is_fenced_before_anything_is_answered() {
    let (state, epochs) = partition();
    let found = plan(
        -2,
        5,
        LeaderEpoch(4),
        Isolation::HighWatermark,
        &state,
        &epochs,
    );
    assert!(matches!(
        found,
        Err(PartitionError::FencedLeaderEpoch { .. })
    ));
}

#[test]
fn what_is_found_counts_only_where_it_is_visible() {
    let (state, _) = partition();
    let found = |offset| ListedOffset {
        timestamp: TimestampMs(7),
        offset: Offset(offset),
        leader_epoch: LeaderEpoch(5),
    };
    let isolation = Isolation::HighWatermark;
    let table = [
        (Some(found(19)), found(19)),
        (Some(found(20)), ListedOffset::NONE),
        (None, ListedOffset::NONE),
    ];
    for (given, expected) in table {
        assert_eq!(confine(given, Offset(20), isolation, &state), Ok(expected));
    }
}
