//! Programs in a green context, which has only a part of the SMs of a device.

use std::sync::Arc;

use half::bf16;
use retrograph_driver_sys::{
    CU_GREEN_CTX_DEFAULT_STREAM, CUcontext, CUdevResource, CUdevResourceDesc, CUdevResourceType,
    CUdevSmResource, CUgreenCtx, CUresult, DriverTable,
};
use retrograph_kernels::DType;
use retrograph_kernels::ops::{Fprop, GemmShape};
use retrograph_runtime::{Bindings, Context, DeviceBuffer, Driver, Pass, Policy, Stream};

use crate::device::{Device, device};
use crate::failing_programs::Bench;
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

/// Sizes of a product of more tiles than the green context has SMs.
const SHAPE: GemmShape = GemmShape { rows: 600, inputs: 72, outputs: 1032 };

/// Random operands of the product.
fn operands() -> [Vec<bf16>; 2] {
    let mut data = Data::new("a product in a green context");
    let GemmShape { rows, inputs, outputs } = SHAPE;
    [rows * inputs, outputs * inputs]
        .map(|len| data.uniform(len, 2.0).into_iter().map(bf16::from_f32).collect())
}

/// The product of these operands, and the blocks of its launch.
fn product(device: &Device, operands: &[Vec<bf16>; 2]) -> (Vec<f32>, u32) {
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
    let y = y_data.download(&device.stream).unwrap();
    // SAFETY: the graph is not launched.
    let graph = unsafe { program.graph(&device.stream) }.unwrap();
    let nodes = graph.nodes().unwrap().into_iter();
    let blocks = nodes.map(|node| graph.kernel_params(node).unwrap().geometry.grid[0]);
    (y, blocks.max().unwrap())
}

/// Reports [`PART`] SMs.
unsafe extern "C" fn part_of_device(
    _: CUcontext,
    resource: *mut CUdevResource,
    kind: CUdevResourceType,
) -> CUresult {
    // SAFETY: the caller gives a valid pointer.
    let resource = unsafe { &mut *resource };
    resource.r#type = kind;
    resource.anonymous.sm = CUdevSmResource { smCount: PART, ..CUdevSmResource::default() };
    CUresult::CUDA_SUCCESS
}

#[test]
fn a_launch_has_as_many_persistent_blocks_as_the_context_has_sms() {
    let change = |table: &mut DriverTable| table.cuCtxGetDevResource = Some(part_of_device);
    let [whole, part] = [Bench::new(0), Bench::with_table(0, change)].map(|bench| bench.device);
    assert_eq!([&whole, &part].map(|it| it.context.multiprocessors()), [132, PART]);
    let operands = operands();
    let ((all, blocks), (fewer, part)) = (product(&whole, &operands), product(&part, &operands));
    assert!(blocks > PART && part == PART, "{blocks} and {part}");
    same_bits(&fewer, &all, "with fewer blocks");
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
    let operands = operands();
    let (part, blocks) = product(&Device { context, stream }, &operands);
    assert_eq!(blocks, PART);
    same_bits(&part, &product(&whole, &operands).0, "a part of the SMs");
}
