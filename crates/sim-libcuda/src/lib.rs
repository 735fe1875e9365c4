//! The simulated driver as a shared library that replaces libcuda. The process is one simulated
//! machine.
//!
//! The library path alone makes a program use it. Environment variables configure it (`settings`);
//! it reports to standard error, each line labelled SIMULATED (`report`).

// Functions carry the names of cuda.h.
#![allow(non_snake_case)]

mod absent;
mod exports;
mod report;
mod resolve;
mod settings;

use std::sync::{Mutex, OnceLock};

use retrograph_driver_sim::Simulator;

static MACHINE: OnceLock<Machine> = OnceLock::new();

/// The machine of this process, created by the first call.
fn machine() -> &'static Machine {
    MACHINE.get_or_init(|| {
        let settings = settings::Settings::from_environment().unwrap_or_else(|error| {
            report::fail(&error.to_string());
        });
        let simulator = Simulator::new(settings.config.clone()).unwrap_or_else(|error| {
            report::fail(&error.to_string());
        });
        report::begin(&settings);
        Machine { simulator, settings, reported: Default::default() }
    })
}

/// The simulator, its settings and the state of its reports.
struct Machine {
    simulator: Simulator,
    settings: settings::Settings,
    reported: Mutex<report::Reported>,
}
