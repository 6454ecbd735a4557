use super::*;

const INTERVAL_BYTES: u64 = 100;

fn filled(timestamps: &[i64]) -> SegmentIndex {
    let mut index = SegmentIndex::new(Offset(1_000));
    for (nth, timestamp) in timestamps.iter().enumerate() {
        index.note(batch(nth, *timestamp), INTERVAL_BYTES);
    }
    index
}

/// Batches of 10 offsets and 60 bytes: every second one gets an entry.
fn batch(nth: usize, timestamp: i64) -> IndexedBatch {
    IndexedBatch {
        last_offset: Offset(1_000 + nth as i64 * 10 + 9),
        position: nth as u64 * 60,
        len: 60,
        max_timestamp: TimestampMs(timestamp),
    }
}

#[test]
fn entries_follow_kafkas_interval_rule() {
    // Bytes since the entry before: 0, 60, 120 (entry), 60, 120 (entry), 60.
    let index = filled(&[5, 9, 7, 9, 11, 8]);
    let positions: Vec<_> = index.offsets.iter().map(|entry| entry.position).collect();
    let relatives: Vec<_> = index.offsets.iter().map(|entry| entry.relative).collect();
    assert_eq!(positions, [120, 240]);
    assert_eq!(relatives, [29, 49]);
    let times: Vec<_> = index
        .times
        .iter()
        .map(|entry| (entry.timestamp.0, entry.relative))
        .collect();
    assert_eq!(times, [(9, 19), (11, 49)]);
}

#[test]
fn both_files_round_trip() {
    let mut index = filled(&[5, 9, 7, 9, 11, 8, 20]);
    index.note_time();
    let offsets = index.encode_offsets(420);
    let times = index.encode_times(Offset(1_070));
    let decoded =
        SegmentIndex::decode(Offset(1_000), &offsets, &times, 420, Offset(1_070)).unwrap();
    assert_eq!(decoded.offsets, index.offsets);
    assert_eq!(decoded.times, index.times);
    assert_eq!(decoded.max_timestamp, index.max_timestamp);
    // Only what is below the given ends is written.
    assert_eq!(index.encode_offsets(240).len(), OFFSET_ENTRY_BYTES);
    assert_eq!(index.encode_times(Offset(1_049)).len(), TIME_ENTRY_BYTES);
}

#[test]
fn a_scan_from_the_last_entry_restores_the_index() {
    for timestamps in [
        &[5, 9, 7, 9, 11, 8, 20][..],
        &[5, 90, 7, 9, 11, 8],
        &[5, 4, 3, 90, 2, 1],
        &[1, 2],
        &[3],
    ] {
        let index = filled(timestamps);
        let mut again = index.clone();
        let from = again.rewind_to_last_entry(INTERVAL_BYTES);
        for (nth, timestamp) in timestamps.iter().enumerate().skip((from / 60) as usize) {
            again.note(batch(nth, *timestamp), INTERVAL_BYTES);
        }
        assert_eq!(again, index, "{timestamps:?}");
    }
}

#[test]
fn look_ups_find_the_entry_at_or_before() {
    let index = filled(&[5, 9, 7, 9, 11, 8, 20, 21, 22]);
    for (offset, position) in [
        (1_000, 0),
        (1_028, 0),
        (1_029, 120),
        (1_048, 120),
        (1_049, 240),
        (9_999, 360 + 120),
    ] {
        assert_eq!(
            index.position_at_or_before(Offset(offset)),
            position,
            "offset {offset}"
        );
    }
    for (after, at_most, end, boundary) in [
        (0, 119, 9_999, None),
        (0, 120, 9_999, Some(120)),
        (0, 300, 9_999, Some(240)),
        (240, 300, 9_999, None),
        (0, 300, 1_049, Some(120)),
        (0, 300, 1_050, Some(240)),
    ] {
        assert_eq!(
            index.boundary(after, at_most, Offset(end)),
            boundary,
            "after {after} at most {at_most} end {end}"
        );
    }
    assert_eq!(index.offset_before_time(TimestampMs(1)), Offset(1_000));
    assert_eq!(index.offset_before_time(TimestampMs(10)), Offset(1_019));
}

#[test]
fn nonsense_files_are_refused_with_the_reason() {
    let base = Offset(0);
    let decode = |offsets: &[u8], times: &[u8]| {
        SegmentIndex::decode(base, offsets, times, 1_000, Offset(50)).unwrap_err()
    };
    let entry =
        |relative: i32, position: i32| [relative.to_be_bytes(), position.to_be_bytes()].concat();
    let time = |timestamp: i64, relative: i32| {
        [&timestamp.to_be_bytes()[..], &relative.to_be_bytes()[..]].concat()
    };
    for (offsets, times) in [
        (vec![0; 7], vec![]),
        (vec![0; 8], vec![]),
        (vec![], vec![0; 11]),
        ([entry(5, 100), entry(5, 200)].concat(), vec![]),
        ([entry(5, 100), entry(6, 100)].concat(), vec![]),
        ([entry(5, 100), vec![0; 8]].concat(), vec![]),
        (entry(5, 1_000), vec![]),
        (entry(50, 100), vec![]),
        (entry(-1, 100), vec![]),
        (vec![], time(-1, 0)),
        (vec![], [time(5, 3), time(6, 2)].concat()),
        (vec![], [time(5, 3), time(5, 4)].concat()),
        (vec![], time(5, 50)),
    ] {
        assert!(!decode(&offsets, &times).is_empty());
    }
}

#[test]
fn positions_above_two_gibibytes_get_no_entry_rather_than_a_wrong_one() {
    let mut index = SegmentIndex::new(Offset(0));
    index.note(
        IndexedBatch {
            last_offset: Offset(1),
            position: 0,
            len: 200,
            max_timestamp: TimestampMs(1),
        },
        INTERVAL_BYTES,
    );
    index.note(
        IndexedBatch {
            last_offset: Offset(2),
            position: 3 << 30,
            len: 200,
            max_timestamp: TimestampMs(2),
        },
        INTERVAL_BYTES,
    );
    assert_eq!(index.position_at_or_before(Offset(2)), 0);
}
