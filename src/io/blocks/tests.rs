use std::collections::VecDeque;

use super::*;
use crate::io::sim_disk::SimRandom;

const PAGE: usize = HUGE_PAGE_BYTES;

fn resident_pages(pool: &BlockPool) -> usize {
    let region = pool.region.get().and_then(Option::as_ref);
    region.map_or(0, |region| {
        let places = region.places();
        places.pages.iter().filter(|page| page.is_resident).count()
    })
}

#[test]
fn pieces_stand_one_behind_the_other_in_whole_blocks() {
    let pool = BlockPool::new(PAGE);
    for lens in [
        vec![],
        vec![1],
        vec![4096],
        vec![3, 0, 4093],
        vec![100, 9_000],
        vec![4095, POOLED_BYTES_MIN],
    ] {
        let pieces: Vec<Vec<u8>> = (1_u8..)
            .zip(&lens)
            .map(|(fill, len)| vec![fill; *len])
            .collect();
        let slices: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
        let blocks = pool.gather(&slices);
        let used = pieces.concat();
        assert_eq!(blocks.len(), used.len().next_multiple_of(DISK_BLOCK_BYTES));
        assert_eq!(blocks[..used.len()], used[..], "{lens:?}");
        assert!(
            blocks[used.len()..].iter().all(|byte| *byte == 0),
            "{lens:?}"
        );
        assert_eq!(blocks.as_ptr() as usize % DISK_BLOCK_BYTES, 0, "{lens:?}");
    }
}

#[test]
fn what_is_held_keeps_its_bytes_whatever_comes_and_goes() {
    let pool = BlockPool::new(4 * PAGE);
    let mut random = SimRandom::new(1);
    let mut held: VecDeque<(u8, Bytes)> = VecDeque::new();
    let mut held_bytes = 0;
    for round in 0..2_000_u32 {
        let len = POOLED_BYTES_MIN + random.below(400_000) as usize;
        let fill = (round % 251) as u8;
        held.push_back((fill, pool.gather(&[&vec![fill; len]])));
        held_bytes += len;
        // Some more than the region has, now and then none.
        let limit = if round % 100 == 0 { 0 } else { 5 * PAGE };
        while held_bytes > limit {
            let Some((fill, bytes)) = held.pop_front() else {
                break;
            };
            let used = bytes.iter().take_while(|byte| **byte == fill).count();
            assert!(used + DISK_BLOCK_BYTES > bytes.len(), "round {round}");
            held_bytes = held_bytes.saturating_sub(bytes.len());
        }
        if round % 7 == 0 {
            pool.trim();
        }
    }
}

#[test]
fn unused_pages_go_back_once_nothing_more_is_taken() {
    let pool = BlockPool::new(4 * PAGE);
    let long = vec![1; 3 * PAGE / 2];
    let kept = pool.gather(&[&long]);
    let dropped = pool.gather(&[&long]);
    assert_eq!(resident_pages(&pool), 3);
    drop(dropped);
    pool.trim();
    assert_eq!(resident_pages(&pool), 3, "some were taken just before");
    pool.trim();
    assert_eq!(resident_pages(&pool), 2);
    assert!(kept[..long.len()].iter().all(|byte| *byte == 1));
    let again = pool.gather(&[&long]);
    assert!(again[..long.len()].iter().all(|byte| *byte == 1));
}

#[test]
fn another_thread_may_read_and_drop() {
    let pool = BlockPool::new(PAGE);
    let blocks = pool.gather(&[&vec![7; POOLED_BYTES_MIN]]);
    let sum = std::thread::spawn(move || blocks.iter().map(|byte| u64::from(*byte)).sum::<u64>());
    assert_eq!(sum.join().ok(), Some(7 * POOLED_BYTES_MIN as u64));
    let all = pool.gather(&[&vec![1; PAGE]]);
    assert!(pool.take(1).is_none(), "all of the region is in use");
    drop(all);
    assert!(pool.take(1).is_some());
}
