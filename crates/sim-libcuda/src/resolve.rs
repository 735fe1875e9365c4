//! `cuGetProcAddress`: the addresses are those of the exported functions, so that a program gets
//! the same function by name, by link and by `dlsym`. And what cannot be had.

use std::ffi::{CStr, c_char, c_void};

use retrograph_driver_sim::symbols::{Meaning, meaning};
use retrograph_driver_sys::{CUdriverProcAddressQueryResult, CUresult, CUuuid};

use crate::{absent, exports, machine};

/// What programs of CUDA 12 and later ask.
///
/// # Safety
/// As the function of this name demands.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuGetProcAddress_v2(
    symbol: *const c_char,
    address: *mut *mut c_void,
    version: i32,
    flags: u64,
    status: *mut CUdriverProcAddressQueryResult,
) -> CUresult {
    let machine = machine();
    let known = machine.settings.config.driver_version;
    // SAFETY: passed on from the caller.
    let stub = unsafe { stub(symbol, version.min(known)) };
    if let (Some(stub), false) = (stub, address.is_null()) {
        // SAFETY: neither pointer is null, and the caller gives valid places.
        unsafe {
            *address = stub;
            if !status.is_null() {
                *status = CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_SUCCESS;
            }
        }
        return CUresult::CUDA_SUCCESS;
    }
    // SAFETY: passed on from the caller.
    let code = machine.tell(unsafe {
        (machine.simulator.table().cuGetProcAddress_v2)(symbol, address, version, flags, status)
    });
    if code.is_success() {
        // SAFETY: the simulator accepted both pointers.
        unsafe {
            if let Some(exported) = exported(symbol, version.min(known)) {
                *address = exported;
            }
        }
    }
    code
}

/// What programs of CUDA 11.3 to 11.8 ask.
///
/// # Safety
/// As the function of this name demands.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuGetProcAddress(
    symbol: *const c_char,
    address: *mut *mut c_void,
    version: i32,
    flags: u64,
) -> CUresult {
    // SAFETY: passed on from the caller; no status is asked for.
    unsafe { cuGetProcAddress_v2(symbol, address, version, flags, std::ptr::null_mut()) }
}

/// The doorway of NVIDIA's own libraries to functions that no header describes. Programs that are
/// linked with the CUDA runtime go through it, and cannot run here.
#[unsafe(no_mangle)]
extern "C" fn cuGetExportTable(_table: *mut *const c_void, _id: *const CUuuid) -> CUresult {
    let why = "the tables behind it are undocumented; programs that use libcudart or another \
               library of CUDA need them, and only programs of the driver API run here";
    machine().lacks("cuGetExportTable", why)
}

/// # Safety
/// The name is null or C text.
unsafe fn means(name: *const c_char, version: i32) -> Option<&'static str> {
    if name.is_null() {
        return None;
    }
    // SAFETY: the caller guarantees C text.
    match meaning(unsafe { CStr::from_ptr(name) }.to_str().ok()?, version) {
        Meaning::Symbol(symbol) => Some(symbol),
        Meaning::Later | Meaning::Nothing => None,
    }
}

/// The exported function that a name means.
///
/// # Safety
/// The name is null or C text.
unsafe fn exported(name: *const c_char, version: i32) -> Option<*mut c_void> {
    // SAFETY: passed on from the caller.
    exports::address(unsafe { means(name, version) }?)
}

/// The function that a name means, where that one is exported only to say that it is missing.
///
/// # Safety
/// The name is null or C text.
unsafe fn stub(name: *const c_char, version: i32) -> Option<*mut c_void> {
    // SAFETY: passed on from the caller.
    match unsafe { means(name, version) }? {
        "cuGetProcAddress" => Some(cuGetProcAddress as *mut c_void),
        "cuGetExportTable" => Some(cuGetExportTable as *mut c_void),
        symbol => absent::address(symbol),
    }
}
