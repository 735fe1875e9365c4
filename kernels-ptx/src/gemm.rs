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
//! **Limits.** Within one plane, elements are indexed with 32 bits; planes are added in 64 bits.

mod operand;
mod sizes;
mod tile;
mod walk;
mod write;

use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::ModuleBuilder;

use operand::Contiguous;
use tile::TILES;
use walk::entry;

/// Rows times rows.
pub(crate) fn nt(target: SmTarget) -> Module {
    image(target, "gemm_nt", [Contiguous::Contraction, Contiguous::Contraction])
}

/// Rows times columns.
pub(crate) fn nn(target: SmTarget) -> Module {
    image(target, "gemm_nn", [Contiguous::Contraction, Contiguous::Extent])
}

/// Columns times columns.
pub(crate) fn tn(target: SmTarget) -> Module {
    image(target, "gemm_tn", [Contiguous::Extent, Contiguous::Extent])
}

/// One entry for each tile.
fn image(target: SmTarget, name: &str, layout: [Contiguous; 2]) -> Module {
    let entries = TILES.iter().map(|tile| entry(&format!("{name}_{}", tile.name), tile, layout));
    entries.fold(ModuleBuilder::new(target), ModuleBuilder::entry).build()
}
