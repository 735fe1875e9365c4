//! Loading PTX, with what the driver's compiler has to say about it.

use std::ffi::{CString, c_void};

use retrograph_driver_sys::{CUjit_option, CUmodule};

use super::function::Module;
use crate::context::Context;
use crate::error::Error;

/// Enough for the first screens of messages; the driver cuts off what is longer.
const LOG_BYTES: usize = 16 << 10;

/// Why an image was not loaded.
#[derive(Clone, Debug)]
pub(super) struct LoadFailure {
    pub(super) error: Error,
    /// The compiler's messages, or nothing when it did not run.
    pub(super) log: String,
}

impl From<Error> for LoadFailure {
    fn from(error: Error) -> Self {
        Self { error, log: String::new() }
    }
}

/// Compiles and loads `ptx`. The caller holds no lock, since this may take a quarter of a second.
pub(super) fn load(context: &Context, ptx: &str) -> Result<Module, LoadFailure> {
    context.bind_outside_capture("loading a module")?;
    // The driver reads up to the first zero byte, so nothing may hide behind one.
    let text = CString::new(ptx).map_err(|error| LoadFailure {
        error: Error::BadImage { reason: "the PTX has a zero byte".to_owned() },
        log: error.to_string(),
    })?;
    let (mut info, mut errors) = (vec![0_u8; LOG_BYTES], vec![0_u8; LOG_BYTES]);
    let number = |value: usize| std::ptr::without_provenance_mut::<c_void>(value);
    let mut options = [
        CUjit_option::CU_JIT_INFO_LOG_BUFFER,
        CUjit_option::CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
        CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
        CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
    ];
    let mut values = [
        info.as_mut_ptr().cast(),
        number(LOG_BYTES - 1),
        errors.as_mut_ptr().cast(),
        number(LOG_BYTES - 1),
    ];
    let (options, values) = (options.as_mut_ptr(), values.as_mut_ptr());
    let (mut raw, image) = (CUmodule::NULL, text.as_ptr().cast());
    // SAFETY: the text ends in a zero, there are four options with four values, and the buffers
    // are as long as said; all of them outlive the call.
    match unsafe { call!(context, cuModuleLoadDataEx(&mut raw, image, 4, options, values)) } {
        // SAFETY: the driver has just loaded the module in this context.
        Ok(()) => Ok(unsafe { Module::from_raw(context, raw) }),
        Err(error) => {
            let log = [message(&errors), message(&info)].join("\n").trim().to_owned();
            Err(LoadFailure { error, log })
        }
    }
}

/// The text before the first zero byte.
fn message(buffer: &[u8]) -> String {
    let end = buffer.iter().position(|byte| *byte == 0).unwrap_or(buffer.len());
    String::from_utf8_lossy(&buffer[..end]).trim().to_owned()
}
