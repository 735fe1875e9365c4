//! Host memory that is mapped on devices: allocated and registered pinned memory, managed memory,
//! and memory of host and managed pools.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use retrograph_driver_sys::{CUmemoryPool, CUresult};
use retrograph_ptx_exec::memory::{fill_host, poison_fresh};

use super::{AdvisedRanges, PoolKind, State, memory_refusal};
use crate::refusal::{Refusal, Rule, refuse};

/// The alignment of host memory.
const PAGE: usize = 4096;

/// Pinned host memory.
pub(crate) struct Pinned {
    host: NonNull<u8>,
    bytes: usize,
    /// The allocation to free; `None` if the program owns the memory.
    owned: Option<(NonNull<u8>, Layout)>,
    /// The flags of the allocation or registration.
    pub(crate) flags: u32,
    /// The index among the devices of the context that allocated or registered it.
    pub(crate) device: usize,
    /// The advice for managed memory; `None` for other memory.
    pub(crate) advice: Option<AdvisedRanges>,
    /// Whether it is a variable of a module, which the program cannot free.
    pub(crate) is_variable: bool,
    /// Whether it belongs to a library, and to none of the contexts that use it.
    pub(crate) is_shared: bool,
    /// The pool that it was allocated from.
    pub(crate) pool: Option<CUmemoryPool>,
    /// Whether a free is queued (`cuMemFreeAsync`).
    pub(crate) is_freed: bool,
}

impl Pinned {
    /// Allocates page-aligned memory and poisons it like device memory, since the driver does not
    /// promise zeros. The host commits the pages of a large allocation on first access.
    pub(crate) fn new(bytes: usize, device: usize, flags: u32) -> Result<Self, Refusal> {
        let huge = refuse(CUresult::CUDA_ERROR_OUT_OF_MEMORY, Rule::HostHuge);
        // An allocator writes zeros itself if it is asked for more alignment than its own.
        let size = bytes.checked_add(PAGE).ok_or(huge)?;
        let layout = Layout::from_size_align(size, align_of::<u64>()).map_err(|_| huge)?;
        // SAFETY: the layout has a size above zero.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(huge)?;
        let offset = start.as_ptr().addr().next_multiple_of(PAGE) - start.as_ptr().addr();
        // SAFETY: the offset is below `PAGE`, and the layout has that many bytes more.
        let host = unsafe { start.add(offset) };
        // SAFETY: this many bytes were just allocated.
        unsafe { poison_fresh(host.as_ptr(), bytes) };
        let mut made = Self::registered(host, bytes, device, flags);
        made.owned = Some((start, layout));
        Ok(made)
    }

    /// Memory of a host pool or a managed pool.
    pub(crate) fn pooled(
        bytes: usize,
        device: usize,
        pool: CUmemoryPool,
        kind: PoolKind,
    ) -> Result<Self, Refusal> {
        let mut made = Self::new(bytes, device, 0)?;
        made.pool = Some(pool);
        if kind.is_managed {
            let mut advice = AdvisedRanges::new(bytes);
            advice.change(&(0..bytes), |advice| advice.preferred = kind.location.value());
            made.advice = Some(advice);
        }
        Ok(made)
    }

    /// Managed memory, also poisoned.
    pub(crate) fn managed(bytes: usize, device: usize) -> Result<Self, Refusal> {
        let mut made = Self::new(bytes, device, 0)?;
        made.advice = Some(AdvisedRanges::new(bytes));
        Ok(made)
    }

    /// A managed variable of `bytes` bytes: `initial`, followed by zeros.
    pub(crate) fn variable(initial: &[u8], bytes: usize, device: usize) -> Result<Self, Refusal> {
        let mut made = Self::managed(bytes, device)?;
        made.is_variable = true;
        let first = &initial[..initial.len().min(bytes)];
        // SAFETY: that many bytes were just allocated.
        unsafe {
            fill_host(made.host.as_ptr(), &[0], bytes);
            made.host.as_ptr().copy_from_nonoverlapping(first.as_ptr(), first.len());
        }
        Ok(made)
    }

    /// Registered memory of the program, which must outlive the registration.
    pub(crate) fn registered(host: NonNull<u8>, bytes: usize, device: usize, flags: u32) -> Self {
        Self {
            host,
            bytes,
            owned: None,
            flags,
            device,
            advice: None,
            is_variable: false,
            is_shared: false,
            pool: None,
            is_freed: false,
        }
    }

    pub(crate) fn host(&self) -> NonNull<u8> {
        self.host
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether it is neither managed memory nor pool memory.
    pub(crate) fn is_plain(&self) -> bool {
        self.advice.is_none() && self.pool.is_none()
    }

    /// Whether the program owns the memory.
    pub(crate) fn is_registered(&self) -> bool {
        self.owned.is_none()
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Some((start, layout)) = self.owned {
            // SAFETY: the memory came from `alloc_zeroed` with this layout and is freed once.
            unsafe { dealloc(start.as_ptr(), layout) }
        }
    }
}

impl State {
    /// Adds pinned memory and maps it on every device.
    pub(crate) fn pin(&mut self, pinned: Pinned) -> Result<usize, Refusal> {
        self.pin_on(0..self.config.devices, pinned)
    }

    /// Adds pinned memory and maps it on some devices.
    pub(crate) fn pin_on(
        &mut self,
        ordinals: impl IntoIterator<Item = usize>,
        pinned: Pinned,
    ) -> Result<usize, Refusal> {
        let address = pinned.host().as_ptr().expose_provenance();
        self.pinned.insert(address, pinned);
        for ordinal in ordinals {
            if let Err(refusal) = self.map_pinned(ordinal, address) {
                self.unpin(address);
                return Err(refusal);
            }
        }
        Ok(address)
    }

    /// Maps pinned memory on a device.
    pub(crate) fn map_pinned(&mut self, ordinal: usize, address: usize) -> Result<(), Refusal> {
        let Some(pinned) = self.pinned.get(&address) else { return Ok(()) };
        // SAFETY: the state forgets the memory only after `Memory::free` of its address, and only
        // when no kernel runs, because it runs them itself. The caller that registers memory keeps
        // it valid until it unregisters it.
        let mapped =
            unsafe { self.devices[ordinal].memory.map_host(pinned.host(), pinned.bytes() as u64) };
        mapped.map(|_| ()).map_err(|error| memory_refusal(&error))
    }

    /// Unmaps pinned memory from a device.
    pub(crate) fn unmap_pinned(&mut self, ordinal: usize, address: usize) {
        // Fails if the device does not have it mapped.
        let _ = self.devices[ordinal].memory.free(address as u64);
    }

    /// Removes pinned memory, and frees it if the driver allocated it.
    pub(crate) fn unpin(&mut self, address: usize) {
        for ordinal in 0..self.config.devices {
            self.unmap_pinned(ordinal, address);
        }
        self.return_to_pool(address as u64);
        self.pinned.remove(&address);
        // A later allocation may have the same address.
        self.sync_memops.remove(&(address as u64));
    }

    /// The pinned memory that contains `bytes` bytes at `address`.
    pub(crate) fn pinned_at(&self, address: usize, bytes: usize) -> Option<&Pinned> {
        let (base, pinned) = self.pinned.range(..=address).next_back()?;
        let inside = address - base <= pinned.bytes() && bytes <= pinned.bytes() - (address - base);
        inside.then_some(pinned)
    }
}
