//! Matrix products in three layouts, batched on two levels, with sums of products.
//!
//! ```text
//! c[z][i][j] (+)= alpha · Σ_r Σ_l a[z][r](i, l) · b[z][r](l, j) + bias[j]
//!
//! nt: a(i, l) = a[i · lda + l]    b(l, j) = b[j · ldb + l]      y = x·wᵀ
//! nn: a(i, l) = a[i · lda + l]    b(l, j) = b[l · ldb + j]      dx = dy·w
//! tn: a(i, l) = a[l · lda + i]    b(l, j) = b[l · ldb + j]      dw = dyᵀ·x
//! ```
//!
//! with z = (batch, head) and b shared by `b_group` consecutive heads.
//!
//! **Grid.** One block per tile of c in x, the tiles of a column one after another, so that blocks
//! that run together read the same part of b; z in z. A block walks the contraction in stages:
//! while a stage in shared memory is multiplied, the next one is on its way from global memory to
//! registers. Each thread holds `thread_rows` × `thread_columns` elements of c. Both operands lie
//! in shared memory with the contraction outermost, so that a thread reads what it needs as quads;
//! rows of 4 elements of padding keep the transposing stores free of bank conflicts. In split
//! tiles, groups of threads take equal parts of each stage and are added in the end.
//!
//! **Determinism.** An element of c is one chain of fused multiply-adds in the order of r and l (in
//! split tiles one chain per group, and the groups are added in ascending order); edges are padded
//! with zeros. The order depends on the tile alone, and the tile on the sizes alone.
//!
//! **bf16.** Products whose factors are rounded are described in `gemm/brain.rs`, operands in NF4
//! in `gemm/nf4.rs`.
//!
//! **Large products** are described in `gemm/stream.rs`.
//!
//! **Limits.** Within one plane, elements are indexed with 32 bits; planes are added in 64 bits.

mod brain;
mod cargo;
mod nf4;
mod operand;
mod sizes;
pub(crate) mod split_k_sum;
mod stream;
mod tile;
mod walk;
mod write;

use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::ModuleBuilder;

pub(crate) use nf4::Nf4;
use operand::Contiguous::{Contraction, Extent};
use sizes::Storage;

/// Rows times rows.
const NT: [operand::Contiguous; 2] = [Contraction, Contraction];
/// Rows times columns.
const NN: [operand::Contiguous; 2] = [Contraction, Extent];
/// Columns times columns.
const TN: [operand::Contiguous; 2] = [Extent, Extent];

/// The layout, and how b is stored.
type Operands = ([operand::Contiguous; 2], Storage);

/// Images: name, what multiplies, layout, and how b is stored.
macro_rules! images {
    ($($name:ident: $in:ident $layout:ident $storage:ident;)*) => { $(
        #[doc = concat!("The image `gemm_", stringify!($name), "`.")]
        pub(crate) fn $name(target: SmTarget) -> Module {
            $in(target, concat!("gemm_", stringify!($name)), ($layout, Storage::$storage))
        }
    )* };
}

images! {
    nn: single NN F32;
    nt: single NT F32;
    tn: single TN F32;
    nn_nf4: single NN Nf4;
    nt_nf4: single NT Nf4;
    bf16_nn: brain NN F32;
    bf16_nt: brain NT F32;
    bf16_tn: brain TN F32;
    bf16_nn_bf16: brain NN Bf16;
    bf16_nt_bf16: brain NT Bf16;
    bf16_nn_nf4: brain NN Nf4;
    bf16_nt_nf4: brain NT Nf4;
    stream_nn: streamed NN Bf16;
    stream_nt: streamed NT Bf16;
    stream_tn: streamed TN Bf16;
    stream_nn_nf4: streamed NN Nf4;
    stream_nt_nf4: streamed NT Nf4;
}

/// One entry for each tile of products in f32, and for each of large ones where b is f32, too.
fn single(target: SmTarget, name: &str, operands: Operands) -> Module {
    let entry = |tile: &tile::Tile| walk::entry(&format!("{name}_{}", tile.name), tile, operands);
    let mut entries: Vec<_> = tile::TILES.iter().map(entry).collect();
    if operands.1 == Storage::F32 {
        entries.extend(stream::entries((target, name), operands));
    }
    entries.into_iter().fold(ModuleBuilder::new(target), ModuleBuilder::entry).build()
}

/// One entry for each tile of large products of a in bf16.
fn streamed(target: SmTarget, name: &str, operands: Operands) -> Module {
    let entries = stream::entries((target, name), operands);
    entries.fold(ModuleBuilder::new(target), ModuleBuilder::entry).build()
}

/// The entries that need shared memory of the launch, with how many bytes.
pub(crate) fn dynamic_shared(target: SmTarget) -> Vec<(String, u32)> {
    let images = [
        ("gemm_nn", (NN, Storage::F32)),
        ("gemm_nt", (NT, Storage::F32)),
        ("gemm_tn", (TN, Storage::F32)),
        ("gemm_stream_nn", (NN, Storage::Bf16)),
        ("gemm_stream_nt", (NT, Storage::Bf16)),
        ("gemm_stream_tn", (TN, Storage::Bf16)),
        ("gemm_stream_nn_nf4", (NN, Storage::Nf4)),
        ("gemm_stream_nt_nf4", (NT, Storage::Nf4)),
    ];
    let bytes = |(image, operands)| stream::shared_bytes((target, image), operands);
    images.into_iter().flat_map(bytes).collect()
}

/// One entry for each tile of products in bf16.
fn brain(target: SmTarget, name: &str, operands: Operands) -> Module {
    let entry = |tile: &brain::Tile| {
        brain::entry((target, &format!("{name}_{}", tile.name)), tile, operands)
    };
    brain::TILES.iter().map(entry).fold(ModuleBuilder::new(target), ModuleBuilder::entry).build()
}
