//! Multiplication of a stage of split operands by `wgmma` on f16.
//!
//! `(aₕ + aₗ)·(bₕ + bₗ) ≈ aₗ·bₕ + aₕ·bₗ + aₕ·bₕ`, where bₗ may be 0. Tensor cores truncate when
//! they accumulate. So that these errors do not add up along K, each stage accumulates from zero,
//! with the small products first, and is then added in f32, rounded to nearest.
//!
//! Source: Ootomo and Yokota, arXiv 2203.03341.

use retrograph_kernel_abi::gemm::SPLIT_MAX_TERMS;
use retrograph_ptx::build::{HalfType, Kernel, MatrixA, ScaleD, Shared, Value};

use super::wgmma::{TILE_K, descriptor, step_bytes};
use crate::gemm::accumulator::AccFragment;
use crate::gemm::operand_tile::OperandTile;
use crate::primitives::mma::acc_registers;
use crate::primitives::wgmma::STEPS;

/// Starts the `products` of a stage, which overwrite `sum`. `terms` are the addresses of both terms
/// of a and of b; the 64 rows of the warpgroup start at word `offset` of a.
pub(in crate::gemm) fn start<'k>(
    k: &Kernel<'k>,
    tiles: [OperandTile; 2],
    products: &[[usize; 2]],
    terms: [[Shared<'k, u32>; SPLIT_MAX_TERMS as usize]; 2],
    offset: Value<'k, u32>,
    sum: &[AccFragment<'k>],
) {
    let a = terms[0].map(|term| descriptor(tiles[0], term.at(offset)));
    let b = terms[1].map(|term| descriptor(tiles[1], term));
    k.wgmma_fence();
    for (index, &[term_a, term_b]) in products.iter().enumerate() {
        for step in 0..TILE_K / STEPS {
            let a = MatrixA::Shared(a[term_a].offset(step_bytes(tiles[0], step)));
            let b = b[term_b].offset(step_bytes(tiles[1], step));
            let first = index == 0 && step == 0;
            let scale_d = if first { ScaleD::Zero } else { ScaleD::One };
            k.wgmma_mma_async(HalfType::F16, a, b, &acc_registers(sum), scale_d);
        }
    }
    k.wgmma_commit_group();
}
