//! Linking: the resulting text, and the errors of invalid texts.

use std::ffi::{CStr, c_void};

use retrograph_driver_sys::*;

use crate::machine::{Machine, cu};
use crate::ptx;

const SUCCESS: CUresult = CUresult::CUDA_SUCCESS;

impl Machine {
    /// A linker with these options.
    fn link(&self, options: &mut [CUjit_option], values: &mut [*mut c_void]) -> CUlinkState {
        let mut link = CUlinkState::NULL;
        let count = u32::try_from(options.len()).expect("few options");
        let (names, places) = (options.as_mut_ptr(), values.as_mut_ptr());
        assert_eq!(cu!(self, cuLinkCreate_v2(count, names, places, &mut link)), SUCCESS);
        link
    }

    /// Adds a text to a linker.
    fn add_text(&self, link: CUlinkState, text: &CStr) -> CUresult {
        let bytes = text.to_bytes_with_nul();
        let (data, size) = (bytes.as_ptr().cast_mut().cast(), bytes.len());
        let (kind, name) = (CUjitInputType::CU_JIT_INPUT_PTX, c"text".as_ptr());
        let (none, nothing) = (std::ptr::null_mut(), std::ptr::null_mut());
        cu!(self, cuLinkAddData_v2(link, kind, data, size, name, 0, none, nothing))
    }
}

#[test]
fn a_linked_image_is_a_text_of_the_reported_size() {
    let machine = Machine::new();
    let link = machine.link(&mut [], &mut []);
    assert_eq!(machine.add_text(link, &ptx::small("7.0", "sm_80")), SUCCESS);
    let (mut image, mut bytes) = (std::ptr::null_mut::<c_void>(), 0);
    assert_eq!(cu!(machine, cuLinkComplete(link, &mut image, &mut bytes)), SUCCESS);
    // SAFETY: the image lives as long as the linker, and has as many bytes as were told.
    let made = unsafe { std::slice::from_raw_parts(image.cast::<u8>(), bytes) };
    let text = CStr::from_bytes_with_nul(made).expect("one zero byte, at the end");
    let module = machine.load(text).expect("what was linked loads");
    let mut store = CUfunction::NULL;
    let code = cu!(machine, cuModuleGetFunction(&mut store, module, c"store".as_ptr()));
    assert_eq!(code, SUCCESS);
    assert_eq!(cu!(machine, cuLinkDestroy(link)), SUCCESS);
}

#[test]
fn the_log_of_a_linker_names_the_error_of_an_input() {
    let machine = Machine::new();
    let mut log = vec![0u8; 400];
    let size: *mut c_void = std::ptr::without_provenance_mut(log.len());
    let mut options =
        [CUjit_option::CU_JIT_ERROR_LOG_BUFFER, CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    let mut values = [log.as_mut_ptr().cast(), size];
    let link = machine.link(&mut options, &mut values);
    let image = ptx::image("7.0", "sm_80", ".visible .entry bad()\n{\n    no.such.thing %r1;\n}\n");
    assert_eq!(machine.add_text(link, &image), CUresult::CUDA_ERROR_INVALID_PTX);
    let said = CStr::from_bytes_until_nul(&log).expect("a log ends in a zero byte");
    let said = said.to_str().expect("UTF-8");
    assert!(said.contains("found `no`"), "{said}");
}
