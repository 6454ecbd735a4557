use super::*;

use proptest::prelude::*;

const NODE: NodeId = NodeId(1);
const NOW: TimestampMs = TimestampMs(1_000_000);

fn single(start: i64, end: i64) -> PartitionState {
    let log = LogRange {
        start: Offset(start),
        end: Offset(end),
    };
    PartitionState::new(NODE, Assignment::single(NODE, LeaderEpoch(5)), log, NOW)
}

fn replicated(in_sync: &[i32]) -> Assignment {
    Assignment {
        leader: Some(NODE),
        leader_epoch: LeaderEpoch(5),
        replicas: vec![NODE, NodeId(2), NodeId(3)],
        in_sync: in_sync.iter().map(|id| NodeId(*id)).collect(),
    }
}

#[test]
fn on_one_node_the_high_watermark_is_the_durable_offset() {
    let mut state = single(10, 20);
    assert_eq!(state.high_watermark(), Offset(20));
    state.appended(Offset(30));
    assert_eq!(state.high_watermark(), Offset(20), "not durable yet");
    assert_eq!(state.flushed(Offset(25)), Some(Offset(25)));
    assert_eq!(state.flushed(Offset(25)), None, "it did not move");
    assert_eq!(state.flushed(Offset(22)), None, "an older flush ends late");
    assert_eq!(state.high_watermark(), Offset(25));
    assert_eq!(state.last_stable_offset(), Offset(25));
}

#[test]
#[should_panic(expected = "a flush covered what is not there")]
fn a_flush_beyond_the_log_end_is_a_bug() {
    single(0, 10).flushed(Offset(11));
}

#[test]
#[should_panic(expected = "an append moved the log end back")]
fn an_append_that_moves_back_is_a_bug() {
    single(0, 10).appended(Offset(9));
}

#[test]
fn leader_epochs_are_compared() {
    let state = single(0, 10);
    let fenced = Err(PartitionError::FencedLeaderEpoch {
        asked: LeaderEpoch(4),
        current: LeaderEpoch(5),
    });
    let unknown = Err(PartitionError::UnknownLeaderEpoch {
        asked: LeaderEpoch(6),
        current: LeaderEpoch(5),
    });
    let table = [(-1, Ok(())), (5, Ok(())), (4, fenced), (6, unknown)];
    for (claimed, expected) in table {
        assert_eq!(state.check_leader_epoch(LeaderEpoch(claimed)), expected);
    }
}

#[test]
fn a_node_that_does_not_lead_says_so_after_the_epoch_was_checked() {
    let mut state = single(0, 10);
    let mut elsewhere = Assignment::single(NodeId(2), LeaderEpoch(6));
    elsewhere.replicas.push(NODE);
    state.reassigned(elsewhere, NOW);
    assert_eq!(
        state.check_leadership(LeaderEpoch(6)),
        Err(PartitionError::NotLeader)
    );
    assert!(matches!(
        state.check_leadership(LeaderEpoch(5)),
        Err(PartitionError::FencedLeaderEpoch { .. })
    ));
}

#[test]
fn fetches_are_bounded_by_the_log_and_by_what_is_visible() {
    let mut state = single(10, 20);
    state.appended(Offset(30));
    let consumer = Isolation::HighWatermark;
    let table = [
        (9, consumer, None),
        (10, consumer, Some(20)),
        (20, consumer, Some(20)),
        (25, consumer, Some(20)),
        (30, consumer, Some(20)),
        (31, consumer, None),
        (-1, consumer, None),
        (10, Isolation::Committed, Some(20)),
        (25, Isolation::LogEnd, Some(30)),
        (31, Isolation::LogEnd, None),
    ];
    for (offset, isolation, until) in table {
        let found = state.fetch_range(LeaderEpoch::UNKNOWN, Offset(offset), isolation);
        match until {
            Some(until) => {
                let range = found.expect("within the log");
                assert_eq!((range.from.0, range.until.0), (offset, until));
                assert_eq!((range.log_start.0, range.high_watermark.0), (10, 20));
            }
            None => assert_eq!(
                found,
                Err(PartitionError::OffsetOutOfRange {
                    asked: Offset(offset),
                    log_start: Offset(10),
                    end: Offset(30)
                })
            ),
        }
    }
}

#[test]
fn the_log_start_moves_up_to_the_high_watermark_only() {
    let table = [
        (Some(15), Ok(15)),
        (Some(5), Ok(10)),
        (Some(20), Ok(20)),
        (None, Ok(20)),
        (Some(21), Err(())),
        (Some(-5), Err(())),
    ];
    for (asked, expected) in table {
        let mut state = single(10, 20);
        state.appended(Offset(30));
        let found = state.move_log_start(asked.map(Offset));
        assert_eq!(
            found.map(|offset| offset.0).map_err(|_| ()),
            expected,
            "{asked:?}"
        );
    }
}

