//! Execution of instances on a driver.

use std::ffi::{CString, c_void};

use retrograph_driver_sys::{CUcontext, CUdeviceptr, CUmodule, CUresult, DriverTable};

use super::inputs::inputs;
use super::instance::Instance;
use super::kernel::{BLOCK, module};

/// A call that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call} returned {code}")]
pub struct RunError {
    /// The call.
    pub call: &'static str,
    /// The returned code.
    pub code: CUresult,
}

fn check(call: &'static str, code: CUresult) -> Result<(), RunError> {
    code.ok().map_err(|code| RunError { call, code })
}

/// Runs instances of one module. Returns the result words, case by case.
pub fn run(table: &DriverTable, instances: &[&Instance]) -> Result<Vec<Vec<u64>>, RunError> {
    let mut context = CUcontext::NULL;
    let mut loaded = CUmodule::NULL;
    let image = CString::new(module(instances)).expect("generated text has no zero byte");
    // SAFETY: the pointers are valid during the calls, and the image ends in a zero byte.
    unsafe {
        check("cuInit", (table.cuInit)(0))?;
        let retain = (table.cuDevicePrimaryCtxRetain)(&mut context, 0);
        check("cuDevicePrimaryCtxRetain", retain)?;
        check("cuCtxSetCurrent", (table.cuCtxSetCurrent)(context))?;
        let load = (table.cuModuleLoadData)(&mut loaded, image.as_ptr().cast());
        check("cuModuleLoadData", load)?;
    }
    let numbered = instances.iter().enumerate();
    let results = numbered.map(|(at, instance)| launch(table, loaded, at, instance)).collect();
    // SAFETY: all launches of the module are complete, or the context is lost.
    let _ = unsafe { (table.cuModuleUnload)(loaded) };
    results
}

/// Device memory that is freed at the end.
struct Block<'a> {
    table: &'a DriverTable,
    address: CUdeviceptr,
}

impl<'a> Block<'a> {
    fn new(table: &'a DriverTable, bytes: usize) -> Result<Self, RunError> {
        let mut address = 0;
        // SAFETY: the pointer is valid during the call.
        check("cuMemAlloc_v2", unsafe { (table.cuMemAlloc_v2)(&mut address, bytes) })?;
        Ok(Self { table, address })
    }
}

impl Drop for Block<'_> {
    fn drop(&mut self) {
        // SAFETY: the memory was allocated by this value, and launches that use it are complete.
        let _ = unsafe { (self.table.cuMemFree_v2)(self.address) };
    }
}

fn launch(
    table: &DriverTable,
    loaded: CUmodule,
    at: usize,
    instance: &Instance,
) -> Result<Vec<u64>, RunError> {
    let inputs = inputs(instance);
    let mut outputs = vec![0u64; instance.cases * instance.results.len()];
    let (bytes_in, bytes_out) = (inputs.len() * 8, outputs.len() * 8);
    let input = Block::new(table, bytes_in.max(8))?;
    let output = Block::new(table, bytes_out.max(8))?;
    let name = CString::new(format!("k{at}")).expect("the name has no zero byte");
    let threads = instance.cases.min(BLOCK);
    let blocks = instance.cases.div_ceil(threads);
    let (mut from, mut to) = (input.address, output.address);
    let mut arguments = [(&raw mut from).cast::<c_void>(), (&raw mut to).cast()];
    let mut function = retrograph_driver_sys::CUfunction::NULL;
    // SAFETY: all pointers are valid during the calls for the given sizes; the kernel has two
    // eight-byte parameters and accesses only the words of both blocks.
    unsafe {
        let copy = (table.cuMemcpyHtoD_v2)(from, inputs.as_ptr().cast(), bytes_in);
        check("cuMemcpyHtoD_v2", copy)?;
        check("cuMemsetD8_v2", (table.cuMemsetD8_v2)(to, 0, bytes_out))?;
        let found = (table.cuModuleGetFunction)(&mut function, loaded, name.as_ptr());
        check("cuModuleGetFunction", found)?;
        let launched = (table.cuLaunchKernel)(
            function,
            blocks as u32,
            1,
            1,
            threads as u32,
            1,
            1,
            0,
            retrograph_driver_sys::CUstream::NULL,
            arguments.as_mut_ptr(),
            std::ptr::null_mut(),
        );
        check("cuLaunchKernel", launched)?;
        check("cuCtxSynchronize", (table.cuCtxSynchronize)())?;
        let copy = (table.cuMemcpyDtoH_v2)(outputs.as_mut_ptr().cast(), to, bytes_out);
        check("cuMemcpyDtoH_v2", copy)?;
    }
    Ok(outputs)
}
