//! A CUDA C++ kernel, compiled to PTX by nvcc when the program runs, and launched.
//!
//! `cargo run` uses the simulated driver, `cargo run -- --gpu` the driver of this machine. Without
//! nvcc, which the variable NVCC names or the path has, the example says that it is skipped.

use std::error::Error;
use std::path::Path;
use std::process::Command;

use retrograph_driver::{
    Context, DeviceBuffer, DeviceIndex, Driver, KernelArguments, KernelLaunch, LaunchGeometry,
    Module, Stream,
};

const N: usize = 1000;

fn main() -> Result<(), Box<dyn Error>> {
    let Some(ptx) = compile(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/saxpy.cu"))? else {
        println!("skipped own-cuda-cpp: there is no nvcc");
        return Ok(());
    };
    let driver = match std::env::args().any(|argument| argument == "--gpu") {
        true => Driver::load()?,
        false => Driver::simulated(Default::default())?,
    };
    let context = Context::new(&driver, DeviceIndex(0))?;
    let stream = Stream::new(&context)?;
    let saxpy = Module::load_ptx(&context, &ptx)?.function("saxpy")?;

    let x = DeviceBuffer::from_slice(&stream, &[2.0_f32; N])?;
    let y = DeviceBuffer::from_slice(&stream, &[1.0_f32; N])?;
    let arguments = KernelArguments::new().buffer(&y).buffer(&x).f32(3.0).u32(N as u32);
    let geometry = LaunchGeometry::linear(N.div_ceil(256) as u32, 256);
    // SAFETY: the arguments match the kernel, which accesses `n` elements of each buffer. Both
    // buffers outlive the wait in `download`.
    unsafe { stream.launch(&KernelLaunch::new(&saxpy, geometry, &arguments)) }?;
    assert_eq!(y.download(&stream)?, [7.0; N]);
    println!("saxpy of {N} elements is correct");
    Ok(())
}

/// The PTX of a source, or `None` without nvcc.
fn compile(source: &Path) -> Result<Option<String>, Box<dyn Error>> {
    let nvcc = std::env::var_os("NVCC").unwrap_or_else(|| "nvcc".into());
    let ptx = std::env::temp_dir().join(format!("own-cuda-cpp-{}.ptx", std::process::id()));
    let mut command = Command::new(nvcc);
    command.args(["-ptx", "-arch", "compute_75"]).arg(source).arg("-o").arg(&ptx);
    let status = match command.status() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        status => status?,
    };
    if !status.success() {
        return Err("nvcc failed; its message is above".into());
    }
    let text = std::fs::read_to_string(&ptx)?;
    std::fs::remove_file(ptx)?;
    Ok(Some(text))
}
