//! Copies between devices.

use std::sync::Arc;

use retrograph_ptx_exec::memory::{Memory, MemoryError};

use super::Copy;

/// A copy between the memories of two devices. Neither device needs access to the other.
pub(crate) struct PeerCopy {
    pub(crate) copy: Copy,
    pub(crate) source: Arc<Memory>,
    pub(crate) target: Arc<Memory>,
}

impl PeerCopy {
    /// Moves the bytes.
    pub(crate) fn run(&self) -> Result<(), MemoryError> {
        self.copy.run_between(&self.source, &self.target)
    }
}
