//! Locks between captures and the calls that would break them.

mod capture_lock;
mod sync;

pub(crate) use capture_lock::{CaptureGuard, CaptureLock};
