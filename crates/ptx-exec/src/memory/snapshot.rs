//! Snapshots of a device's allocations, which kernels use without a lock.

use std::ptr::NonNull;
use std::sync::Arc;

use super::{Heap, MemoryError, Region};

/// A live allocation as a kernel sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    /// The first address.
    pub(crate) base: u64,
    /// The address after the last byte.
    pub(crate) end: u64,
    /// The host byte of `base`, valid while the snapshot lives.
    pub(crate) host: *mut u8,
}

impl Span {
    /// The span that holds no address.
    pub(crate) const NONE: Self = Self { base: 1, end: 0, host: std::ptr::null_mut() };
}

/// The allocations that were live at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub(super) table: Table,
    /// The tables of other devices that this device can access.
    pub(super) peers: Vec<Table>,
    /// The heap of kernels.
    pub(super) heap: Option<Arc<Heap>>,
}

/// Regions by ascending base.
pub(super) type Table = Arc<Vec<Arc<Region>>>;

impl Snapshot {
    /// The allocation that contains `address`.
    pub(crate) fn find(&self, address: u64) -> Option<Span> {
        find(&self.table, address).or_else(|| self.peers.iter().find_map(|it| find(it, address)))
    }

    /// The heap of kernels, if it exists.
    pub(crate) fn heap(&self) -> Option<&Heap> {
        self.heap.as_deref()
    }

    /// The host bytes of `bytes` bytes at `address`, if they are in one allocation.
    pub(super) fn host(&self, address: u64, bytes: u64) -> Result<*mut u8, MemoryError> {
        if bytes == 0 {
            return Ok(NonNull::dangling().as_ptr());
        }
        let error = MemoryError::OutOfBounds { address, bytes };
        match self.find(address) {
            Some(span) if bytes <= span.end - address => {
                // SAFETY: the address is inside the allocation.
                Ok(unsafe { span.host.add((address - span.base) as usize) })
            }
            _ => Err(error),
        }
    }
}

fn find(table: &Table, address: u64) -> Option<Span> {
    let after = table.partition_point(|region| region.base <= address);
    let region = table.get(after.checked_sub(1)?)?;
    let end = region.base + region.bytes;
    (address < end).then_some(Span { base: region.base, end, host: region.host.as_ptr() })
}
