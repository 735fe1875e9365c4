//! Primary contexts: references, state and flags.

use retrograph_driver_sys::*;

use super::context::{MAPPED, check_flags};
use crate::argument::{Call, Out};
use crate::refusal::{Rule, invalid, refuse};
use crate::state::State;

impl State {
    pub(crate) fn cuDevicePrimaryCtxRetain(
        &mut self,
        context: Out<CUcontext>,
        device: CUdevice,
    ) -> Call {
        let index = self.device_index(device)?;
        context.require()?;
        let handle = match self.devices[index].context {
            Some(handle) => handle,
            None => {
                self.check_alive()?;
                self.create_context(index)
            }
        };
        self.devices[index].references += 1;
        context.write(handle)
    }

    pub(crate) fn cuDevicePrimaryCtxRelease_v2(&mut self, device: CUdevice) -> Call {
        let index = self.device_index(device)?;
        match self.devices[index].references {
            0 => return Err(refuse(CUresult::CUDA_ERROR_INVALID_CONTEXT, Rule::PrimaryReleased)),
            1 => self.destroy_context(index)?,
            _ => self.devices[index].references -= 1,
        }
        Ok(())
    }

    pub(crate) fn cuDevicePrimaryCtxReset_v2(&mut self, device: CUdevice) -> Call {
        let index = self.device_index(device)?;
        // A reset keeps the references: each can still be released.
        let references = self.devices[index].references;
        self.destroy_context(index)?;
        self.devices[index].references = references;
        Ok(())
    }

    pub(crate) fn cuDevicePrimaryCtxGetState(
        &mut self,
        device: CUdevice,
        flags: Out<u32>,
        active: Out<i32>,
    ) -> Call {
        let index = self.device_index(device)?;
        flags.require()?;
        active.write(i32::from(self.devices[index].context.is_some()))?;
        flags.write(self.devices[index].flags)
    }

    pub(crate) fn cuDevicePrimaryCtxSetFlags_v2(&mut self, device: CUdevice, flags: u32) -> Call {
        let index = self.device_index(device)?;
        if flags & MAPPED != 0 {
            return Err(invalid(Rule::PrimaryMapped));
        }
        check_flags(flags)?;
        self.devices[index].flags = flags;
        Ok(())
    }
}
