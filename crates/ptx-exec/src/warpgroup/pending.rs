//! Products in flight.

use retrograph_ptx::ast::Type;

use super::shared_matrix::SharedMatrix;

use super::columns::{COLUMNS, Rows, accumulate};
use super::input::{for_each_element, steps};
use super::{REGISTERS, ROWS, STEPS, WARPS, undefined};
use crate::access::{LaneFault, Memories};
use crate::float::canonical;
use crate::registers::{Lanes, Offset, RegisterFile};
use crate::undefined::Undefined;

/// Matrix a.
#[derive(Clone, Debug)]
pub(super) enum MatrixA {
    Shared(SharedMatrix),
    /// Its registers and their values when the product was issued.
    Registers(Box<[(Offset, Lanes<u32>); REGISTERS]>),
}

#[derive(Clone, Debug)]
pub(super) struct Pending {
    /// The group that the product belongs to.
    pub(super) group: u32,
    pub(super) columns: usize,
    pub(super) dtype: Type,
    pub(super) negated: bool,
    pub(super) a: MatrixA,
    pub(super) b: SharedMatrix,
    pub(super) adds: bool,
    /// The first register of its accumulators.
    pub(super) accumulators: Offset,
}

impl Pending {
    /// Rows of a that the warp multiplies.
    ///
    /// # Safety
    ///
    /// As for [`Products::execute`].
    unsafe fn rows(
        &self,
        memories: &mut Memories<'_>,
        file: RegisterFile,
    ) -> Result<Vec<[f32; STEPS]>, LaneFault> {
        let held = match &self.a {
            MatrixA::Shared(lines) => {
                let first = memories.warp % WARPS * ROWS;
                return lines.read(memories, first..first + ROWS);
            }
            MatrixA::Registers(held) => held,
        };
        let mut rows = vec![[0.0; STEPS]; ROWS];
        for (index, &(register, before)) in held.iter().enumerate() {
            // SAFETY: by the contract.
            let lanes = unsafe { file.read::<u32>(register) };
            if lanes != before {
                return undefined(Undefined::MatrixAWritten);
            }
            for (lane, bits) in lanes.into_iter().enumerate() {
                for_each_element(self.dtype, index, lane, bits, |row, step, value| {
                    rows[row][step] = value;
                });
            }
        }
        Ok(rows)
    }

    /// Adds the product to the accumulators of the warp.
    ///
    /// # Safety
    ///
    /// As for [`Products::execute`].
    pub(super) unsafe fn complete(
        &self,
        memories: &mut Memories<'_>,
        file: RegisterFile,
        accumulators: &mut [Lanes<f32>],
    ) -> Result<(), LaneFault> {
        let sign = if self.negated { -1.0 } else { 1.0 };
        let mut a: Rows = [[0.0; STEPS]; ROWS];
        // SAFETY: by the contract.
        for (to, from) in a.iter_mut().zip(unsafe { self.rows(memories, file)? }) {
            *to = from.map(|value| sign * f64::from(value));
        }
        let b = self.b.read(memories, 0..self.columns)?;
        let mut steps_of_b = [[0.0; COLUMNS]; STEPS];
        let steps_of_b = &mut steps_of_b[..steps(self.dtype)];
        let (chunks, _) = b.as_chunks::<COLUMNS>();
        let (accumulators, _) = accumulators.as_chunks_mut::<REGISTERS>();
        for (columns, accumulators) in chunks.iter().zip(accumulators) {
            for (step, to) in steps_of_b.iter_mut().enumerate() {
                *to = std::array::from_fn(|column| f64::from(columns[column][step]));
            }
            let mut sums = [[0.0; COLUMNS]; ROWS];
            if self.adds {
                for_each_accumulator(|(row, column), (register, lane)| {
                    sums[row][column] = f64::from(accumulators[register][lane]);
                });
            }
            accumulate(&a, steps_of_b, &mut sums);
            for_each_accumulator(|(row, column), (register, lane)| {
                let bits = canonical(sums[row][column] as f32);
                accumulators[register][lane] = f32::from_bits(bits);
            });
        }
        Ok(())
    }
}

/// Calls `visit` with each row and column of eight columns, and with its register and lane: a lane
/// has two adjacent elements in the rows `group` and `group + 8`.
#[inline(always)]
fn for_each_accumulator(mut visit: impl FnMut((usize, usize), (usize, usize))) {
    for row in 0..ROWS {
        for column in 0..COLUMNS {
            let (register, lane) = (row / 8 * 2 + column % 2, row % 8 * 4 + column / 2);
            visit((row, column), (register, lane));
        }
    }
}
