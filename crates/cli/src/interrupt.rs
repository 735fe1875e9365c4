//! Ctrl-C and termination: the first asks the run to stop after its step, the second ends at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::INTERRUPTED;
use crate::error::CliError;

/// Sets the handler; the flag is set once somebody asked to stop.
pub(crate) fn flag() -> Result<Arc<AtomicBool>, CliError> {
    let flag = Arc::new(AtomicBool::new(false));
    let set = Arc::clone(&flag);
    ctrlc::set_handler(move || {
        if set.swap(true, Ordering::Relaxed) {
            std::process::exit(i32::from(INTERRUPTED));
        }
    })?;
    Ok(flag)
}
