//! Tile configurations of `retrograph-kernel-abi`, with values derived for each mainloop.

pub(super) mod mma_sync;
pub(super) mod simt;
