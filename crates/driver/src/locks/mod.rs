//! Locks between captures and calls that would break them.

mod capture_lock;
mod hold;
mod sync;

pub(crate) use capture_lock::CaptureLock;
pub(crate) use hold::Hold;
