//! The table of the CUDA runtime itself: primary contexts.

use std::ffi::c_void;

use retrograph_driver_sys::{CUcontext, CUdevice, CUresult};

use super::{Table, code_of, own_machine, sized};

pub(super) const ID: [u8; 16] = 0x6bd5fb6c_5bf4_e74a_8987_d93912fd9df9_u128.to_be_bytes();

pub(super) static TABLE: Table = {
    let mut table = sized::<0>(13);
    table[2] = primary_context as *const c_void;
    table[12] = load_compilers as *const c_void;
    Table(table)
};

/// Writes the handle of the primary context of a device. The context is neither created nor
/// retained.
///
/// # Safety
/// The pointer is null or valid.
unsafe extern "C" fn primary_context(context: *mut CUcontext, device: CUdevice) -> CUresult {
    code_of(own_machine().and_then(|machine| {
        // SAFETY: passed on from the caller.
        let place = unsafe { context.as_mut() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let handle = machine.simulator.primary_context(device);
        *place = handle.ok_or(CUresult::CUDA_ERROR_INVALID_DEVICE)?;
        Ok(())
    }))
}

/// Loads the compilers of the driver, which the runtime asks for since version 13.1. The simulated
/// driver needs none.
extern "C" fn load_compilers() -> CUresult {
    code_of(own_machine().map(drop))
}
