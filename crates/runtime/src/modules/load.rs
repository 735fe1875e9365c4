//! Loading and compiling images, with what the driver's compiler has to say about it.

use std::ffi::{CString, c_char, c_void};

use retrograph_driver_sys::{CUjitInputType, CUlinkState, CUmodule};

use super::code::{self, CodeError};
use super::function::Module;
use super::jit::Jit;
use crate::context::Context;
use crate::error::Error;
use crate::version::DriverVersion;

/// The first driver that compiles one image with several threads.
const SPLITS: DriverVersion = DriverVersion { major: 13, minor: 0 };

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

impl LoadFailure {
    /// Whether another form of the same image may work: neither the context nor the memory is the
    /// cause.
    pub(super) fn is_of_image(&self) -> bool {
        match &self.error {
            Error::Call(call) => !call.is_sticky() && !call.is_out_of_memory(),
            Error::BadImage { .. } => true,
            _ => false,
        }
    }
}

/// Compiles and loads `ptx`. The caller holds no lock, since this may take more than a second.
pub(super) fn load_ptx(context: &Context, ptx: &str) -> Result<Module, LoadFailure> {
    let text = zero_ended(ptx)?;
    // SAFETY: PTX ends in a zero.
    unsafe { load(context, text.as_ptr()) }
}

/// Loads compiled code, which is checked to be whole first.
pub(super) fn load_code(context: &Context, code: &[u8]) -> Result<Module, LoadFailure> {
    code::check(context, code).map_err(bad_code)?;
    // SAFETY: the code is a whole file of machine code, or a text that ends in a zero.
    unsafe { load(context, code.as_ptr().cast()) }
}

/// # Safety
/// The image must be whole: the driver finds its end in it.
unsafe fn load(context: &Context, image: *const c_char) -> Result<Module, LoadFailure> {
    context.bind_outside_capture("loading a module")?;
    let mut jit = Jit::new(None);
    let (count, options, values) = jit.arguments();
    let mut raw = CUmodule::NULL;
    // SAFETY: the caller says that the image is whole; options, values and their buffers outlive
    // the call.
    let loaded = unsafe {
        call!(context, cuModuleLoadDataEx(&mut raw, image.cast(), count, options, values))
    };
    match loaded {
        // SAFETY: the driver has just loaded the module in this context.
        Ok(()) => Ok(unsafe { Module::from_raw(context, raw) }),
        Err(error) => Err(LoadFailure { error, log: jit.log() }),
    }
}

/// Compiles `ptx` for the device of `context` with up to `threads` threads, and returns the code.
pub(super) fn compile(
    context: &Context,
    ptx: &str,
    threads: usize,
) -> Result<Vec<u8>, LoadFailure> {
    context.bind_outside_capture("compiling an image")?;
    let text = zero_ended(ptx)?;
    let link = |threads| {
        let mut linker = Linker { context, jit: Jit::new(threads), state: CUlinkState::NULL };
        let linked = linker.link(&text);
        linked.map_err(|error| LoadFailure { error, log: linker.jit.log() })
    };
    let threads = Some(threads).filter(|n| *n > 1 && context.driver().version() >= SPLITS);
    let code = match link(threads) {
        // A driver may know the option and not take it.
        Err(failure) if threads.is_some() && failure.is_of_image() => link(None)?,
        linked => linked?,
    };
    code::check(context, &code).map_err(bad_code)?;
    Ok(code)
}

/// A linker of the driver, which is how it gives away what it compiles.
struct Linker<'a> {
    context: &'a Context,
    /// Written to for as long as the linker lives.
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
        // SAFETY: options, values and their buffers live as long as the linker, the text is as long
        // as said and only read, and the places are valid. What is linked belongs to the linker and
        // is copied while that lives.
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
            // SAFETY: the linker was made above. A failure leaves nothing to be done, but a fault
            // that surfaces here is kept.
            let _ = unsafe { call!(self.context, cuLinkDestroy(self.state)) };
        }
    }
}

/// The driver reads up to the first zero byte, so nothing may hide behind one.
fn zero_ended(ptx: &str) -> Result<CString, LoadFailure> {
    CString::new(ptx).map_err(|error| LoadFailure {
        error: Error::BadImage { reason: "the PTX has a zero byte".to_owned() },
        log: error.to_string(),
    })
}

fn bad_code(error: CodeError) -> LoadFailure {
    Error::BadImage { reason: error.to_string() }.into()
}
