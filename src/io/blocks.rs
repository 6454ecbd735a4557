//! Memory that direct writes are made from, shared with whoever else needs the bytes.
//!
//! A direct write pins its memory page by page, so that large batches lie in huge pages, in a
//! region of the core's own. What finds no room there comes from the heap.
#![allow(unsafe_code)]

use std::cell::OnceCell;
use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use offset_allocator::{Allocation, Allocator};
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::base::limits::DISK_BLOCK_BYTES;

#[cfg(test)]
mod tests;

/// What a smaller piece of memory would gain is less than what its place in the region costs.
const POOLED_BYTES_MIN: usize = 64 << 10;

const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Huge pages that one call gives back to the system: each takes some ten microseconds.
const TRIMMED_AT_A_TIME: usize = 64;

/// Has the kernel give this process huge pages where it asks for them, and only there: the
/// allocator's feature `no_thp` refuses them for the whole process.
pub fn allow_advised_huge_pages() {
    const EXCEPT_ADVISED: libc::c_ulong = 1 << 1;
    const UNUSED: libc::c_ulong = 0;
    let set = |is_disabled: libc::c_ulong, flags: libc::c_ulong| {
        // SAFETY: it changes an attribute of the process and reads no memory.
        unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, is_disabled, flags, UNUSED, UNUSED) == 0 }
    };
    // Linux 6.18 and newer.
    if set(1, EXCEPT_ADVISED) {
        return;
    }
    let policy = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    if policy.is_ok_and(|policy| policy.contains("[madvise]")) {
        set(0, UNUSED);
    }
}

/// A core's memory for blocks. What it gave out may be read and dropped on any thread.
pub struct BlockPool {
    bytes_max: usize,
    /// Made when it is first used; nothing where that failed.
    region: OnceCell<Option<Arc<Region>>>,
}

impl fmt::Debug for BlockPool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes_max, .. } = self;
        formatter
            .debug_struct("BlockPool")
            .field("bytes_max", bytes_max)
            .finish_non_exhaustive()
    }
}

impl BlockPool {
    /// A pool of at most so many bytes of huge pages.
    pub fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            region: OnceCell::new(),
        }
    }

    /// The pieces, one behind the other, copied into whole blocks; zeros follow up to the last
    /// block's end. Slices of it that begin and end at a block's edge may be written directly.
    pub fn gather(&self, pieces: &[&[u8]]) -> Bytes {
        let used_bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
        let count = used_bytes.div_ceil(DISK_BLOCK_BYTES);
        let pooled = (used_bytes >= POOLED_BYTES_MIN)
            .then(|| self.take(count))
            .flatten();
        match pooled {
            Some(blocks) => {
                // SAFETY: the blocks are in the region and nobody else's until they are dropped.
                unsafe { fill(blocks.start(), count, pieces) };
                Bytes::from_owner(blocks)
            }
            None => {
                let mut blocks: Vec<Block> = Vec::with_capacity(count);
                // SAFETY: there is room for so many blocks, and afterwards all of their bytes are
                // initialised.
                unsafe {
                    fill(blocks.as_mut_ptr().cast(), count, pieces);
                    blocks.set_len(count);
                }
                Bytes::from_owner(HeapBlocks(blocks))
            }
        }
    }

    /// Gives huge pages that nobody uses back to the system, unless some were taken since the last
    /// call: then more will be.
    pub fn trim(&self) {
        if let Some(Some(region)) = self.region.get() {
            region.trim();
        }
    }

    fn take(&self, count: usize) -> Option<PooledBlocks> {
        let region = self.region.get_or_init(|| Region::new(self.bytes_max));
        region.as_ref()?.take(count)
    }
}

/// # Safety
/// `start` is valid for writes of `count` blocks, which have room for the pieces.
unsafe fn fill(start: *mut u8, count: usize, pieces: &[&[u8]]) {
    let mut at = 0;
    for piece in pieces {
        // SAFETY: the caller's promise.
        unsafe {
            let target = start.add(at);
            target.copy_from_nonoverlapping(piece.as_ptr(), piece.len());
        }
        at += piece.len();
    }
    // SAFETY: as above.
    unsafe { start.add(at).write_bytes(0, count * DISK_BLOCK_BYTES - at) };
}

#[repr(C, align(4096))]
struct Block([u8; DISK_BLOCK_BYTES]);

const _: () = assert!(align_of::<Block>() == DISK_BLOCK_BYTES);
const _: () = assert!(size_of::<Block>() == DISK_BLOCK_BYTES);

struct HeapBlocks(Vec<Block>);

impl AsRef<[u8]> for HeapBlocks {
    fn as_ref(&self) -> &[u8] {
        let len = self.0.len() * DISK_BLOCK_BYTES;
        // SAFETY: a block is its bytes, without padding, and all of them are initialised.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), len) }
    }
}

/// Blocks of a region, given back when they are dropped.
struct PooledBlocks {
    region: Arc<Region>,
    allocation: Allocation,
    count: usize,
}

