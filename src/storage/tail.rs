//! The newest batches in memory: one budget for all logs of a core.
//!
//! An entry holds a batch from its append on. Once the device has it, the entry may be evicted,
//! the oldest of the core first; until then it stays whatever the budget says (logs bound their
//! unwritten bytes themselves).
//!
//! Every batch is copied here from the frame that it came in, once: the copy is made while the
//! batch is in the processor's cache, and the frame's memory is soon used again. A large batch is
//! laid out as it will be in its segment, in whole blocks, so that it can be written from there.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use bytes::Bytes;

use crate::base::Offset;
use crate::io::blocks::BlockPool;

#[cfg(test)]
mod tests;

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
    memory: RefCell<Option<BatchMemory>>,
    /// What it costs, in bytes.
    charge: usize,
    written: Cell<bool>,
}

/// A batch in memory of its own.
#[derive(Debug, Clone)]
pub struct BatchMemory {
    batch: Bytes,
    blocks: Option<Bytes>,
}

impl BatchMemory {
    pub fn copied(batch: &[u8]) -> Self {
        Self {
            batch: Bytes::copy_from_slice(batch),
            blocks: None,
        }
    }

    /// Laid out in whole blocks. `head` is what the segment has before the batch in its block.
    pub fn placed(pool: &BlockPool, head: &[u8], batch: &[u8]) -> Self {
        let blocks = pool.gather(&[head, batch]);
        Self {
            batch: blocks.slice(head.len()..head.len() + batch.len()),
            blocks: Some(blocks),
        }
    }

    fn len(&self) -> usize {
        self.blocks.as_ref().map_or(self.batch.len(), Bytes::len)
    }
}

impl TailEntry {
    /// The batch, unless it was evicted.
    pub fn bytes(&self) -> Option<Bytes> {
        let memory = self.memory.borrow();
        memory.as_ref().map(|memory| memory.batch.clone())
    }

    /// Whether the batch is laid out in whole blocks, and was not evicted.
    pub fn is_placed(&self) -> bool {
        let memory = self.memory.borrow();
        memory
            .as_ref()
            .is_some_and(|memory| memory.blocks.is_some())
    }

    /// The blocks of a batch that is laid out in whole blocks, unless it was evicted.
    pub fn blocks(&self) -> Option<Bytes> {
        self.memory.borrow().as_ref()?.blocks.clone()
    }

    pub fn is_evicted(&self) -> bool {
        self.memory.borrow().is_none()
    }

    /// The device has the batch: it may be evicted from now on.
    pub fn mark_written(&self) {
        self.written.set(true);
    }
}

/// The budget of a core's tails.
#[derive(Debug)]
pub struct TailCache {
    budget_bytes: usize,
    used_bytes: Cell<usize>,
    /// Memory of the placed batches.
    pool: BlockPool,
    /// Oldest first; the entries are the logs' own.
    order: RefCell<VecDeque<Rc<TailEntry>>>,
}

impl TailCache {
    pub fn new(budget_bytes: usize) -> Self {
        Self {
            budget_bytes,
            used_bytes: Cell::new(0),
            pool: BlockPool::new(budget_bytes),
            order: RefCell::default(),
        }
    }

    /// Memory for placed batches.
    pub fn pool(&self) -> &BlockPool {
        &self.pool
    }

    /// What the entries hold, in bytes.
    pub fn used_bytes(&self) -> usize {
        self.used_bytes.get()
    }

    /// Takes a batch in.
    pub fn insert(
        &self,
        base_offset: Offset,
        last_offset: Offset,
        memory: BatchMemory,
    ) -> Rc<TailEntry> {
        let entry = Rc::new(TailEntry {
            base_offset,
            last_offset,
            len: memory.batch.len(),
            charge: memory.len() + ENTRY_OVERHEAD_BYTES,
            memory: RefCell::new(Some(memory)),
            written: Cell::new(false),
        });
        self.used_bytes.set(self.used_bytes.get() + entry.charge);
        self.order.borrow_mut().push_back(entry.clone());
        self.evict();
        entry
    }

    /// Gives an entry's memory back, for a log that is cut or deleted.
    pub fn release(&self, entry: &TailEntry) {
        if entry.memory.borrow_mut().take().is_some() {
            self.used_bytes
                .set(self.used_bytes.get().saturating_sub(entry.charge));
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
