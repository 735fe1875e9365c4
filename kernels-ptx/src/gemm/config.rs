//! Tile configurations of `retrograph-kernel-abi`, with what each mainloop derives from them.

pub(super) mod mma_sync;
pub(super) mod multistage;
pub(super) mod simt;
