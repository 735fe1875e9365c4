//! Reports on standard error, the only output of a library in an unmodified program.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

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

/// The reports so far.
#[derive(Default)]
pub(crate) struct Reported {
    /// Number of the simulator's diagnostics that were read.
    diagnostics: usize,
    /// Number of calls of each function, or requests for each table of functions, that returned 801
    /// because they are not simulated.
    refused: BTreeMap<String, u64>,
}

impl Machine {
    /// Reports the diagnostics since the last call, and returns `code`, the result of this call.
    pub(crate) fn report(&self, code: CUresult) -> CUresult {
        let mut reported = self.reported();
        let mut stopped = false;
        for diagnostic in self.simulator.diagnostics_from(reported.diagnostics) {
            reported.diagnostics += 1;
            let (call, text) = (diagnostic.call, diagnostic.to_string());
            match diagnostic.kind {
                DiagnosticKind::Unsupported | DiagnosticKind::Unattested => {
                    stopped = true;
                    reported.refuse(call, &text);
                }
                DiagnosticKind::Internal => {
                    stopped = true;
                    print_line(&text);
                }
                _ => print_line(&text),
            }
        }
        drop(reported);
        print_output(&self.simulator.take_output());
        if stopped {
            self.abort_if_configured();
        }
        code
    }

    /// Reports a call of a function that the simulator lacks.
    pub(crate) fn report_missing(&self, name: &str, why: &str) -> CUresult {
        self.reported().refuse(name, &format!("{name}: {why}"));
        self.abort_if_configured();
        CUresult::CUDA_ERROR_NOT_SUPPORTED
    }

    fn reported(&self) -> MutexGuard<'_, Reported> {
        // The counts stay valid if a thread panics while it holds the lock.
        self.reported.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn abort_if_configured(&self) {
        if self.settings.on_unsupported == OnUnsupported::Abort {
            print_line(
                "stopped; without RETROGRAPH_SIM_ON_UNSUPPORTED=abort the call returns 801 and \
                 changes nothing",
            );
            std::process::abort();
        }
    }

    /// Returns the number of refused calls of each function.
    pub(crate) fn refused(&self) -> BTreeMap<String, u64> {
        self.reported().refused.clone()
    }
}

impl Reported {
    /// Counts a refused call. The first one of each function is printed.
    fn refuse(&mut self, name: &str, text: &str) {
        let count = self.refused.entry(name.to_owned()).or_default();
        *count += 1;
        if *count == 1 {
            print_line(text);
        }
    }
}

/// Runs when the process exits or unloads the library.
extern "C" fn at_exit() {
    if let Some(machine) = crate::MACHINE.get().filter(|machine| !machine.is_of_parent()) {
        if !machine.simulator.is_free_within(Duration::from_secs(1)) {
            print_line("no report: the process exits during a call of the driver");
            return;
        }
        let summary = machine.summary();
        summary.lines().iter().for_each(|line| print_line(line));
        let Some(path) = &machine.settings.report else { return };
        if let Err(error) = summary.append_to(path) {
            print_line(&format!("cannot write {}: {error}", path.display()));
        }
    }
}

// SAFETY: the section holds pointers to functions without arguments, which the loader calls once.
#[cfg(target_os = "linux")]
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;

/// Prints what kernels printed to standard output, as the driver does. Ignores errors, as a
/// program's own output may.
fn print_output(text: &str) {
    if !text.is_empty() {
        let mut stdout = std::io::stdout().lock();
        let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    }
}

/// Prints a line. Ignores errors, since the program may have closed standard error.
fn print_line(line: &str) {
    let line = format!("SIMULATED CUDA driver: {line}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}
