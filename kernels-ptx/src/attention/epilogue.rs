//! Epilogue: writes the accumulators of a block to rows of a tensor.

use retrograph_kernel_abi::DType;
use retrograph_ptx::SmTarget;
use retrograph_ptx::build::{Kernel, Ptr, Shared, Value};

use super::config::Config;
use super::inverse_rope::InverseRope;
use super::mask::lane_row;
use crate::primitives::bf16::{pack, pack_vec4};
use crate::primitives::mma::{AccFragment, LANE_ROWS, fragment_column};
use crate::primitives::output::Output;

/// The rows of a head in a result.
#[derive(Clone, Copy)]
pub(super) struct ResultRows<'k> {
    /// The first element of the head in the first row of the sequence.
    pub(super) first: Output<'k>,
    /// Elements from one row to the next.
    pub(super) stride: Value<'k, u32>,
    /// Rows of the sequence.
    pub(super) rows: Value<'k, u32>,
    /// The rotation, applied before the factor; `None` for f32 operands.
    pub(super) rotation: Option<InverseRope<'k>>,
}

impl<'k> ResultRows<'k> {
    /// Writes accumulators with the columns of `mma` or `wgmma`, times `factor`, to the rows of
    /// the block from `start` on. The head has as many elements as the accumulators.
    pub(super) fn write_pairs(
        self,
        target: SmTarget,
        start: Value<'k, u32>,
        factor: Option<Value<'k, f32>>,
        acc: &[AccFragment<'k>],
    ) {
        let k = &start.kernel();
        if let Some(rotation) = self.rotation {
            rotation.rotate_accumulators(start, self.rows, acc);
        }
        for (index, offset) in LANE_ROWS.into_iter().enumerate() {
            let row = start + lane_row(k) + offset;
            k.when(row.lt(self.rows), || {
                let to =
                    self.first.at(row.mul_wide(self.stride) + fragment_column(k).cast::<u64>());
                let pairs = acc.iter().map(|fragment| {
                    let pair = [0, 1].map(|next| fragment[index * 2 + next].get());
                    factor.map_or(pair, |factor| pair.map(|value| value * factor))
                });
                let pairs: Vec<_> = pairs.collect();
                let write_f32 = |to: Ptr<'k, f32>| {
                    (0u32..).zip(&pairs).for_each(|(j, pair)| to.store_vec2(j * 8, *pair));
                };
                to.write(write_f32, |to| {
                    let words = pairs.iter().map(|pair| pack(target, *pair));
                    (0u32..).zip(words).for_each(|(j, word)| to.store(j * 4, word));
                });
            });
        }
    }

    /// Writes a vec4 at element `index` from the first one on.
    fn write_vec4(self, target: SmTarget, index: Value<'k, u64>, vec4: [Value<'k, f32>; 4]) {
        self.first
            .at(index)
            .write(|to| to.store_vec4(0, vec4), |to| to.store_vec2(0, pack_vec4(target, vec4)));
    }
}

/// The destination of a block's rows.
#[derive(Clone, Copy)]
pub(super) struct Epilogue<'k> {
    pub(super) kernel: Kernel<'k>,
    pub(super) config: Config,
    /// Shared memory that is no longer read. In bf16 it has room for the rows in f32.
    pub(super) smem: Shared<'k, f32>,
    pub(super) head_dim: Value<'k, u32>,
    /// First row of the block.
    pub(super) start: Value<'k, u32>,
}

impl<'k> Epilogue<'k> {
    /// Writes `factor` times `acc` to the rows `to`.
    pub(super) fn write(
        self,
        to: ResultRows<'k>,
        acc: &[AccFragment<'k>],
        factor: impl Into<Option<Value<'k, f32>>>,
    ) {
        let factor = factor.into();
        match self.config.dtype {
            DType::F32 => self.write_from_registers(to, acc, factor),
            _ => self.write_through_smem(to, acc, factor),
        }
    }

    /// Writes through shared memory, so that consecutive threads write consecutive elements.
    ///
    /// The columns of row r are shifted by 8 · (r mod 4), modulo 32, so that lanes that store
    /// together use different banks.
    fn write_through_smem(
        self,
        to: ResultRows<'k>,
        acc: &[AccFragment<'k>],
        factor: Option<Value<'k, f32>>,
    ) {
        let (k, width) = (&self.kernel, self.config.max_head_dim);
        let address = |row: Value<'k, u32>, column: Value<'k, u32>| {
            self.smem.at(row * width + (column ^ ((row & 3) << 3)))
        };
        let row = lane_row(k);
        // Fragments are 8 columns apart, so the swizzle repeats after four of them.
        let addresses = [0, 8, 16, 24].map(|offset| address(row, fragment_column(k) + offset));
        for (j, fragment) in acc.iter().enumerate() {
            for (index, row) in LANE_ROWS.into_iter().enumerate() {
                let pair = [0, 1].map(|next| fragment[index * 2 + next].get());
                let offset = j as u32 / 4 * 32 + row * width;
                addresses[j % 4].offset(offset.into()).store_vec2(0, pair);
            }
        }
        k.barrier();
        let across = width / 4;
        let (first, column) = (k.tid_x() / across, (k.tid_x() & (across - 1)) * 4);
        k.when(column.lt(self.head_dim), || {
            let (rows, step) = (self.config.block_rows(), self.config.threads() / across);
            k.range(first, (to.rows - self.start).min(rows), step, |row| {
                let load = |column| address(row, column).load_vec4(0);
                let rotated = to.rotation.map_or_else(
                    || load(column),
                    |rotation| rotation.rotate_vec4(self.start + row, column, load),
                );
                let vec4 = scaled(rotated, factor);
                let index = (self.start + row).mul_wide(to.stride) + column.cast::<u64>();
                to.write_vec4(self.config.target, index, vec4);
            });
        });
        k.barrier();
    }

    /// Writes from registers: a lane has four consecutive columns of each 16.
    fn write_from_registers(
        self,
        to: ResultRows<'k>,
        acc: &[AccFragment<'k>],
        factor: Option<Value<'k, f32>>,
    ) {
        let (k, column) = (&self.kernel, (self.kernel.lane() & 3) * 4);
        for (index, offset) in LANE_ROWS.into_iter().enumerate() {
            let row = self.start + lane_row(k) + offset;
            k.when(row.lt(to.rows), || {
                let first = row.mul_wide(to.stride) + column.cast::<u64>();
                for (j, two) in (0..).zip(acc.chunks_exact(2)) {
                    let vec4 = [0, 1, 2, 3].map(|i: usize| two[i % 2][index * 2 + i / 2].get());
                    k.when((column + j * 16).lt(self.head_dim), || {
                        let index = first + u64::from(j * 16);
                        to.write_vec4(self.config.target, index, scaled(vec4, factor));
                    });
                }
            });
        }
    }
}

fn scaled<'k>(vec4: [Value<'k, f32>; 4], factor: Option<Value<'k, f32>>) -> [Value<'k, f32>; 4] {
    factor.map_or(vec4, |factor| vec4.map(|value| value * factor))
}
