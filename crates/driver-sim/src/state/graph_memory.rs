//! Graph memory: the addresses that allocation nodes reserve, usable from a launch to a free.

use retrograph_driver_sys::{CUdeviceptr, CUresult};

use super::{State, memory_refusal};
use crate::argument::Call;
use crate::refusal::{Refusal, Rule, invalid, refuse};

/// The granularity in which the driver reserves graph memory.
const GRANULARITY: u64 = 32 << 20;

/// The reservation of an allocation node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reserved {
    pub(crate) bytes: u64,
    pub(crate) device: usize,
    /// Whether it is allocated after the launches and frees so far.
    pub(crate) is_live: bool,
}

/// Counters of a device's graph memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) used: u64,
    pub(crate) used_high: u64,
    pub(crate) reserved: u64,
    pub(crate) reserved_high: u64,
}

impl State {
    /// Reserves addresses for an allocation node.
    pub(crate) fn reserve(&mut self, device: usize, bytes: u64) -> Result<CUdeviceptr, Refusal> {
        if bytes == 0 {
            return Err(invalid(Rule::GraphMemorySize));
        }
        if bytes > self.devices[device].memory.total() {
            return Err(refuse(CUresult::CUDA_ERROR_OUT_OF_MEMORY, Rule::GraphMemoryExhausted));
        }
        let base = self.devices[device].memory.reserve(bytes);
        let base = base.map_err(|error| memory_refusal(&error))?;
        self.graph_memory.insert(base, Reserved { bytes, device, is_live: false });
        Ok(base)
    }

    /// Whether an allocation node has reserved the whole range.
    pub(crate) fn is_reserved(&self, address: u64, bytes: u64) -> bool {
        let found = self.graph_memory.range(..=address).next_back();
        found.is_some_and(|(base, found)| {
            let inside = address - base;
            inside < found.bytes && bytes <= found.bytes - inside
        })
    }

    /// Records that a launch allocates or frees graph memory. Fails if it is already in that state.
    pub(crate) fn record_graph_memory(&mut self, address: u64, is_live: bool) -> Call {
        let found = self.graph_memory.get_mut(&address);
        let found = found.filter(|found| found.is_live != is_live);
        let found = found.ok_or(invalid(Rule::GraphMemoryState))?;
        found.is_live = is_live;
        let ordinal = self.devices[found.device].ordinal;
        let live = self.live_graph_memory(ordinal);
        let usage = self.graph_usage.entry(ordinal).or_default();
        // Freed memory stays reserved for graphs until `cuDeviceGraphMemTrim`.
        usage.used = usage.used.max(live);
        usage.used_high = usage.used_high.max(usage.used);
        usage.reserved = usage.reserved.max(usage.used);
        usage.reserved_high = usage.reserved_high.max(usage.reserved);
        Ok(())
    }

    /// Bytes of allocated graph memory of a device, rounded up.
    pub(crate) fn live_graph_memory(&self, ordinal: usize) -> u64 {
        let of_device = |found: &&Reserved| self.devices[found.device].ordinal == ordinal;
        let live = self.graph_memory.values().filter(|found| found.is_live).filter(of_device);
        live.map(|found| found.bytes).sum::<u64>().next_multiple_of(GRANULARITY)
    }
}
