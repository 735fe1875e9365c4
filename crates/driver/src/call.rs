//! Driver calls: the macro for calls and the error of a failed call.

use std::fmt;

use retrograph_driver_sys::CUresult;

/// Calls a required function of the driver table and converts its code to a result. The first
/// argument is a driver or a context, or anything else with `table()` and `check(name, code)`.
macro_rules! call {
    ($owner:expr, $function:ident($($argument:expr),* $(,)?)) => {{
        let code = ($owner.table().$function)($($argument),*);
        $owner.check(stringify!($function), code)
    }};
}

/// A driver call that returned an error code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallError {
    /// The function, for example `cuMemAlloc_v2`.
    pub call: &'static str,
    /// The code that it returned.
    pub code: CUresult,
    /// The driver's name for the code, for example `CUDA_ERROR_OUT_OF_MEMORY`.
    pub name: Box<str>,
    /// The driver's description of the code.
    pub description: Box<str>,
}

impl CallError {
    /// Whether the context is lost: every later call in it returns this code (226, 700, 702, 710,
    /// 714–719, 721).
    pub fn is_sticky(&self) -> bool {
        self.code.is_sticky()
    }

    /// Whether the code belongs to a broken stream capture (900–908), which is recoverable.
    pub fn is_capture(&self) -> bool {
        self.code.is_capture()
    }

    /// Whether the device had too little memory.
    pub fn is_out_of_memory(&self) -> bool {
        self.code == CUresult::CUDA_ERROR_OUT_OF_MEMORY
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} returned {} ({}): {}", self.call, self.code.0, self.name, self.description)
    }
}

impl std::error::Error for CallError {}
