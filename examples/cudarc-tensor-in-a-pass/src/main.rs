//! A pass over memory that cudarc allocated, on a stream that cudarc made, with kernels of
//! `retrograph-kernels`. The CUDA tensors of candle are such slices (`CudaStorage::as_cuda_slice`).
//!
//! Both crates load libcuda by its name. With the simulator's libcuda.so.1 in LD_LIBRARY_PATH, this
//! needs no GPU.

use std::error::Error;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaSlice, DevicePtr, sys};
use retrograph_kernels::ops::{Fprop, GemmShape, Silu};
use retrograph_runtime::{
    Bindings, Context, DeviceBuffer, DeviceIndex, Driver, ModuleCache, Pass, Policy, Program,
    Stream, sys::CUstream,
};

const SHAPE: GemmShape = GemmShape { rows: 4, inputs: 3, outputs: 5 };

fn main() -> Result<(), Box<dyn Error>> {
    // SAFETY: this loads the library that the loader finds under the driver's name.
    if !unsafe { sys::is_culib_present() } {
        return Err("there is no libcuda; README.md shows how to use the simulator's".into());
    }
    // Their part: a stream and three tensors.
    let their_stream = CudaContext::new(0)?.new_stream()?;
    let GemmShape { rows, inputs, outputs } = SHAPE;
    let x: Vec<f32> = (0..rows * inputs).map(|i| i as f32 - 5.0).collect();
    let w: Vec<f32> = (0..outputs * inputs).map(|i| 0.25 * i as f32 - 1.0).collect();
    let x_slice = Arc::new(their_stream.clone_htod(&x)?);
    let w_slice = Arc::new(their_stream.clone_htod(&w)?);
    let y_slice = Arc::new(their_stream.alloc_zeros::<f32>(rows * outputs)?);

    // Our part: y = SiLU(x · wᵀ) as a pass.
    let mut pass = Pass::new("linear and SiLU");
    let x_view = pass.external::<f32>("x", x_slice.len());
    let w_view = pass.external::<f32>("w", w_slice.len());
    let y_view = pass.external::<f32>("y", y_slice.len());
    let product = pass.transient::<f32>("product", y_slice.len());
    let (bias, alpha, accumulate) = (None, 1.0, false);
    let linear = Fprop { x: x_view, w: w_view, bias, y: product, shape: SHAPE, alpha, accumulate };
    pass.launch(linear.launch()?)?;
    pass.launch(Silu { x: product, y: y_view }.launch()?)?;

    // Both crates use the primary context of the device.
    let context = Context::new(&Driver::load()?, DeviceIndex(0))?;
    let modules = ModuleCache::new(&context).prewarm(&pass.requirements(), |_| ())?;
    // SAFETY: it is a stream of the primary context, and lives as long as the owner.
    let stream = unsafe {
        let handle = CUstream(their_stream.cu_stream().cast());
        Stream::from_raw(&context, handle, Arc::new(their_stream.clone()))
    };
    let mut bindings = Bindings::new();
    bindings.bind(x_view, &borrow(&context, &x_slice));
    bindings.bind(w_view, &borrow(&context, &w_slice));
    bindings.bind(y_view, &borrow(&context, &y_slice));
    let mut program = Program::build(&stream, &modules, &pass, &bindings, Policy::Auto)?;
    program.step(&stream, &pass.controls())?;

    // Their stream orders their copy after our step.
    let y = their_stream.clone_dtoh(&*y_slice)?;
    their_stream.synchronize()?;
    for (index, y) in y.iter().enumerate() {
        let (row, output) = (index / outputs, index % outputs);
        let product: f32 = (0..inputs).map(|i| x[row * inputs + i] * w[output * inputs + i]).sum();
        let expected = product / (1.0 + (-product).exp());
        assert!((y - expected).abs() < 1e-4, "{y} for {expected}");
    }
    println!("{}", program.report());
    Ok(())
}

/// The memory of a slice as a buffer of this crate, which holds the slice.
fn borrow(context: &Context, slice: &Arc<CudaSlice<f32>>) -> DeviceBuffer<f32> {
    let (address, _guard) = slice.device_ptr(slice.stream());
    let owner = slice.clone();
    // SAFETY: the slice is an allocation in the primary context, and lives as long as the owner.
    // All work on it is on one stream.
    unsafe { DeviceBuffer::from_raw(context, address, slice.len(), owner) }
}
