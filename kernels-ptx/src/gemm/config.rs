//! Tile configurations of `retrograph-kernel-abi`, with the values that each mainloop derives.

pub(super) mod mma_sync;
pub(super) mod multistage;
pub(super) mod simt;