#[test]
fn the_high_watermark_waits_for_every_in_sync_replica() {
    let log = LogRange {
        start: Offset(0),
        end: Offset(0),
    };
    let mut state = PartitionState::new(NODE, replicated(&[1, 2]), log, NOW);
    state.appended(Offset(10));
    assert_eq!(state.flushed(Offset(10)), None, "node 2 has nothing yet");
    let (two, three) = (NodeId(2), NodeId(3));
    assert_eq!(
        state.follower_progressed(three, Offset(10), Offset(10), NOW),
        None
    );
    assert_eq!(
        state.follower_progressed(two, Offset(10), Offset(4), NOW),
        Some(Offset(4)),
        "what it fetched does not count, what it flushed does"
    );
    assert_eq!(
        state.follower_progressed(NodeId(9), Offset(10), Offset(10), NOW),
        None
    );
    assert_eq!(
        state.reassigned(replicated(&[1, 3]), NOW),
        Some(Offset(10)),
        "node 2 left the ISR"
    );
    assert_eq!(
        state.reassigned(replicated(&[1, 2, 3]), NOW),
        None,
        "it never goes back"
    );
    assert_eq!(state.high_watermark(), Offset(10));
}

#[test]
fn a_follower_cannot_claim_more_than_there_is() {
    let log = LogRange {
        start: Offset(0),
        end: Offset(5),
    };
    let mut state = PartitionState::new(NODE, replicated(&[1, 2]), log, NOW);
    let far = Offset(i64::MAX);
    assert_eq!(
        state.follower_progressed(NodeId(2), far, far, NOW),
        Some(Offset(5))
    );
}

#[test]
fn an_older_assignment_is_ignored() {
    let mut state = single(0, 10);
    state.reassigned(Assignment::single(NodeId(2), LeaderEpoch(4)), NOW);
    assert!(state.is_leader());
    assert_eq!(state.leader_epoch(), LeaderEpoch(5));
}

#[test]
fn a_replica_that_does_not_catch_up_in_time_lags() {
    let log = LogRange {
        start: Offset(0),
        end: Offset(0),
    };
    let mut state = PartitionState::new(NODE, replicated(&[1, 2, 3]), log, NOW);
    state.appended(Offset(10));
    let later = |ms| TimestampMs(NOW.0 + ms);
    state.follower_progressed(NodeId(2), Offset(10), Offset(10), later(20_000));
    let lagging = |ms| state.laggards(later(ms), 30_000).collect::<Vec<_>>();
    assert_eq!(lagging(30_000), []);
    assert_eq!(lagging(30_001), [NodeId(3)]);
    assert_eq!(
        lagging(99_000),
        [NodeId(3)],
        "node 2 has everything there is"
    );
}

#[test]
fn latest_is_unknown_until_the_high_watermark_reaches_the_epochs_start() {
    let log = LogRange {
        start: Offset(0),
        end: Offset(10),
    };
    let mut state = PartitionState::new(NODE, replicated(&[1, 2]), log, NOW);
    let unknown = Err(PartitionError::OffsetNotAvailable {
        current: LeaderEpoch(5),
    });
    assert_eq!(state.check_latest_known(Isolation::HighWatermark), unknown);
    assert_eq!(state.check_latest_known(Isolation::LogEnd), Ok(()));
    state.follower_progressed(NodeId(2), Offset(10), Offset(10), NOW);
    assert_eq!(state.check_latest_known(Isolation::HighWatermark), Ok(()));
    assert_eq!(
        single(0, 10).check_latest_known(Isolation::Committed),
        Ok(())
    );
}

proptest! {
    /// Whatever happens in whatever order, the high watermark never goes back and the invariants
    /// (asserted inside) hold.
    #[test]
    fn the_high_watermark_only_rises(events in prop::collection::vec((0_u8..6, 0_i64..20), 1..80)) {
        let log = LogRange { start: Offset(0), end: Offset(0) };
        let mut state = PartitionState::new(NODE, replicated(&[1, 2]), log, NOW);
        let mut before = state.high_watermark();
        for (kind, amount) in events {
            let moved = match kind {
                0 => { state.appended(state.log_end().plus(amount)); None }
                1 => state.flushed(Offset((state.durable().0 + amount).min(state.log_end().0))),
                2 => state.follower_progressed(NodeId(2), Offset(amount * 5), Offset(amount * 4), NOW),
                3 => state.follower_progressed(NodeId(3), Offset(amount * 5), Offset(amount * 5), NOW),
                4 => { let _ = state.move_log_start(Some(Offset(amount))); None }
                _ => state.reassigned(replicated(if amount % 2 == 0 { &[1, 2] } else { &[1, 2, 3] }), NOW),
            };
            prop_assert!(state.high_watermark() >= before);
            prop_assert_eq!(moved.is_some(), state.high_watermark() > before);
            before = state.high_watermark();
        }
    }
}
