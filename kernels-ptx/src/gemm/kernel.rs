//! The GEMM kernels: one entry per tile configuration.

pub(super) mod mma_sync;
pub(super) mod multistage;
pub(super) mod simt;
pub(super) mod warp_specialized;
