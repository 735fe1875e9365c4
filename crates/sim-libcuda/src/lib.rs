//! The simulated driver in place of libcuda: every function under the symbol that the driver
//! exports it by, all of one simulated machine for the whole process.
//!
//! A program that was not written for the simulator is made to use it by the library path alone.
//! What it cannot be told through the interface of CUDA is told through the environment
//! (`settings`) and standard error (`report`): every line says SIMULATED.

// Functions carry the names of cuda.h.
#![allow(non_snake_case)]

mod absent;
mod exports;
mod report;
mod resolve;
mod settings;

use std::sync::OnceLock;

use retrograph_driver_sim::Simulator;

/// The machine of this process, made at the first call.
fn machine() -> &'static Machine {
    static MACHINE: OnceLock<Machine> = OnceLock::new();
    MACHINE.get_or_init(|| {
        let settings = settings::Settings::from_environment().unwrap_or_else(|error| {
            report::fail(&error.to_string());
        });
        let simulator = Simulator::new(settings.config.clone()).unwrap_or_else(|error| {
            report::fail(&error.to_string());
        });
        report::begin(&settings);
        Machine { simulator, settings, told: Default::default() }
    })
}

/// The simulator and what was said of it.
struct Machine {
    simulator: Simulator,
    settings: settings::Settings,
    /// How many diagnostics were told.
    told: std::sync::Mutex<usize>,
}
