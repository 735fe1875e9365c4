//! SwiGLU of `retrograph-kernels`, launched by cudarc: image, grid and arguments come from a
//! [`Launch`]; module, memory and stream are cudarc's.
//!
//! cudarc loads libcuda by its name. With the simulator's libcuda.so.1 in LD_LIBRARY_PATH, this
//! needs no GPU.

use std::error::Error;
use std::sync::Arc;

use cudarc::driver::{
    CudaContext, CudaFunction, CudaStream, DevicePtr, DriverError, LaunchConfig, PushKernelArg, sys,
};
use cudarc::nvrtc::Ptx;
use retrograph_kernels::ops::{GatedActivation, Glu};
use retrograph_kernels::{Argument, Dispatch, Launch, SmTarget, View, images};

const N: usize = 1000;

fn main() -> Result<(), Box<dyn Error>> {
    // SAFETY: this loads the library that the loader finds under the driver's name.
    if !unsafe { sys::is_culib_present() } {
        return Err("there is no libcuda; README.md shows how to use the simulator's".into());
    }
    let context = CudaContext::new(0)?;
    let stream = context.new_stream()?;
    let (major, minor) = context.compute_capability()?;
    let target = SmTarget::for_device(major.try_into()?, minor.try_into()?)
        .ok_or("the device is older than all images")?;

    let gate: Vec<f32> = (0..N).map(|i| i as f32 / 100.0 - 5.0).collect();
    let up: Vec<f32> = (0..N).map(|i| 1.0 + i as f32 / 500.0).collect();
    let (gate_slice, up_slice) = (stream.clone_htod(&gate)?, stream.clone_htod(&up)?);
    let y_slice = stream.alloc_zeros::<f32>(N)?;

    // The guards order this stream with other streams of cudarc until they are dropped.
    let (gate_address, _gate) = gate_slice.device_ptr(&stream);
    let (up_address, _up) = up_slice.device_ptr(&stream);
    let (y_address, _y) = y_slice.device_ptr(&stream);
    let launch = Glu {
        activation: GatedActivation::Silu,
        gate: View::<u64, f32>::new(gate_address, N),
        up: View::<u64, f32>::new(up_address, N),
        out: View::<u64, f32>::new(y_address, N),
    }
    .launch()?;

    let dispatch = launch.dispatch(target);
    let function = load(&context, &launch, &dispatch, target)?;
    // SAFETY: the views are the memory of the slices, which outlive the wait below.
    unsafe { enqueue(&stream, &function, &launch, &dispatch)? };
    let y = stream.clone_dtoh(&y_slice)?;
    stream.synchronize()?;

    for ((y, gate), up) in y.iter().zip(&gate).zip(&up) {
        let expected = gate / (1.0 + (-gate).exp()) * up;
        assert!((y - expected).abs() <= 1e-5 * expected.abs().max(1.0), "{y} for {expected}");
    }
    println!("{}: {N} correct elements on {}", dispatch.entry, context.name()?);
    Ok(())
}

/// Loads the entry point of a launch, without the other entry points of its image.
fn load(
    context: &Arc<CudaContext>,
    launch: &Launch<u64>,
    dispatch: &Dispatch,
    target: SmTarget,
) -> Result<CudaFunction, Box<dyn Error>> {
    let image = launch.kernel().image;
    let ptx = images::entry_ptx(image, dispatch.entry, target).ok_or("no such image")?;
    Ok(context.load_module(Ptx::from_src(ptx))?.load_function(dispatch.entry)?)
}

/// Enqueues a launch.
///
/// # Safety
/// The views of the launch must be live device memory until the work has finished, and `function`
/// must be its entry point.
unsafe fn enqueue(
    stream: &Arc<CudaStream>,
    function: &CudaFunction,
    launch: &Launch<u64>,
    dispatch: &Dispatch,
) -> Result<(), DriverError> {
    // The driver reads as many bytes of each value as the parameter has.
    let values: Vec<u64> = launch
        .arguments()
        .iter()
        .map(|argument| match argument {
            Argument::Buffer(buffer) => buffer.buffer + buffer.bytes.start as u64,
            Argument::Null => 0,
            Argument::U32(bits) | Argument::F32(bits) => u64::from(*bits),
            Argument::U64(value) => *value,
            Argument::Table(_) | Argument::TensorMap(_) | Argument::Value(_) => {
                unimplemented!("docs/kernel-launches.md shows tables and tensor maps")
            }
        })
        .collect();
    let mut builder = stream.launch_builder(function);
    for value in &values {
        builder.arg(value);
    }
    let [grid, block] = [dispatch.grid, dispatch.block].map(|[x, y, z]| (x, y, z));
    let shared_mem_bytes = dispatch.shared_bytes;
    let config = LaunchConfig { grid_dim: grid, block_dim: block, shared_mem_bytes };
    // SAFETY: the values are the entry point's parameters; the caller upholds the rest.
    unsafe { builder.launch(config) }.map(drop)
}
