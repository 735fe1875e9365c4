//! Limits of contexts, their caches, and the range of stream priorities.

use retrograph_driver_sys::*;

use super::device::shared_opt_in;
use crate::argument::{Call, Out};
use crate::refusal::{Refusal, Rule, invalid, refuse};
use crate::state::State;

/// A stack size that hardware accepts and one that it refuses. Sizes in between were not recorded.
const STACK: (usize, usize) = (64 << 10, 524_272);
/// One past the last limit.
const LIMITS: u32 = 10;
/// The key of the cache configuration in the map of limits.
const CACHE_CONFIG: u32 = u32::MAX;

impl State {
    pub(crate) fn cuCtxGetLimit(&mut self, value: Out<usize>, limit: CUlimit) -> Call {
        let device = self.current()?;
        value.require()?;
        let set = self.devices[device].limits.get(&limit.0).copied();
        let standard = match limit {
            CUlimit::CU_LIMIT_STACK_SIZE => 1024,
            CUlimit::CU_LIMIT_PRINTF_FIFO_SIZE => 8_650_752,
            CUlimit::CU_LIMIT_MALLOC_HEAP_SIZE => 8 << 20,
            CUlimit::CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT => 2048,
            CUlimit::CU_LIMIT_MAX_L2_FETCH_GRANULARITY => 64,
            CUlimit::CU_LIMIT_PERSISTING_L2_CACHE_SIZE => 11_796_480,
            CUlimit::CU_LIMIT_SHMEM_SIZE => shared_opt_in(&self.config) as usize,
            CUlimit::CU_LIMIT_CIG_ENABLED => 0,
            _ => return Err(unknown(limit)),
        };
        value.write(set.unwrap_or(standard))
    }

    pub(crate) fn cuCtxSetLimit(&mut self, limit: CUlimit, value: usize) -> Call {
        let device = self.current()?;
        self.refuse_unsafe()?;
        let value = self.rounded(limit, value, device)?;
        self.devices[device].limits.insert(limit.0, value);
        if limit == CUlimit::CU_LIMIT_MALLOC_HEAP_SIZE {
            self.devices[device].memory.set_heap_bytes(value as u64);
        }
        Ok(())
    }

    /// The value of a limit after the program requests `value`.
    fn rounded(&mut self, limit: CUlimit, value: usize, device: usize) -> Result<usize, Refusal> {
        Ok(match limit {
            CUlimit::CU_LIMIT_STACK_SIZE if value <= STACK.0 => value.next_multiple_of(16),
            CUlimit::CU_LIMIT_STACK_SIZE if value >= STACK.1 => {
                return Err(invalid(Rule::LimitStack));
            }
            CUlimit::CU_LIMIT_PRINTF_FIFO_SIZE => {
                value.clamp(512 << 10, 2 << 30).next_multiple_of(256)
            }
            CUlimit::CU_LIMIT_MALLOC_HEAP_SIZE
                if value as u64 <= self.devices[device].memory.total() / 8 =>
            {
                value.max(4 << 20).next_multiple_of(64 << 10)
            }
            CUlimit::CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT if value <= 65536 => value.max(32),
            CUlimit::CU_LIMIT_MAX_L2_FETCH_GRANULARITY if value <= 128 => value,
            CUlimit::CU_LIMIT_MAX_L2_FETCH_GRANULARITY => return Err(invalid(Rule::LimitFetch)),
            CUlimit::CU_LIMIT_PERSISTING_L2_CACHE_SIZE if value == 0 => 0,
            CUlimit::CU_LIMIT_PERSISTING_L2_CACHE_SIZE if value <= 1 << 20 => 3_932_160,
            CUlimit::CU_LIMIT_PERSISTING_L2_CACHE_SIZE if value > 1 << 40 => {
                return Err(invalid(Rule::LimitPersisting));
            }
            CUlimit::CU_LIMIT_SHMEM_SIZE | CUlimit::CU_LIMIT_CIG_ENABLED => {
                return Err(refuse(CUresult::CUDA_ERROR_NOT_PERMITTED, Rule::LimitReadOnly));
            }
            CUlimit::CU_LIMIT_STACK_SIZE
            | CUlimit::CU_LIMIT_MALLOC_HEAP_SIZE
            | CUlimit::CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT
            | CUlimit::CU_LIMIT_PERSISTING_L2_CACHE_SIZE => {
                return Err(self.unsupported(format!("{limit:?} of {value} was never recorded")));
            }
            _ => return Err(unknown(limit)),
        })
    }

    pub(crate) fn cuCtxGetCacheConfig(&mut self, config: Out<CUfunc_cache>) -> Call {
        let device = self.current()?;
        let set = self.devices[device].limits.get(&CACHE_CONFIG).copied();
        config.write(CUfunc_cache(set.unwrap_or_default() as u32))
    }

    pub(crate) fn cuCtxSetCacheConfig(&mut self, config: CUfunc_cache) -> Call {
        let device = self.current()?;
        if config.0 > CUfunc_cache::CU_FUNC_CACHE_PREFER_EQUAL.0 {
            return Err(invalid(Rule::ContextCache));
        }
        self.devices[device].limits.insert(CACHE_CONFIG, config.0 as usize);
        Ok(())
    }

    pub(crate) fn cuCtxResetPersistingL2Cache(&mut self) -> Call {
        self.current().map(|_| ())
    }

    pub(crate) fn cuCtxGetStreamPriorityRange(
        &mut self,
        least: Out<i32>,
        greatest: Out<i32>,
    ) -> Call {
        self.current()?;
        least.write_unless_null(0);
        greatest.write_unless_null(super::streams::GREATEST_PRIORITY);
        Ok(())
    }
}

/// The refusal of a limit that the device lacks or that does not exist.
fn unknown(limit: CUlimit) -> Refusal {
    match limit.0 < LIMITS {
        true => refuse(CUresult::CUDA_ERROR_UNSUPPORTED_LIMIT, Rule::LimitUnsupported),
        false => invalid(Rule::LimitUnknown),
    }
}
