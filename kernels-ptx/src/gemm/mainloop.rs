//! Mainloops: the loop over K, and the products of each stage.
//!
//! | Module | Loop over K | Multiplication of a stage |
//! |---|---|---|
//! | [`register_staged`] | one or two stages, loaded through registers | [`simt`], [`mma_sync`] |
//! | [`multistage`] | several stages, loaded by `cp.async` | [`mma_sync`], [`tf32x3`], [`wgmma`] |
//! | [`TmaPipeline`] | several stages, loaded by TMA | [`wgmma`], [`wgmma_split_f16`] |
//! | [`wgmma_tf32x3`] | warp-specialized producers and consumers | `wgmma` on split tf32 |
//!
//! [`TmaPipeline`]: crate::primitives::tma_pipeline::TmaPipeline

pub(super) mod mma_sync;
pub(super) mod multistage;
pub(super) mod register_staged;
pub(super) mod simt;
pub(super) mod tf32x3;
pub(super) mod wgmma;
pub(super) mod wgmma_split_f16;
pub(super) mod wgmma_tf32x3;
