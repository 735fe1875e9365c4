//! The products of [`WarpMma`] by fused multiply-adds, for targets whose tensor cores lack the
//! type.
//!
//! Loops over K keep the code small at the cost of speed. f32 operands are not split.

use std::array::from_fn;

use retrograph_kernel_abi::DType;
use retrograph_ptx::build::{Shared, Value};

use super::loader::PlacedTile;
use super::mask::lane_row;
use super::mma::{Fragments, PERIOD, WarpMma};
use crate::primitives::bf16::unpack;
use crate::primitives::mma::{AccFragment, LANE_ROWS, fma_fragment, fragment_column};

impl<'k> WarpMma<'k> {
    /// [`WarpMma::multiply_transposed`], two steps of K at a time.
    pub(super) fn multiply_transposed_fma(&self, [a, b]: [PlacedTile; 2], acc: &[AccFragment<'k>]) {
        let (k, words) = (&self.kernel, self.config.row_words());
        k.range(0, self.config.max_head_dim, 2, |step| {
            let word = match self.config.dtype {
                DType::F32 => step,
                _ => step >> 1,
            };
            let (chunk, within) = (word >> 2, word & 3);
            let at = |row: Value<'k, u32>| {
                self.smem.at(row * words + (a.tile.stored_chunk(row, chunk) << 2) + within)
            };
            let own = at(lane_row(k)).offset(a.first.into());
            let rows = LANE_ROWS.map(|row| self.load_pair(own.offset((row * words).into())));
            let columns = [0, 1].map(|next| at(fragment_column(k) + next).offset(b.first.into()));
            for (j, fragment) in (0..).zip(acc) {
                let columns =
                    columns.map(|column| self.load_pair(column.offset((j * 8 * words).into())));
                fma_fragment(fragment, &rows, &columns);
            }
        });
    }

    /// [`WarpMma::multiply`], two rows of `b` at a time. Each pair of elements of p is held by one
    /// of the four lanes that share a row.
    pub(super) fn multiply_fma(&self, p: &Fragments<'k>, b: PlacedTile, acc: &[AccFragment<'k>]) {
        let k = &self.kernel;
        k.range(0, b.tile.runs / 2, 1, |pair| {
            let (lane, fragment) = ((k.lane() & 28) + (pair & 3), pair >> 2);
            let shuffled = |word_of: &dyn Fn(usize) -> Value<'k, u32>| {
                let mut word = word_of(0);
                for j in 1..b.tile.runs / 8 {
                    word = fragment.eq(j).select(word_of(j as usize), word);
                }
                k.shfl_idx(word, lane)
            };
            let rows = [0, 1].map(|row| match self.config.dtype {
                DType::F32 => {
                    [0, 2].map(|next| Value::<f32>::from_bits(shuffled(&|j| p[j][next + row])))
                }
                _ => unpack(shuffled(&|j| p[j / 2][j % 2 * 2 + row])),
            });
            let b_rows = [0, 1].map(|next| self.load_row(b, pair * 2 + next));
            for (fragment, (one, other)) in acc.iter().zip(b_rows[0].iter().zip(&b_rows[1])) {
                let columns: [_; 2] = from_fn(|column| [one[column], other[column]]);
                fma_fragment(fragment, &rows, &columns);
            }
        });
    }

    /// The lane's two columns of each fragment in row `row` of `b`.
    fn load_row(&self, b: PlacedTile, row: Value<'k, u32>) -> Vec<[Value<'k, f32>; 2]> {
        let (member, start) = (self.kernel.lane() & 3, row * self.config.row_words());
        let chunk = |chunk: Value<'k, u32>| {
            let within = b.tile.stored_chunk(row, chunk) << 2;
            self.smem.at(start + within).offset(b.first.into())
        };
        match self.config.dtype {
            DType::F32 => {
                let addresses = [0, 4].map(|half| chunk(member + half).reinterpret::<f32>());
                let pairs = (0..self.config.max_head_dim / 16).flat_map(|pair| {
                    let address = addresses[pair as usize % 2];
                    let [a, b, c, d] = address.offset((pair / 2 * PERIOD).into()).load_vec4(0);
                    [[a, c], [b, d]]
                });
                pairs.collect()
            }
            _ => {
                let addresses =
                    [0u32, 1, 2, 3, 4, 5, 6, 7].map(|j| chunk(self.kernel.constant(j)).at(member));
                let address = |j: u32| addresses[j as usize % 8].offset((j / 8 * PERIOD).into());
                (0..self.config.max_head_dim / 8).map(|j| unpack(address(j).load(0))).collect()
            }
        }
    }

    /// Loads two neighbors in a row.
    fn load_pair(&self, from: Shared<'k, u32>) -> [Value<'k, f32>; 2] {
        match self.config.dtype {
            DType::F32 => from.reinterpret().load_vec2(0),
            _ => unpack(from.load(0)),
        }
    }
}
