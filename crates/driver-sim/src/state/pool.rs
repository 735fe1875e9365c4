//! Pools of device memory.

use retrograph_driver_sys::{CUdeviceptr, CUmemoryPool, CUresult};

use super::State;
use crate::refusal::{Refusal, Rule, invalid, refuse};

/// What a pool reserves from its device at a time.
const CHUNK: u64 = 32 << 20;

/// A pool.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    /// The number of the device.
    pub(crate) ordinal: usize,
    /// The most that it may reserve; 0 for what the device has.
    pub(crate) most: u64,
    /// Whether memory may be used again by what follows an event, by chance, and by added waits.
    pub(crate) reuse: [i32; 3],
    /// What it keeps when it gives memory back.
    pub(crate) threshold: u64,
    pub(crate) used: u64,
    pub(crate) used_high: u64,
    pub(crate) reserved: u64,
    pub(crate) reserved_high: u64,
    /// Whether it goes when its last memory is freed.
    pub(crate) is_destroyed: bool,
    /// Whether it is the device's own.
    pub(crate) is_default: bool,
}

impl Pool {
    pub(crate) fn new(ordinal: usize, most: u64, is_default: bool) -> Self {
        Self {
            ordinal,
            most,
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

    /// Takes memory.
    fn take(&mut self, bytes: u64) -> Result<(), Refusal> {
        let exhausted = refuse(CUresult::CUDA_ERROR_OUT_OF_MEMORY, Rule::PoolExhausted);
        let used = self.used.checked_add(bytes).ok_or(exhausted)?;
        let chunks = used.checked_next_multiple_of(CHUNK).ok_or(exhausted)?;
        let most = self.most.checked_next_multiple_of(CHUNK).unwrap_or(u64::MAX);
        if self.most > 0 && used > most {
            // As much as there may be was reserved before it proved too little.
            self.reserved_high = self.reserved_high.max(most);
            return Err(exhausted);
        }
        self.used = used;
        self.used_high = self.used_high.max(used);
        self.reserved = self.reserved.max(chunks);
        self.reserved_high = self.reserved_high.max(self.reserved);
        Ok(())
    }

    /// Gives memory back to the device, down to `keep` bytes or what is used.
    pub(crate) fn trim(&mut self, keep: u64) {
        let needed = self.used.max(keep).checked_next_multiple_of(CHUNK).unwrap_or(u64::MAX);
        self.reserved = self.reserved.min(needed);
    }
}

impl State {
    /// A pool that exists.
    pub(crate) fn pool(&mut self, pool: CUmemoryPool) -> Result<&mut Pool, Refusal> {
        let found = self.pools.get_mut(pool).ok().filter(|pool| !pool.is_destroyed);
        found.ok_or(invalid(Rule::PoolUnknown))
    }

    /// A pool of which the driver does not ask whether it was destroyed.
    pub(crate) fn lasting_pool(&mut self, pool: CUmemoryPool) -> Result<&mut Pool, Refusal> {
        if self.pools.get(pool).is_ok_and(|pool| pool.is_destroyed) {
            return Err(self.undefined("the pool was destroyed"));
        }
        self.pool(pool)
    }

    /// The pool that a device has from the start.
    pub(crate) fn default_pool(&mut self, ordinal: usize) -> CUmemoryPool {
        if let Some(pool) = self.default_pools.get(&ordinal) {
            return *pool;
        }
        let pool = self.handle();
        self.pools.insert(pool, Pool::new(ordinal, 0, true));
        self.default_pools.insert(ordinal, pool);
        pool
    }

    /// Counts memory that a pool gives.
    pub(crate) fn take_from_pool(&mut self, pool: CUmemoryPool, bytes: u64) -> Result<(), Refusal> {
        self.pool(pool)?.take(bytes)
    }

    /// Counts memory that comes back to its pool.
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
