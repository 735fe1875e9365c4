//! Reports on standard error, the only output that a library in an unmodified program has.

use std::io::Write as _;

use retrograph_driver_sim::DiagnosticKind;
use retrograph_driver_sys::CUresult;

use crate::Machine;
use crate::settings::{OnUnsupported, Settings};

/// Reports the simulated machine.
pub(crate) fn begin(settings: &Settings) {
    let config = &settings.config;
    let (major, minor) = config.compute_capability;
    let (driver, mebibytes) = (config.driver_version, config.memory_bytes >> 20);
    print_line(&format!(
        "{} device(s) of compute capability {major}.{minor} with {mebibytes} MiB, driver {}.{}; \
         nothing here runs on a GPU",
        config.devices,
        driver / 1000,
        driver % 1000 / 10,
    ));
}

/// Aborts the process because the machine cannot be created.
pub(crate) fn fail(message: &str) -> ! {
    print_line(message);
    std::process::abort()
}

impl Machine {
    /// Reports the diagnostics since the last call, and returns `code`, the result of this call.
    pub(crate) fn report(&self, code: CUresult) -> CUresult {
        // A poisoned count is still valid.
        let mut reported = self.reported.lock().unwrap_or_else(|error| error.into_inner());
        let mut stopped = false;
        for diagnostic in self.simulator.diagnostics_from(*reported) {
            *reported += 1;
            print_line(&diagnostic.to_string());
            stopped |= matches!(
                diagnostic.kind,
                DiagnosticKind::Unsupported | DiagnosticKind::Unattested | DiagnosticKind::Internal
            );
        }
        drop(reported);
        if stopped {
            self.abort_if_configured();
        }
        code
    }

    /// Reports a call of a function that the simulator lacks.
    pub(crate) fn report_missing(&self, name: &str, why: &str) -> CUresult {
        print_line(&format!("{name}: {why}"));
        self.abort_if_configured();
        CUresult::CUDA_ERROR_NOT_SUPPORTED
    }

    fn abort_if_configured(&self) {
        if self.settings.on_unsupported == OnUnsupported::Abort {
            print_line(
                "stopped; RETROGRAPH_SIM_ON_UNSUPPORTED=return lets the call return 801 instead",
            );
            std::process::abort();
        }
    }
}

/// Prints a line. Ignores errors, since the program may have closed standard error.
fn print_line(line: &str) {
    let line = format!("SIMULATED CUDA driver: {line}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}
