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
//! z is (batch, head); `b_group` consecutive heads share b. r is the outer reduction.
//!
//! | Kernel | Mainloop | a | b | Multiplication |
//! |---|---|---|---|---|
//! | [`kernel::simt`] | register-staged | f32 | f32, NF4 | FMA in f32 |
//! | [`kernel::mma_sync`] | register-staged | f32, rounded to bf16 | f32, bf16, NF4 | `mma.sync` |
//! | [`kernel::multistage`] | `cp.async`, multistage | bf16 | bf16, NF4 | `mma.sync`, `wgmma` |
//! | [`kernel::multistage`] | `cp.async`, multistage | f32 | f32 | tf32x3 |
//!
//! Before sm_80, which has no bf16 tensor cores, all kernels use fused multiply-adds.
//!
//! **Grid.** x: one block per tile of c, the tiles of a column of tiles one after another, so that
//! blocks that run at the same time share their part of b. z: batches and heads. Some
//! configurations let groups of threads multiply slices of each stage along K in parallel
//! (sliced-K); the epilogue adds the slices. Split-K over blocks is a launch over planes of partial
//! sums, which [`split_k_sum`] adds.
//!
//! **Determinism.** An element of c is a chain of fused multiply-adds, or of tensor-core products,
//! in the order of r and l; slices are added in ascending order. Edges are padded with zeros. The
//! order depends only on the tile configuration, which depends only on the sizes and the target.
//!
//! **Limits.** Elements within a plane are indexed with 32 bits; planes are addressed with 64 bits.

mod accumulator;
mod arith;
mod config;
mod epilogue;
mod kernel;
mod layout;
mod loader;
mod mainloop;
mod params;
mod smem_tile;
pub(crate) mod split_k_sum;

use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::ModuleBuilder;

use crate::primitives::dtype::DType;
use kernel::{mma_sync, multistage, simt};
use layout::{Major, NN, NT, TN};

/// The layouts of a and b, and the element type of b.
type Operands = ([Major; 2], DType);

/// Image functions: name, kernel, layout, and element type of b.
macro_rules! images {
    ($($name:ident: $kernel:ident $layout:ident $b_dtype:ident;)*) => { $(
        #[doc = concat!("Builds the image `gemm_", stringify!($name), "`.")]
        pub(crate) fn $name(target: SmTarget) -> Module {
            $kernel(target, concat!("gemm_", stringify!($name)), ($layout, DType::$b_dtype))
        }
    )* };
}

images! {
    f32_nn: f32_image NN F32;
    f32_nt: f32_image NT F32;
    f32_tn: f32_image TN F32;
    f32_nn_nf4: f32_image NN Nf4;
    f32_nt_nf4: f32_image NT Nf4;
    bf16_nn: bf16_image NN F32;
    bf16_nt: bf16_image NT F32;
    bf16_tn: bf16_image TN F32;
    bf16_nn_bf16: bf16_image NN Bf16;
    bf16_nt_bf16: bf16_image NT Bf16;
    bf16_nn_nf4: bf16_image NN Nf4;
    bf16_nt_nf4: bf16_image NT Nf4;
    bf16_nn_multistage: multistage_image NN Bf16;
    bf16_nt_multistage: multistage_image NT Bf16;
    bf16_tn_multistage: multistage_image TN Bf16;
    bf16_nn_multistage_nf4: multistage_image NN Nf4;
    bf16_nt_multistage_nf4: multistage_image NT Nf4;
}

/// f32 products: all SIMT configurations and, if b is f32, the multistage ones.
fn f32_image(target: SmTarget, name: &str, operands: Operands) -> Module {
    let entry = |config: &config::simt::SimtConfig| {
        simt::entry(&format!("{name}_{}", config.name), config, operands)
    };
    let mut entries: Vec<_> = config::simt::CONFIGS.iter().map(entry).collect();
    if operands.1 == DType::F32 {
        entries.extend(multistage::entries((target, name), operands));
    }
    entries.into_iter().fold(ModuleBuilder::new(target), ModuleBuilder::entry).build()
}

/// bf16 products of a in f32.
fn bf16_image(target: SmTarget, name: &str, operands: Operands) -> Module {
    let entry = |config: &config::mma_sync::MmaConfig| {
        mma_sync::entry((target, &format!("{name}_{}", config.name)), config, operands)
    };
    let entries = config::mma_sync::CONFIGS.iter().map(entry);
    entries.fold(ModuleBuilder::new(target), ModuleBuilder::entry).build()
}

/// bf16 products of a in bf16.
fn multistage_image(target: SmTarget, name: &str, operands: Operands) -> Module {
    let entries = multistage::entries((target, name), operands);
    entries.fold(ModuleBuilder::new(target), ModuleBuilder::entry).build()
}

/// The entries that need dynamic shared memory, with their bytes.
pub(crate) fn dynamic_shared(target: SmTarget) -> Vec<(String, u32)> {
    let images = [
        ("gemm_f32_nn", (NN, DType::F32)),
        ("gemm_f32_nt", (NT, DType::F32)),
        ("gemm_f32_tn", (TN, DType::F32)),
        ("gemm_bf16_nn_multistage", (NN, DType::Bf16)),
        ("gemm_bf16_nt_multistage", (NT, DType::Bf16)),
        ("gemm_bf16_tn_multistage", (TN, DType::Bf16)),
        ("gemm_bf16_nn_multistage_nf4", (NN, DType::Nf4)),
        ("gemm_bf16_nt_multistage_nf4", (NT, DType::Nf4)),
    ];
    let bytes = |(image, operands)| multistage::smem_bytes((target, image), operands);
    images.into_iter().flat_map(bytes).collect()
}
