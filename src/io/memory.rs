//! How the C library keeps freed memory.
#![allow(unsafe_code)]

/// Keeps freed memory in the process instead of giving it back to the kernel with every large
/// buffer. Requests and direct writes use buffers of 100 KiB to megabytes, again and again; by
/// default each is mapped and unmapped, and a page fault for every 4 KiB costs more than copying
/// the bytes. Call it before other threads start.
pub fn keep_freed_memory() {
    /// The most that the C library takes: half of a thread's heap segment.
    const MMAP_THRESHOLD_BYTES: i32 = 32 << 20;
    const TRIM_THRESHOLD_BYTES: i32 = 512 << 20;
    // SAFETY: mallopt only changes parameters of the allocator; a value that it does not take
    // changes nothing.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES);
    }
}
