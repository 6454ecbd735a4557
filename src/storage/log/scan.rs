//! Walking over the batches of a segment's file.

use std::io;

use crate::base::Offset;
use crate::base::limits::BATCH_HEADER_BYTES;
use crate::io::disk::DiskFile;
use crate::storage::batch_view::{BatchFault, BatchView};

/// What lies at a position.
pub enum Found<'a> {
    Batch(BatchView<'a>),
    /// The end of the file.
    End,
    /// Something that is no batch.
    Bad(BatchFault),
}

/// Reads a file from its front to `size_bytes`, a window at a time.
pub struct Scanner<'a, F: DiskFile> {
    file: &'a F,
    size_bytes: u64,
    window_bytes: usize,
    window_start: u64,
    window: Option<F::Bytes>,
    /// Bytes read from the file so far.
    pub read_bytes: u64,
}

impl<'a, F: DiskFile> Scanner<'a, F> {
    /// Windows for looking at some headers.
    pub const LOOK_BYTES: usize = 16 << 10;
    /// Windows for walking over all of a file.
    pub const WALK_BYTES: usize = 256 << 10;

    pub fn new(file: &'a F, size_bytes: u64, window_bytes: usize) -> Self {
        Self {
            file,
            size_bytes,
            window_bytes,
            window_start: 0,
            window: None,
            read_bytes: 0,
        }
    }

    /// The header at `position`.
    pub async fn header_at(&mut self, position: u64) -> io::Result<Found<'_>> {
        if position >= self.size_bytes {
            return Ok(Found::End);
        }
        let bytes = self.bytes_at(position, BATCH_HEADER_BYTES).await?;
        Ok(match BatchView::header(bytes) {
            Ok(batch) => Found::Batch(batch),
            Err(fault) => Found::Bad(fault),
        })
    }

    /// The whole batch at `position`, its checksum verified. `expected` is its base offset, where
    /// that is known.
    pub async fn batch_at(
        &mut self,
        position: u64,
        expected: Option<Offset>,
    ) -> io::Result<Found<'_>> {
        if position >= self.size_bytes {
            return Ok(Found::End);
        }
        let header = self.bytes_at(position, BATCH_HEADER_BYTES).await?;
        let (len, base_offset) = match BatchView::header(header) {
            Ok(header) => (header.len(), header.base_offset()),
            Err(fault) => return Ok(Found::Bad(fault)),
        };
        let left = self.size_bytes - position;
        if len as u64 > left {
            return Ok(Found::Bad(BatchFault::Truncated {
                missing: len as u64 - left,
            }));
        }
        let bytes = self.bytes_at(position, len).await?;
        Ok(match (BatchView::whole(bytes), expected) {
            (Ok(_), Some(expected)) if expected != base_offset => {
                Found::Bad(BatchFault::BaseOffset {
                    expected,
                    found: base_offset,
                })
            }
            (Ok(batch), _) => Found::Batch(batch),
            (Err(fault), _) => Found::Bad(fault),
        })
    }

    /// Whether nothing but zeros follows `position`, as far as a window shows: space that was
    /// reserved and never written.
    pub async fn is_blank_at(&mut self, position: u64) -> io::Result<bool> {
        let window_bytes = self.window_bytes;
        let bytes = self.bytes_at(position, window_bytes).await?;
        Ok(bytes.iter().all(|byte| *byte == 0))
    }

    /// Up to `len` bytes at `position`; fewer at the end.
    async fn bytes_at(&mut self, position: u64, len: usize) -> io::Result<&[u8]> {
        let left = usize::try_from(self.size_bytes.saturating_sub(position)).unwrap_or(usize::MAX);
        let len = len.min(left);
        let held = self.window.as_ref().map_or(0, |window| window.len());
        let fits = position
            .checked_sub(self.window_start)
            .is_some_and(|skip| skip + len as u64 <= held as u64);
        if !fits {
            let wanted = self.window_bytes.max(len).min(left);
            let window = self.file.read_at(position, wanted).await?;
            self.read_bytes += window.len() as u64;
            self.window_start = position;
            self.window = Some(window);
        }
        let skip = (position - self.window_start) as usize;
        let window = self.window.as_deref().unwrap_or_default();
        Ok(window
            .get(skip..)
            .map_or(&[], |from| &from[..len.min(from.len())]))
    }
}
