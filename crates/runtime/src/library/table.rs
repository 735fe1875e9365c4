//! FFI to cuBLAS: the functions in use, loading, and status codes.

use std::ffi::{c_int, c_void};

use retrograph_driver::{Error, Result};
use retrograph_driver_sys::{CUstream, loader};

/// A `cublasHandle_t`.
pub(super) type Handle = *mut c_void;
/// A `cublasStatus_t`; 0 is success.
pub(super) type Status = c_int;

/// `cublasGemmEx`, with the signature of `cublas_api.h`.
pub(super) type GemmEx = unsafe extern "C" fn(
    handle: Handle,
    transpose_a: c_int,
    transpose_b: c_int,
    m: c_int,
    n: c_int,
    k: c_int,
    alpha: *const c_void,
    a: *const c_void,
    a_type: c_int,
    lda: c_int,
    b: *const c_void,
    b_type: c_int,
    ldb: c_int,
    beta: *const c_void,
    c: *mut c_void,
    c_type: c_int,
    ldc: c_int,
    compute_type: c_int,
    algorithm: c_int,
) -> Status;

/// Functions of cuBLAS under their exported names, without the prefix.
#[derive(Clone, Copy, Debug)]
pub struct CublasTable {
    /// `cublasCreate_v2`.
    pub create: unsafe extern "C" fn(handle: *mut Handle) -> Status,
    /// `cublasDestroy_v2`.
    pub destroy: unsafe extern "C" fn(handle: Handle) -> Status,
    /// `cublasGetVersion_v2`.
    pub get_version: unsafe extern "C" fn(handle: Handle, version: *mut c_int) -> Status,
    /// `cublasSetStream_v2`, which resets the workspace.
    pub set_stream: unsafe extern "C" fn(handle: Handle, stream: CUstream) -> Status,
    /// `cublasSetWorkspace_v2`.
    pub set_workspace:
        unsafe extern "C" fn(handle: Handle, workspace: *mut c_void, bytes: usize) -> Status,
    /// `cublasGemmEx`.
    pub gemm_ex: GemmEx,
}

/// Names of supported versions, newest first.
#[cfg(not(windows))]
pub(super) const LIBRARY_NAMES: &[&str] = &["libcublas.so.13", "libcublas.so.12"];
#[cfg(windows)]
pub(super) const LIBRARY_NAMES: &[&str] = &["cublas64_13.dll", "cublas64_12.dll"];

impl CublasTable {
    /// Opens the library `name` and looks up its functions.
    ///
    /// # Safety
    /// The library is cuBLAS: its initializers run, and its functions have these signatures.
    pub(super) unsafe fn open(name: &std::path::Path) -> Result<Self, String> {
        // SAFETY: passed on from the caller.
        let library =
            unsafe { libloading::Library::new(name) }.map_err(|error| loader::message(&error))?;
        macro_rules! symbol {
            ($name:literal) => {
                // SAFETY: the caller promises that a function of this name has the signature of
                // the field that it is stored in.
                *unsafe { library.get($name) }.map_err(|error| loader::message(&error))?
            };
        }
        let table = Self {
            create: symbol!(b"cublasCreate_v2\0"),
            destroy: symbol!(b"cublasDestroy_v2\0"),
            get_version: symbol!(b"cublasGetVersion_v2\0"),
            set_stream: symbol!(b"cublasSetStream_v2\0"),
            set_workspace: symbol!(b"cublasSetWorkspace_v2\0"),
            gemm_ex: symbol!(b"cublasGemmEx\0"),
        };
        // Handles and captured kernels refer to the library, so it stays loaded until the process
        // ends.
        std::mem::forget(library);
        Ok(table)
    }
}

/// Converts the status of the function `call` into a result.
pub(super) fn check(call: &'static str, status: Status) -> Result<()> {
    match status {
        0 => Ok(()),
        status => Err(Error::Library { call, status, message: name_of(status).into() }),
    }
}

/// Returns the name of a `cublasStatus_t`.
fn name_of(status: Status) -> &'static str {
    match status {
        1 => "CUBLAS_STATUS_NOT_INITIALIZED",
        3 => "CUBLAS_STATUS_ALLOC_FAILED",
        7 => "CUBLAS_STATUS_INVALID_VALUE",
        8 => "CUBLAS_STATUS_ARCH_MISMATCH",
        11 => "CUBLAS_STATUS_MAPPING_ERROR",
        13 => "CUBLAS_STATUS_EXECUTION_FAILED",
        14 => "CUBLAS_STATUS_INTERNAL_ERROR",
        15 => "CUBLAS_STATUS_NOT_SUPPORTED",
        16 => "CUBLAS_STATUS_LICENSE_ERROR",
        _ => "a status of another version",
    }
}
