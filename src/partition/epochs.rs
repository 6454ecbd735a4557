//! Where each leader epoch begins in the log (KIP-101): how a follower or a consumer finds the
//! point up to which its log and ours agree.
//!
//! ```text
//! offset   0 …… 41 │ 42 …… 99 │ 100 …… log end
//! epoch       0    │    3     │      5
//! ```

use std::fmt::Write;

use crate::base::{LeaderEpoch, Offset};

use super::error::CorruptCheckpoint;

#[cfg(test)]
mod tests;

/// An answer to "where does this epoch end?"; both unknown (-1) when nothing is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpochEnd {
    /// The epoch that the offset belongs to: the asked one or the nearest before it.
    pub epoch: LeaderEpoch,
    /// The offset after its last record.
    pub end_offset: Offset,
}

impl EpochEnd {
    pub const UNKNOWN: Self = Self {
        epoch: LeaderEpoch::UNKNOWN,
        end_offset: Offset::UNKNOWN,
    };
}

/// The epochs of one log, ascending by epoch and by start offset.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeaderEpochs(Vec<(LeaderEpoch, Offset)>);

impl LeaderEpochs {
    pub fn new() -> Self {
        Self::default()
    }

    /// Each epoch with its start offset, ascending.
    pub fn entries(&self) -> &[(LeaderEpoch, Offset)] {
        &self.0
    }

    pub fn latest(&self) -> Option<LeaderEpoch> {
        self.0.last().map(|(epoch, _)| *epoch)
    }

    /// Notes that `epoch` appends from `start` on. Call it with each batch: only a new epoch
    /// changes anything. Entries that contradict the new one are dropped. True when something
    /// changed: write the checkpoint before the batch is acknowledged.
    pub fn assign(&mut self, epoch: LeaderEpoch, start: Offset) -> bool {
        if epoch.0 < 0 || start.0 < 0 {
            return false;
        }
        if let Some((latest, latest_start)) = self.0.last()
            && *latest == epoch
            && *latest_start <= start
        {
            return false;
        }
        while let Some((last, last_start)) = self.0.last()
            && (*last >= epoch || *last_start >= start)
        {
            self.0.pop();
        }
        self.0.push((epoch, start));
        true
    }

    /// Where the requested epoch ends, by the rules of Kafka's leader epoch cache:
    ///
    /// | requested | epoch | end offset |
    /// |---|---|---|
    /// | unknown (-1), or larger than all, or nothing known | -1 | -1 |
    /// | the latest | the same | log end |
    /// | between | the largest not above it | where the next one starts |
    /// | smaller than all | the same | where the first one starts |
    pub fn end_offset_for(&self, requested: LeaderEpoch, log_end: Offset) -> EpochEnd {
        if requested == LeaderEpoch::UNKNOWN {
            return EpochEnd::UNKNOWN;
        }
        if self.latest() == Some(requested) {
            return EpochEnd {
                epoch: requested,
                end_offset: log_end,
            };
        }
        let above = self.0.partition_point(|(epoch, _)| *epoch <= requested);
        let Some((_, end_offset)) = self.0.get(above) else {
            return EpochEnd::UNKNOWN;
        };
        let epoch = above
            .checked_sub(1)
            .map_or(requested, |floor| self.0[floor].0);
        EpochEnd {
            epoch,
            end_offset: *end_offset,
        }
    }

    /// The epoch that an offset was written in; none before the first entry.
    pub fn epoch_at(&self, offset: Offset) -> Option<LeaderEpoch> {
        let above = self.0.partition_point(|(_, start)| *start <= offset);
        above.checked_sub(1).map(|index| self.0[index].0)
    }

    /// The log now starts at `log_start`: forgets the epochs that ended before it, and lets the
    /// one that contains it start there. True when something changed.
    pub fn truncate_from_start(&mut self, log_start: Offset) -> bool {
        let above = self.0.partition_point(|(_, start)| *start <= log_start);
        let Some(kept) = above.checked_sub(1) else {
            return false;
        };
        if kept == 0 && self.0[0].1 == log_start {
            return false;
        }
        self.0.drain(..kept);
        self.0[0].1 = log_start;
        true
    }

    /// The log now ends at `log_end`: forgets the epochs that begin at or after it. True when
    /// something changed.
    pub fn truncate_from_end(&mut self, log_end: Offset) -> bool {
        let kept = self.0.partition_point(|(_, start)| *start < log_end);
        let changed = kept < self.0.len();
        self.0.truncate(kept);
        changed
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// The contents of `leader-epoch-checkpoint`: version `0`, the count, then a line
    /// `epoch start` for each.
    pub fn encode(&self) -> String {
        let mut text = format!("0\n{}\n", self.0.len());
        for (epoch, start) in &self.0 {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{epoch} {start}");
        }
        text
    }

    /// Reads `leader-epoch-checkpoint`. It may be staler than the log: truncate it to the log's
    /// start and end, and assign the epochs of the batches replayed.
    ///
    /// # Errors
    /// The text has another version, a line that is not two numbers, or not as many lines as it
    /// claims: rebuild it from the batch headers.
    pub fn decode(text: &str) -> Result<Self, CorruptCheckpoint> {
        let corrupt = |what: String| CorruptCheckpoint(format!("leader-epoch-checkpoint: {what}"));
        let mut lines = text.lines();
        match lines.next() {
            Some("0") => {}
            other => {
                let found = other.unwrap_or_default();
                return Err(corrupt(format!("version `{found}` is unknown, 0 is known")));
            }
        }
        let claimed: usize = lines
            .next()
            .and_then(|line| line.parse().ok())
            .ok_or_else(|| corrupt("its second line is not a count".to_owned()))?;
        let mut epochs = Self::new();
        let mut found = 0_usize;
        for line in lines {
            let (epoch, start) =
                parse_line(line).ok_or_else(|| corrupt(format!("line `{line}` is malformed")))?;
            epochs.assign(epoch, start);
            found += 1;
        }
        if found != claimed {
            return Err(corrupt(format!("{claimed} lines claimed, {found} present")));
        }
        Ok(epochs)
    }
}

fn parse_line(line: &str) -> Option<(LeaderEpoch, Offset)> {
    let (epoch, start) = line.split_once(' ')?;
    let epoch: i32 = epoch.parse().ok()?;
    let start: i64 = start.parse().ok()?;
    (epoch >= 0 && start >= 0).then_some((LeaderEpoch(epoch), Offset(start)))
}
