//! Feature `cuda-driver-sys`: conversions between the types of this crate and [`cuda_driver_sys`].
//!
//! A program can pass objects of `cuda-driver-sys` to code that uses this crate, and back. Handles
//! convert both ways, because they are the same pointers; device addresses and device ordinals are
//! the same integers in both crates. Results convert only to this crate: `CUresult` of
//! `cuda-driver-sys` is an enum, in which an unknown code would be undefined behavior, and current
//! drivers return codes that it does not know.
//!
//! ```
//! use retrograph_driver_sys::{CUresult, CUstream};
//!
//! fn theirs_to_ours(stream: cuda_driver_sys::CUstream) -> CUstream {
//!     stream.into()
//! }
//! assert_eq!(theirs_to_ours(std::ptr::null_mut()), CUstream::NULL);
//!
//! let code = cuda_driver_sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY;
//! assert_eq!(CUresult::from(code), CUresult::CUDA_ERROR_OUT_OF_MEMORY);
//! ```
//!
//! # Cost
//!
//! The build script of `cuda-driver-sys` links libcuda (`-lcuda`) into every program that depends
//! on it, even though only its types are used here. Such a program does not link on a machine
//! without that library, and does not start without a driver. To avoid this, override the build
//! script by a table in the `.cargo/config.toml` of the program, one for each target, and call no
//! function of that crate:
//!
//! ```toml
//! [target.x86_64-unknown-linux-gnu.cuda]
//! rustc-link-lib = []
//! ```

use cuda_driver_sys as theirs;

use crate::{
    CUarray, CUcontext, CUevent, CUexternalSemaphore, CUfunction, CUgraph, CUgraphExec,
    CUgraphNode, CUlinkState, CUmodule, CUresult, CUstream,
};

macro_rules! handles {
    ($($name:ident),* $(,)?) => {$(
        impl From<theirs::$name> for $name {
            fn from(handle: theirs::$name) -> Self {
                Self(handle.cast())
            }
        }

        impl From<$name> for theirs::$name {
            fn from(handle: $name) -> Self {
                handle.0.cast()
            }
        }
    )*};
}

handles! {
    CUcontext, CUmodule, CUfunction, CUlinkState, CUstream, CUevent, CUgraph, CUgraphNode,
    CUgraphExec, CUarray, CUexternalSemaphore,
}

impl From<theirs::CUresult> for CUresult {
    fn from(code: theirs::CUresult) -> Self {
        Self(code as u32)
    }
}
