//! Copies between devices.

use std::sync::Arc;

use retrograph_ptx_exec::memory::{Memory, MemoryError};

/// The source or destination of a copy between devices.
pub(crate) struct PeerEnd {
    pub(crate) memory: Arc<Memory>,
    pub(crate) address: u64,
}

/// A copy between the memories of two devices. Neither device needs access to the other.
pub(crate) struct PeerCopy {
    pub(crate) target: PeerEnd,
    pub(crate) source: PeerEnd,
    pub(crate) bytes: usize,
}

impl PeerCopy {
    /// Moves the bytes.
    pub(crate) fn run(&self) -> Result<(), MemoryError> {
        let mut moved = vec![0; self.bytes];
        self.source.memory.read(self.source.address, &mut moved)?;
        self.target.memory.write(self.target.address, &moved)
    }
}
