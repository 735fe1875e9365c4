//! Devices, their contexts and their memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use retrograph_driver_sys::{CU_STREAM_DEFAULT, CUcontext, CUmemoryPool, CUresult, CUstream};
use retrograph_ptx_exec::memory::{Memory, MemoryError};

use super::{CoreDumps, Handle, Pinned, State, Stream};
use crate::argument::Call;
use crate::config::Config;
use crate::diagnostic::{DiagnosticKind, Finding};
use crate::refusal::{Refusal, Rule, refuse};
use crate::timeline::Time;
use crate::work::TaskId;

/// A device with one of its contexts.
///
/// The first entries are the devices of the machine with their primary contexts. Each context that
/// the program creates adds an entry that shares the memory of its device.
pub(crate) struct Device {
    /// The ordinal of the device.
    pub(crate) ordinal: usize,
    pub(crate) memory: Arc<Memory>,
    /// The context, if it exists.
    pub(crate) context: Option<CUcontext>,
    /// The handle of the primary context, kept after a reset, once it is known to the program.
    primary: Option<CUcontext>,
    /// The reference count of a primary context.
    pub(crate) references: usize,
    pub(crate) flags: u32,
    /// The legacy stream.
    pub(crate) legacy: Option<CUstream>,
    /// The last task of the legacy stream, which blocking streams wait for.
    pub(crate) legacy_tail: Option<TaskId>,
    /// Tasks that all later tasks of the context wait for (`cuCtxWaitEvent`).
    pub(crate) waits: Vec<TaskId>,
    /// The last end of its complete tasks.
    pub(crate) last_end: Time,
    /// Limits that the program set.
    pub(crate) limits: BTreeMap<u32, usize>,
    /// The contexts of other devices whose memory this context uses.
    pub(crate) peers: BTreeSet<usize>,
    /// The settings of core dumps of the context.
    pub(crate) core_dumps: CoreDumps,
}

impl Device {
    pub(crate) fn new(ordinal: usize, config: &Config) -> Self {
        Self::view(ordinal, Arc::new(Memory::of_device(ordinal, config.memory_bytes)))
    }

    /// Creates an entry without a context.
    fn view(ordinal: usize, memory: Arc<Memory>) -> Self {
        Self {
            ordinal,
            memory,
            context: None,
            primary: None,
            references: 0,
            flags: 0,
            legacy: None,
            legacy_tail: None,
            waits: Vec::new(),
            last_end: Time::ZERO,
            limits: BTreeMap::new(),
            peers: BTreeSet::new(),
            core_dumps: CoreDumps::default(),
        }
    }
}

/// A device allocation of the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allocation {
    pub(crate) bytes: u64,
    /// The index among the devices of the context that allocated it.
    pub(crate) device: usize,
    /// The pool that it was allocated from.
    pub(crate) pool: Option<CUmemoryPool>,
    /// Whether a free is queued (`cuMemFreeAsync`).
    pub(crate) is_freed: bool,
}

/// The code of a refused memory operation.
pub(crate) fn memory_refusal(error: &MemoryError) -> Refusal {
    match error {
        MemoryError::OutOfMemory { .. } => {
            refuse(CUresult::CUDA_ERROR_OUT_OF_MEMORY, Rule::MemoryExhausted)
        }
        MemoryError::Limited { .. } => refuse(CUresult::CUDA_ERROR_OUT_OF_MEMORY, Rule::Injected),
        _ => refuse(CUresult::CUDA_ERROR_INVALID_VALUE, Rule::MemoryAddress),
    }
}

impl State {
    /// Loses every context of every device: drops queued work, and lets every later call return
    /// `code`. A fault ends all use of the driver by the process, also on devices without access to
    /// the one that it happened on.
    pub(crate) fn lose(&mut self, code: CUresult, finding: impl Into<Finding>) {
        self.diagnose(DiagnosticKind::Fault, finding);
        self.lost = Some(code);
        self.tasks.clear();
    }

    /// Creates a context (`cuCtxCreate`) on the device with this ordinal.
    pub(crate) fn create_additional_context(&mut self, ordinal: usize, flags: u32) -> CUcontext {
        let memory = Arc::clone(&self.devices[ordinal].memory);
        self.devices.push(Device { flags, ..Device::view(ordinal, memory) });
        self.create_context(self.devices.len() - 1)
    }

    /// Creates the context of an entry that has none.
    pub(crate) fn create_context(&mut self, device: usize) -> CUcontext {
        let primary = self.primary_context(device);
        let (context, legacy) = (primary.unwrap_or_else(|| self.handle()), self.handle());
        self.context_ordinals.insert(context.number(), self.devices[device].ordinal);
        self.streams.insert(legacy, Stream::new(device, CU_STREAM_DEFAULT, 0));
        self.devices[device].context = Some(context);
        self.devices[device].core_dumps = self.core_dumps.clone();
        self.devices[device].legacy = Some(legacy);
        context
    }

