//! The table by which the CUDA runtime asks whether it may use a context.

use std::ffi::c_void;

use retrograph_driver_sys::{CUcontext, CUresult};

use super::{Table, sized};

pub(super) const ID: [u8; 16] = 0x263e8860_7cd2_6143_92f6_bbd5006dfa7e_u128.to_be_bytes();

pub(super) static TABLE: Table = {
    let mut table = sized::<4>(4);
    table[2] = context_flags as *const c_void;
    table[3] = process_flags as *const c_void;
    Table(table)
};

/// Writes flags of a context; none is set.
///
/// # Safety
/// `flags` is null or valid.
unsafe extern "C" fn context_flags(
    _context: CUcontext,
    flags: *mut u32,
    _detail: *mut *const c_void,
) -> CUresult {
    // SAFETY: passed on from the caller.
    if let Some(flags) = unsafe { flags.as_mut() } {
        *flags = 0;
    }
    CUresult::CUDA_SUCCESS
}

/// Returns flags of the process; none is set.
extern "C" fn process_flags() -> u32 {
    0
}
