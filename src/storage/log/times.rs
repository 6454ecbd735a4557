//! Looking up offsets by time.

use bytes::Bytes;

use super::Log;
use crate::base::{LeaderEpoch, Offset, TimestampMs};
use crate::io::disk::{Disk, DiskFile, Extent};
use crate::storage::batch_view::BatchView;
use crate::storage::derived::DerivedState;
use crate::storage::error::ReadError;

/// The answer to a look-up by time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimestampedOffset {
    pub timestamp: TimestampMs,
    pub offset: Offset,
    pub leader_epoch: LeaderEpoch,
}

/// Looks into a batch: the first record that is not older than the timestamp and not below the
/// offset. An error is the reason why the batch's records cannot be read.
pub type FindRecord<'a> = &'a dyn Fn(
    &BatchView<'_>,
    TimestampMs,
    Offset,
) -> Result<Option<(TimestampMs, Offset)>, String>;

impl<D: Disk, S: DerivedState> Log<D, S> {
    /// The first record that is not older than `timestamp`, among those from the log start up to
    /// `visible_end`.
    ///
    /// # Errors
    /// A file is damaged or cannot be read.
    pub async fn offset_for_time(
        &self,
        timestamp: TimestampMs,
        visible_end: Offset,
        find_record: FindRecord<'_>,
    ) -> Result<Option<TimestampedOffset>, ReadError> {
        let log_start = self.log_start_offset();
        let segments: Vec<_> = {
            let state = self.inner.state.borrow();
            state.segments.iter().cloned().collect()
        };
        for segment in segments {
            if segment.base >= visible_end {
                break;
            }
            if segment.size_bytes.get() == 0 {
                continue;
            }
            self.inner.load_index(&segment).await?;
            let (greatest, from) = self.inner.ask_index(&segment, |index| {
                (index.max_timestamp(), index.offset_before_time(timestamp))
            });
            if greatest.is_some_and(|(greatest, _)| greatest < timestamp) {
                continue;
            }
            // Batches come from memory or from the file, whichever has them.
            let mut offset = from.max(log_start);
            let end = self.segment_end(&segment.base).min(visible_end);
            while offset < end {
                let Some(bytes) = self.batch_containing(offset, end).await? else {
                    break;
                };
                let batch = self.view(&bytes)?;
                if batch.max_timestamp() >= timestamp
                    && let Some((timestamp, offset)) = find_record(&batch, timestamp, log_start)
                        .map_err(|reason| self.damaged(reason))?
                {
                    return Ok(Some(TimestampedOffset {
                        timestamp,
                        offset,
                        leader_epoch: batch.leader_epoch(),
                    }));
                }
                offset = batch.last_offset().next();
            }
        }
        Ok(None)
    }

    /// The first record with the greatest timestamp, among those up to `visible_end` (KIP-734).
    ///
    /// # Errors
    /// As [`offset_for_time`](Self::offset_for_time).
    pub async fn max_timestamp(
        &self,
        visible_end: Offset,
        find_record: FindRecord<'_>,
    ) -> Result<Option<TimestampedOffset>, ReadError> {
        let segments: Vec<_> = {
            let state = self.inner.state.borrow();
            state.segments.iter().cloned().collect()
        };
        let log_start = self.log_start_offset();
        let mut greatest: Option<(TimestampMs, Offset)> = None;
        for segment in segments {
            if segment.base >= visible_end || segment.size_bytes.get() == 0 {
                continue;
            }
            self.inner.load_index(&segment).await?;
            let found = self
                .inner
                .ask_index(&segment, |index| index.max_timestamp());
            if let Some((timestamp, offset)) = found
                && offset >= log_start
                && greatest.is_none_or(|(known, _)| timestamp > known)
            {
                greatest = Some((timestamp, offset));
            }
        }
        let Some((timestamp, last_offset)) = greatest else {
            return Ok(None);
        };
        let Some(bytes) = self.batch_containing(last_offset, visible_end).await? else {
            return Ok(None);
        };
        let batch = self.view(&bytes)?;
        let found =
            find_record(&batch, timestamp, log_start).map_err(|reason| self.damaged(reason))?;
        Ok(found.map(|(timestamp, offset)| TimestampedOffset {
            timestamp,
            offset,
            leader_epoch: batch.leader_epoch(),
        }))
    }

    /// The whole batch that contains `offset`, where it is visible.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub async fn batch_containing(
        &self,
        offset: Offset,
        visible_end: Offset,
    ) -> Result<Option<Bytes>, ReadError> {
        let outcome = self.read(offset, 0, visible_end, true).await?;
        match outcome.extents.into_iter().next() {
            None => Ok(None),
            Some(Extent::Memory(bytes)) => Ok(Some(bytes)),
            Some(Extent::File {
                file,
                position,
                len,
            }) => {
                let failed = |source| ReadError::Io {
                    file: self.inner.dir.clone(),
                    source,
                };
                let file = D::File::from_shared(&file).map_err(failed)?;
                let bytes = file.read_at(position, len as usize).await.map_err(failed)?;
                Ok(Some(Bytes::copy_from_slice(&bytes)))
            }
        }
    }

    fn segment_end(&self, base: &Offset) -> Offset {
        let state = self.inner.state.borrow();
        let after = state
            .segments
            .partition_point(|segment| segment.base <= *base);
        state
            .segments
            .get(after)
            .map_or(state.log_end, |next| next.base)
    }

    fn view<'a>(&self, bytes: &'a [u8]) -> Result<BatchView<'a>, ReadError> {
        BatchView::whole(bytes).map_err(|fault| self.damaged(fault.to_string()))
    }

    fn damaged(&self, reason: String) -> ReadError {
        ReadError::Corrupt {
            file: self.inner.dir.clone(),
            position: 0,
            reason,
        }
    }
}
