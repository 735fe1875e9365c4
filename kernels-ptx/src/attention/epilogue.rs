//! Epilogue: writes the accumulators of a block to rows of a tensor.

use retrograph_kernel_abi::DType;
use retrograph_ptx::build::{Kernel, Ptr, Shared, Value};

use super::config::Config;
use super::loader::HeadRows;
use super::mask::{lane_column, lane_row};
use crate::primitives::bf16::pack;
use crate::primitives::mma::AccFragment;

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
    /// The sequence in bf16, which is also written unless null.
    pub(super) bf16: Option<Ptr<'k, u32>>,
}

impl<'k> Epilogue<'k> {
    /// Writes `factor` times `acc` to the rows `to`.
    pub(super) fn write(
        self,
        to: HeadRows<'k>,
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
        to: HeadRows<'k>,
        acc: &[AccFragment<'k>],
        factor: Option<Value<'k, f32>>,
    ) {
        let (k, width) = (&self.kernel, self.config.max_head_dim);
        let address = |row: Value<'k, u32>, column: Value<'k, u32>| {
            self.smem.at(row * width + (column ^ ((row & 3) << 3)))
        };
        let row = lane_row(k);
        // Fragments are 8 columns apart, so the swizzle repeats after four of them.
        let addresses = [0, 8, 16, 24].map(|offset| address(row, lane_column(k) + offset));
        for (j, fragment) in acc.iter().enumerate() {
            for half in 0..2 {
                let pair = [0, 1].map(|next| fragment[half * 2 + next].get());
                let offset = j as u32 / 4 * 32 + half as u32 * 8 * width;
                addresses[j % 4].offset(offset.into()).store_vec2(0, pair);
            }
        }
        k.barrier();
        let across = width / 4;
        let (first, column) = (k.tid_x() / across, (k.tid_x() & (across - 1)) * 4);
        k.when(column.lt(self.head_dim), || {
            let (base, offset) = (to.base.at(self.start.mul_wide(to.stride)), to.offset + column);
            let (rows, step) = (self.config.block_rows(), self.config.threads() / across);
            k.range(first, (to.rows - self.start).min(rows), step, |row| {
                let vec4 = scaled(address(row, column).load_vec4(0), factor);
                base.store_vec4(row.mad_lo(to.stride, offset), vec4);
                self.write_bf16((self.start + row).mad_lo(to.stride, offset), vec4);
            });
        });
        k.barrier();
    }

    /// Writes from registers: of each 16 columns a lane has four consecutive ones.
    fn write_from_registers(
        self,
        to: HeadRows<'k>,
        acc: &[AccFragment<'k>],
        factor: Option<Value<'k, f32>>,
    ) {
        let (k, column) = (&self.kernel, (self.kernel.lane() & 3) * 4);
        for half in [0, 2] {
            let row = self.start + lane_row(k) + half as u32 * 4;
            k.when(row.lt(to.rows), || {
                let base = to.base.at(row.mul_wide(to.stride)).at(to.offset + column);
                for (j, two) in (0..).zip(acc.chunks_exact(2)) {
                    let vec4 = [0, 1, 2, 3].map(|i: usize| two[i % 2][half + i / 2].get());
                    k.when((column + j * 16).lt(self.head_dim), || {
                        let vec4 = scaled(vec4, factor);
                        base.store_vec4(j * 16, vec4);
                        let index = row.mad_lo(to.stride, to.offset + column + j * 16);
                        self.write_bf16(index, vec4);
                    });
                }
            });
        }
    }

    /// Writes a vec4 at element `index` of the bf16 sequence, if there is one.
    fn write_bf16(self, index: Value<'k, u32>, vec4: [Value<'k, f32>; 4]) {
        let Some(bf16) = self.bf16 else { return };
        self.kernel.when(!bf16.is_null(), || {
            let words = [0, 2].map(|i| pack(self.config.target, [vec4[i], vec4[i + 1]]));
            bf16.at(index >> 1).store_vec2(0, words);
        });
    }
}

fn scaled<'k>(vec4: [Value<'k, f32>; 4], factor: Option<Value<'k, f32>>) -> [Value<'k, f32>; 4] {
    factor.map_or(vec4, |factor| vec4.map(|value| value * factor))
}
