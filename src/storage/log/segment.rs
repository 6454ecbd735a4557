//! One segment: a file of batches with its indexes.

use std::cell::{Cell, RefCell};
use std::io;
use std::path::Path;
use std::rc::Rc;

use futures_lite::future::yield_now;

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
    /// Bytes of batches that the device has whole.
    pub written_bytes: Cell<u64>,
    /// Bytes that the device has: a part of the next batch may be among them.
    pub staged_bytes: Cell<u64>,
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
    /// A task writes the index files at the moment.
    pub is_saving: Cell<bool>,
    /// The files are being removed: nobody may open them any more.
    pub is_doomed: Cell<bool>,
    /// Opens in progress.
    opening: Cell<usize>,
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
            staged_bytes: Cell::new(0),
            allocated_bytes: Cell::new(0),
            exists: Cell::new(false),
            index: RefCell::new(Some(SegmentIndex::new(base))),
            index_saved_bytes: Cell::new(0),
            snapshot: RefCell::new(None),
            is_saving: Cell::new(false),
            is_doomed: Cell::new(false),
            opening: Cell::new(0),
            file: Rc::default(),
            saved_index: Rc::default(),
        }
    }

    /// A segment whose file holds `size_bytes` and whose index is in its files.
    pub fn rolled(base: Offset, created: TimestampMs, size_bytes: u64) -> Self {
        let segment = Self::new(base, created);
        segment.size_bytes.set(size_bytes);
        segment.written_bytes.set(size_bytes);
        segment.staged_bytes.set(size_bytes);
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
        if self.is_doomed.get() {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                "the segment was deleted",
            ));
        }
        let path = dir.join(self.file_name(FileKind::Log));
        self.opening.set(self.opening.get() + 1);
        let opened = disk.open(&path, mode).await;
        self.opening.set(self.opening.get() - 1);
        let file = Rc::new(OpenFile {
            file: opened?,
            shared: RefCell::new(None),
        });
        budget.load(&self.file, file.clone(), 1);
        Ok(file)
    }

    /// Closes the file where it is open, once its users are done.
    pub fn close(&self) {
        self.file.clear();
    }

    /// Lets nobody open the file any more. When it resolves, no open is in progress, so that the
    /// name may go: the runtime looks at the path again while it opens a file, and must find it.
    pub async fn doom(&self) {
        self.is_doomed.set(true);
        while self.opening.get() > 0 {
            yield_now().await;
        }
        self.close();
    }

    /// Asks the index, in memory or loaded; nothing where it must be loaded first.
    pub fn with_index<T>(&self, ask: impl FnOnce(&SegmentIndex) -> T) -> Option<T> {
        if let Some(index) = &*self.index.borrow() {
            return Some(ask(index));
        }
        self.saved_index.get().map(|index| ask(&index))
    }
}
