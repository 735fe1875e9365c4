//! Compiles PyTorch's steps concurrently before the first case.
//!
//! Compiling a step takes PyTorch about a minute, mostly on one core. Its compiler caches the
//! result on disk for the measurement.

use std::sync::Mutex;
use std::thread;

use indicatif::ProgressBar;

use super::cases::Case;
use super::commands::{self, Call, Settings};
use super::programs::Programs;

/// Compiles the steps of cases with `jobs` processes. A failure is only a warning: the measurement
/// compiles again and names it.
pub(crate) fn run(cases: &[&Case], programs: &Programs, settings: Settings, jobs: usize) {
    let calls = cases.iter().flat_map(|case| commands::compilations(case, settings));
    let calls: Vec<Call> = calls.collect();
    let bar = ProgressBar::new(calls.len() as u64).with_message("PyTorch compiles");
    let next = Mutex::new(calls.iter());
    let take = || next.lock().expect("no thread panics while it holds the lock").next();
    thread::scope(|scope| {
        for _ in 0..jobs.min(calls.len()) {
            scope.spawn(|| {
                while let Some(call) = take() {
                    if let Err(error) = programs.script(call.program, &call.arguments) {
                        bar.suspend(|| eprintln!("not compiled ahead: {error:#}"));
                    }
                    bar.inc(1);
                }
            });
        }
    });
    bar.finish_and_clear();
}
