//! One allocation.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use super::{ALIGNMENT, Memory, POISON};

/// One allocation and its host bytes.
#[derive(Debug)]
pub(super) struct Region {
    pub(super) base: u64,
    pub(super) bytes: u64,
    pub(super) host: NonNull<u8>,
    /// The allocation with the host bytes; `None` for mapped host memory.
    pub(super) owned: Option<HostBytes>,
}

// SAFETY: a region is an address range and pointers that are valid for as long as the region
// lives; the bytes are only copied through raw pointers (see "Races" in the parent module).
unsafe impl Send for Region {}
// SAFETY: as for `Send`.
unsafe impl Sync for Region {}

/// Bytes of the host that were zero when they were allocated. The host provides the pages of a
/// large allocation when they are first used.
#[derive(Debug)]
pub(super) struct HostBytes {
    start: NonNull<u8>,
    layout: Layout,
}

impl HostBytes {
    /// The layout for `bytes` bytes from a multiple of [`ALIGNMENT`] on. An allocator writes zeros
    /// itself if it is asked for more alignment than its own, so there is room for both.
    pub(super) fn layout(bytes: u64) -> Option<Layout> {
        let size = usize::try_from(bytes.checked_add(ALIGNMENT)?).ok()?;
        Layout::from_size_align(size, align_of::<u64>()).ok()
    }

    /// Allocates. Returns `None` if the host has not enough memory.
    pub(super) fn zeroed(layout: Layout) -> Option<Self> {
        // SAFETY: the layout has room for at least `ALIGNMENT` bytes.
        let start = unsafe { alloc_zeroed(layout) };
        Some(Self { start: NonNull::new(start)?, layout })
    }

    /// The first byte at a multiple of [`ALIGNMENT`].
    pub(super) fn aligned(&self) -> NonNull<u8> {
        let start = self.start.as_ptr();
        let offset = start.addr().next_multiple_of(ALIGNMENT as usize) - start.addr();
        // SAFETY: the offset is below `ALIGNMENT`, and the layout has that many bytes more.
        unsafe { self.start.add(offset) }
    }
}

impl Drop for HostBytes {
    fn drop(&mut self) {
        // SAFETY: `start` came from `alloc_zeroed` with this layout and is freed once.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

/// Fills fresh memory with [`POISON`], a large one only at its two ends.
///
/// # Safety
///
/// `to` must be valid for writing `size` bytes.
pub unsafe fn poison_fresh(to: *mut u8, size: usize) {
    let edge = size.min(Memory::EAGER_POISON as usize / 2);
    // The tail starts at a multiple of the word, so the pattern stays aligned with addresses.
    let tail = (size - edge).next_multiple_of(4).min(size);
    let word = POISON.to_le_bytes();
    // SAFETY: both ranges are inside the memory.
    unsafe {
        fill_host(to, &word, edge);
        fill_host(to.add(tail), &word, size - tail);
    }
}

/// Repeats `pattern` over `bytes` bytes at `to`, cutting the last repetition short.
///
/// # Safety
///
/// `to` must be valid for writing `bytes` bytes.
pub unsafe fn fill_host(to: *mut u8, pattern: &[u8], bytes: usize) {
    let mut done = pattern.len().min(bytes);
    // SAFETY: by the contract of the function; each copy doubles the filled part, and the source
    // `[0, step)` ends where the target starts.
    unsafe {
        std::ptr::copy_nonoverlapping(pattern.as_ptr(), to, done);
        while done > 0 && done < bytes {
            let step = done.min(bytes - done);
            std::ptr::copy_nonoverlapping(to, to.add(done), step);
            done += step;
        }
    }
}
