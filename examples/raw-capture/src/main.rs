//! Stream capture and `cuGraphAddKernelNode` with the raw driver API: a captured launch, a node
//! added by hand after it, and a replay.
//!
//! `cargo run` uses the simulated driver, `cargo run -- --gpu` the driver of this machine.

use std::error::Error;
use std::ffi::{CStr, c_void};
use std::ptr::null_mut;

use retrograph_driver_sim::{Config, Simulator};
use retrograph_driver_sys::*;

/// Multiplies a word by a factor.
const SCALE: &CStr = c"
.version 8.0
.target sm_75
.address_size 64
.visible .entry scale(.param .u64 word, .param .u32 factor)
{
    .reg .u64 %address;
    .reg .u32 %value;
    .reg .u32 %factor;
    ld.param.u64 %address, [word];
    ld.param.u32 %factor, [factor];
    ld.global.u32 %value, [%address];
    mul.lo.u32 %value, %value, %factor;
    st.global.u32 [%address], %value;
    ret;
}
";

fn main() -> Result<(), Box<dyn Error>> {
    if std::env::args().any(|argument| argument == "--gpu") {
        // SAFETY: the table is the driver's, which accepts these calls from any thread.
        unsafe { run(&DriverTable::load()?) }
    } else {
        let simulator = Simulator::new(Config::default())?;
        // SAFETY: as above, and the simulator outlives the calls.
        unsafe { run(simulator.table())? };
        simulator.finish().map_err(|live| format!("leaked: {live:?}").into())
    }
}

/// Runs the example.
///
/// # Safety
/// The functions of `driver` must behave as documented by NVIDIA.
unsafe fn run(driver: &DriverTable) -> Result<(), Box<dyn Error>> {
    let (mut context, mut stream) = (CUcontext::NULL, CUstream::NULL);
    let (mut module, mut function) = (CUmodule::NULL, CUfunction::NULL);
    let (mut graph, mut exec) = (CUgraph::NULL, CUgraphExec::NULL);
    let (mut word, mut result): (CUdeviceptr, u32) = (0, 0);

    // SAFETY: pointers are valid during their calls, handles live until they are destroyed, and the
    // kernel accesses the four bytes at `word`.
    unsafe {
        (driver.cuInit)(0).ok()?;
        (driver.cuDevicePrimaryCtxRetain)(&mut context, 0).ok()?;
        (driver.cuCtxSetCurrent)(context).ok()?;
        (driver.cuStreamCreate)(&mut stream, CU_STREAM_NON_BLOCKING).ok()?;
        (driver.cuModuleLoadData)(&mut module, SCALE.as_ptr().cast()).ok()?;
        (driver.cuModuleGetFunction)(&mut function, module, c"scale".as_ptr()).ok()?;
        (driver.cuMemAlloc_v2)(&mut word, 4).ok()?;
        (driver.cuMemsetD32Async)(word, 1, 1, stream).ok()?;

        // One parameter list for both nodes: the driver copies the values at each call.
        let mut factor = 2_u32;
        let mut parameters: [*mut c_void; 2] = [(&raw mut word).cast(), (&raw mut factor).cast()];

        // The captured node multiplies by 2.
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        (driver.cuStreamBeginCapture_v2)(stream, mode).ok()?;
        let (list, extra) = (parameters.as_mut_ptr(), null_mut());
        let launched = (driver.cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, stream, list, extra);
        // End the capture even after an error: an open capture makes other calls fail.
        let ended = (driver.cuStreamEndCapture)(stream, &mut graph);
        launched.ok()?;
        ended.ok()?;

        // A second node, which waits for the captured one, multiplies by 5.
        let (mut captured, mut count) = (CUgraphNode::NULL, 1);
        (driver.cuGraphGetNodes)(graph, &mut captured, &mut count).ok()?;
        assert_eq!(count, 1, "the capture has one node");
        (&raw mut factor).write(5);
        let node = CUDA_KERNEL_NODE_PARAMS {
            func: function,
            kernelParams: parameters.as_mut_ptr(),
            ..CUDA_KERNEL_NODE_PARAMS::default()
        };
        let mut added = CUgraphNode::NULL;
        (driver.cuGraphAddKernelNode_v2)(&mut added, graph, &captured, 1, &node).ok()?;

        (driver.cuGraphInstantiateWithFlags)(&mut exec, graph, 0).ok()?;
        for _ in 0..3 {
            (driver.cuGraphLaunch)(exec, stream).ok()?;
        }
        (driver.cuMemcpyDtoHAsync_v2)((&raw mut result).cast(), word, 4, stream).ok()?;
        (driver.cuStreamSynchronize)(stream).ok()?;

        (driver.cuGraphExecDestroy)(exec).ok()?;
        (driver.cuGraphDestroy)(graph).ok()?;
        (driver.cuMemFree_v2)(word).ok()?;
        (driver.cuModuleUnload)(module).ok()?;
        (driver.cuStreamDestroy_v2)(stream).ok()?;
        (driver.cuDevicePrimaryCtxRelease_v2)(0).ok()?;
    }
    assert_eq!(result, 1000, "three replays of 2 · 5");
    println!("three replays: {result}");
    Ok(())
}
