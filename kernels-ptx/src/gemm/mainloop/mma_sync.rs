//! Multiplication of a stage in bf16 by `mma.sync` (m16n8k16), or by fused multiply-adds on targets
//! without bf16 tensor cores.

use retrograph_ptx::SmTarget;
use retrograph_ptx::build::{Kernel, Shared, Value};

use crate::gemm::accumulator::{AccFragment, multiply_fma};
use crate::gemm::operand_tile::OperandTile;
use crate::primitives::bf16::unpack;
use crate::primitives::smem_tile::Major;

/// Loads the fragments of one operand from a padded tile.
pub(in crate::gemm) struct FragmentLoader<'k> {
    major: Major,
    /// Words from one contiguous run to the next.
    pitch: u32,
    /// Word of the row that this lane addresses in an `ldmatrix`.
    ldmatrix_row: Value<'k, u32>,
    /// For fused multiply-adds: the word of this lane's first row of a or column of b, and the
    /// shift of its half of the word if the tile is MN-major.
    own: Value<'k, u32>,
    half_shift: Value<'k, u32>,
}

impl<'k> FragmentLoader<'k> {
    /// The loader of a warp whose tile of c starts at row or column `origin` of the block's tile,
    /// and whose slice of the stage starts at `first_k`.
    pub(in crate::gemm) fn new(
        k: &Kernel<'k>,
        tile: OperandTile,
        origin: Value<'k, u32>,
        first_k: Value<'k, u32>,
        is_a: bool,
    ) -> Self {
        let (lane, major, pitch) = (k.lane(), tile.major, tile.smem.pitch());
        let (line, step) = ldmatrix_origin(k, is_a);
        let within = lane & 7;
        let at = |run: Value<'k, u32>, along: Value<'k, u32>| run * pitch + (along >> 1);
        // The lane's row of a, or the first of its two columns of b.
        let element = origin + if is_a { lane >> 2 } else { (lane & 3) * 2 };
        let (ldmatrix_row, own) = match major {
            Major::K => (at(origin + line + within, first_k + step), at(element, first_k)),
            Major::Mn => (at(first_k + step + within, origin + line), at(first_k, element)),
        };
        Self { major, pitch, ldmatrix_row, own, half_shift: (element & 1) * 16 }
    }

    /// The fragment of 16 rows or columns from `extent` on, 16 steps of K from `step` on.
    fn load(&self, stage: Shared<'k, u32>, [extent, step]: [u32; 2]) -> [Value<'k, u32>; 4] {
        let (run, along, transposed) = match self.major {
            Major::K => (extent, step, false),
            Major::Mn => (step, extent, true),
        };
        let words = run * self.pitch + along / 2;
        stage.at(self.ldmatrix_row).offset(words.into()).ldmatrix_x4(transposed)
    }

    /// The elements at the steps `step` and `step + 1` of K of the lane's row or column number
    /// `extent`.
    fn load_pair(
        &self,
        stage: Shared<'k, u32>,
        extent: u32,
        step: Value<'k, u32>,
    ) -> [Value<'k, f32>; 2] {
        let own = stage.at(self.own);
        let pitch = self.pitch;
        match self.major {
            Major::K => unpack(own.offset(i64::from(extent * pitch)).load(step >> 1)),
            Major::Mn => [0, 1].map(|next| {
                let own = own.offset(i64::from(next * pitch + extent / 2));
                // The second of two columns is in the other half of the word.
                let even = extent.is_multiple_of(2);
                let shift = if even { self.half_shift } else { self.half_shift + 16 };
                Value::<f32>::from_bits((own.load(step * pitch) >> shift) << 16)
            }),
        }
    }
}

/// The row or column, and the step of K, of the 8 × 8 matrix that this lane addresses in an
/// `ldmatrix.x4`. The four matrices have the order of the fragments of `mma.m16n8k16`: for a, rows
/// first, then K; for b, K first, then columns.
pub(in crate::gemm) fn ldmatrix_origin<'k>(
    k: &Kernel<'k>,
    is_a: bool,
) -> (Value<'k, u32>, Value<'k, u32>) {
    let (inner, outer) = (((k.lane() >> 3) & 1) * 8, (k.lane() >> 4) * 8);
    if is_a { (inner, outer) } else { (outer, inner) }
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
            |row, step| loaders[0].load_pair(tiles[0], row, step),
            |column, step| loaders[1].load_pair(tiles[1], column, step),
            acc,
        );
    }
    let [a, b] = loaders;
    let n_fragments = acc[0].len() as u32;
    for step in (0..tile_k).step_by(16) {
        let b_fragments: Vec<_> =
            (0..n_fragments / 2).map(|j| b.load(tiles[1], [j * 16, step])).collect();
        for (i, row) in (0..).zip(acc) {
            let a_fragment = a.load(tiles[0], [i * 16, step]);
            for (j, fragment) in row.iter().enumerate() {
                let [low, high] =
                    [b_fragments[j / 2][j % 2 * 2], b_fragments[j / 2][j % 2 * 2 + 1]];
                k.mma_m16n8k16_bf16(a_fragment, [low, high], *fragment);
            }
        }
    }
}
