//! Ctrl-C and termination: the first asks the run to stop after its step, a later one ends at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::INTERRUPTED;
use crate::error::CliError;

/// A supervisor that signals both the program and its process group sends the same wish twice; only
/// a signal that comes later than this after the first is another wish, which costs the checkpoint.
const SAME_WISH: Duration = Duration::from_secs(1);

/// Sets the handler; the flag is set once somebody asked to stop.
pub(crate) fn flag() -> Result<Arc<AtomicBool>, CliError> {
    let flag = Arc::new(AtomicBool::new(false));
    let set = Arc::clone(&flag);
    let first = OnceLock::new();
    ctrlc::set_handler(move || {
        set.store(true, Ordering::Relaxed);
        if first.get_or_init(Instant::now).elapsed() > SAME_WISH {
            std::process::exit(i32::from(INTERRUPTED));
        }
    })?;
    Ok(flag)
}
