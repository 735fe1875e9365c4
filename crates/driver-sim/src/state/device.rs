//! A device, its primary context and its memory.

use std::alloc::{Layout, alloc, dealloc};
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::Arc;

use retrograph_driver_sys::{CUcontext, CUresult, CUstream};

use super::State;
use crate::config::Config;
use crate::diagnostic::DiagnosticKind;
use crate::memory::{Memory, MemoryError, POISON, fill_host};
use crate::refusal::{Refusal, refuse};
use crate::work::TaskId;

/// A device.
pub(crate) struct Device {
    pub(crate) memory: Arc<Memory>,
    /// The primary context, while there is one.
    pub(crate) context: Option<CUcontext>,
    /// References to it.
    pub(crate) references: usize,
    pub(crate) flags: u32,
    /// The code by which the context was lost.
    pub(crate) lost: Option<CUresult>,
    /// The stream behind the legacy handle.
    pub(crate) legacy: Option<CUstream>,
    /// The last work of the legacy stream, which every blocking stream waits for.
    pub(crate) legacy_tail: Option<TaskId>,
    /// Sizes by address of what the program allocated.
    pub(crate) allocations: BTreeMap<u64, u64>,
    /// Limits that were set.
    pub(crate) limits: BTreeMap<u32, usize>,
}

impl Device {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            memory: Arc::new(Memory::new(config.memory_bytes)),
            context: None,
            references: 0,
            flags: 0,
            lost: None,
            legacy: None,
            legacy_tail: None,
            allocations: BTreeMap::new(),
            limits: BTreeMap::new(),
        }
    }
}

/// Pinned host memory.
pub(crate) struct Pinned {
    host: NonNull<u8>,
    layout: Layout,
    /// The device under whose context it was allocated.
    pub(crate) device: usize,
}

impl Pinned {
    /// Allocates `bytes` at the start of a page and fills them as fresh device memory is filled:
    /// the driver promises no zeros here either.
    pub(crate) fn new(bytes: usize, device: usize) -> Result<Self, Refusal> {
        let layout = Layout::from_size_align(bytes, 4096);
        let layout =
            layout.map_err(|_| refuse(CUresult::CUDA_ERROR_INVALID_VALUE, "device.new"))?;
        if bytes == 0 {
            return Err(refuse(CUresult::CUDA_ERROR_INVALID_VALUE, "device.new.2"));
        }
        // SAFETY: the layout has a size above zero.
        let host = NonNull::new(unsafe { alloc(layout) });
        let host = host.ok_or(refuse(CUresult::CUDA_ERROR_OUT_OF_MEMORY, "device.new.3"))?;
        // SAFETY: this many bytes were just allocated.
        unsafe { fill_host(host.as_ptr(), &POISON.to_le_bytes(), bytes) };
        Ok(Self { host, layout, device })
    }

    pub(crate) fn host(&self) -> NonNull<u8> {
        self.host
    }

    pub(crate) fn bytes(&self) -> usize {
        self.layout.size()
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: the memory came from `alloc` with this layout and is freed once.
        unsafe { dealloc(self.host.as_ptr(), self.layout) }
    }
}

/// The code of a refused memory operation.
pub(crate) fn memory_refusal(error: &MemoryError) -> Refusal {
    match error {
        MemoryError::OutOfMemory { .. } => {
            refuse(CUresult::CUDA_ERROR_OUT_OF_MEMORY, "memory.exhausted")
        }
        _ => refuse(CUresult::CUDA_ERROR_INVALID_VALUE, "memory.address"),
    }
}

impl State {
    /// Loses the context of a device: queued work is gone, and every later call returns `code`.
    pub(crate) fn lose(&mut self, device: usize, code: CUresult, message: String) {
        self.diagnose(DiagnosticKind::Fault, message);
        self.lose_quietly(device, code);
    }

    /// Loses the context of a device without a word.
    pub(crate) fn lose_quietly(&mut self, device: usize, code: CUresult) {
        self.devices[device].lost = Some(code);
        self.devices[device].legacy_tail = None;
        self.tasks.retain(|_, task| task.device != device);
    }

    /// Destroys the primary context of a device with everything in it.
    pub(crate) fn destroy_context(&mut self, device: usize) {
        // Work that was queued completes first; if it faults, nobody is left to be told.
        let _ = self.complete_device(device);
        self.tasks.retain(|_, task| task.device != device);
        self.captures.retain(|_, capture| capture.device != device);
        self.streams.retain(|stream| stream.device != device);
        self.events.retain(|event| event.device != device);
        self.modules.retain(|module| module.device != device);
        self.functions.retain(|function| function.device != device);
        self.execs.retain(|exec| exec.device != device);
        self.pinned.retain(|_, pinned| pinned.device != device);
        let flags = self.devices[device].flags;
        self.devices[device] = Device { flags, ..Device::new(&self.config) };
    }

    /// The pinned allocation in which all of `bytes` bytes at `address` lie.
    pub(crate) fn pinned_at(&self, address: usize, bytes: usize) -> Option<&Pinned> {
        let (base, pinned) = self.pinned.range(..=address).next_back()?;
        let inside = address - base <= pinned.bytes() && bytes <= pinned.bytes() - (address - base);
        inside.then_some(pinned)
    }

    /// Whether all of `bytes` bytes at `address` lie in one device allocation.
    pub(crate) fn on_device(&self, device: usize, address: u64, bytes: u64) -> bool {
        let found = self.devices[device].memory.allocation_of(address);
        found.is_some_and(|(base, size)| bytes <= size - (address - base))
    }
}
