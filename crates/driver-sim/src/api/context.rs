//! Contexts of `cuCtxCreate`, and the current context.

use retrograph_driver_sys::*;

use crate::argument::{Call, Out};
use crate::refusal::{Refusal, Rule, invalid, refuse};
use crate::state::{Handle, State};

/// The scheduling flags, of which at most one may be set.
const SCHEDULE: u32 = 7;
/// `CU_CTX_MAP_HOST`, which primary contexts always have.
pub(super) const MAPPED: u32 = 8;
/// All valid flags.
const FLAGS: u32 = 0xff;
/// The API version of every context (`cuCtxGetApiVersion`).
const API_VERSION: u32 = 3020;

/// Refuses invalid context flags.
pub(super) fn check_flags(flags: u32) -> Call {
    let schedule = flags & SCHEDULE;
    if flags & !FLAGS != 0 || (schedule != 0 && !schedule.is_power_of_two()) {
        return Err(invalid(Rule::ContextFlags));
    }
    Ok(())
}

/// The flags that a created context has: core dumps on a trigger become core dumps on exceptions.
fn kept_flags(given: u32) -> u32 {
    match given & CU_CTX_USER_COREDUMP_ENABLE {
        0 => given,
        trigger => given & !trigger | CU_CTX_COREDUMP_ENABLE,
    }
}

impl State {
    pub(crate) fn cuCtxCreate_v2(
        &mut self,
        context: Out<CUcontext>,
        flags: u32,
        device: CUdevice,
    ) -> Call {
        let ordinal = self.device_index(device)?;
        context.require()?;
        check_flags(flags)?;
        self.check_alive()?;
        let handle = self.create_additional_context(ordinal, kept_flags(flags));
        self.thread().contexts.push(handle);
        context.write(handle)
    }

    pub(crate) fn cuCtxCreate_v4(
        &mut self,
        context: Out<CUcontext>,
        parameters: Out<CUctxCreateParams>,
        flags: u32,
        device: CUdevice,
    ) -> Call {
        if !parameters.is_null() {
            return Err(self.unsupported("parameters of contexts are not simulated"));
        }
        self.cuCtxCreate_v2(context, flags, device)
    }

    pub(crate) fn cuCtxDestroy_v2(&mut self, context: CUcontext) -> Call {
        if context.is_null() {
            return Err(invalid(Rule::Null));
        }
        self.check_known(context)?;
        let unknown = refuse(CUresult::CUDA_ERROR_INVALID_CONTEXT, Rule::ContextPrimary);
        let index = self.context_index(context)?;
        if index < self.config.devices {
            return Err(unknown);
        }
        self.destroy_context(index)?;
        let stack = &mut self.thread().contexts;
        if stack.last() == Some(&context) {
            stack.pop();
        }
        Ok(())
    }

    /// Reports handles that this machine never issued as undefined behaviour: hardware dereferences
    /// them.
    fn check_known(&mut self, context: CUcontext) -> Call {
        match self.context_ordinals.contains_key(&context.number()) {
            true => Ok(()),
            false => Err(self.undefined("a handle that was never a context")),
        }
    }

    /// The index of a context among the devices.
    fn context_index(&self, context: CUcontext) -> Result<usize, Refusal> {
        let found = self.devices.iter().position(|device| device.context == Some(context));
        found.ok_or(refuse(CUresult::CUDA_ERROR_INVALID_CONTEXT, Rule::ContextUnknown))
    }

    /// The index of a context among the devices; for null, of the current context.
    pub(super) fn named_or_current(&mut self, context: CUcontext) -> Result<usize, Refusal> {
        if context.is_null() {
            return self.current_even_lost();
        }
        self.check_known(context)?;
        self.context_index(context)
    }

    pub(crate) fn cuCtxSetCurrent(&mut self, context: CUcontext) -> Call {
        if !context.is_null() {
            self.check_known(context)?;
        }
        let stack = &mut self.thread().contexts;
        stack.pop();
        if !context.is_null() {
            stack.push(context);
        }
        Ok(())
    }

    pub(crate) fn cuCtxGetCurrent(&mut self, context: Out<CUcontext>) -> Call {
        let current = self.current_context();
        context.write(current)
    }

    pub(crate) fn cuCtxPushCurrent_v2(&mut self, context: CUcontext) -> Call {
        if context.is_null() {
            return Err(invalid(Rule::Null));
        }
        self.check_known(context)?;
        self.thread().contexts.push(context);
        Ok(())
    }

    pub(crate) fn cuCtxPopCurrent_v2(&mut self, context: Out<CUcontext>) -> Call {
        let popped = self.thread().contexts.pop();
        let empty = refuse(CUresult::CUDA_ERROR_INVALID_CONTEXT, Rule::ContextEmpty);
        context.write_unless_null(popped.ok_or(empty)?);
        Ok(())
    }

    pub(crate) fn cuCtxGetDevice(&mut self, device: Out<CUdevice>) -> Call {
        let context = self.current_context();
        // Destroyed contexts are allowed.
        if let Some(ordinal) = self.context_ordinals.get(&context.number()).copied() {
            return device.write(CUdevice::try_from(ordinal).unwrap_or(CUdevice::MAX));
        }
        let index = self.current_even_lost()?;
        device.write(self.ordinal(index))
    }

    pub(crate) fn cuCtxGetDevice_v2(&mut self, device: Out<CUdevice>, context: CUcontext) -> Call {
        let index = self.named_or_current(context)?;
        device.write(self.ordinal(index))
    }

    /// The device ordinal of a context.
    pub(super) fn ordinal(&self, index: usize) -> CUdevice {
        CUdevice::try_from(self.devices[index].ordinal).unwrap_or(CUdevice::MAX)
    }

    pub(crate) fn cuCtxSynchronize(&mut self) -> Call {
        self.cuCtxSynchronize_v2(CUcontext::NULL)
    }

    pub(crate) fn cuCtxSynchronize_v2(&mut self, context: CUcontext) -> Call {
        let index = self.named_or_current(context)?;
        self.refuse_context_wait(index)?;
        self.complete_device(index)
    }

    pub(crate) fn cuCtxGetFlags(&mut self, flags: Out<u32>) -> Call {
        let index = self.current_even_lost()?;
        let always = if index < self.config.devices { MAPPED } else { 0 };
        flags.write(self.devices[index].flags | always)
    }

    pub(crate) fn cuCtxSetFlags(&mut self, flags: u32) -> Call {
        let index = self.current_even_lost()?;
        check_flags(flags)?;
        self.devices[index].flags = flags;
        Ok(())
    }

    pub(crate) fn cuCtxGetId(&mut self, context: CUcontext, id: Out<u64>) -> Call {
        id.require()?;
        let index = self.named_or_current(context)?;
        id.write(index as u64 + 1)
    }

    pub(crate) fn cuCtxGetApiVersion(&mut self, context: CUcontext, version: Out<u32>) -> Call {
        self.named_or_current(context)?;
        version.write(API_VERSION)
    }
}
