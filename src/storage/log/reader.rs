//! Reading by offset: extents, not bytes. The newest batches come from memory, the rest as a
//! stretch of a file, found through the index and a look at the headers.

use std::io;
use std::path::PathBuf;
use std::rc::Rc;

use super::scan::{Found, Scanner};
use super::segment::{OpenFile, Segment};
use super::{Condition, Log, LogInner};
use crate::base::Offset;
use crate::io::disk::{Disk, DiskFile, Extent, OpenMode};
use crate::storage::derived::DerivedState;
use crate::storage::error::ReadError;
use crate::storage::index::SegmentIndex;
use crate::storage::names::FileKind;

/// Headers that a read looks at to fill up what the index left of `max_bytes`.
const HEADERS_LOOKED_AT_MAX: usize = 64;

/// Where whole, consecutive batches lie.
#[derive(Debug, Clone)]
pub struct ReadOutcome<S> {
    /// In order; empty where nothing is visible at the offset. The first batch contains it.
    pub extents: Vec<Extent<S>>,
    /// Bytes of all extents.
    pub len: u64,
}

impl<S> Default for ReadOutcome<S> {
    fn default() -> Self {
        Self {
            extents: Vec::new(),
            len: 0,
        }
    }
}

type Shared<D> = <<D as Disk>::File as DiskFile>::Shared;

impl<D: Disk, S: DerivedState> Log<D, S> {
    /// Finds the batches from the one that contains `offset` on: whole batches that end below
    /// `visible_end` and are `max_bytes` together at most. A first batch that is larger is found
    /// all the same with `minimum_one_batch` (KIP-74), and not without.
    ///
    /// # Errors
    /// The offset is below the log's start or beyond its end; the file is damaged or cannot be
    /// read; the log is closed.
    pub async fn read(
        &self,
        offset: Offset,
        max_bytes: u64,
        visible_end: Offset,
        minimum_one_batch: bool,
    ) -> Result<ReadOutcome<Shared<D>>, ReadError> {
        let segment = {
            let mut state = self.inner.state.borrow_mut();
            if state.condition == Condition::Closed {
                return Err(ReadError::Closed);
            }
            if offset < state.log_start || offset > state.log_end {
                return Err(ReadError::OffsetOutOfRange {
                    offset,
                    start: state.log_start,
                    end: state.log_end,
                });
            }
            if offset >= visible_end || offset >= state.log_end {
                return Ok(ReadOutcome::default());
            }
            state.drop_evicted();
            let first = state
                .tail
                .partition_point(|entry| entry.last_offset < offset);
            if let Some(outcome) = collect(
                state.tail.range(first..),
                offset,
                max_bytes,
                visible_end,
                minimum_one_batch,
            ) {
                return Ok(outcome);
            }
            let after = state
                .segments
                .partition_point(|segment| segment.base <= offset);
            match after.checked_sub(1).and_then(|at| state.segments.get(at)) {
                Some(segment) => segment.clone(),
                None => {
                    return Err(ReadError::OffsetOutOfRange {
                        offset,
                        start: state.log_start,
                        end: state.log_end,
                    });
                }
            }
        };
        if max_bytes == 0 && !minimum_one_batch {
            return Ok(ReadOutcome::default());
        }
        self.inner
            .read_file(&segment, offset, max_bytes, visible_end, minimum_one_batch)
            .await
    }
}

/// The batches from memory; nothing where memory does not hold the first one.
fn collect<'a, S>(
    entries: impl Iterator<Item = &'a Rc<crate::storage::tail::TailEntry>>,
    offset: Offset,
    max_bytes: u64,
    visible_end: Offset,
    minimum_one_batch: bool,
) -> Option<ReadOutcome<S>> {
    let mut outcome = ReadOutcome::default();
    let mut is_first = true;
    for entry in entries {
        if is_first && entry.base_offset > offset {
            return None;
        }
        let Some(bytes) = entry.bytes() else {
            if is_first {
                return None;
            }
            break;
        };
        let fits = outcome.len + bytes.len() as u64 <= max_bytes || (is_first && minimum_one_batch);
        is_first = false;
        if !fits || entry.last_offset >= visible_end {
            break;
        }
        outcome.len += bytes.len() as u64;
        outcome.extents.push(Extent::Memory(bytes));
    }
    (!is_first).then_some(outcome)
}

