//! Limits of contexts and the range of stream priorities.

use retrograph_driver_sys::*;

use crate::argument::{Call, Out};
use crate::refusal::refuse;
use crate::state::State;

impl State {
    pub(crate) fn cuCtxGetLimit(&mut self, value: Out<usize>, limit: CUlimit) -> Call {
        let device = self.current()?;
        let set = self.devices[device].limits.get(&limit.0).copied();
        let standard = match limit {
            CUlimit::CU_LIMIT_STACK_SIZE => 1024,
            CUlimit::CU_LIMIT_PRINTF_FIFO_SIZE => 1 << 20,
            CUlimit::CU_LIMIT_MALLOC_HEAP_SIZE => 8 << 20,
            _ => return Err(refuse(CUresult::CUDA_ERROR_UNSUPPORTED_LIMIT, "limit.unknown")),
        };
        value.put(set.unwrap_or(standard))
    }

    pub(crate) fn cuCtxSetLimit(&mut self, limit: CUlimit, value: usize) -> Call {
        let device = self.current()?;
        self.refuse_unsafe()?;
        match limit {
            CUlimit::CU_LIMIT_STACK_SIZE
            | CUlimit::CU_LIMIT_PRINTF_FIFO_SIZE
            | CUlimit::CU_LIMIT_MALLOC_HEAP_SIZE => {
                self.devices[device].limits.insert(limit.0, value);
                Ok(())
            }
            _ => Err(refuse(CUresult::CUDA_ERROR_UNSUPPORTED_LIMIT, "limit.unknown")),
        }
    }

    pub(crate) fn cuCtxGetStreamPriorityRange(
        &mut self,
        least: Out<i32>,
        greatest: Out<i32>,
    ) -> Call {
        self.current()?;
        least.offer(0);
        greatest.offer(super::streams::GREATEST_PRIORITY);
        Ok(())
    }
}
