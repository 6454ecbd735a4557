//! One segment: a file of batches with its indexes.

use std::cell::{Cell, RefCell};
use std::io;
use std::path::Path;
use std::rc::Rc;

use crate::base::{Offset, TimestampMs};
use crate::io::disk::{Disk, DiskFile, OpenMode};
use crate::storage::budget::{Budget, Slot};
use crate::storage::index::SegmentIndex;
use crate::storage::names::{FileKind, file_name};

/// A file and its handle for other cores.
pub struct OpenFile<F: DiskFile> {
    pub file: F,
    shared: RefCell<Option<F::Shared>>,
}

impl<F: DiskFile> OpenFile<F> {
    /// The handle that a reader on any core opens the file by; made once.
    pub fn share(&self) -> io::Result<F::Shared> {
        let mut shared = self.shared.borrow_mut();
        if let Some(shared) = &*shared {
            return Ok(shared.clone());
        }
        Ok(shared.insert(self.file.share()?).clone())
    }
}

pub struct Segment<F: DiskFile> {
    pub base: Offset,
    /// When the segment was begun; its age counts from here while its records tell none.
    pub created: TimestampMs,
    /// Bytes of batches, pending ones included.
    pub size_bytes: Cell<u64>,
    /// Bytes that the device has.
    pub written_bytes: Cell<u64>,
    /// The file's size on the device; 0 while there is no file.
    pub allocated_bytes: Cell<u64>,
    /// Whether the file was made.
    pub exists: Cell<bool>,
    /// The index while the segment is active or its files are not written yet.
    pub index: RefCell<Option<SegmentIndex>>,
    /// Bytes of batches that the index files cover.
    pub index_saved_bytes: Cell<u64>,
    /// The derived state before the first batch, to be saved when the file is made.
    pub snapshot: RefCell<Option<Vec<u8>>>,
    file: Rc<Slot<OpenFile<F>>>,
    pub saved_index: Rc<Slot<SegmentIndex>>,
}

impl<F: DiskFile> Segment<F> {
    /// A segment without a file yet.
    pub fn new(base: Offset, created: TimestampMs) -> Self {
        Self {
            base,
            created,
            size_bytes: Cell::new(0),
            written_bytes: Cell::new(0),
            allocated_bytes: Cell::new(0),
            exists: Cell::new(false),
            index: RefCell::new(Some(SegmentIndex::new(base))),
            index_saved_bytes: Cell::new(0),
            snapshot: RefCell::new(None),
            file: Rc::default(),
            saved_index: Rc::default(),
        }
    }

    /// A segment whose file holds `size_bytes` and whose index is in its files.
    pub fn rolled(base: Offset, created: TimestampMs, size_bytes: u64) -> Self {
        let segment = Self::new(base, created);
        segment.size_bytes.set(size_bytes);
        segment.written_bytes.set(size_bytes);
        segment.allocated_bytes.set(size_bytes);
        segment.exists.set(true);
        segment.index_saved_bytes.set(size_bytes);
        segment.index.borrow_mut().take();
        segment
    }

    pub fn file_name(&self, kind: FileKind) -> String {
        file_name(self.base, kind)
    }

    /// The segment's file, opened where it is not. `mode` says whether it must exist.
    pub async fn open<D: Disk<File = F>>(
        &self,
        disk: &D,
        dir: &Path,
        mode: OpenMode,
        budget: &Budget,
    ) -> io::Result<Rc<OpenFile<F>>> {
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        let path = dir.join(self.file_name(FileKind::Log));
        let file = Rc::new(OpenFile {
            file: disk.open(&path, mode).await?,
            shared: RefCell::new(None),
        });
        budget.load(&self.file, file.clone(), 1);
        Ok(file)
    }

    /// Closes the file where it is open, once its users are done.
    pub fn close(&self) {
        self.file.clear();
    }

    /// Asks the index, in memory or loaded; nothing where it must be loaded first.
    pub fn with_index<T>(&self, ask: impl FnOnce(&SegmentIndex) -> T) -> Option<T> {
        if let Some(index) = &*self.index.borrow() {
            return Some(ask(index));
        }
        self.saved_index.get().map(|index| ask(&index))
    }
}
