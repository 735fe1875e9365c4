//! Loading images.

use std::ffi::{CString, c_char};

use retrograph_driver_sys::CUmodule;

use super::code::{CodeError, check_code};
use super::function::Module;
use super::jit::Jit;
use crate::context::Context;
use crate::error::Error;

/// An image that was not loaded or compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{error}{}", self.indented_log())]
pub struct LoadError {
    /// The error of the driver, or [`Error::BadImage`] if the image did not reach it.
    #[source]
    pub error: Error,
    /// The compiler's messages; empty if it did not run.
    pub log: String,
}

impl From<Error> for LoadError {
    fn from(error: Error) -> Self {
        Self { error, log: String::new() }
    }
}

impl LoadError {
    /// Whether the image is the cause, not the context or a lack of memory. Then another form of
    /// the image may work, such as its PTX instead of its machine code.
    pub fn is_of_image(&self) -> bool {
        match &self.error {
            Error::Call(call) => !call.is_sticky() && !call.is_out_of_memory(),
            Error::BadImage { .. } => true,
            _ => false,
        }
    }

    fn indented_log(&self) -> String {
        if self.log.is_empty() { String::new() } else { format!("\n{}", self.log) }
    }
}

impl Module {
    /// Compiles and loads `ptx`, which may take more than a second. Zero bytes at its end, such as
    /// the one after NVRTC's output, are ignored.
    ///
    /// # Errors
    /// [`Error::BadImage`], [`Error::RefusedDuringCapture`], or a failed driver call with the
    /// compiler's messages.
    pub fn load_ptx(context: &Context, ptx: &str) -> Result<Self, LoadError> {
        let text = zero_terminated(ptx)?;
        // SAFETY: the text is zero-terminated.
        unsafe { load(context, text.as_ptr()) }
    }

    /// Loads compiled code: a cubin, the result of [`compile_ptx`](super::compile_ptx), or a
    /// fatbin, of which the driver picks the code for the device. Its length is checked first. A
    /// fatbin begins with its header, `0xba55ed50`; the structure with a pointer to it, which nvcc
    /// puts into objects, is not accepted.
    ///
    /// A simulated driver executes only PTX. It loads a fatbin with PTX for its device, and refuses
    /// cubins and other fatbins with [`CUDA_ERROR_NOT_SUPPORTED`] and a log that says so.
    ///
    /// [`CUDA_ERROR_NOT_SUPPORTED`]: retrograph_driver_sys::CUresult::CUDA_ERROR_NOT_SUPPORTED
    ///
    /// # Errors
    /// As [`Module::load_ptx`].
    pub fn load_code(context: &Context, code: &[u8]) -> Result<Self, LoadError> {
        check_code(context, code).map_err(bad_code)?;
        // SAFETY: the code is a complete cubin or fatbin, or zero-terminated text.
        unsafe { load(context, code.as_ptr().cast()) }
    }
}

/// Loads an image.
///
/// # Safety
/// The image must be complete, because the driver derives its length from its content.
unsafe fn load(context: &Context, image: *const c_char) -> Result<Module, LoadError> {
    context.bind_outside_capture("loading a module")?;
    let mut jit = Jit::new();
    let (count, options, values) = jit.arguments();
    let mut raw = CUmodule::NULL;
    // SAFETY: the image is complete; options, values and their buffers outlive the call.
    let loaded = unsafe {
        call!(context, cuModuleLoadDataEx(&mut raw, image.cast(), count, options, values))
    };
    match loaded {
        // SAFETY: the driver has just loaded the module in this context.
        Ok(()) => Ok(unsafe { Module::from_raw(context, raw) }),
        Err(error) => Err(LoadError { error, log: jit.log() }),
    }
}

/// `ptx` with one terminating zero. The driver reads up to the first zero byte, so zero bytes are
/// accepted only at the end.
pub(super) fn zero_terminated(ptx: &str) -> Result<CString, LoadError> {
    CString::new(ptx.trim_end_matches('\0')).map_err(|error| LoadError {
        error: Error::BadImage { reason: "the PTX has a zero byte before its end".to_owned() },
        log: error.to_string(),
    })
}

pub(super) fn bad_code(error: CodeError) -> LoadError {
    Error::BadImage { reason: error.to_string() }.into()
}
