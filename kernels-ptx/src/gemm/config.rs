//! Tile configurations. The launch geometry of `retrograph-kernels` lists the same ones.

pub(super) mod mma_sync;
pub(super) mod multistage;
pub(super) mod simt;