impl<D: Disk, S: DerivedState> LogInner<D, S> {
    async fn read_file(
        &self,
        segment: &Rc<Segment<D::File>>,
        offset: Offset,
        max_bytes: u64,
        visible_end: Offset,
        minimum_one_batch: bool,
    ) -> Result<ReadOutcome<Shared<D>>, ReadError> {
        self.load_index(segment).await?;
        let open = self.open_for_reading(segment).await?;
        let limit = segment.written_bytes.get();
        let mut scanner = Scanner::new(&open.file, limit, Scanner::<D::File>::LOOK_BYTES);
        let from = self.ask_index(segment, |index| index.position_at_or_before(offset));
        let found = self.find_batch(segment, &mut scanner, from, offset).await?;
        let Some((start, first_end, last_offset)) = found else {
            return Ok(ReadOutcome::default());
        };
        let too_large = first_end - start > max_bytes && !minimum_one_batch;
        if too_large || last_offset >= visible_end {
            return Ok(ReadOutcome::default());
        }
        let end_max = start.saturating_add(max_bytes).min(limit);
        let mut end = first_end;
        if end_max == limit && visible_end >= self.written_end(segment) {
            end = limit;
        } else if let Some(boundary) = self.ask_index(segment, |index| {
            index.boundary(first_end, end_max, visible_end)
        }) {
            end = boundary;
        }
        // The index is sparse: fill up with what follows, unless enough is found already.
        for _ in 0..HEADERS_LOOKED_AT_MAX {
            if end >= end_max || end - start > max_bytes / 2 {
                break;
            }
            match self.looked_at(segment, scanner.header_at(end).await)? {
                Found::Batch(batch)
                    if end + batch.len() as u64 <= end_max && batch.last_offset() < visible_end =>
                {
                    end += batch.len() as u64;
                }
                _ => break,
            }
        }
        let shared = self.looked_at(segment, open.share())?;
        Ok(ReadOutcome {
            extents: vec![Extent::File {
                file: shared,
                position: start,
                len: end - start,
            }],
            len: end - start,
        })
    }

    /// The batch that contains `offset`, or the next one: its start, its end, its last offset.
    /// Looks from `from` on, the start of a batch at or before it.
    pub(super) async fn find_batch(
        &self,
        segment: &Segment<D::File>,
        scanner: &mut Scanner<'_, D::File>,
        from: u64,
        offset: Offset,
    ) -> Result<Option<(u64, u64, Offset)>, ReadError> {
        let mut position = from;
        let mut trusts_index = from > 0;
        loop {
            match self.looked_at(segment, scanner.header_at(position).await)? {
                Found::Batch(batch) => {
                    let end = position + batch.len() as u64;
                    if batch.last_offset() >= offset {
                        return Ok(Some((position, end, batch.last_offset())));
                    }
                    position = end;
                }
                Found::End => return Ok(None),
                Found::Bad(_) if trusts_index => {
                    // The index led astray: walk from the front this once.
                    tracing::warn!(file = %self.segment_path(segment).display(), position, "the index points into a batch; the file is walked from its front");
                    trusts_index = false;
                    position = 0;
                    segment.saved_index.clear();
                }
                Found::Bad(fault) => {
                    return Err(ReadError::Corrupt {
                        file: self.segment_path(segment),
                        position,
                        reason: fault.to_string(),
                    });
                }
            }
        }
    }

