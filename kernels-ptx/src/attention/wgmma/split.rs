//! Products of f32 operands, each split into two f16 terms with power-of-two scales.
//!
//! ```text
//! x[i] = scale[i] · (hi[i] + lo[i])        a·b ≈ aₗ·bₕ + aₕ·bₗ + aₕ·bₕ
//! ```
//!
//! An earlier launch splits the rows of q, k, v and `grad_out`, with one scale for all heads of a
//! token. Scales of the rows or columns of a product multiply its result. Scales along K are
//! multiplied into the left operand, which is then split in registers, with one scale per row of a
//! tile.
//!
//! **Accumulation.** Tensor cores cut off the low bits of sums in f32. So each tile is accumulated
//! from zero, the small products first, and then added to the accumulators in f32, rounded to
//! nearest.

use retrograph_kernel_abi::gemm::SPLIT_LOG2_MAX;
use retrograph_ptx::SmTarget;
use retrograph_ptx::build::{HalfType, Kernel, MatrixA, Ptr, ScaleD, Value, Var};

use super::smem::PlacedTile;
use crate::attention::mask::lane_row;
use crate::attention::mma::{Fragments, fragments_of};
use crate::attention::online_softmax::{reduce_row, row};
use crate::primitives::f16;
use crate::primitives::mma::{AccFragment, LANE_ROWS, acc_registers, acc_row, fragment_column};
use crate::primitives::wgmma::SPLIT_PRODUCTS;

/// All bits of an f32 except the sign.
const MAGNITUDE: u32 = 0x7fff_ffff;
/// The exponent bits of an f32.
const EXPONENT: u32 = 0x7f80_0000;
/// The largest element of a row has this exponent after scaling, as a difference of exponent bits.
const TOP: u32 = SPLIT_LOG2_MAX << 23;
/// The sum of the exponent bits of a power of two and of its reciprocal.
const RECIPROCAL: u32 = 254 << 23;

/// The scales of the tokens of a sequence.
#[derive(Clone, Copy)]
pub(super) struct RowScales<'k> {
    scales: Ptr<'k, f32>,
    /// The first token and the last one in the sequence.
    first: Value<'k, u32>,
    last: Value<'k, u32>,
}

impl<'k> RowScales<'k> {
    /// The scales of sequence `sequence` of `seq` tokens.
    pub(super) fn new(scales: Ptr<'k, f32>, [sequence, seq]: [Value<'k, u32>; 2]) -> Self {
        Self { scales, first: sequence * seq, last: seq - 1 }
    }

    /// The scale of a token; past the end, the scale of the last one.
    fn of(self, token: Value<'k, u32>) -> Value<'k, f32> {
        self.scales.load(self.first + token.min(self.last))
    }

    /// The scales of the lane's two rows in a block that starts at token `start`.
    pub(super) fn of_rows(self, start: Value<'k, u32>) -> [Value<'k, f32>; 2] {
        let row = start + lane_row(&start.kernel());
        LANE_ROWS.map(|offset| self.of(row + offset))
    }

    /// The scales of the lane's columns in each of `fragments` fragments from token `start` on.
    pub(super) fn of_columns(
        self,
        start: Value<'k, u32>,
        fragments: usize,
    ) -> Vec<[Value<'k, f32>; 2]> {
        let column = start + fragment_column(&start.kernel());
        (0..fragments as u32).map(|j| [0, 1].map(|next| self.of(column + (j * 8 + next)))).collect()
    }
}

/// Calls `body` for each element of `acc`, with its row and column and the index of its fragment.
/// A lane has two rows and two columns of each fragment, which are counted from 0.
pub(super) fn for_each<'k>(
    acc: &[AccFragment<'k>],
    body: impl Fn(Var<'k, f32>, [usize; 2], usize),
) {
    for (j, fragment) in acc.iter().enumerate() {
        for (index, element) in fragment.iter().enumerate() {
            body(*element, [index / 2, index % 2], j);
        }
    }
}

/// A left operand in registers.
pub(super) struct SplitRows<'k> {
    terms: [Fragments<'k>; 2],
    /// The scales of the lane's two rows.
    scales: [Value<'k, f32>; 2],
}

impl<'k> SplitRows<'k> {
    /// Splits the rows of `acc`, which it overwrites. NaN and infinity make a row NaN.
    pub(super) fn new(k: &Kernel<'k>, target: SmTarget, acc: &[AccFragment<'k>]) -> Self {
        let scales = [0, 1].map(|index| {
            let magnitudes = row(acc, index).map(|element| element.get().bits() & MAGNITUDE);
            let largest = magnitudes.reduce(|a, b| a.max(b)).expect("a tile has columns");
            let largest = reduce_row(k, largest, |a, b| a.max(b)) & EXPONENT;
            let scale = largest.max(TOP + (1 << 23)) - TOP;
            let reciprocal = Value::<f32>::from_bits(k.constant(RECIPROCAL) - scale);
            row(acc, index).for_each(|element| element.mul_assign(reciprocal));
            Value::<f32>::from_bits(scale)
        });
        let packed = || fragments_of(acc, |pair| f16::pack(target, pair));
        let high = packed();
        for element in acc.iter().flatten() {
            element.update(|element| element - f16::round(element));
        }
        Self { terms: [high, packed()], scales }
    }

    /// Adds the product with all rows of `b` to `acc`, by `width` columns at a time. Waits for all
    /// products.
    pub(super) fn multiply(
        &self,
        k: &Kernel<'k>,
        b: PlacedTile<'k>,
        width: u32,
        acc: &[AccFragment<'k>],
    ) {
        for (b, acc) in b.columns(width).zip(acc.chunks(width as usize / 8)) {
            let sum = acc_row(k, b.tile.length);
            let registers = acc_registers(&sum);
            k.wgmma_fence();
            for (index, &[term_a, term_b]) in SPLIT_PRODUCTS.iter().enumerate() {
                for (step, fragment) in (0..).zip(&self.terms[term_a]) {
                    let scale_d = if index == 0 && step == 0 { ScaleD::Zero } else { ScaleD::One };
                    let (a, b) = (MatrixA::Registers(*fragment), b.term(term_b).mn_major(step));
                    k.wgmma_mma_async(HalfType::F16, a, b, &registers, scale_d);
                }
            }
            k.wgmma_commit_group();
            k.wgmma_wait_group(0);
            for (acc, sum) in acc.iter().zip(&sum) {
                for (index, (acc, sum)) in acc.iter().zip(sum).enumerate() {
                    acc.update(|acc| sum.get().fma(self.scales[index / 2], acc));
                }
            }
        }
    }
}
