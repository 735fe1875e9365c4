//! What is said on standard error: a shared library in a strange program has no other voice.

use std::io::Write as _;

use retrograph_driver_sim::DiagnosticKind;
use retrograph_driver_sys::CUresult;

use crate::Machine;
use crate::settings::{OnUnsupported, Settings};

/// Says that nothing here runs on a GPU.
pub(crate) fn begin(settings: &Settings) {
    let config = &settings.config;
    let (major, minor) = config.compute_capability;
    let (driver, mebibytes) = (config.driver_version, config.memory_bytes >> 20);
    say(&format!(
        "{} device(s) of compute capability {major}.{minor} with {mebibytes} MiB, driver {}.{}; \
         nothing here runs on a GPU",
        config.devices,
        driver / 1000,
        driver % 1000 / 10,
    ));
}

/// Ends the process: there is no machine.
pub(crate) fn fail(message: &str) -> ! {
    say(message);
    std::process::abort()
}

impl Machine {
    /// Says what the simulator had to say since the last time, after a call that returned `code`.
    pub(crate) fn tell(&self, code: CUresult) -> CUresult {
        // A panic of another thread between two lines is no reason to say less.
        let mut told = self.told.lock().unwrap_or_else(|error| error.into_inner());
        let mut ends = false;
        for diagnostic in self.simulator.diagnostics_from(*told) {
            *told += 1;
            say(&diagnostic.to_string());
            ends |= matches!(
                diagnostic.kind,
                DiagnosticKind::Unsupported | DiagnosticKind::Unattested | DiagnosticKind::Internal
            );
        }
        drop(told);
        if ends {
            self.limit();
        }
        code
    }

    /// A function that the simulator does not have.
    pub(crate) fn lacks(&self, name: &str, why: &str) -> CUresult {
        say(&format!("{name}: {why}"));
        self.limit();
        CUresult::CUDA_ERROR_NOT_SUPPORTED
    }

    fn limit(&self) {
        if self.settings.on_unsupported == OnUnsupported::Abort {
            say("stopped; RETROGRAPH_SIM_ON_UNSUPPORTED=return lets the call return 801 instead");
            std::process::abort();
        }
    }
}

/// One line. A program that closed its standard error does not want to know.
fn say(line: &str) {
    let line = format!("SIMULATED CUDA driver: {line}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}
