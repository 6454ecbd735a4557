//! The newest batches in memory: one budget for all logs of a core.
//!
//! An entry holds a batch from its append on. Once the device has it, the entry may be evicted,
//! the oldest of the core first; until then it stays whatever the budget says (logs bound their
//! unwritten bytes themselves).
//!
//! A large batch shares the frame that it arrived in. A batch that is small, or a small part of
//! its frame, is copied, so that a kibibyte cannot pin a mebibyte.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use bytes::Bytes;

use crate::base::Offset;

#[cfg(test)]
mod tests;

/// Below this a batch is copied, in bytes: the copy costs less than what its frame may pin.
const SHARE_BYTES_MIN: usize = 16 << 10;

/// A batch is copied where its frame is more than this many times as large: what entries pin is
/// at most this many times what they are charged.
const SHARE_FRAME_RATIO_MAX: usize = 8;

/// What an entry costs beside its bytes, in bytes: the entry, two references, an allocation's
/// header.
const ENTRY_OVERHEAD_BYTES: usize = 160;

/// How many entries that cannot be evicted yet one eviction passes over.
const PASSED_OVER_MAX: usize = 16;

/// One batch.
#[derive(Debug)]
pub struct TailEntry {
    pub base_offset: Offset,
    pub last_offset: Offset,
    pub len: usize,
    bytes: RefCell<Option<Bytes>>,
    written: Cell<bool>,
}

impl TailEntry {
    /// The batch, unless it was evicted.
    pub fn bytes(&self) -> Option<Bytes> {
        self.bytes.borrow().clone()
    }

    pub fn is_evicted(&self) -> bool {
        self.bytes.borrow().is_none()
    }

    /// The device has the batch: it may be evicted from now on.
    pub fn mark_written(&self) {
        self.written.set(true);
    }

    fn charge(&self) -> usize {
        self.len + ENTRY_OVERHEAD_BYTES
    }
}

/// The budget of a core's tails.
#[derive(Debug)]
pub struct TailCache {
    budget_bytes: usize,
    used_bytes: Cell<usize>,
    /// Oldest first; the entries are the logs' own.
    order: RefCell<VecDeque<Rc<TailEntry>>>,
}

impl TailCache {
    pub fn new(budget_bytes: usize) -> Self {
        Self {
            budget_bytes,
            used_bytes: Cell::new(0),
            order: RefCell::default(),
        }
    }

    /// What the entries hold, in bytes.
    pub fn used_bytes(&self) -> usize {
        self.used_bytes.get()
    }

    /// Takes a batch in. `frame_bytes` is the size of the allocation that `bytes` is a part of.
    pub fn insert(
        &self,
        base_offset: Offset,
        last_offset: Offset,
        bytes: Bytes,
        frame_bytes: usize,
    ) -> Rc<TailEntry> {
        let shares_frame =
            bytes.len() >= SHARE_BYTES_MIN && frame_bytes / SHARE_FRAME_RATIO_MAX <= bytes.len();
        let alone = frame_bytes <= bytes.len();
        let bytes = if shares_frame || alone {
            bytes
        } else {
            Bytes::copy_from_slice(&bytes)
        };
        let entry = Rc::new(TailEntry {
            base_offset,
            last_offset,
            len: bytes.len(),
            bytes: RefCell::new(Some(bytes)),
            written: Cell::new(false),
        });
        self.used_bytes.set(self.used_bytes.get() + entry.charge());
        self.order.borrow_mut().push_back(entry.clone());
        self.evict();
        entry
    }

    /// Gives an entry's memory back, for a log that is cut or deleted.
    pub fn release(&self, entry: &TailEntry) {
        if entry.bytes.borrow_mut().take().is_some() {
            self.used_bytes
                .set(self.used_bytes.get().saturating_sub(entry.charge()));
        }
    }

    /// Evicts the oldest written entries until the budget holds.
    pub fn evict(&self) {
        let mut order = self.order.borrow_mut();
        let mut passed_over = 0;
        while let Some(entry) = order.front() {
            let released = entry.is_evicted();
            if !released && self.used_bytes.get() <= self.budget_bytes {
                break;
            }
            if released || entry.written.get() {
                self.release(entry);
                order.pop_front();
            } else if passed_over < PASSED_OVER_MAX {
                passed_over += 1;
                order.rotate_left(1);
            } else {
                break;
            }
        }
    }
}
