//! `cuGetProcAddress` and `cuGetExportTable`.
//!
//! `cuGetProcAddress` returns the exported functions, so a program gets the same function by name,
//! by link and by `dlsym`.

use std::ffi::{CStr, c_char, c_void};

use retrograph_driver_sim::symbols::{Meaning, meaning};
use retrograph_driver_sys::{
    CU_GET_PROC_ADDRESS_LEGACY_STREAM, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
    CUdriverProcAddressQueryResult, CUresult, CUuuid,
};

use crate::export_tables::{self, text_of};
use crate::{absent, earlier, exports, machine, per_thread, profiler};

const PER_THREAD: u64 = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
const KNOWN_FLAGS: u64 = PER_THREAD | CU_GET_PROC_ADDRESS_LEGACY_STREAM;

/// `cuGetProcAddress` of programs built for CUDA 12 and later.
///
/// # Safety
/// The contract of the driver's function.
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
        // The function for the per-thread default stream if there is one, else the only one.
        let absent = || absent::address(&format!("{name}_ptsz"));
        missing = per_thread::address(name).or_else(absent).or(missing);
        flags &= !PER_THREAD;
    }
    if let (Some(missing), false) = (missing, address.is_null()) {
        // SAFETY: no pointer is null, and the caller guarantees that they are valid.
        unsafe {
            *address = missing;
            if !status.is_null() {
                *status = CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_SUCCESS;
            }
        }
        return CUresult::CUDA_SUCCESS;
    }
    // SAFETY: passed on from the caller.
    let code = machine.report(unsafe {
        (machine.simulator.table().cuGetProcAddress_v2)(symbol, address, version, flags, status)
    });
    if let (true, Some(exported)) = (code.is_success(), meant.and_then(exports::address)) {
        // SAFETY: the simulator has written to this pointer.
        unsafe { *address = exported };
    }
    code
}

/// `cuGetProcAddress` of programs built for CUDA 11.3 to 11.8.
///
/// # Safety
/// The contract of the driver's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuGetProcAddress(
    symbol: *const c_char,
    address: *mut *mut c_void,
    version: i32,
    flags: u64,
) -> CUresult {
    // SAFETY: passed on from the caller; the status may be null.
    unsafe { cuGetProcAddress_v2(symbol, address, version, flags, std::ptr::null_mut()) }
}

/// Returns a table of undocumented functions. Only the tables of the CUDA runtime are simulated;
/// NVRTC also asks for one, and works without it.
///
/// # Safety
/// Each pointer is null or valid.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetExportTable(table: *mut *const c_void, id: *const CUuuid) -> CUresult {
    // SAFETY: passed on from the caller.
    let (table, id) = unsafe { (table.as_mut(), id.as_ref()) };
    if let Some(table) = table {
        let known = id.and_then(export_tables::find);
        *table = known.unwrap_or(std::ptr::null());
        if known.is_some() {
            return CUresult::CUDA_SUCCESS;
        }
    }
    if id.is_some_and(export_tables::is_optional) {
        return CUresult::CUDA_ERROR_NOT_SUPPORTED;
    }
    let id = id.map_or_else(|| "null".to_owned(), |id| text_of(&id.bytes));
    let why = "this table of undocumented functions is not simulated";
    machine().report_missing(&format!("cuGetExportTable {id}"), why)
}

/// The symbol of a name for a caller of this CUDA version.
///
/// # Safety
/// The name is null or a C string.
unsafe fn means(name: *const c_char, version: i32) -> Option<&'static str> {
    let newest = machine().settings.config.driver_version;
    if name.is_null() || version > newest {
        return None;
    }
    let version = if version < 0 { newest } else { version };
    // SAFETY: the caller guarantees a C string.
    let name = unsafe { CStr::from_ptr(name) }.to_str().ok()?;
    match meaning(name, version) {
        Meaning::Symbol(symbol) => Some(symbol),
        Meaning::Later | Meaning::Nothing => profiler::meaning(name, version),
    }
}

/// The address of a function that the table of driver-sys lacks.
fn stub(symbol: &'static str) -> Option<*mut c_void> {
    match symbol {
        "cuGetProcAddress" => Some(cuGetProcAddress as *mut c_void),
        "cuGetExportTable" => Some(cuGetExportTable as *mut c_void),
        symbol => profiler::address(symbol)
            .or_else(|| earlier::address(symbol))
            .or_else(|| absent::address(symbol)),
    }
}
