//! Ctrl-C and termination.
//!
//! A signal ends the program at once, with the status that shells expect. During training, and
//! while an output is written that must be complete, the first signal only sets a flag, and the
//! program ends when it next checks the flag. A second signal always ends it at once.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::Instant;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level;

use crate::error::CliError;

/// Milliseconds after the first signal in which further signals count as the same request:
/// `timeout` signals both the program and its process group.
const SAME_REQUEST_MS: u64 = 100;
/// The offset that shells add to a signal number to form an exit status.
const BY_SIGNAL: i32 = 128;

/// Whether the first signal only sets a flag.
static DEFERRED: AtomicBool = AtomicBool::new(false);
/// The flag.
static STOP: AtomicBool = AtomicBool::new(false);
/// The first signal; 0 for none.
static SIGNAL: AtomicI32 = AtomicI32::new(0);
/// The time of the first signal in milliseconds; 0 for none.
static FIRST_MS: AtomicU64 = AtomicU64::new(0);

/// Installs handlers for Ctrl-C, termination and, on Unix, hangup of the terminal.
pub(crate) fn install() -> Result<(), CliError> {
    let start = Instant::now();
    let signals = [
        SIGINT,
        SIGTERM,
        #[cfg(unix)]
        signal_hook::consts::SIGHUP,
    ];
    for signal in signals {
        // SAFETY: a handler may only do what is safe at any point of the program. This one uses
        // atomic variables, the monotonic clock and `_exit`, and does not allocate or lock.
        unsafe { low_level::register(signal, move || received(signal, start)) }
            .map_err(CliError::Interrupt)?;
    }
    // A write beyond the limit of a file's size then fails like a write to a full disk.
    #[cfg(unix)]
    // SAFETY: the handler does nothing.
    unsafe { low_level::register(signal_hook::consts::SIGXFSZ, || ()) }
        .map_err(CliError::Interrupt)?;
    Ok(())
}

fn received(signal: i32, start: Instant) {
    let now = start.elapsed().as_millis() as u64 + 1;
    let first = FIRST_MS.compare_exchange(0, now, Ordering::SeqCst, Ordering::SeqCst);
    let _ = SIGNAL.compare_exchange(0, signal, Ordering::SeqCst, Ordering::SeqCst);
    let second = first.is_err_and(|then| now.saturating_sub(then) > SAME_REQUEST_MS);
    if second || !DEFERRED.load(Ordering::SeqCst) {
        low_level::exit(BY_SIGNAL + signal);
    }
    STOP.store(true, Ordering::SeqCst);
}

/// Whether a signal has set the flag.
#[cfg(target_os = "linux")]
pub(crate) fn is_asked() -> bool {
    STOP.load(Ordering::SeqCst)
}

/// Makes the first signal set a flag, and returns the flag.
pub(crate) fn defer() -> &'static AtomicBool {
    DEFERRED.store(true, Ordering::SeqCst);
    &STOP
}

/// Makes signals end the program at once. Ends it now if the flag is set.
pub(crate) fn at_once() {
    DEFERRED.store(false, Ordering::SeqCst);
    if STOP.load(Ordering::SeqCst) {
        std::process::exit(BY_SIGNAL + SIGNAL.load(Ordering::SeqCst));
    }
}

/// Clears a received Ctrl-C, which ended an answer instead of the program. Returns whether another
/// signal was received; that one is kept. After the call, signals end the program at once.
pub(crate) fn forgive() -> bool {
    let signal = SIGNAL.load(Ordering::SeqCst);
    if signal != 0 && signal != SIGINT {
        return true;
    }
    SIGNAL.store(0, Ordering::SeqCst);
    FIRST_MS.store(0, Ordering::SeqCst);
    STOP.store(false, Ordering::SeqCst);
    DEFERRED.store(false, Ordering::SeqCst);
    false
}

/// Returns the exit status for the first signal. A rank that the coordinator stops receives no
/// signal; it exits with the status for SIGTERM.
pub(crate) fn status() -> ExitCode {
    let signal = match SIGNAL.load(Ordering::SeqCst) {
        0 => SIGTERM,
        signal => signal,
    };
    ExitCode::from((BY_SIGNAL + signal) as u8)
}
