//! Options and log buffers of the driver's compiler.

use std::ffi::c_void;

use retrograph_driver_sys::CUjit_option;

/// Size of each log; the driver truncates longer ones.
const LOG_BYTES: usize = 16 << 10;

/// Options and logs of one compilation. The driver gets pointers into it.
pub(super) struct Jit {
    info: Vec<u8>,
    errors: Vec<u8>,
    options: Vec<CUjit_option>,
    values: Vec<*mut c_void>,
}

impl Jit {
    /// Empty log buffers.
    pub(super) fn new() -> Self {
        let (mut info, mut errors) = (vec![0_u8; LOG_BYTES], vec![0_u8; LOG_BYTES]);
        let number = |value: usize| std::ptr::without_provenance_mut::<c_void>(value);
        let options = vec![
            CUjit_option::CU_JIT_INFO_LOG_BUFFER,
            CUjit_option::CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
            CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
            CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
        ];
        let values = vec![
            info.as_mut_ptr().cast(),
            number(LOG_BYTES - 1),
            errors.as_mut_ptr().cast(),
            number(LOG_BYTES - 1),
        ];
        Self { info, errors, options, values }
    }

    /// Count, options and values. `self` must outlive the call, or the linker, that receives them
    /// and must not change meanwhile.
    pub(super) fn arguments(&mut self) -> (u32, *mut CUjit_option, *mut *mut c_void) {
        (self.options.len() as u32, self.options.as_mut_ptr(), self.values.as_mut_ptr())
    }

    /// The compiler's messages, errors first.
    pub(super) fn log(&self) -> String {
        [message(&self.errors), message(&self.info)].join("\n").trim().to_owned()
    }
}

/// The text before the first zero byte.
fn message(buffer: &[u8]) -> String {
    let end = buffer.iter().position(|byte| *byte == 0).unwrap_or(buffer.len());
    String::from_utf8_lossy(&buffer[..end]).trim().to_owned()
}