impl PooledBlocks {
    fn start(&self) -> *mut u8 {
        let at = self.allocation.offset as usize * DISK_BLOCK_BYTES;
        // SAFETY: the allocator knows of the region's blocks only.
        unsafe { self.region.start.as_ptr().add(at) }
    }
}

impl AsRef<[u8]> for PooledBlocks {
    fn as_ref(&self) -> &[u8] {
        let len = self.count * DISK_BLOCK_BYTES;
        // SAFETY: the blocks stay mapped with the region and were filled before they were shared.
        unsafe { std::slice::from_raw_parts(self.start(), len) }
    }
}

impl Drop for PooledBlocks {
    fn drop(&mut self) {
        let mut places = self.region.places();
        places.allocator.free(self.allocation);
        for page in places.pages_of(self.allocation, self.count) {
            page.users = page.users.saturating_sub(1);
        }
    }
}

/// Mapped memory whose blocks are given out.
struct Region {
    mapping: NonNull<u8>,
    mapped_bytes: usize,
    /// The first huge page of the mapping.
    start: NonNull<u8>,
    places: Mutex<Places>,
}

// SAFETY: the region gives out each block to one owner at a time; its places are locked.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

struct Places {
    /// In blocks.
    allocator: Allocator,
    pages: Vec<HugePage>,
    has_given_since_trim: bool,
}

#[derive(Default, Clone)]
struct HugePage {
    /// Allocations that have a part of it.
    users: u32,
    is_resident: bool,
}

impl Places {
    fn pages_of(
        &mut self,
        allocation: Allocation,
        count: usize,
    ) -> impl Iterator<Item = &mut HugePage> {
        const BLOCKS: usize = HUGE_PAGE_BYTES / DISK_BLOCK_BYTES;
        let first = allocation.offset as usize;
        let pages = first / BLOCKS..(first + count).div_ceil(BLOCKS);
        self.pages.get_mut(pages).unwrap_or_default().iter_mut()
    }
}

impl Region {
    fn new(bytes_max: usize) -> Option<Arc<Self>> {
        let len = bytes_max.checked_next_multiple_of(HUGE_PAGE_BYTES)?;
        let count = u32::try_from(len / DISK_BLOCK_BYTES).ok()?;
        // Each takes so many blocks at least and leaves at most one gap behind it.
        let allocations_max = 2 * count / (POOLED_BYTES_MIN / DISK_BLOCK_BYTES) as u32 + 2;
        let mapped_bytes = len.checked_add(HUGE_PAGE_BYTES)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at a place of the kernel's choice.
        let mapping = unsafe {
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), mapped_bytes, access, flags).ok()?
        };
        let mapping = NonNull::new(mapping.cast::<u8>())?;
        let skip = mapping.as_ptr().align_offset(HUGE_PAGE_BYTES);
        let region = Self {
            mapping,
            mapped_bytes,
            // SAFETY: the mapping has a huge page more than is used.
            start: unsafe { mapping.add(skip) },
            places: Mutex::new(Places {
                allocator: Allocator::with_max_allocs(count, allocations_max),
                pages: vec![HugePage::default(); len / HUGE_PAGE_BYTES],
                has_given_since_trim: false,
            }),
        };
        let start = region.start.as_ptr().cast();
        // Without huge pages it works too.
        // SAFETY: the advice leaves what the memory holds as it is.
        let _ = unsafe { rustix::mm::madvise(start, len, Advice::LinuxHugepage) };
        Some(Arc::new(region))
    }

    fn places(&self) -> std::sync::MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(self: &Arc<Self>, count: usize) -> Option<PooledBlocks> {
        let mut places = self.places();
        let allocation = places.allocator.allocate(u32::try_from(count).ok()?)?;
        places.has_given_since_trim = true;
        for page in places.pages_of(allocation, count) {
            page.users += 1;
            page.is_resident = true;
        }
        drop(places);
        Some(PooledBlocks {
            region: Arc::clone(self),
            allocation,
            count,
        })
    }

    fn trim(&self) {
        let mut places = self.places();
        if std::mem::take(&mut places.has_given_since_trim) {
            return;
        }
        let unused = |(_, page): &(usize, &mut HugePage)| page.is_resident && page.users == 0;
        let pages = places.pages.iter_mut().enumerate();
        for (index, page) in pages.filter(unused).take(TRIMMED_AT_A_TIME) {
            // SAFETY: the page is in the region, and while the places are locked nobody gets it.
            let result = unsafe {
                let start = self.start.as_ptr().add(index * HUGE_PAGE_BYTES);
                rustix::mm::madvise(start.cast(), HUGE_PAGE_BYTES, Advice::LinuxDontNeed)
            };
            page.is_resident = result.is_err();
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping is the region's own, and nobody has blocks of it any more. What the
        // call answers changes nothing.
        let _ = unsafe { rustix::mm::munmap(self.mapping.as_ptr().cast(), self.mapped_bytes) };
    }
}
