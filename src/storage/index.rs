//! A segment's sparse indexes, in Kafka's files and by Kafka's rules.
//!
//! ```text
//! .index      i32 last offset of a batch, relative to the segment's base; i32 the batch's position
//! .timeindex  i64 greatest timestamp so far; i32 last offset of its batch, relative
//! ```
//! Big-endian. A batch gets an entry when more than `index.interval.bytes` lie between it and the
//! batch of the entry before; the time index gets one along with it when the greatest timestamp
//! grew, and a last one when the segment is rolled or closed. Both are derived data: whatever is
//! wrong with them is mended from the log.

use crate::base::{Offset, TimestampMs};

#[cfg(test)]
mod tests;

/// Bytes of an entry in the `.index` file.
pub const OFFSET_ENTRY_BYTES: usize = 8;
/// Bytes of an entry in the `.timeindex` file.
pub const TIME_ENTRY_BYTES: usize = 12;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OffsetEntry {
    /// The batch's last offset less the segment's base.
    pub relative: i32,
    /// Where the batch begins in the file, in bytes.
    pub position: i32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeEntry {
    pub timestamp: TimestampMs,
    /// The last offset of the batch with that timestamp, less the segment's base.
    pub relative: i32,
}

/// What the indexes need to know of a batch.
#[derive(Debug, Clone, Copy)]
pub struct IndexedBatch {
    pub last_offset: Offset,
    pub position: u64,
    pub len: usize,
    pub max_timestamp: TimestampMs,
}

/// Both indexes of one segment, in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentIndex {
    base: Offset,
    offsets: Vec<OffsetEntry>,
    times: Vec<TimeEntry>,
    bytes_since_entry: u64,
    /// The greatest timestamp and the last offset of its batch.
    max_timestamp: Option<(TimestampMs, Offset)>,
    /// Of the first batch: the segment's age counts from it.
    first_timestamp: Option<TimestampMs>,
}

impl SegmentIndex {
    pub fn new(base: Offset) -> Self {
        Self {
            base,
            offsets: Vec::new(),
            times: Vec::new(),
            bytes_since_entry: 0,
            max_timestamp: None,
            first_timestamp: None,
        }
    }

    /// Notes the next batch of the segment.
    pub fn note(&mut self, batch: IndexedBatch, interval_bytes: u64) {
        if batch.position == 0 {
            self.first_timestamp = Some(batch.max_timestamp);
        }
        if self
            .max_timestamp
            .is_none_or(|(greatest, _)| batch.max_timestamp > greatest)
        {
            self.max_timestamp = Some((batch.max_timestamp, batch.last_offset));
        }
        if self.bytes_since_entry > interval_bytes
            && let (Some(relative), Ok(position)) = (
                self.relative(batch.last_offset),
                i32::try_from(batch.position),
            )
        {
            self.offsets.push(OffsetEntry { relative, position });
            self.note_time();
            self.bytes_since_entry = 0;
        }
        self.bytes_since_entry += batch.len as u64;
    }

    /// Adds the greatest timestamp so far to the time index, as rolling and closing do.
    pub fn note_time(&mut self) {
        let Some((timestamp, offset)) = self.max_timestamp else {
            return;
        };
        let last = self
            .times
            .last()
            .map_or(TimestampMs::NONE, |entry| entry.timestamp);
        if timestamp > last
            && let Some(relative) = self.relative(offset)
        {
            self.times.push(TimeEntry {
                timestamp,
                relative,
            });
        }
    }

    fn relative(&self, offset: Offset) -> Option<i32> {
        i32::try_from(offset.0.checked_sub(self.base.0)?).ok()
    }

    /// Where to start looking for `offset`: the start of a batch at or before it, in bytes.
    pub fn position_at_or_before(&self, offset: Offset) -> u64 {
        let relative = offset.0.saturating_sub(self.base.0);
        let after = self
            .offsets
            .partition_point(|entry| i64::from(entry.relative) <= relative);
        after
            .checked_sub(1)
            .map_or(0, |at| self.offsets[at].position as u64)
    }

