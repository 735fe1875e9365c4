//! The heap of a device, from which kernels allocate by `malloc`.
//!
//! The heap is one region, so a block overrun inside it is not detected. Fresh and freed blocks are
//! filled with poison.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::region::Region;
use super::{POISON, fill_host};

/// Alignment of blocks, and the minimum gap between them.
const BLOCK: u64 = 16;

/// A heap.
#[derive(Debug)]
pub(crate) struct Heap {
    region: Arc<Region>,
    /// Offset and size of each block.
    blocks: Mutex<BTreeMap<u64, u64>>,
}

impl Heap {
    pub(super) fn new(region: Arc<Region>) -> Self {
        Self { region, blocks: Mutex::default() }
    }

    /// Allocates a block and returns its address, or 0 if no gap is large enough.
    pub(crate) fn allocate(&self, bytes: u64) -> u64 {
        let Some(size) = bytes.max(1).checked_next_multiple_of(BLOCK) else { return 0 };
        let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |start: u64, end: u64| end.saturating_sub(start) >= size.saturating_add(BLOCK);
        let mut start = 0;
        for (&offset, &used) in &*blocks {
            if fits(start, offset) {
                break;
            }
            start = offset + used + BLOCK;
        }
        let next = blocks.range(start..).next().map_or(self.region.bytes + BLOCK, |(at, _)| *at);
        if !fits(start, next) {
            return 0;
        }
        blocks.insert(start, size);
        self.poison(start, size);
        self.region.base + start
    }

    /// Frees a block. Returns false if no block starts at the address.
    #[must_use]
    pub(crate) fn free(&self, address: u64) -> bool {
        let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        let offset = address.wrapping_sub(self.region.base);
        let Some(size) = blocks.remove(&offset) else { return false };
        self.poison(offset, size);
        true
    }

    fn poison(&self, offset: u64, bytes: u64) {
        // SAFETY: blocks are inside the region, which this heap keeps alive.
        unsafe {
            let host = self.region.host.as_ptr().add(offset as usize);
            fill_host(host, &POISON.to_le_bytes(), bytes as usize);
        }
    }
}
