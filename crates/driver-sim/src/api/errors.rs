//! Initialization, driver version, and names and descriptions of codes.

use std::ffi::{CString, c_char};
use std::sync::LazyLock;

use retrograph_driver_sys::CUresult;

use crate::argument::{Call, Out};
use crate::refusal::{Rule, invalid, refuse};
use crate::state::{CoreDumps, State};

/// Texts of the driver that the test suite of cuda-bindings compares. The other texts are our own.
const OF_THE_DRIVER: [(CUresult, &str); 2] = [
    (CUresult::CUDA_SUCCESS, "no error"),
    (CUresult::CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
];

/// Name and description of every known code, as static C strings.
static TEXTS: LazyLock<Vec<(CUresult, CString, CString)>> = LazyLock::new(|| {
    let text = |text: Option<&str>| CString::new(text.unwrap_or_default()).unwrap_or_default();
    let known = CUresult::KNOWN.iter();
    let compared = |code| OF_THE_DRIVER.iter().find(|(known, _)| *known == code);
    let meaning = |code: CUresult| compared(code).map(|(_, text)| *text).or(code.meaning());
    known.map(|code| (*code, text(code.name()), text(meaning(*code)))).collect()
});

fn texts_of(code: CUresult) -> Option<&'static (CUresult, CString, CString)> {
    TEXTS.iter().find(|(known, ..)| *known == code)
}

impl State {
    pub(crate) fn cuInit(&mut self, flags: u32) -> Call {
        if flags != 0 {
            return Err(invalid(Rule::ErrorsCuInit));
        }
        if self.devices.is_empty() {
            return Err(refuse(CUresult::CUDA_ERROR_NO_DEVICE, Rule::ErrorsNoDevice));
        }
        if !self.initialized {
            // Contexts do not get settings from before the initialization.
            self.core_dumps = CoreDumps::default();
        }
        self.initialized = true;
        Ok(())
    }

    pub(crate) fn cuDriverGetVersion(&mut self, version: Out<i32>) -> Call {
        version.write(self.config.driver_version)
    }

    pub(crate) fn cuGetErrorName(&mut self, error: CUresult, name: Out<*const c_char>) -> Call {
        if name.is_null() {
            return Err(self.undefined("the result is written through null"));
        }
        let found = texts_of(error);
        name.write(found.map_or(std::ptr::null(), |(_, name, _)| name.as_ptr()))?;
        found.map(|_| ()).ok_or(invalid(Rule::ErrorsCuGetErrorName))
    }

    pub(crate) fn cuGetErrorString(&mut self, error: CUresult, text: Out<*const c_char>) -> Call {
        if text.is_null() {
            return Err(self.undefined("the result is written through null"));
        }
        let found = texts_of(error);
        text.write(found.map_or(std::ptr::null(), |(_, _, text)| text.as_ptr()))?;
        found.map(|_| ()).ok_or(invalid(Rule::ErrorsCuGetErrorString))
    }
}
