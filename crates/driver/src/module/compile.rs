//! Compiles PTX to machine code by the driver.

use std::ffi::{CString, c_void};

use retrograph_driver_sys::{CUjitInputType, CUlinkState};

use super::code::check_code;
use super::jit::Jit;
use super::load::{LoadError, bad_code, zero_terminated};
use crate::context::Context;
use crate::error::Error;

/// Compiles `ptx` for the device of `context` and returns the machine code.
///
/// # Errors
/// As [`Module::load_ptx`](super::Module::load_ptx).
pub fn compile_ptx(context: &Context, ptx: &str) -> Result<Vec<u8>, LoadError> {
    context.bind_outside_capture("compiling an image")?;
    let text = zero_terminated(ptx)?;
    let mut linker = Linker { context, jit: Jit::new(), state: CUlinkState::NULL };
    let linked = linker.link(&text);
    let code = linked.map_err(|error| LoadError { error, log: linker.jit.log() })?;
    check_code(context, &code).map_err(bad_code)?;
    Ok(code)
}

/// A linker of the driver, the only API that returns compiled code.
struct Linker<'a> {
    context: &'a Context,
    /// Written to while the linker lives.
    jit: Jit,
    state: CUlinkState,
}

impl Linker<'_> {
    fn link(&mut self, text: &CString) -> Result<Vec<u8>, Error> {
        let (kind, none) = (CUjitInputType::CU_JIT_INPUT_PTX, std::ptr::null_mut());
        let bytes = text.as_bytes_with_nul();
        let data = bytes.as_ptr().cast_mut().cast::<c_void>();
        let (count, options, values) = self.jit.arguments();
        let (mut code, mut size) = (std::ptr::null_mut::<c_void>(), 0);
        // SAFETY: options, values and their buffers live as long as the linker, the text has this
        // length and is only read, and the out pointers are valid. The linked code belongs to the
        // linker, which lives while it is copied.
        unsafe {
            call!(self.context, cuLinkCreate_v2(count, options, values, &mut self.state))?;
            let (name, none_of) = (c"image".as_ptr(), std::ptr::null_mut());
            call!(
                self.context,
                cuLinkAddData_v2(self.state, kind, data, bytes.len(), name, 0, none, none_of)
            )?;
            call!(self.context, cuLinkComplete(self.state, &mut code, &mut size))?;
            Ok(std::slice::from_raw_parts(code.cast::<u8>(), size).to_vec())
        }
    }
}

impl Drop for Linker<'_> {
    fn drop(&mut self) {
        if self.state != CUlinkState::NULL {
            // SAFETY: the linker was made above. The check records a fault that is reported here;
            // other failures are ignored.
            let _ = unsafe { call!(self.context, cuLinkDestroy(self.state)) };
        }
    }
}
