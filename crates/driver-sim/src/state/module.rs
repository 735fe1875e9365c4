//! Modules and functions.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::sync::Arc;

use retrograph_driver_sys::{CUfunction, CUkernel, CUlibrary, CUmodule};
use retrograph_ptx::SmTarget;
use retrograph_ptx_exec::Program;

use crate::api::{LegacyLaunch, LoadFailure};
use crate::globals::Globals;
use crate::image::{Image, Programs};

/// A loaded module.
pub(crate) struct Module {
    pub(crate) device: usize,
    pub(crate) target: SmTarget,
    /// Decoded kernels by name.
    pub(crate) programs: Programs,
    /// Handles of functions by name, created on first use.
    pub(crate) functions: BTreeMap<String, CUfunction>,
    /// Address and size of global variables by name.
    pub(crate) globals: Globals,
    /// The library that loaded the module; only it unloads the module.
    pub(crate) library: Option<CUlibrary>,
    /// Bytes of the constant variables, which all kernels share.
    pub(crate) constant_bytes: u32,
    /// The maximum registers per thread, from an option of the load.
    pub(crate) max_registers: Option<u32>,
}

/// A function of a module.
pub(crate) struct Function {
    pub(crate) device: usize,
    pub(crate) module: CUmodule,
    pub(crate) name: CString,
    pub(crate) program: Arc<Program>,
    /// The maximum registers per thread, from an option of the load.
    pub(crate) max_registers: Option<u32>,
    /// The maximum of dynamic shared memory of a launch, in bytes.
    pub(crate) dynamic_shared_limit: u32,
    /// The preferred shared memory carveout in percent, or -1.
    pub(crate) carveout: i32,
    /// The required cluster size in x, y and z; zeros for none.
    pub(crate) cluster: [i32; 3],
    /// Whether clusters above the portable size are allowed.
    pub(crate) large_clusters: bool,
    /// The scheduling policy of clusters.
    pub(crate) cluster_policy: i32,
    /// What the calls from before `cuLaunchKernel` have set.
    pub(crate) legacy: LegacyLaunch,
}

/// A library: an image that is loaded as a module in each context that uses it.
pub(crate) struct Library {
    /// The PTX, compiled when a context first needs it, or why there is none for the devices.
    pub(crate) text: Result<Arc<str>, LoadFailure>,
    /// The parsed PTX, after the first use.
    pub(crate) image: Option<Arc<Image>>,
    /// Modules by the index of their context among the devices.
    pub(crate) modules: BTreeMap<usize, CUmodule>,
    pub(crate) kernels: BTreeMap<String, CUkernel>,
    /// Address and size of the managed variables, which all contexts share, after the first use.
    pub(crate) managed: Option<Globals>,
    /// The maximum registers per thread, from an option of the load.
    pub(crate) max_registers: Option<u32>,
}

/// A kernel of a library.
pub(crate) struct Kernel {
    pub(crate) library: CUlibrary,
    pub(crate) name: CString,
}
