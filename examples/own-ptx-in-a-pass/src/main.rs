//! A PTX kernel of your own as two operations of a pass: `y = 3 · (2 · x)`, replayed as one graph.
//!
//! `cargo run` uses the simulated driver, `cargo run -- --gpu` the driver of this machine.

use std::error::Error;

use retrograph_runtime::modules::{Bundle, CacheOptions};
use retrograph_runtime::{
    Argument, Bindings, Context, CustomImage, CustomLaunch, DeviceBuffer, DeviceIndex, Driver,
    LaunchGeometry, ModuleCache, OpId, Pass, PassError, Policy, Program, Slice, Stream,
};

/// What build.rs has made: the PTX `SCALE`, and the machine code `BUNDLE`.
mod kernels {
    include!(concat!(env!("OUT_DIR"), "/kernels.rs"));
}

const N: usize = 1000;
const THREADS: u32 = 256;

fn main() -> Result<(), Box<dyn Error>> {
    let driver = match std::env::args().any(|argument| argument == "--gpu") {
        true => Driver::load()?,
        false => Driver::simulated(Default::default())?,
    };

    // Describe the step. No device is needed.
    let mut pass = Pass::new("scale twice");
    let (x, y) = (pass.external::<f32>("x", N), pass.external::<f32>("y", N));
    let doubled = pass.transient::<f32>("doubled", N);
    scale(&mut pass, x, doubled, 2.0)?;
    scale(&mut pass, doubled, y, 3.0)?;
    println!("{}", pass.explain());

    // Load the kernel and bind the pass to memory.
    let context = Context::new(&driver, DeviceIndex(0))?;
    let bundle = Bundle::from_static(kernels::BUNDLE)?;
    println!(
        "machine code: {:?}",
        bundle.targets().iter().map(|it| it.to_string()).collect::<Vec<_>>()
    );
    // The simulator executes PTX, and machine code is for devices.
    let mut options = CacheOptions::default();
    options.bundles = if driver.is_simulated() { Vec::new() } else { vec![bundle] };
    let cache = ModuleCache::with(&context, options);
    let modules = cache.prewarm(&pass.requirements(), |_| ())?;
    println!("the kernel came from: {}", modules.report().sources());
    let stream = Stream::new(&context)?;
    let input: Vec<f32> = (0..N).map(|i| i as f32).collect();
    let input_buffer = DeviceBuffer::from_slice(&stream, &input)?;
    let output_buffer = DeviceBuffer::<f32>::zeroed(&context, N)?;
    let mut bindings = Bindings::new();
    bindings.bind(x, &input_buffer).bind(y, &output_buffer);
    let mut program = Program::build(&stream, &modules, &pass, &bindings, Policy::Auto)?;

    // Each step is one graph launch.
    program.step(&stream, &pass.controls())?;
    let output = output_buffer.download(&stream)?;
    assert!(output.iter().zip(&input).all(|(y, x)| *y == 6.0 * x), "{output:?}");
    println!("{}", program.report());
    Ok(())
}

/// Appends `y = a · x`.
fn scale(pass: &mut Pass, x: Slice<f32>, y: Slice<f32>, a: f32) -> Result<OpId, PassError> {
    assert!(x.len() <= y.len(), "the kernel writes one element for each that it reads");
    let n = u32::try_from(x.len()).expect("the pass is small");
    let geometry = LaunchGeometry::linear(n.div_ceil(THREADS), THREADS);
    let arguments = vec![Argument::read(x), Argument::write(y), Argument::U32(n), Argument::f32(a)];
    let image = CustomImage::ptx("scale", kernels::SCALE);
    let launch = CustomLaunch::new(image, "scale", geometry, arguments);
    // SAFETY: these are the kernel's parameters. It reads `x[..n]` and writes `y[..n]`.
    unsafe { pass.custom(launch) }
}
