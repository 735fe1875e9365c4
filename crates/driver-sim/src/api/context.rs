//! Primary contexts, and which one is current.

use retrograph_driver_sys::*;

use crate::argument::{Call, Out};
use crate::refusal::{invalid, refuse};
use crate::state::{State, Stream};

impl State {
    pub(crate) fn cuDevicePrimaryCtxRetain(
        &mut self,
        context: Out<CUcontext>,
        device: CUdevice,
    ) -> Call {
        let index = self.device_index(device)?;
        if let Some(code) = self.devices[index].lost {
            return Err(refuse(code, "sticky"));
        }
        let handle = match self.devices[index].context {
            Some(handle) => handle,
            None => self.create_context(index),
        };
        context.put(handle)?;
        self.devices[index].references += 1;
        Ok(())
    }

    fn create_context(&mut self, index: usize) -> CUcontext {
        let (context, legacy) = (self.handle(), self.handle());
        self.streams.insert(legacy, Stream::new(index, CU_STREAM_DEFAULT, 0));
        self.devices[index].context = Some(context);
        self.devices[index].legacy = Some(legacy);
        context
    }

    pub(crate) fn cuDevicePrimaryCtxRelease_v2(&mut self, device: CUdevice) -> Call {
        let index = self.device_index(device)?;
        match self.devices[index].references {
            0 => {
                return Err(refuse(
                    CUresult::CUDA_ERROR_INVALID_CONTEXT,
                    "context.cuDevicePrimaryCtxRelease_v2",
                ));
            }
            1 => self.destroy_context(index),
            _ => self.devices[index].references -= 1,
        }
        Ok(())
    }

    pub(crate) fn cuDevicePrimaryCtxGetState(
        &mut self,
        device: CUdevice,
        flags: Out<u32>,
        active: Out<i32>,
    ) -> Call {
        let index = self.device_index(device)?;
        flags.put(self.devices[index].flags)?;
        active.put(i32::from(self.devices[index].context.is_some()))
    }

    pub(crate) fn cuDevicePrimaryCtxSetFlags_v2(&mut self, device: CUdevice, flags: u32) -> Call {
        let index = self.device_index(device)?;
        self.devices[index].flags = flags;
        Ok(())
    }

    fn check_context(&self, context: CUcontext) -> Call {
        let known = self.devices.iter().any(|device| device.context == Some(context));
        if known || context.is_null() {
            Ok(())
        } else {
            Err(refuse(CUresult::CUDA_ERROR_INVALID_CONTEXT, "context.check_context"))
        }
    }

    pub(crate) fn cuCtxSetCurrent(&mut self, context: CUcontext) -> Call {
        self.check_context(context)?;
        let stack = &mut self.thread().contexts;
        stack.pop();
        if !context.is_null() {
            stack.push(context);
        }
        Ok(())
    }

    pub(crate) fn cuCtxGetCurrent(&mut self, context: Out<CUcontext>) -> Call {
        let current = self.current_context();
        context.put(current)
    }

    pub(crate) fn cuCtxPushCurrent_v2(&mut self, context: CUcontext) -> Call {
        self.check_context(context)?;
        if context.is_null() {
            return Err(refuse(
                CUresult::CUDA_ERROR_INVALID_CONTEXT,
                "context.cuCtxPushCurrent_v2",
            ));
        }
        self.thread().contexts.push(context);
        Ok(())
    }

    pub(crate) fn cuCtxPopCurrent_v2(&mut self, context: Out<CUcontext>) -> Call {
        let popped = self.thread().contexts.pop();
        context.offer(
            popped.ok_or(refuse(
                CUresult::CUDA_ERROR_INVALID_CONTEXT,
                "context.cuCtxPopCurrent_v2",
            ))?,
        );
        Ok(())
    }

    pub(crate) fn cuCtxGetDevice(&mut self, device: Out<CUdevice>) -> Call {
        let index = self.current_even_lost()?;
        device.put(i32::try_from(index).map_err(|_| invalid("context.cuCtxGetDevice"))?)
    }

    pub(crate) fn cuCtxSynchronize(&mut self) -> Call {
        let device = self.current()?;
        self.refuse_unsafe()?;
        self.complete_device(device)
    }

    pub(crate) fn cuCtxGetLimit(&mut self, value: Out<usize>, limit: CUlimit) -> Call {
        let device = self.current()?;
        let set = self.devices[device].limits.get(&limit.0).copied();
        let standard = match limit {
            CUlimit::CU_LIMIT_STACK_SIZE => 1024,
            CUlimit::CU_LIMIT_PRINTF_FIFO_SIZE => 1 << 20,
            CUlimit::CU_LIMIT_MALLOC_HEAP_SIZE => 8 << 20,
            _ => {
                return Err(refuse(
                    CUresult::CUDA_ERROR_UNSUPPORTED_LIMIT,
                    "context.cuCtxGetLimit",
                ));
            }
        };
        value.put(set.unwrap_or(standard))
    }

    pub(crate) fn cuCtxSetLimit(&mut self, limit: CUlimit, value: usize) -> Call {
        let device = self.current()?;
        match limit {
            CUlimit::CU_LIMIT_STACK_SIZE
            | CUlimit::CU_LIMIT_PRINTF_FIFO_SIZE
            | CUlimit::CU_LIMIT_MALLOC_HEAP_SIZE => {
                self.devices[device].limits.insert(limit.0, value);
                Ok(())
            }
            _ => Err(refuse(CUresult::CUDA_ERROR_UNSUPPORTED_LIMIT, "context.cuCtxSetLimit")),
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
