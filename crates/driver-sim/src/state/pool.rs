//! Memory pools.

use retrograph_driver_sys::{CUdeviceptr, CUmemoryPool, CUresult};

use super::State;
use crate::refusal::{Refusal, Rule, invalid, refuse};

/// The granularity in which a pool reserves device memory.
const CHUNK: u64 = 32 << 20;

/// A memory pool.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    /// The ordinal of the device.
    pub(crate) ordinal: usize,
    /// The maximum size (`CUmemPoolProps::maxSize`); 0 for the memory of the device.
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
    /// Whether it is the default pool of its device.
    pub(crate) is_default: bool,
}

impl Pool {
    pub(crate) fn new(ordinal: usize, max_bytes: u64, is_default: bool) -> Self {
        Self {
            ordinal,
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

    /// The default pool of a device.
    pub(crate) fn default_pool(&mut self, ordinal: usize) -> CUmemoryPool {
        if let Some(pool) = self.default_pools.get(&ordinal) {
            return *pool;
        }
        let pool = self.handle();
        self.pools.insert(pool, Pool::new(ordinal, 0, true));
        self.default_pools.insert(ordinal, pool);
        pool
    }

    /// Counts an allocation from a pool.
    pub(crate) fn take_from_pool(&mut self, pool: CUmemoryPool, bytes: u64) -> Result<(), Refusal> {
        self.pool(pool)?.take(bytes)
    }

    /// Counts a free to the pool of an allocation.
    pub(crate) fn return_to_pool(&mut self, address: CUdeviceptr) {
        let Some(allocation) = self.allocations.get(&address) else { return };
        let bytes = allocation.bytes;
        if let Some(pool) = allocation.pool
            && let Ok(pool) = self.pools.get_mut(pool)
        {
            pool.used = pool.used.saturating_sub(bytes);
            let keep = pool.threshold;
            pool.trim(keep);
        }
    }
}
