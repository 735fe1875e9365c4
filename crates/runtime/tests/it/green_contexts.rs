//! Programs in a green context, which has only a part of the SMs of a device.

use std::sync::Arc;

use half::bf16;
use retrograph_driver_sys::{
    CU_GREEN_CTX_DEFAULT_STREAM, CUcontext, CUdevResource, CUdevResourceDesc, CUdevResourceType,
    CUgreenCtx, CUresult,
};
use retrograph_kernels::DType;
use retrograph_kernels::ops::{Fprop, GemmShape};
use retrograph_runtime::{Bindings, Context, DeviceBuffer, Driver, Pass, Policy, Stream};

use crate::device::{Device, device};
use crate::programs::build;
use crate::support::numbers::{Data, same_bits};

/// SMs of the green context.
const PART: u32 = 48;

/// A green context of another library, which destroys it.
struct Green {
    driver: Driver,
    green: CUgreenCtx,
    raw: CUcontext,
}

impl Green {
    /// A green context on the device of `context`, or the code of the driver that refuses one.
    fn new(context: &Context) -> Result<Self, CUresult> {
        let driver = context.driver().clone();
        let (mut device, kind) = (0, CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM);
        let (mut all, mut part) = (CUdevResource::default(), CUdevResource::default());
        let (mut groups, mut description) = (1, CUdevResourceDesc::NULL);
        let (mut green, mut raw) = (CUgreenCtx::NULL, CUcontext::NULL);
        let table = driver.table();
        let of_device = table.cuDeviceGetDevResource.unwrap();
        let split = table.cuDevSmResourceSplitByCount.unwrap();
        let describe = table.cuDevResourceGenerateDesc.unwrap();
        let create = table.cuGreenCtxCreate.unwrap();
        let convert = table.cuCtxFromGreenCtx.unwrap();
        let rest = std::ptr::null_mut();
        // SAFETY: the pointers are valid, and each call succeeds before its result is used.
        unsafe {
            (table.cuDeviceGet)(&mut device, context.index().0 as i32).ok()?;
            of_device(device, &mut all, kind).ok()?;
            split(&mut part, &mut groups, &all, rest, 0, PART).ok()?;
            describe(&mut description, &mut part, 1).ok()?;
            create(&mut green, description, device, CU_GREEN_CTX_DEFAULT_STREAM).ok()?;
            convert(&mut raw, green).ok()?;
        }
        Ok(Self { driver, green, raw })
    }
}

impl Drop for Green {
    fn drop(&mut self) {
        let destroy = self.driver.table().cuGreenCtxDestroy.unwrap();
        // SAFETY: everything in the context has been dropped.
        unsafe { destroy(self.green) }.ok().unwrap();
    }
}

/// Sizes of a product of more tiles than SMs.
const SHAPE: GemmShape = GemmShape { rows: 1000, inputs: 328, outputs: 2056 };

/// The product of these operands.
fn product(device: &Device, operands: &[Vec<bf16>; 2]) -> Vec<f32> {
    let shape @ GemmShape { rows, inputs, outputs } = SHAPE;
    let mut pass = Pass::new("product");
    let x = pass.external::<bf16>("x", rows * inputs);
    let w = pass.external::<bf16>("w", outputs * inputs);
    let y = pass.external::<f32>("y", rows * outputs);
    let fprop = Fprop { x, w, bias: None, y, shape, alpha: 1.0, accumulate: false };
    pass.launch(fprop.launch_in(DType::Bf16).unwrap()).unwrap();
    let [x_data, w_data] =
        operands.each_ref().map(|values| DeviceBuffer::from_slice(&device.stream, values).unwrap());
    let y_data = DeviceBuffer::from_slice(&device.stream, &vec![f32::NAN; y.len()]).unwrap();
    let mut bindings = Bindings::new();
    bindings.bind(x, &x_data).bind(w, &w_data).bind(y, &y_data);
    let mut program = build(device, &pass, &bindings, Policy::Manual).unwrap();
    program.step(&device.stream, &pass.controls()).unwrap();
    y_data.download(&device.stream).unwrap()
}

/// The simulator refuses green contexts.
#[test]
fn a_program_in_a_green_context_has_the_same_bits() {
    let whole = device();
    let green = match Green::new(&whole.context) {
        Err(code) if whole.context.driver().is_simulated() => {
            assert_eq!(code, CUresult::CUDA_ERROR_NOT_SUPPORTED);
            return assert_eq!(whole.context.multiprocessors(), 132);
        }
        green => Arc::new(green.unwrap()),
    };
    // SAFETY: the owner destroys the context when it is dropped.
    let context = unsafe { Context::from_raw(&green.driver, green.raw, green.clone()) }.unwrap();
    assert_eq!(context.multiprocessors(), PART);
    let stream = Stream::new(&context).unwrap();
    let mut data = Data::new("a product in a green context");
    let GemmShape { rows, inputs, outputs } = SHAPE;
    let operands = [rows * inputs, outputs * inputs]
        .map(|len| data.uniform(len, 2.0).into_iter().map(bf16::from_f32).collect());
    let part = product(&Device { context, stream }, &operands);
    same_bits(&part, &product(&whole, &operands), "a part of the SMs");
}
