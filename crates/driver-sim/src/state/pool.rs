//! Memory pools.

use std::collections::BTreeSet;

use retrograph_driver_sys::{
    CUdeviceptr, CUmemLocation, CUmemLocationType, CUmemoryPool, CUresult,
};

use super::State;
use crate::refusal::{Refusal, Rule, invalid, refuse};

/// The granularity in which a pool reserves device memory.
const CHUNK: u64 = 32 << 20;

/// The location of a pool's memory, or of an accessor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Location {
    /// No preferred location.
    Anywhere,
    /// A device, by its ordinal.
    Device(usize),
    /// The host.
    Host,
    /// The only NUMA node of the host.
    HostNode,
}

impl Location {
    pub(crate) fn is_host(self) -> bool {
        matches!(self, Self::Host | Self::HostNode)
    }

    /// The driver's value; `None` without a preferred location.
    pub(crate) fn value(self) -> Option<CUmemLocation> {
        let (r#type, id) = match self {
            Self::Anywhere => return None,
            Self::Device(ordinal) => (CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, ordinal),
            Self::Host => (CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST, 0),
            Self::HostNode => (CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA, 0),
        };
        Some(CUmemLocation { r#type, id: id as i32 })
    }
}

/// The kind of memory of a pool. A location has a default pool for each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PoolKind {
    /// Whether the memory is managed. Then its location is only a preference.
    pub(crate) is_managed: bool,
    pub(crate) location: Location,
}

impl PoolKind {
    /// Memory of a device.
    pub(crate) fn of_device(ordinal: usize) -> Self {
        Self { is_managed: false, location: Location::Device(ordinal) }
    }

    /// Whether the simulator keeps the memory in host memory.
    pub(crate) fn is_hosted(self) -> bool {
        self.is_managed || self.location.is_host()
    }
}

/// A memory pool.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    pub(crate) kind: PoolKind,
    /// The locations with access, besides the memory's own location.
    pub(crate) granted: BTreeSet<Location>,
    /// The maximum size (`CUmemPoolProps::maxSize`); 0 for no limit except the device's memory.
    pub(crate) max_bytes: u64,
    /// The attributes REUSE_FOLLOW_EVENT_DEPENDENCIES, REUSE_ALLOW_OPPORTUNISTIC and
    /// REUSE_ALLOW_INTERNAL_DEPENDENCIES.
    pub(crate) reuse: [i32; 3],
    /// The release threshold: reserved bytes that a free does not return to the device.
    pub(crate) threshold: u64,
    pub(crate) used: u64,
    pub(crate) used_high: u64,
    pub(crate) reserved: u64,
    pub(crate) reserved_high: u64,
    /// Whether the program destroyed it. Its allocations stay valid.
    pub(crate) is_destroyed: bool,
    /// Whether it is the default pool of its location.
    pub(crate) is_default: bool,
}

impl Pool {
    pub(crate) fn new(kind: PoolKind, max_bytes: u64, is_default: bool) -> Self {
        Self {
            kind,
            granted: BTreeSet::new(),
            max_bytes,
            reuse: [1; 3],
            threshold: 0,
            used: 0,
            used_high: 0,
            reserved: 0,
            reserved_high: 0,
            is_destroyed: false,
            is_default,
        }
    }

    /// Allocates from the pool.
    fn take(&mut self, bytes: u64) -> Result<(), Refusal> {
        let exhausted = refuse(CUresult::CUDA_ERROR_OUT_OF_MEMORY, Rule::PoolExhausted);
        let used = self.used.checked_add(bytes).ok_or(exhausted)?;
        let chunks = used.checked_next_multiple_of(CHUNK).ok_or(exhausted)?;
        let most = self.max_bytes.checked_next_multiple_of(CHUNK).unwrap_or(u64::MAX);
        if self.max_bytes > 0 && used > most {
            // The driver reserves the maximum before it fails.
            self.reserved_high = self.reserved_high.max(most);
            return Err(exhausted);
        }
        self.used = used;
        self.used_high = self.used_high.max(used);
        self.reserved = self.reserved.max(chunks);
        self.reserved_high = self.reserved_high.max(self.reserved);
        Ok(())
    }

    /// Whether a location has access to the memory without a grant.
    pub(crate) fn is_at(&self, location: Location) -> bool {
        let own = self.kind.location;
        !self.kind.is_managed && (own == location || own.is_host() && location.is_host())
    }

    /// Returns bytes to the pool.
    fn give(&mut self, bytes: u64) {
        self.used = self.used.saturating_sub(bytes);
        self.trim(self.threshold);
    }

    /// Returns memory to the device, but keeps `keep` bytes and all used bytes.
    pub(crate) fn trim(&mut self, keep: u64) {
        let needed = self.used.max(keep).checked_next_multiple_of(CHUNK).unwrap_or(u64::MAX);
        self.reserved = self.reserved.min(needed);
    }
}

impl State {
    /// The pool of a handle, unless it was destroyed.
    pub(crate) fn pool(&mut self, pool: CUmemoryPool) -> Result<&mut Pool, Refusal> {
        let found = self.pools.get_mut(pool).ok().filter(|pool| !pool.is_destroyed);
        found.ok_or(invalid(Rule::PoolUnknown))
    }

    /// The pool of a handle, for calls that are undefined for a destroyed pool.
    pub(crate) fn undestroyed_pool(&mut self, pool: CUmemoryPool) -> Result<&mut Pool, Refusal> {
        if self.pools.get(pool).is_ok_and(|pool| pool.is_destroyed) {
            return Err(self.undefined("the pool was destroyed"));
        }
        self.pool(pool)
    }

    /// The default pool of a location.
    pub(crate) fn default_pool(&mut self, kind: PoolKind) -> CUmemoryPool {
        if let Some(pool) = self.default_pools.get(&kind) {
            return *pool;
        }
        let pool = self.handle();
        self.pools.insert(pool, Pool::new(kind, 0, true));
        self.default_pools.insert(kind, pool);
        pool
    }

    /// The current pool of a location.
    pub(crate) fn current_pool(&mut self, kind: PoolKind) -> CUmemoryPool {
        match self.current_pools.get(&kind) {
            Some(pool) => *pool,
            None => self.default_pool(kind),
        }
    }

    /// Whether the memory at an address belongs to a host pool.
    pub(crate) fn is_of_host_pool(&self, address: CUdeviceptr) -> bool {
        let found = self.pinned_at(address as usize, 1);
        found.is_some_and(|found| found.pool.is_some() && found.advice.is_none())
    }

    /// Counts an allocation from a pool.
    pub(crate) fn take_from_pool(&mut self, pool: CUmemoryPool, bytes: u64) -> Result<(), Refusal> {
        self.pool(pool)?.take(bytes)
    }

    /// Counts a free to the pool of an allocation.
    pub(crate) fn return_to_pool(&mut self, address: CUdeviceptr) {
        let (pool, bytes) = match self.pinned.get(&(address as usize)) {
            Some(pinned) => (pinned.pool, pinned.bytes() as u64),
            None => {
                let Some(allocation) = self.allocations.get(&address) else { return };
                (allocation.pool, allocation.bytes)
            }
        };
        if let Some(pool) = pool
            && let Ok(pool) = self.pools.get_mut(pool)
        {
            pool.give(bytes);
        }
    }
}
