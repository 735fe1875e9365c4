//! Multiplication of a stage in f32 by tensor cores, with three tf32 products per f32 product.
//!
//! A tf32 operand has 11 significant bits. Each f32 operand x is split into hi, which is x rounded
//! to 11 bits, and lo = x − hi. The difference is exact, and tensor cores use 11 bits of it. The
//! product is lo·hi' + hi·lo' + hi·hi'; the omitted term is smaller by a factor of 2⁻²². Tensor
//! cores truncate when they accumulate, so chains in them must be short: each stage accumulates
//! from zero, and stages are added in f32.
//!
//! Source: Ootomo and Yokota, "Recovering single precision accuracy from Tensor Cores while
//! surpassing the FP32 theoretical peak performance", arXiv 2203.03341.
//!
//! An infinite operand, or a finite one that rounds to infinity (beyond 3.4026e38), makes lo NaN
//! and every result that depends on it NaN.
//!
//! Targets without tf32 tensor cores use fused multiply-adds of the unsplit operands.

use retrograph_ptx::SmTarget;
use retrograph_ptx::build::{Kernel, Shared, Value};

use super::mma_sync::ldmatrix_origin;
use crate::gemm::accumulator::{AccFragment, accumulators, multiply_fma};
use crate::gemm::operand_tile::OperandTile;
use crate::primitives::mma::add_fragments;
use crate::primitives::smem_tile::Major;
use crate::primitives::tf32::{mma_tf32x3, split};

/// Steps of K per instruction.
pub(in crate::gemm) const STEPS: u32 = 8;

/// Loads the fragments of one operand from shared memory.
pub(in crate::gemm) struct FragmentLoader<'k> {
    tile: OperandTile,
    /// Index of the word that this lane addresses in an `ldmatrix` (K-major), or of its first
    /// element (MN-major).
    first: Value<'k, u32>,
    /// Word of this lane's first row of a or column of b, for fused multiply-adds.
    own: Value<'k, u32>,
    is_a: bool,
}

/// A lane's fragment of 16 rows of a, or 16 columns of b, in 8 steps of K.
pub(in crate::gemm) type Fragment<'k> = [Value<'k, u32>; 4];

/// Columns and steps of K of the elements of a fragment of b.
const B_ELEMENTS: [(u32, u32); 4] = [(0, 0), (0, 4), (8, 0), (8, 4)];
/// Rows and steps of K of the elements of a fragment of a.
const A_ELEMENTS: [(u32, u32); 4] = [(0, 0), (8, 0), (0, 4), (8, 4)];

impl<'k> FragmentLoader<'k> {
    /// The loader of a warp whose tile of c starts at row or column `origin` of the block's tile.
    pub(in crate::gemm) fn new(
        k: &Kernel<'k>,
        tile: OperandTile,
        origin: Value<'k, u32>,
        is_a: bool,
    ) -> Self {
        let (lane, pitch) = (k.lane(), tile.smem.pitch());
        let (line, step) = ldmatrix_origin(k, is_a);
        let element = origin + if is_a { lane >> 2 } else { (lane & 3) * 2 };
        let (first, own) = match tile.major {
            // `ldmatrix` treats the four words of a row as eight bf16 elements.
            Major::K => ((origin + line + (lane & 7)) * pitch + (step >> 1), element * pitch),
            Major::Mn => ((lane & 3) * pitch + origin + (lane >> 2), element),
        };
        Self { tile, first, own, is_a }
    }

    /// The fragment of 16 rows or columns from `extent` on, 8 steps of K from `step` on.
    pub(in crate::gemm) fn load(
        &self,
        stage: Shared<'k, u32>,
        [extent, step]: [u32; 2],
    ) -> Fragment<'k> {
        let (first, pitch) = (stage.at(self.first), self.tile.smem.pitch());
        match self.tile.major {
            Major::K => first.offset((extent * pitch + step).into()).ldmatrix_x4(false),
            Major::Mn => {
                let first = first.offset((step * pitch + extent).into());
                let elements = if self.is_a { A_ELEMENTS } else { B_ELEMENTS };
                elements.map(|(extent, step)| first.offset((step * pitch + extent).into()).load(0))
            }
        }
    }

    /// The element at step `step` of K of the lane's row or column number `extent`.
    fn load_element(
        &self,
        stage: Shared<'k, u32>,
        extent: u32,
        step: Value<'k, u32>,
    ) -> [Value<'k, f32>; 1] {
        let (own, pitch) = (stage.at(self.own), self.tile.smem.pitch());
        let word = match self.tile.major {
            Major::K => own.offset((extent * pitch).into()).load(step),
            Major::Mn => own.offset(extent.into()).load(step * pitch),
        };
        [Value::<f32>::from_bits(word)]
    }
}

/// Adds the products of `tile_k` steps of K to `acc`.
pub(in crate::gemm) fn multiply<'k>(
    k: &Kernel<'k>,
    target: SmTarget,
    tile_k: u32,
    loaders: &[FragmentLoader<'k>; 2],
    tiles: [Shared<'k, u32>; 2],
    acc: &[Vec<AccFragment<'k>>],
) {
    if !target.features().bf16_mma {
        return multiply_fma(
            k,
            tile_k,
            |row, step| loaders[0].load_element(tiles[0], row, step),
            |column, step| loaders[1].load_element(tiles[1], column, step),
            acc,
        );
    }
    let [a, b] = loaders;
    let [m_fragments, n_fragments] = [acc.len() as u32, acc[0].len() as u32];
    let stage_acc = accumulators(k, [m_fragments * 16, n_fragments * 8]);
    for step in (0..tile_k).step_by(STEPS as usize) {
        let columns: Vec<_> = (0..n_fragments / 2)
            .map(|j| split(b.load(tiles[1], [j * 16, step])))
            .flat_map(|parts| [0, 2].map(|i| parts.map(|part| [part[i], part[i + 1]])))
            .collect();
        for (i, row) in (0..).zip(&stage_acc) {
            mma_tf32x3(k, split(a.load(tiles[0], [i * 16, step])), &columns, row);
        }
    }
    acc.iter().zip(&stage_acc).for_each(|(acc, stage_acc)| add_fragments(acc, stage_acc));
}
