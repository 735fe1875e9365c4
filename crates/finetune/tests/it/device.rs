//! The device of a test: its own simulated driver, or the GPU that `RETROGRAPH_DEVICE` names
//! (`cuda:0`). With `RETROGRAPH_REQUIRE_GPU=1` a missing GPU is a failure; otherwise the tests
//! report that they fall back to the simulated driver.

use std::env;
use std::sync::Arc;

use retrograph_driver_sim::{Config, Simulator};
use retrograph_finetune::{Device, DeviceChoice};
use retrograph_runtime::{Driver, Origin};

/// The device of this test.
pub(crate) fn device() -> Device {
    gpu().unwrap_or_else(|| simulated(Config::default()))
}

/// A simulated device, for tests of faults that a GPU cannot produce on demand.
pub(crate) fn simulated(config: Config) -> Device {
    let simulator = Simulator::new(config).unwrap();
    let table = *simulator.table();
    // SAFETY: the simulator implements the driver's functions and is kept as long as the driver.
    let driver = unsafe { Driver::from_table(table, Origin::Simulated, Some(Arc::new(simulator))) };
    Device::on(&driver.unwrap(), 0, None).unwrap()
}

// A skip must be visible, and tests can only print to standard error.
#[allow(clippy::print_stderr)]
fn gpu() -> Option<Device> {
    let required = env::var("RETROGRAPH_REQUIRE_GPU").is_ok_and(|value| value == "1");
    let named = env::var("RETROGRAPH_DEVICE").ok().or(required.then(|| "cuda:0".to_owned()))?;
    let choice: DeviceChoice = named.parse().unwrap();
    let DeviceChoice::Cuda(_) = choice else { return None };
    match Device::open(choice) {
        Ok(device) => Some(device),
        Err(error) if required => panic!("a GPU is required: {error}"),
        Err(error) => {
            eprintln!("SKIPPED on the GPU, running on the simulated driver: {error}");
            None
        }
    }
}