    /// The greatest known start of a batch that is above `after` and at most `at_most`, whose last
    /// offset is below `end`.
    pub fn boundary(&self, after: u64, at_most: u64, end: Offset) -> Option<u64> {
        let relative = end.0.saturating_sub(self.base.0);
        let beyond = self.offsets.partition_point(|entry| {
            entry.position as u64 <= at_most && i64::from(entry.relative) < relative
        });
        let position = self.offsets[beyond.checked_sub(1)?].position as u64;
        (position > after).then_some(position)
    }

    /// The offset from which to look for the first batch with a timestamp of at least
    /// `timestamp`: every batch before it is older.
    pub fn offset_before_time(&self, timestamp: TimestampMs) -> Offset {
        let after = self
            .times
            .partition_point(|entry| entry.timestamp < timestamp);
        after.checked_sub(1).map_or(self.base, |at| {
            self.base.plus(i64::from(self.times[at].relative))
        })
    }

    /// The greatest timestamp and the last offset of the batch that holds it.
    pub fn max_timestamp(&self) -> Option<(TimestampMs, Offset)> {
        self.max_timestamp
    }

    pub fn first_timestamp(&self) -> Option<TimestampMs> {
        self.first_timestamp
    }

    /// Set when a segment is loaded without a scan of its first batch.
    pub fn set_first_timestamp(&mut self, timestamp: TimestampMs) {
        self.first_timestamp = Some(timestamp);
    }

    /// Whether either index has reached Kafka's limit for the file.
    pub fn is_full(&self, index_bytes_max: usize) -> bool {
        self.offsets.len() >= index_bytes_max / OFFSET_ENTRY_BYTES
            || self.times.len() >= (index_bytes_max / TIME_ENTRY_BYTES).saturating_sub(1)
    }

    /// The position of the batch of the last entry: a scan that continues the index begins there.
    pub fn last_position(&self) -> u64 {
        self.offsets.last().map_or(0, |entry| entry.position as u64)
    }

    /// Memory that it takes, in bytes.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.offsets.capacity() * size_of::<OffsetEntry>()
            + self.times.capacity() * size_of::<TimeEntry>()
    }

    /// Forgets what is known of batches at or after `position`, the start of a batch. What it says
    /// of the batches between the last entry that is left and `position` is forgotten too: a scan
    /// from [`last_position`](Self::last_position) restores it.
    pub fn cut(&mut self, position: u64) {
        self.offsets
            .retain(|entry| (entry.position as u64) < position);
        let last = self.offsets.last().map_or(-1, |entry| entry.relative);
        self.times.retain(|entry| entry.relative <= last);
        self.forget_after_last_entry();
    }

    /// The state just before the batch of the last entry was noted, with that entry taken back, so
    /// that a scan from its position notes it again. Returns that position.
    pub fn rewind_to_last_entry(&mut self, interval_bytes: u64) -> u64 {
        let Some(entry) = self.offsets.pop() else {
            self.times.clear();
            self.max_timestamp = None;
            self.bytes_since_entry = 0;
            return 0;
        };
        // The greatest timestamp may belong to a batch before this one: what was noted along with
        // the entry stays, and noting the batch again adds nothing to it.
        self.times.retain(|time| time.relative <= entry.relative);
        self.forget_after_last_entry();
        // Enough for the batch at the position to get its entry again.
        self.bytes_since_entry = interval_bytes + 1;
        entry.position as u64
    }

    fn forget_after_last_entry(&mut self) {
        self.max_timestamp = self
            .times
            .last()
            .map(|entry| (entry.timestamp, self.base.plus(i64::from(entry.relative))));
        self.bytes_since_entry = 0;
    }

    /// The `.index` file's bytes, for batches that begin below `position_end`.
    pub fn encode_offsets(&self, position_end: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.offsets.len() * OFFSET_ENTRY_BYTES);
        for entry in &self.offsets {
            if entry.position as u64 >= position_end {
                break;
            }
            bytes.extend_from_slice(&entry.relative.to_be_bytes());
            bytes.extend_from_slice(&entry.position.to_be_bytes());
        }
        bytes
    }

    /// The `.timeindex` file's bytes, for batches whose last offset is below `offset_end`.
    pub fn encode_times(&self, offset_end: Offset) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.times.len() * TIME_ENTRY_BYTES);
        for entry in &self.times {
            if self.base.plus(i64::from(entry.relative)) >= offset_end {
                break;
            }
            bytes.extend_from_slice(&entry.timestamp.0.to_be_bytes());
            bytes.extend_from_slice(&entry.relative.to_be_bytes());
        }
        bytes
    }

    /// Reads both files of a segment of `size_bytes` bytes that ends before `end`.
    ///
    /// # Errors
    /// The reason, where the files cannot be the indexes of such a segment: rebuild them.
    pub fn decode(
        base: Offset,
        offsets: &[u8],
        times: &[u8],
        size_bytes: u64,
        end: Offset,
    ) -> Result<Self, String> {
        let mut index = Self::new(base);
        index.offsets = decode_offsets(offsets, size_bytes)?;
        index.times = decode_times(times)?;
        let last_relative = [
            index.offsets.last().map(|entry| entry.relative),
            index.times.last().map(|entry| entry.relative),
        ];
        for relative in last_relative.into_iter().flatten() {
            if base.plus(i64::from(relative)) >= end {
                return Err(format!(
                    "it knows offset {} of a segment that ends before {end}",
                    base.plus(i64::from(relative))
                ));
            }
        }
        index.max_timestamp = index
            .times
            .last()
            .map(|entry| (entry.timestamp, base.plus(i64::from(entry.relative))));
        Ok(index)
    }
}

