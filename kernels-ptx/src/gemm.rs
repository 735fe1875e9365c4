//! GEMM in three layouts, batched over batches and heads, with an outer reduction.
//!
//! ```text
//! c[z][i][j] (+)= alpha · Σ_r Σ_l a[z][r](i, l) · b[z][r](l, j) + bias[j]
//!
//! nt: a(i, l) = a[i · lda + l]    b(l, j) = b[j · ldb + l]      y = x·wᵀ
//! nn: a(i, l) = a[i · lda + l]    b(l, j) = b[l · ldb + j]      dx = dy·w
//! tn: a(i, l) = a[l · lda + i]    b(l, j) = b[l · ldb + j]      dw = dyᵀ·x
//! ```
//!
//! z is (batch, head); `b_group` consecutive heads share b. r is the index of the outer reduction.
//!
//! | Kernel | Mainloop | a | b | Multiplication |
//! |---|---|---|---|---|
//! | [`kernel::simt`] | register-staged | f32 | f32, NF4 | FMA in f32 |
//! | [`kernel::mma_sync`] | register-staged | f32, rounded to bf16 | f32, bf16, NF4 | `mma.sync` |
//! | [`kernel::multistage`] | `cp.async`, multistage | bf16 | bf16, NF4 | `mma.sync`, `wgmma` |
//! | [`kernel::multistage`] | `cp.async`, multistage | f32 | f32 | tf32x3 |
//! | [`kernel::warp_specialized`] | TMA, warp-specialized, persistent | bf16 | bf16 | `wgmma` |
//! | [`kernel::warp_specialized`] | the same | split f16 | split f16 | three `wgmma`, or two |
//! | [`kernel::simt`] | register-staged | split f16 | split f16 | FMA in f32 |
//!
//! Split operands need only two `wgmma` if b has no lo term. [`skinny`] has a separate kernel for
//! products of up to 8 rows.
//!
//! sm_75 has no bf16 tensor cores; all kernels use fused multiply-adds there.
//!
//! **Grid.** x: one block per tile of c, or persistent blocks. Tiles are numbered along M
//! first, so that concurrent blocks share their columns of b. z: batches and heads. In some
//! configurations, groups of threads multiply slices of each stage along K in parallel (sliced-K),
//! and the epilogue adds the slices; in others, the blocks of a cluster multiply ranges of K, and
//! one of them adds the ranges. Split-K is a launch with one plane per split; [`split_k_sum`] adds
//! the planes.
//!
//! **Row limit.** A limit in device memory ends the tiles along M; see
//! [`GemmRowLimitParameters`](retrograph_kernel_abi::gemm::GemmRowLimitParameters).
//!
//! **Determinism.** An element of c accumulates fused multiply-adds, or tensor-core products, in
//! the order of r and l; slices, and ranges of a cluster, are added in ascending order. Edges are
//! padded with zeros. The order depends only on the tile configuration, which depends only on
//! sizes, dtypes, concurrency and target.
//!
//! **Limits.** Indices of elements within a plane are 32-bit; addresses of planes are 64-bit.

mod accumulator;
mod bulk_store;
mod config;
mod epilogue;
mod glu;
mod kernel;
mod loader;
mod mainloop;
mod operand_tile;
mod params;
mod qkv_rope;
pub(crate) mod skinny;
pub(crate) mod split;
pub(crate) mod split_k_sum;
mod squares;
mod staged_store;

use retrograph_kernel_abi::gemm::{GemmImage, IMAGES, Mainloop, TileConfig};
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::{Entry, Module};
use retrograph_ptx::build::ModuleBuilder;

use config::mma_sync::MmaConfig;
use config::simt::SimtConfig;
use kernel::multistage::MultistageKernel;
use kernel::warp_specialized::WarpSpecializedKernel;
use kernel::{mma_sync, simt};

/// Builds `image`.
pub(crate) fn module(target: SmTarget, image: &GemmImage) -> Module {
    let entries = tiles(image).filter_map(|(tile, name)| entry(target, image, tile, name));
    entries.fold(ModuleBuilder::new(target), ModuleBuilder::entry).build()
}

/// Returns the tiles of `image` with the names of their entries.
fn tiles(image: &GemmImage) -> impl Iterator<Item = (&'static TileConfig, &'static str)> {
    image.tiles.iter().zip(image.entries.iter().copied())
}

/// Builds the entry `name` of `image`; `None` if the target does not support `tile`.
fn entry(
    target: SmTarget,
    image: &GemmImage,
    tile: &TileConfig,
    name: &'static str,
) -> Option<Entry> {
    Some(match tile.mainloop {
        Mainloop::Simt { .. } => simt::entry(name, &SimtConfig::new(tile)?, image),
        Mainloop::MmaSync { .. } => mma_sync::entry(target, name, &MmaConfig::new(tile)?, image),
        Mainloop::Multistage { .. } => MultistageKernel::new(target, image, tile)?.entry(name),
        Mainloop::WarpSpecialized { .. } => {
            WarpSpecializedKernel::new(target, image, tile)?.entry(name)
        }
    })
}

/// Returns the entries that need dynamic shared memory, with its size in bytes.
pub(crate) fn dynamic_shared(target: SmTarget) -> Vec<(&'static str, u32)> {
    let entries = IMAGES.iter().copied().flat_map(|image| {
        tiles(image).filter_map(move |(tile, name)| {
            let bytes = match tile.mainloop {
                Mainloop::WarpSpecialized { .. } => {
                    WarpSpecializedKernel::new(target, image, tile)?.smem_bytes()
                }
                _ => MultistageKernel::new(target, image, tile)?.smem_bytes(),
            };
            Some((name, bytes))
        })
    });
    entries.collect()
}
