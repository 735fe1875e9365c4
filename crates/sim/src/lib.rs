//! The program `retrograph-sim`, which is also the simulated `libcuda.so.1`.
//!
//! `retrograph-sim run -- PROGRAM` starts a program with the library in its path; the process of
//! the program is then one simulated machine. Environment variables configure it (`settings`). It
//! reports to standard error, each line labelled SIMULATED (`report`), and at exit also as JSON
//! (`summary`).
//!
//! One file is both, as glibc is (`start`): it exports the driver functions and has an entry point.
//! Thus `cargo install`, which only installs programs, also installs the library.
//!
//! This crate has no items for other crates.

// Functions carry the names of cuda.h.
#![allow(non_snake_case)]

mod absent;
mod earlier;
mod export_tables;
mod exports;
mod per_thread;
mod profiler;
#[cfg(libcuda)]
mod program;
mod report;
mod resolve;
mod settings;
#[cfg(libcuda)]
mod start;
mod summary;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use retrograph_driver_sim::Simulator;
use retrograph_driver_sys::CUresult;

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
        Machine {
            simulator,
            settings,
            owner: AtomicU32::new(0),
            reported: Default::default(),
            storage: Default::default(),
        }
    })
}

/// The simulator, its settings and the state of its reports.
struct Machine {
    simulator: Simulator,
    settings: settings::Settings,
    /// The process that called `cuInit`, or 0. After `fork`, a child lacks the threads and the
    /// device of its parent, and may not use the driver.
    owner: AtomicU32,
    reported: Mutex<report::Reported>,
    /// Values of libraries by context.
    storage: export_tables::Storage,
}

impl Machine {
    /// Whether a parent of this process initialized the driver.
    fn is_of_parent(&self) -> bool {
        let owner = self.owner.load(Ordering::Relaxed);
        owner != 0 && owner != std::process::id()
    }

    /// Whether a child of the process that called `cuInit` may call this function, because it needs
    /// no `cuInit`. On an H200, `cuDriverGetVersion` and `cuGetErrorName` work in such a child. A
    /// thread of the parent may have held the simulator during `fork`; then the child has no way
    /// to release it.
    fn may_forward_in_child(&self, function: &str) -> bool {
        matches!(function, "cuDriverGetVersion" | "cuGetErrorName" | "cuGetErrorString")
            && self.simulator.is_free_within(Duration::ZERO)
    }

    /// Records the result of `cuInit`.
    fn initialized(&self, code: CUresult) {
        if code == CUresult::CUDA_SUCCESS {
            self.owner.store(std::process::id(), Ordering::Relaxed);
        }
    }
}
