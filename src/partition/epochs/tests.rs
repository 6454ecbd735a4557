use super::*;

use proptest::prelude::*;

/// Each epoch with its start offset.
type Pairs<'a> = &'a [(i32, i64)];

fn epochs(entries: Pairs<'_>) -> LeaderEpochs {
    let mut epochs = LeaderEpochs::new();
    for (epoch, start) in entries {
        epochs.assign(LeaderEpoch(*epoch), Offset(*start));
    }
    epochs
}

fn pairs(epochs: &LeaderEpochs) -> Vec<(i32, i64)> {
    epochs
        .entries()
        .iter()
        .map(|(epoch, start)| (epoch.0, start.0))
        .collect()
}

#[test]
fn only_a_new_epoch_changes_anything() {
    let mut epochs = epochs(&[(0, 0)]);
    assert!(!epochs.assign(LeaderEpoch(0), Offset(10)));
    assert!(epochs.assign(LeaderEpoch(2), Offset(20)));
    assert!(!epochs.assign(LeaderEpoch(2), Offset(30)));
    assert!(!epochs.assign(LeaderEpoch(-1), Offset(40)));
    assert_eq!(pairs(&epochs), [(0, 0), (2, 20)]);
    assert_eq!(epochs.latest(), Some(LeaderEpoch(2)));
}

