use super::*;

fn insert(cache: &TailCache, nth: i64, len: usize) -> Rc<TailEntry> {
    let memory = BatchMemory::copied(&vec![nth as u8; len]);
    cache.insert(Offset(nth), Offset(nth), memory)
}

#[test]
fn the_oldest_written_entries_go_first_and_unwritten_ones_stay() {
    let cache = TailCache::new(3 * (1_000 + ENTRY_OVERHEAD_BYTES));
    let entries: Vec<_> = (0..3).map(|nth| insert(&cache, nth, 1_000)).collect();
    entries[1].mark_written();
    entries[2].mark_written();
    let fourth = insert(&cache, 3, 1_000);
    assert!(!entries[0].is_evicted(), "unwritten");
    assert!(entries[1].is_evicted());
    assert!(!entries[2].is_evicted());
    assert!(!fourth.is_evicted());
    assert_eq!(cache.used_bytes(), 3 * (1_000 + ENTRY_OVERHEAD_BYTES));
}

#[test]
fn released_entries_are_charged_no_more() {
    let cache = TailCache::new(1 << 20);
    let entry = insert(&cache, 0, 1_000);
    cache.release(&entry);
    cache.release(&entry);
    assert_eq!(cache.used_bytes(), 0);
    assert!(entry.bytes().is_none());
    cache.evict();
    assert!(cache.order.borrow().is_empty());
}

#[test]
fn a_placed_batch_is_charged_with_its_blocks() {
    let cache = TailCache::new(1 << 30);
    let memory = BatchMemory::placed(cache.pool(), &[1; 100], &[2; 5_000]);
    let entry = cache.insert(Offset(0), Offset(0), memory);
    assert_eq!(entry.bytes().unwrap()[..], [2; 5_000]);
    let blocks = entry.blocks().unwrap();
    assert_eq!(blocks[..100], [1; 100]);
    assert_eq!(blocks[100..5_100], [2; 5_000]);
    assert_eq!(cache.used_bytes(), blocks.len() + ENTRY_OVERHEAD_BYTES);
    cache.release(&entry);
    assert_eq!(cache.used_bytes(), 0);
    assert!(entry.blocks().is_none());
}
