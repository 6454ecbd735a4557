use super::*;

fn insert(cache: &TailCache, nth: i64, len: usize, frame_bytes: usize) -> Rc<TailEntry> {
    cache.insert(
        Offset(nth),
        Offset(nth),
        Bytes::from(vec![nth as u8; len]),
        frame_bytes,
    )
}

#[test]
fn the_oldest_written_entries_go_first_and_unwritten_ones_stay() {
    let cache = TailCache::new(3 * (1_000 + ENTRY_OVERHEAD_BYTES));
    let entries: Vec<_> = (0..3)
        .map(|nth| insert(&cache, nth, 1_000, 1_000))
        .collect();
    entries[1].mark_written();
    entries[2].mark_written();
    let fourth = insert(&cache, 3, 1_000, 1_000);
    assert!(!entries[0].is_evicted(), "unwritten");
    assert!(entries[1].is_evicted());
    assert!(!entries[2].is_evicted());
    assert!(!fourth.is_evicted());
    assert_eq!(cache.used_bytes(), 3 * (1_000 + ENTRY_OVERHEAD_BYTES));
}

#[test]
fn released_entries_are_charged_no_more() {
    let cache = TailCache::new(1 << 20);
    let entry = insert(&cache, 0, 1_000, 1_000);
    cache.release(&entry);
    cache.release(&entry);
    assert_eq!(cache.used_bytes(), 0);
    assert!(entry.bytes().is_none());
    cache.evict();
    assert!(cache.order.borrow().is_empty());
}

#[test]
fn a_small_part_of_a_frame_is_copied_and_a_large_one_shared() {
    let cache = TailCache::new(1 << 30);
    let frame = Bytes::from(vec![1u8; 4 << 20]);
    for (range, shared) in [
        (0..1_000, false),
        (0..SHARE_BYTES_MIN, false),
        (0..(1 << 20), true),
        (0..(4 << 20), true),
    ] {
        let slice = frame.slice(range.clone());
        let entry = cache.insert(Offset(0), Offset(0), slice.clone(), frame.len());
        assert_eq!(
            entry.bytes().unwrap().as_ptr() == slice.as_ptr(),
            shared,
            "{range:?}"
        );
    }
}
