//! Cells that one thread writes and any thread reads. A write is a relaxed load and store, not a
//! locked read-modify-write: that is what "one writer" buys. A second writer would lose counts, and
//! nothing else.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A number that only rises, from 0.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, count: u64) {
        self.0
            .store(self.0.load(Relaxed).wrapping_add(count), Relaxed);
    }

    pub fn increment(&self) {
        self.add(1);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A number that rises and falls.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    pub fn set(&self, value: i64) {
        self.0.store(value, Relaxed);
    }

    pub fn add(&self, difference: i64) {
        self.0
            .store(self.0.load(Relaxed).wrapping_add(difference), Relaxed);
    }

    pub fn increment(&self) {
        self.add(1);
    }

    pub fn decrement(&self) {
        self.add(-1);
    }

    pub fn get(&self) -> i64 {
        self.0.load(Relaxed)
    }
}

/// The largest number seen.
#[derive(Debug, Default)]
pub struct Maximum(AtomicU64);

impl Maximum {
    pub fn observe(&self, value: u64) {
        if value > self.get() {
            self.0.store(value, Relaxed);
        }
    }

    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Buckets of a histogram: bounds double from the first one.
const BUCKET_COUNT: usize = 20;
/// 16 microseconds; the last bound is 16 us << 19, about 8.4 s. What is longer counts in no bucket
/// but the infinite one.
const FIRST_BOUND_NS: u64 = 16_000;

/// Durations by powers of two.
#[derive(Debug, Default)]
pub struct Histogram {
    /// By bucket, not cumulative; the last is for all that is longer.
    counts: [Counter; BUCKET_COUNT + 1],
    sum_ns: Counter,
}

impl Histogram {
    pub fn observe(&self, duration: Duration) {
        let duration_ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        // The first bound that is not below: bucket i holds (FIRST << (i - 1), FIRST << i].
        let bucket = exponent_of(duration_ns.div_ceil(FIRST_BOUND_NS));
        self.counts[bucket.min(BUCKET_COUNT)].increment();
        self.sum_ns.add(duration_ns);
    }

    /// Upper bounds in seconds with the number of durations in each bucket, not cumulative. What
    /// is longer than the last bound is only in [`Histogram::count`].
    pub fn buckets(&self) -> Vec<(f64, u64)> {
        let counts = self.counts.iter().take(BUCKET_COUNT).enumerate();
        counts
            .map(|(index, count)| ((FIRST_BOUND_NS << index) as f64 / 1e9, count.get()))
            .collect()
    }

    pub fn count(&self) -> u64 {
        self.counts.iter().map(Counter::get).sum()
    }

    pub fn sum_seconds(&self) -> f64 {
        self.sum_ns.get() as f64 / 1e9
    }
}

/// The least `e` with `2^e >= ratio`.
fn exponent_of(ratio: u64) -> usize {
    match ratio {
        0 | 1 => 0,
        _ => (u64::BITS - (ratio - 1).leading_zeros()) as usize,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_counts_in_the_first_bucket_whose_bound_it_does_not_pass() {
        let last = BUCKET_COUNT;
        for (duration_ns, bucket) in [
            (0, 0),
            (1, 0),
            (16_000, 0),
            (16_001, 1),
            (32_000, 1),
            (32_001, 2),
            (16_000 << 19, 19),
            ((16_000 << 19) + 1, last),
            (u64::MAX, last),
        ] {
            let histogram = Histogram::default();
            histogram.observe(Duration::from_nanos(duration_ns));
            let filled = histogram.counts.iter().position(|count| count.get() == 1);
            assert_eq!(filled, Some(bucket), "{duration_ns} ns");
            assert_eq!(histogram.count(), 1);
        }
    }
}
