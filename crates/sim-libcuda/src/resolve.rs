//! `cuGetProcAddress`: the addresses are those of the exported functions, so that a program gets
//! the same function by name, by link and by `dlsym`. And what cannot be had.

use std::ffi::{CStr, c_char, c_void};

use retrograph_driver_sim::symbols::{Meaning, meaning};
use retrograph_driver_sys::{
    CU_GET_PROC_ADDRESS_LEGACY_STREAM, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
    CUdriverProcAddressQueryResult, CUresult, CUuuid,
};

use crate::{absent, exports, machine};

const PER_THREAD: u64 = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
const KNOWN_FLAGS: u64 = PER_THREAD | CU_GET_PROC_ADDRESS_LEGACY_STREAM;

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
    // SAFETY: passed on from the caller.
    let meant = unsafe { means(symbol, version) }.filter(|_| flags & !KNOWN_FLAGS == 0);
    let (mut flags, mut missing) = (flags, meant.and_then(stub));
    if let (Some(name), true) = (meant, flags & PER_THREAD != 0) {
        // The form for the default stream of the thread, where there is one; else the only form.
        missing =
            ["_ptsz", "_ptds"].iter().find_map(|end| absent::address(&format!("{name}{end}")));
        flags &= !PER_THREAD;
    }
    if let (Some(missing), false) = (missing, address.is_null()) {
        // SAFETY: no pointer is null, and the caller gives valid places.
        unsafe {
            *address = missing;
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
    if let (true, Some(exported)) = (code.is_success(), meant.and_then(exports::address)) {
        // SAFETY: the simulator accepted the place.
        unsafe { *address = exported };
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

/// The symbol that a name means for a caller of this version.
///
/// # Safety
/// The name is null or C text.
unsafe fn means(name: *const c_char, version: i32) -> Option<&'static str> {
    let newest = machine().settings.config.driver_version;
    if name.is_null() || version > newest {
        return None;
    }
    let version = if version < 0 { newest } else { version };
    // SAFETY: the caller guarantees C text.
    match meaning(unsafe { CStr::from_ptr(name) }.to_str().ok()?, version) {
        Meaning::Symbol(symbol) => Some(symbol),
        Meaning::Later | Meaning::Nothing => None,
    }
}

/// The address of a function that the table of driver-sys lacks.
fn stub(symbol: &'static str) -> Option<*mut c_void> {
    match symbol {
        "cuGetProcAddress" => Some(cuGetProcAddress as *mut c_void),
        "cuGetExportTable" => Some(cuGetExportTable as *mut c_void),
        symbol => absent::address(symbol),
    }
}
