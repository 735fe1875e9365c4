//! The device of a test: its own simulated driver, or the GPU that `RETROGRAPH_DEVICE` names
//! (`cuda:0`). With `RETROGRAPH_REQUIRE_GPU=1` a missing GPU is a failure; otherwise the tests
//! report that they fall back to the simulated driver. `RETROGRAPH_REQUIRE_GPUS=2` does the same
//! for tests of two devices.

use std::env;
use std::process::Command;
use std::sync::{Arc, OnceLock};

use retrograph_driver::{
    CaptureMode, Context, DeviceBuffer, DeviceIndex, Driver, Error, Graph, Origin, Stream,
};
use retrograph_driver_sim::{Config, Simulator};

/// A context and a stream of the device under test.
pub struct Device {
    /// The context.
    pub context: Context,
    /// The stream.
    pub stream: Stream,
}

/// Returns the device of this test.
pub fn device() -> Device {
    device_of(&driver())
}

/// Returns a context and a stream of `driver`.
pub fn device_of(driver: &Driver) -> Device {
    let index = if driver.is_simulated() { 0 } else { gpu_index().unwrap_or(0) };
    let context = Context::new(driver, DeviceIndex(index)).unwrap();
    let stream = Stream::new(&context).unwrap();
    Device { context, stream }
}

/// Returns the driver of this test: the driver of the machine, or a new simulated one.
pub fn driver() -> Driver {
    gpu().unwrap_or_else(|| simulated(Config::default()))
}

/// Returns the driver of this test twice, as if two libraries of a program had loaded it.
pub fn loaded_twice() -> [Driver; 2] {
    if let Some(driver) = gpu() {
        return [driver, Driver::load().unwrap()];
    }
    let simulator = Arc::new(Simulator::new(Config::default()).unwrap());
    [(); 2].map(|()| driver_of(&simulator).unwrap())
}

/// Returns a simulated driver, for tests of errors that no GPU reports on demand.
pub fn simulated(config: Config) -> Driver {
    driver_of(&Arc::new(Simulator::new(config).unwrap())).unwrap()
}

/// Returns the driver of `simulator`.
pub fn driver_of(simulator: &Arc<Simulator>) -> Result<Driver, Error> {
    let (table, keep) = (*simulator.table(), Some(Arc::clone(simulator) as _));
    // SAFETY: the simulator implements the driver's functions and is kept as long as the driver.
    unsafe { Driver::from_table(table, Origin::Simulated, keep) }
}

/// Runs `body` with exclusive use of the device: in this process on a simulated driver, and in a
/// new process on a GPU. Tests that lose the context or affect all threads need this. `name` is the
/// full name of the test.
pub fn alone(name: &str, body: impl FnOnce(Device)) {
    const CHILD: &str = "RETROGRAPH_TEST_ALONE";
    if gpu().is_none() || env::var_os(CHILD).is_some() {
        return body(device());
    }
    let program = env::current_exe().unwrap();
    let mut child = Command::new(program);
    let status = child.args(["--exact", name, "--nocapture"]).env(CHILD, "1").status().unwrap();
    assert!(status.success(), "{name} failed in a process of its own");
}

/// Returns the driver of the machine, shared by all tests, if `RETROGRAPH_DEVICE` names it.
fn gpu() -> Option<Driver> {
    static GPU: OnceLock<Option<Driver>> = OnceLock::new();
    GPU.get_or_init(load_gpu).clone()
}

// A skip must be visible, and tests can only print to standard error.
#[allow(clippy::print_stderr)]
fn load_gpu() -> Option<Driver> {
    gpu_index()?;
    match Driver::load() {
        Ok(driver) => Some(driver),
        Err(error) if required() => panic!("a GPU is required: {error}"),
        Err(error) => {
            eprintln!("SKIPPED on the GPU, running on the simulated driver: {error}");
            None
        }
    }
}

fn gpu_index() -> Option<u32> {
    let named = match env::var("RETROGRAPH_DEVICE") {
        Ok(named) => named,
        Err(_) if required() => "cuda:0".to_owned(),
        Err(_) => return None,
    };
    if named == "sim" {
        return None;
    }
    let index = named.strip_prefix("cuda:").and_then(|index| index.parse().ok());
    Some(index.unwrap_or_else(|| panic!("RETROGRAPH_DEVICE is `{named}`, not sim or cuda:N")))
}

/// Returns the number in an environment variable, which lengthens short tests on demand.
pub fn asked_for(variable: &str) -> Option<u64> {
    let value = env::var(variable).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{variable} is `{value}`, not a number")))
}

/// Returns two devices of one driver. If the machine has fewer GPUs, prints that and returns two
/// simulated devices, unless `RETROGRAPH_REQUIRE_GPUS` requires them.
// A skip must be visible, and tests can only print to standard error.
#[allow(clippy::print_stderr)]
pub fn two_devices() -> [Device; 2] {
    let required = asked_for("RETROGRAPH_REQUIRE_GPUS").unwrap_or(0);
    let there = gpu().map_or(0, |driver| driver.device_count().unwrap());
    assert!(u64::from(there) >= required, "{required} GPUs are required, and there are {there}");
    let driver = gpu().filter(|_| there >= 2).unwrap_or_else(|| {
        if there > 0 {
            eprintln!(
                "SKIPPED on the GPU, since there is only one: running on two simulated devices"
            );
        }
        simulated(super::with(Config::default(), |it| it.devices = 2))
    });
    two_devices_of(&driver)
}

/// Returns the first two devices of `driver`.
pub fn two_devices_of(driver: &Driver) -> [Device; 2] {
    [0, 1].map(|index| {
        let context = Context::new(driver, DeviceIndex(index)).unwrap();
        let stream = Stream::new(&context).unwrap();
        Device { context, stream }
    })
}

/// Returns whether `RETROGRAPH_REQUIRE_GPU` requires a GPU.
pub fn required() -> bool {
    env::var("RETROGRAPH_REQUIRE_GPU").is_ok_and(|value| value == "1")
}

/// Captures a fill of `buffer` with `pattern`.
pub fn capture_fill(stream: &Stream, buffer: &DeviceBuffer<u32>, pattern: u32) -> Graph {
    let captured = stream.capture(CaptureMode::ThreadLocal, |capturing| {
        capturing.keep(buffer.owner());
        // SAFETY: the range is inside the buffer, which the graph keeps alive.
        unsafe { capturing.stream().memset_d32(buffer.address(), pattern, buffer.len()) }
    });
    captured.unwrap()
}

/// Asserts that `stream` runs work, eagerly and captured.
pub fn assert_works(stream: &Stream) {
    let buffer = DeviceBuffer::<u32>::zeroed(stream.context(), 8).unwrap();
    // SAFETY: the range is inside the buffer, and the download below waits.
    unsafe { stream.memset_d32(buffer.address(), 3, 8) }.unwrap();
    assert_eq!(buffer.download(stream).unwrap(), [3; 8]);
    let mut exec = capture_fill(stream, &buffer, 4).instantiate().unwrap();
    exec.launch(stream).unwrap();
    assert_eq!(buffer.download(stream).unwrap(), [4; 8]);
}