#[test]
fn an_assignment_drops_what_contradicts_it() {
    let table: [(i32, i64, Pairs<'_>); 5] = [
        (7, 30, &[(1, 0), (3, 10), (5, 20), (7, 30)]),
        (7, 20, &[(1, 0), (3, 10), (7, 20)]),
        (7, 15, &[(1, 0), (3, 10), (7, 15)]),
        (4, 30, &[(1, 0), (3, 10), (4, 30)]),
        (5, 5, &[(1, 0), (5, 5)]),
    ];
    for (epoch, start, expected) in table {
        let mut epochs = epochs(&[(1, 0), (3, 10), (5, 20)]);
        epochs.assign(LeaderEpoch(epoch), Offset(start));
        assert_eq!(pairs(&epochs), expected, "assign {epoch} at {start}");
    }
}

#[test]
fn the_end_of_an_epoch_is_kafkas() {
    let log_end = 100;
    let table: [(Pairs<'_>, i32, (i32, i64)); 9] = [
        (&[], 0, (-1, -1)),
        (&[], -1, (-1, -1)),
        (&[(2, 10), (4, 50)], -1, (-1, -1)),
        (&[(2, 10), (4, 50)], 4, (4, log_end)),
        (&[(2, 10), (4, 50)], 5, (-1, -1)),
        (&[(2, 10), (4, 50)], 3, (2, 50)),
        (&[(2, 10), (4, 50)], 2, (2, 50)),
        (&[(2, 10), (4, 50)], 1, (1, 10)),
        (&[(2, 10)], 0, (0, 10)),
    ];
    for (entries, requested, (epoch, end)) in table {
        let found = epochs(entries).end_offset_for(LeaderEpoch(requested), Offset(log_end));
        let expected = EpochEnd {
            epoch: LeaderEpoch(epoch),
            end_offset: Offset(end),
        };
        assert_eq!(found, expected, "epoch {requested} of {entries:?}");
    }
}

#[test]
fn truncation_from_the_start_keeps_the_epoch_of_the_start() {
    let table: [(i64, Pairs<'_>, bool); 6] = [
        (5, &[(2, 10), (4, 20), (6, 30)], false),
        (10, &[(2, 10), (4, 20), (6, 30)], false),
        (15, &[(2, 15), (4, 20), (6, 30)], true),
        (20, &[(4, 20), (6, 30)], true),
        (25, &[(4, 25), (6, 30)], true),
        (99, &[(6, 99)], true),
    ];
    for (log_start, expected, changed) in table {
        let mut epochs = epochs(&[(2, 10), (4, 20), (6, 30)]);
        assert_eq!(epochs.truncate_from_start(Offset(log_start)), changed);
        assert_eq!(pairs(&epochs), expected, "from {log_start}");
    }
}

#[test]
fn truncation_from_the_end_drops_the_epochs_that_begin_there() {
    let table: [(i64, Pairs<'_>, bool); 5] = [
        (99, &[(2, 10), (4, 20), (6, 30)], false),
        (31, &[(2, 10), (4, 20), (6, 30)], false),
        (30, &[(2, 10), (4, 20)], true),
        (11, &[(2, 10)], true),
        (0, &[], true),
    ];
    for (log_end, expected, changed) in table {
        let mut epochs = epochs(&[(2, 10), (4, 20), (6, 30)]);
        assert_eq!(epochs.truncate_from_end(Offset(log_end)), changed);
        assert_eq!(pairs(&epochs), expected, "to {log_end}");
    }
}

#[test]
fn an_offset_belongs_to_the_epoch_that_wrote_it() {
    let epochs = epochs(&[(2, 10), (4, 20)]);
    let table = [
        (9, None),
        (10, Some(2)),
        (19, Some(2)),
        (20, Some(4)),
        (99, Some(4)),
    ];
    for (offset, epoch) in table {
        assert_eq!(
            epochs.epoch_at(Offset(offset)),
            epoch.map(LeaderEpoch),
            "{offset}"
        );
    }
}

#[test]
fn the_checkpoint_is_kafkas_text() {
    let text = "0\n2\n2 10\n4 20\n";
    assert_eq!(epochs(&[(2, 10), (4, 20)]).encode(), text);
    assert_eq!(LeaderEpochs::decode(text), Ok(epochs(&[(2, 10), (4, 20)])));
    assert_eq!(LeaderEpochs::decode("0\n0\n"), Ok(LeaderEpochs::new()));
}

#[test]
fn a_damaged_checkpoint_is_refused_with_its_reason() {
    let table = [
        ("", "version `` is unknown"),
        ("1\n0\n", "version `1` is unknown"),
        ("0\n", "not a count"),
        ("0\n-1\n", "not a count"),
        ("0\n2\n2 10\n", "2 lines claimed, 1 present"),
        ("0\n1\n2 10\n4 20\n", "1 lines claimed, 2 present"),
        ("0\n1\n210\n", "line `210` is malformed"),
        ("0\n1\n2 ten\n", "malformed"),
        ("0\n1\n-2 10\n", "malformed"),
        ("0\n1\n2 99999999999999999999\n", "malformed"),
    ];
    for (text, reason) in table {
        let error = LeaderEpochs::decode(text).expect_err(reason);
        assert!(error.to_string().contains(reason), "{text:?}: {error}");
    }
}

proptest! {
    /// The answer equals what a look at every record of the log says.
    #[test]
    fn epoch_ends_agree_with_the_records(
        appends in prop::collection::vec((0_i32..3, 1_usize..5), 1..20),
        requested in 0_i32..40,
        cut_start in 0_usize..40,
        cut_end in 0_usize..40,
    ) {
        let mut epochs = LeaderEpochs::new();
        let mut records: Vec<i32> = Vec::new();
        let mut epoch = 0;
        for (step, count) in appends {
            epoch += step;
            epochs.assign(LeaderEpoch(epoch), Offset(records.len() as i64));
            records.extend(std::iter::repeat_n(epoch, count));
        }
        let end = cut_end.min(records.len());
        if end > 0 {
            records.truncate(end);
            epochs.truncate_from_end(Offset(end as i64));
        }
        // The record at the start stays, or its epoch has nothing left to be known by.
        let start = cut_start.min(records.len() - 1);
        epochs.truncate_from_start(Offset(start as i64));

        let alive = &records[start..];
        let log_end = records.len() as i64;
        let found = epochs.end_offset_for(LeaderEpoch(requested), Offset(log_end));
        let first_above = alive.iter().position(|one| *one > requested).map(|at| (start + at) as i64);
        let floor = alive.iter().rev().find(|one| **one <= requested).copied();
        let expected = match (floor, first_above) {
            (Some(floor), None) if floor == requested => (requested, log_end),
            (_, None) => (-1, -1),
            (Some(floor), Some(end)) => (floor, end),
            (None, Some(end)) => (requested, end),
        };
        prop_assert_eq!((found.epoch.0, found.end_offset.0), expected);
        for (at, epoch) in alive.iter().enumerate() {
            let offset = Offset((start + at) as i64);
            prop_assert_eq!(epochs.epoch_at(offset), Some(LeaderEpoch(*epoch)));
        }
        prop_assert_eq!(LeaderEpochs::decode(&epochs.encode()), Ok(epochs));
    }

    #[test]
    fn foreign_text_never_panics(text in "[0-9 \n-]{0,60}") {
        let _ = LeaderEpochs::decode(&text);
    }
}