    /// The offset at which what the device has of a segment ends.
    pub(super) fn written_end(&self, segment: &Segment<D::File>) -> Offset {
        let state = self.state.borrow();
        if state.written.segment_base == segment.base {
            return state.written.offset;
        }
        let after = state
            .segments
            .partition_point(|other| other.base <= segment.base);
        state
            .segments
            .get(after)
            .map_or(state.written.offset, |next| next.base)
    }

    pub(super) fn segment_path(&self, segment: &Segment<D::File>) -> PathBuf {
        self.dir.join(segment.file_name(FileKind::Log))
    }

    pub(super) fn looked_at<T>(
        &self,
        segment: &Segment<D::File>,
        result: io::Result<T>,
    ) -> Result<T, ReadError> {
        result.map_err(|source| ReadError::Io {
            file: self.segment_path(segment),
            source,
        })
    }

    pub(super) async fn open_for_reading(
        &self,
        segment: &Segment<D::File>,
    ) -> Result<Rc<OpenFile<D::File>>, ReadError> {
        let opened = segment
            .open(
                &self.core.disk,
                &self.dir,
                OpenMode::Existing,
                &self.core.files,
            )
            .await;
        self.looked_at(segment, opened)
    }

    /// Asks a loaded index; one that was evicted meanwhile knows nothing, which is never wrong.
    pub(super) fn ask_index<T>(
        &self,
        segment: &Segment<D::File>,
        ask: impl Fn(&SegmentIndex) -> T,
    ) -> T {
        segment
            .with_index(&ask)
            .unwrap_or_else(|| ask(&SegmentIndex::new(segment.base)))
    }

    /// Loads the index of a rolled segment, from its files or, where these are damaged, from the
    /// log.
    pub(super) async fn load_index(&self, segment: &Segment<D::File>) -> Result<(), ReadError> {
        if segment.with_index(|_| ()).is_some() {
            return Ok(());
        }
        let size_bytes = segment.size_bytes.get();
        let end = self.written_end(segment);
        let path = |kind| self.dir.join(segment.file_name(kind));
        let offsets = self.core.disk.read_file(&path(FileKind::OffsetIndex)).await;
        let times = self.core.disk.read_file(&path(FileKind::TimeIndex)).await;
        let decoded = match (offsets, times) {
            (Ok(offsets), Ok(times)) => {
                SegmentIndex::decode(segment.base, &offsets, &times, size_bytes, end)
            }
            (Err(error), _) | (_, Err(error)) => Err(error.to_string()),
        };
        let index = match decoded {
            Ok(index) => index,
            Err(reason) => {
                tracing::warn!(file = %path(FileKind::OffsetIndex).display(), %reason, "the index is damaged and is made anew");
                self.rebuild_index(segment).await?
            }
        };
        let weight = index.memory_bytes();
        self.core
            .indexes
            .load(&segment.saved_index, Rc::new(index), weight);
        Ok(())
    }

    async fn rebuild_index(&self, segment: &Segment<D::File>) -> Result<SegmentIndex, ReadError> {
        let interval_bytes = self.state.borrow().config.index_interval_bytes;
        let open = self.open_for_reading(segment).await?;
        let size_bytes = segment.size_bytes.get();
        let mut scanner = Scanner::new(&open.file, size_bytes, Scanner::<D::File>::WALK_BYTES);
        let mut index = SegmentIndex::new(segment.base);
        let mut position = 0;
        loop {
            match self.looked_at(segment, scanner.batch_at(position, None).await)? {
                Found::Batch(batch) => {
                    index.note(super::recovery::indexed(&batch, position), interval_bytes);
                    position += batch.len() as u64;
                }
                Found::End => break,
                Found::Bad(fault) => {
                    return Err(ReadError::Corrupt {
                        file: self.segment_path(segment),
                        position,
                        reason: fault.to_string(),
                    });
                }
            }
        }
        index.note_time();
        let saved = self
            .save_index(segment, &index, size_bytes, self.written_end(segment))
            .await;
        self.looked_at(segment, saved)?;
        Ok(index)
    }
}