fn decode_offsets(bytes: &[u8], size_bytes: u64) -> Result<Vec<OffsetEntry>, String> {
    let (entries, rest) = bytes.as_chunks::<OFFSET_ENTRY_BYTES>();
    if !rest.is_empty() {
        return Err(format!("{} bytes are not a multiple of 8", bytes.len()));
    }
    let mut decoded: Vec<OffsetEntry> = Vec::with_capacity(entries.len());
    for &[a, b, c, d, e, f, g, h] in entries {
        let entry = OffsetEntry {
            relative: i32::from_be_bytes([a, b, c, d]),
            position: i32::from_be_bytes([e, f, g, h]),
        };
        let last = decoded.last().copied().unwrap_or(OffsetEntry {
            relative: -1,
            position: 0,
        });
        if entry.relative <= last.relative
            || entry.position <= last.position
            || entry.position as u64 >= size_bytes
        {
            return Err(format!(
                "entry {} (offset +{}, position {}) does not follow",
                decoded.len(),
                entry.relative,
                entry.position
            ));
        }
        decoded.push(entry);
    }
    Ok(decoded)
}

fn decode_times(bytes: &[u8]) -> Result<Vec<TimeEntry>, String> {
    let (entries, rest) = bytes.as_chunks::<TIME_ENTRY_BYTES>();
    if !rest.is_empty() {
        return Err(format!("{} bytes are not a multiple of 12", bytes.len()));
    }
    let mut decoded: Vec<TimeEntry> = Vec::with_capacity(entries.len());
    for &[a, b, c, d, e, f, g, h, i, j, k, l] in entries {
        let entry = TimeEntry {
            timestamp: TimestampMs(i64::from_be_bytes([a, b, c, d, e, f, g, h])),
            relative: i32::from_be_bytes([i, j, k, l]),
        };
        let last = decoded.last().copied().unwrap_or(TimeEntry {
            timestamp: TimestampMs::NONE,
            relative: 0,
        });
        if entry.timestamp <= last.timestamp || entry.relative < last.relative {
            return Err(format!(
                "entry {} (timestamp {}, offset +{}) does not follow",
                decoded.len(),
                entry.timestamp,
                entry.relative
            ));
        }
        decoded.push(entry);
    }
    Ok(decoded)
}
