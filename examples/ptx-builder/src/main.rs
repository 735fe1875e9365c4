//! A kernel written in Rust with `retrograph_ptx::build`: the sum of squares of each row, in a
//! fixed order. It is generated when the program runs, and launched.
//!
//! `cargo run` uses the simulated driver, `cargo run -- --gpu` the driver of this machine.

use std::error::Error;

use retrograph_driver::{
    Context, DeviceBuffer, DeviceIndex, Driver, KernelArguments, KernelLaunch, LaunchGeometry,
    Module, Stream,
};
use retrograph_ptx::SmTarget;
use retrograph_ptx::build::{Kernel, ModuleBuilder};

const ROWS: usize = 5;
const COLUMNS: usize = 70;
/// One warp per row.
const THREADS: u32 = 32;

fn main() -> Result<(), Box<dyn Error>> {
    // PTX for sm_75 runs on later devices too.
    let kernel = Kernel::build("row_sums", row_sums);
    let ptx = ModuleBuilder::new(SmTarget::portable(75)).entry(kernel).build().to_string();
    println!("{ptx}");

    let driver = match std::env::args().any(|argument| argument == "--gpu") {
        true => Driver::load()?,
        false => Driver::simulated(Default::default())?,
    };
    let context = Context::new(&driver, DeviceIndex(0))?;
    let stream = Stream::new(&context)?;
    let function = Module::load_ptx(&context, &ptx)?.function("row_sums")?;
    let data: Vec<f32> = (0..ROWS * COLUMNS).map(|i| (i % 11) as f32).collect();
    let x = DeviceBuffer::from_slice(&stream, &data)?;
    let sums = DeviceBuffer::<f32>::zeroed(&context, ROWS)?;
    let arguments = KernelArguments::new().buffer(&x).buffer(&sums).u32(COLUMNS as u32);
    let geometry = LaunchGeometry::linear(ROWS as u32, THREADS);
    let launch = KernelLaunch::new(&function, geometry, &arguments);
    // SAFETY: the arguments match the kernel, which reads ROWS · COLUMNS elements and writes ROWS.
    // Both buffers outlive the wait in `download`.
    unsafe { stream.launch(&launch) }?;

    let expected: Vec<f32> =
        data.chunks(COLUMNS).map(|row| row.iter().map(|x| x * x).sum()).collect();
    // Sums of small integers are exact in every order.
    assert_eq!(sums.download(&stream)?, expected);
    println!("// sums of squares: {expected:?}");
    Ok(())
}

/// `sums[row] = Σ x[row, i]²`, one warp per row. A Rust `for` would unroll; `range` is a loop.
fn row_sums(k: &Kernel<'_>) {
    let x = k.pointer::<f32>("x");
    let sums = k.pointer::<f32>("sums");
    let columns = k.param::<u32>("columns");
    k.max_threads(THREADS);
    let (row, lane) = (k.ctaid_x(), k.tid_x());
    let row_start = x.at(row * columns);
    let sum = k.var(0.0_f32);
    k.range(lane, columns, THREADS, |i| {
        let value = row_start.load(i);
        sum.set(value.fma(value, sum.get()));
    });
    let total = k.warp_sum(sum.get());
    k.when(lane.eq(0), || sums.store(row, total));
}
