//! `cuProfilerStart` and `cuProfilerStop` of cudaProfiler.h.
//!
//! They turn a profiling tool on and off for the current context. No tool observes a simulated
//! machine, so neither has an effect.

use std::ffi::c_void;

use retrograph_driver_sys::CUresult;

use crate::machine;

/// The CUDA version that introduced them.
const SINCE: i32 = 4000;

/// The symbol of a name for a caller of this CUDA version.
pub(crate) fn meaning(name: &str, version: i32) -> Option<&'static str> {
    let names = ["cuProfilerStart", "cuProfilerStop"];
    names.into_iter().find(|known| *known == name && version >= SINCE)
}

/// The exported function with this name.
pub(crate) fn address(name: &str) -> Option<*mut c_void> {
    match name {
        "cuProfilerStart" => Some(cuProfilerStart as *mut c_void),
        "cuProfilerStop" => Some(cuProfilerStop as *mut c_void),
        _ => None,
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuProfilerStart() -> CUresult {
    succeed_in_context()
}

#[unsafe(no_mangle)]
extern "C" fn cuProfilerStop() -> CUresult {
    succeed_in_context()
}

/// Succeeds if a context is current, as `cuCtxGetDevice` does.
fn succeed_in_context() -> CUresult {
    let machine = machine();
    if machine.is_of_parent() {
        return CUresult::CUDA_ERROR_NOT_INITIALIZED;
    }
    let mut device = 0;
    // SAFETY: the place is valid during the call.
    unsafe { (machine.simulator.table().cuCtxGetDevice)(&mut device) }
}
