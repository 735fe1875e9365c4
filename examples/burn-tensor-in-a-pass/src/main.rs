//! A pass over the memory of CUDA tensors of burn, with kernels of `retrograph-kernels`. Nothing is
//! copied: burn creates the tensors, the pass reads and writes their memory, burn reads the result.
//!
//! Both crates load libcuda by its name. With the simulator's libcuda.so.1 in LD_LIBRARY_PATH, this
//! needs no GPU.

use std::error::Error;
use std::sync::Arc;

use burn_cuda::{Cuda, CudaDevice};
use burn_tensor::backend::Backend;
use burn_tensor::{Tensor, TensorData};
use retrograph_kernels::ops::{Fprop, GemmShape, Silu};
use retrograph_runtime::{
    Bindings, Context, DeviceBuffer, DeviceIndex, Driver, ModuleCache, Pass, Policy, Program,
    Stream,
};

type Matrix = Tensor<Cuda, 2>;

const SHAPE: GemmShape = GemmShape { rows: 5, inputs: 8, outputs: 16 };

fn main() -> Result<(), Box<dyn Error>> {
    // Both crates use the primary context of the device.
    let context = Context::new(&Driver::load()?, DeviceIndex(0))?;
    let device = CudaDevice::new(0);

    // Their part: tensors, of which y is not initialized.
    let GemmShape { rows, inputs, outputs } = SHAPE;
    let batches = [0, 7].map(|first| values(rows * inputs, |i| (i + first) % 11 - 5));
    let w = values(outputs * inputs, |i| i % 5 - 2);
    let matrix = |values: &[f32], shape: [usize; 2]| {
        Matrix::from_data(TensorData::new(values.to_vec(), shape), &device)
    };
    let x_tensors = batches.each_ref().map(|x| matrix(x, [rows, inputs]));
    let w_tensor = matrix(&w, [outputs, inputs]);
    let y_tensor = Matrix::empty([rows, outputs], &device);

    // Our part: y = SiLU(x · wᵀ) as a pass, which runs as a graph.
    let mut pass = Pass::new("linear and SiLU");
    let x_view = pass.external::<f32>("x", rows * inputs);
    let w_view = pass.external::<f32>("w", outputs * inputs);
    let y_view = pass.external::<f32>("y", rows * outputs);
    let product = pass.transient::<f32>("product", rows * outputs);
    let (bias, alpha, accumulate) = (None, 1.0, false);
    let linear = Fprop { x: x_view, w: w_view, bias, y: product, shape: SHAPE, alpha, accumulate };
    pass.launch(linear.launch()?)?;
    pass.launch(Silu { x: product, y: y_view }.launch()?)?;

    let modules = ModuleCache::new(&context).prewarm(&pass.requirements(), |_| ())?;
    let stream = Stream::new(&context)?;
    let mut bindings = Bindings::new();
    bindings.bind(x_view, &borrow(&context, &x_tensors[0])?);
    bindings.bind(w_view, &borrow(&context, &w_tensor)?);
    bindings.bind(y_view, &borrow(&context, &y_tensor)?);
    let mut program = Program::build(&stream, &modules, &pass, &bindings, Policy::Manual)?;

    // Each batch is another tensor, whose address replaces the previous one in the graph.
    for (x, x_tensor) in batches.iter().zip(&x_tensors) {
        let mut bindings = Bindings::new();
        bindings.bind(x_view, &borrow(&context, x_tensor)?);
        program.rebind(&stream, &bindings)?;

        // burn does not expose its stream, so the host orders the work: the step starts after the
        // work of burn, and burn reads y after the step.
        <Cuda as Backend>::sync(&device)?;
        program.step(&stream, &pass.controls())?;
        stream.synchronize()?;
        check(&y_tensor.to_data().to_vec()?, x, &w);
    }
    println!("{}", program.report());
    Ok(())
}

/// `len` multiples of ¼.
fn values(len: usize, value: impl Fn(i32) -> i32) -> Vec<f32> {
    (0..).take(len).map(|i| 0.25 * value(i) as f32).collect()
}

/// The memory of a tensor as a buffer of this crate, which holds the tensor.
fn borrow(context: &Context, tensor: &Matrix) -> Result<DeviceBuffer<f32>, Box<dyn Error>> {
    let (len, tensor) = (tensor.shape().num_elements(), tensor.clone().into_primitive().tensor());
    if !tensor.is_contiguous() {
        return Err(format!("{tensor:?} has padding between its rows; see README.md").into());
    }
    let address = tensor.client.get_resource(tensor.handle.clone())?.resource().ptr;
    // SAFETY: the tensor is part of an allocation in the primary context, and keeps its address as
    // long as the owner lives. The host waits between work of burn and steps.
    Ok(unsafe { DeviceBuffer::from_raw(context, address, len, Arc::new(tensor)) })
}

/// Compares y with SiLU(x · wᵀ), computed on the CPU.
fn check(y: &[f32], x: &[f32], w: &[f32]) {
    let GemmShape { rows, inputs, outputs } = SHAPE;
    assert_eq!(y.len(), rows * outputs);
    for (index, y) in y.iter().enumerate() {
        let (row, output) = (index / outputs, index % outputs);
        let product: f32 = (0..inputs).map(|i| x[row * inputs + i] * w[output * inputs + i]).sum();
        let expected = product / (1.0 + (-product).exp());
        assert!((y - expected).abs() < 1e-4, "{y} for {expected}");
    }
}