    /// The handle of the primary context of a device, which it also keeps after a reset. `None` if
    /// the machine has no such device.
    pub(crate) fn primary_context(&mut self, device: usize) -> Option<CUcontext> {
        if device >= self.config.devices {
            return None;
        }
        if self.devices[device].primary.is_none() {
            let handle = self.handle::<CUcontext>();
            self.context_ordinals.insert(handle.number(), device);
            self.devices[device].primary = Some(handle);
        }
        self.devices[device].primary
    }

    /// Destroys a context with everything in it.
    pub(crate) fn destroy_context(&mut self, device: usize) -> Call {
        self.complete_last(device)?;
        self.tasks.retain(|_, task| task.device != device);
        self.captures.retain(|_, capture| capture.device != device);
        self.streams.retain(|stream| stream.device != device);
        self.per_thread.retain(|(_, index), _| *index != device);
        self.events.retain(|event| event.device != device);
        self.functions.retain(|function| function.device != device);
        self.execs.retain(|exec| exec.device != device);
        self.free_all(device);
        self.end_all_peer_access(device);
        let Device { ordinal, primary, memory, .. } = &self.devices[device];
        let (primary, view) = (*primary, Device::view(*ordinal, Arc::clone(memory)));
        self.devices[device] = Device { primary, ..view };
        Ok(())
    }

    /// Ends peer access of and to a context that is destroyed.
    fn end_all_peer_access(&mut self, device: usize) {
        for other in 0..self.devices.len() {
            self.end_peer_access(device, other);
            self.end_peer_access(other, device);
        }
    }

    /// Ends the access of a context to the memory of another one, if it has access.
    pub(crate) fn end_peer_access(&mut self, device: usize, other: usize) {
        if !self.devices[device].peers.remove(&other) {
            return;
        }
        let ordinals = [device, other].map(|index| self.devices[index].ordinal);
        let remains = self.devices.iter().filter(|view| view.ordinal == ordinals[0]);
        let mut remains = remains.flat_map(|view| &view.peers);
        if !remains.any(|&peer| self.devices[peer].ordinal == ordinals[1]) {
            self.devices[device].memory.disable_peer(&self.devices[other].memory);
        }
    }

    /// Frees all memory of a context.
    fn free_all(&mut self, device: usize) {
        let memory = Arc::clone(&self.devices[device].memory);
        let of_device = self.modules.values().filter(|module| module.device == device);
        let globals: Vec<_> = of_device.map(|module| module.globals.clone()).collect();
        globals.iter().for_each(|globals| self.free_globals(device, globals));
        self.modules.retain(|module| module.device != device);
        self.allocations.retain(|address, allocation| {
            let keep = allocation.device != device;
            // The address belongs to a live allocation, which this frees.
            keep || memory.free(*address).is_err()
        });
        self.free_arrays(device);
        // Allocation nodes keep their reservations.
        for (address, found) in &mut self.graph_memory {
            if found.device == device && std::mem::take(&mut found.is_live) {
                // Fails if the launch that allocates it never ran.
                let _ = memory.free(*address);
            }
        }
        let is_owned = |pinned: &Pinned| pinned.device == device && !pinned.is_shared;
        let pinned = self.pinned.iter().filter(|(_, pinned)| is_owned(pinned));
        let pinned: Vec<_> = pinned.map(|(address, _)| *address).collect();
        for address in pinned {
            self.unpin(address);
        }
    }

    /// Whether one allocation that the device reaches contains `bytes` bytes at `address`.
    pub(crate) fn on_device(&self, device: usize, address: u64, bytes: u64) -> bool {
        let found = self.devices[device].memory.reachable(address);
        found.is_some_and(|(base, size)| bytes <= size - (address - base))
            || self.is_reserved(address, bytes)
    }

    /// The device whose memory contains an address, `device` first. Addresses are unified.
    pub(crate) fn device_at(&self, device: usize, address: u64) -> Option<usize> {
        let contains = |index: &usize| self.devices[*index].memory.allocation_of(address).is_some();
        std::iter::once(device).chain(0..self.config.devices).find(contains)
    }

    /// Whether one allocation of any device contains `bytes` bytes at `address`.
    pub(crate) fn on_any_device(&self, device: usize, address: u64, bytes: u64) -> bool {
        let device = self.device_at(device, address).unwrap_or(device);
        self.on_device(device, address, bytes)
    }
}
