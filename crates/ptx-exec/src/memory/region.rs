//! One allocation.

use std::alloc::{Layout, dealloc};
use std::ptr::NonNull;

use super::{Memory, POISON};

/// One allocation and its host bytes.
#[derive(Debug)]
pub(super) struct Region {
    pub(super) base: u64,
    pub(super) bytes: u64,
    pub(super) host: NonNull<u8>,
    /// The layout to free the host bytes with; `None` for mapped host memory.
    pub(super) layout: Option<Layout>,
}

// SAFETY: a region is an address range and a pointer that is valid for as long as the region
// lives; the bytes are only copied through raw pointers (see "Races" in the parent module).
unsafe impl Send for Region {}
// SAFETY: as for `Send`.
unsafe impl Sync for Region {}

impl Drop for Region {
    fn drop(&mut self) {
        if let Some(layout) = self.layout {
            // SAFETY: `host` came from `alloc_zeroed` with this layout and is freed once.
            unsafe { dealloc(self.host.as_ptr(), layout) }
        }
    }
}

/// Fills fresh memory with [`POISON`], a large region only at its two ends.
pub(super) fn poison_fresh(region: &Region) {
    let size = region.bytes as usize;
    let edge = size.min(Memory::EAGER_POISON as usize / 2);
    // The tail starts at a multiple of the word, so the pattern stays aligned with addresses.
    let tail = (size - edge).next_multiple_of(4).min(size);
    let word = POISON.to_le_bytes();
    // SAFETY: both ranges are inside the allocation, which no other thread has seen.
    unsafe {
        fill_host(region.host.as_ptr(), &word, edge);
        fill_host(region.host.as_ptr().add(tail), &word, size - tail);
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
