//! Modules and functions.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::sync::Arc;

use retrograph_driver_sys::{CUfunction, CUmodule};
use retrograph_ptx::SmTarget;

use crate::exec::Program;

/// A loaded module.
pub(crate) struct Module {
    pub(crate) device: usize,
    pub(crate) target: SmTarget,
    /// The kernels by name, decoded when the module was loaded.
    pub(crate) programs: BTreeMap<String, Arc<Program>>,
    /// Functions that were asked for, by name: a function has one handle.
    pub(crate) functions: BTreeMap<String, CUfunction>,
    /// Address and size of each global variable.
    pub(crate) globals: BTreeMap<String, (u64, u64)>,
}

/// A function of a module.
pub(crate) struct Function {
    pub(crate) device: usize,
    pub(crate) module: CUmodule,
    pub(crate) name: CString,
    pub(crate) program: Arc<Program>,
    /// The most dynamic shared memory that it may be launched with, in bytes.
    pub(crate) dynamic_shared_limit: u32,
    /// The preferred share of shared memory in percent, or -1.
    pub(crate) carveout: i32,
}
