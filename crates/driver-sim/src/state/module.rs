//! Modules and functions.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::sync::Arc;

use retrograph_driver_sys::{CUfunction, CUkernel, CUlibrary, CUmodule};
use retrograph_ptx::{SmTarget, ast};

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
    /// The library that it belongs to, which alone unloads it.
    pub(crate) library: Option<CUlibrary>,
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
    /// The cluster that launches must have along x, y and z; zeros for none.
    pub(crate) cluster: [i32; 3],
    /// Whether clusters may be larger than every device has.
    pub(crate) large_clusters: bool,
    /// How clusters are spread over the device.
    pub(crate) cluster_policy: i32,
}

/// A library: an image that becomes a module of each context that uses it.
pub(crate) struct Library {
    /// The text, which is compiled when a context needs it.
    pub(crate) text: Arc<str>,
    /// The compiled text, once a kernel or a module was asked for.
    pub(crate) image: Option<Arc<ast::Module>>,
    /// The modules by the place of their context among the devices.
    pub(crate) modules: BTreeMap<usize, CUmodule>,
    pub(crate) kernels: BTreeMap<String, CUkernel>,
}

/// A kernel of a library.
pub(crate) struct Kernel {
    pub(crate) library: CUlibrary,
    pub(crate) name: CString,
}
