//! A broker on a disk whose power fails: a recording device under a loop device under ext4.
//!
//! ```text
//!   broker -> ext4 -> loop device, direct -> FUSE file -> recording in memory
//! ```
//! [`device`] records every write and every flush, and builds what a device may hold after a power
//! cut; [`filesystem`] puts ext4 on it, or on a plain file; [`workload`] drives a broker and knows
//! what it acknowledged, and when.
#![allow(dead_code)] // each test binary uses its own part of this module

pub mod device;
pub mod filesystem;
pub mod workload;

/// A small generator, so that a failure can be repeated from its seed.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        // Near seeds, and 0, give unlike sequences.
        Self((seed ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9) | 1)
    }

    /// A generator of its own for something that runs beside this one.
    pub fn fork(&mut self) -> Self {
        Self::new(self.next())
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 16) % bound
    }

    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to - from)
    }
}
