//! Products in flight.

use retrograph_ptx::ast::Type;

use super::shared_matrix::SharedMatrix;

use super::input::{elements_of, steps};
use super::{REGISTERS, ROWS, STEPS, WARPS, undefined};
use crate::exec::access::{LaneFault, Memories};
use crate::exec::float::canonical;
use crate::exec::registers::{Lanes, Offset, RegisterFile};
use crate::exec::undefined::Undefined;

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
                for (row, step, value) in elements_of(self.dtype, (index, lane), bits) {
                    rows[row][step] = value;
                }
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
        // SAFETY: by the contract.
        let a = unsafe { self.rows(memories, file)? };
        let b = self.b.read(memories, 0..self.columns)?;
        // Step after step, so that all columns of a row are one run.
        let b: Vec<f64> = (0..steps(self.dtype))
            .flat_map(|step| b.iter().map(move |line| f64::from(line[step])))
            .collect();
        let sign = if self.negated { -1.0 } else { 1.0 };
        let mut row_sums = vec![0.0; self.columns];
        for (row, a) in a.iter().enumerate() {
            // Rows `group` and `group + 8` of a lane, two neighbours of each eight columns.
            let (half, lane) = (row / 8 * 2, row % 8 * 4);
            for (column, accumulator) in row_sums.iter_mut().enumerate() {
                let before =
                    accumulators[column / 8 * 4 + half + column % 2][lane + column % 8 / 2];
                *accumulator = if self.adds { f64::from(before) } else { 0.0 };
            }
            for (step, b) in b.chunks_exact(self.columns).enumerate() {
                let a = sign * f64::from(a[step]);
                row_sums.iter_mut().zip(b).for_each(|(accumulator, b)| *accumulator += a * b);
            }
            for (column, accumulator) in row_sums.iter().enumerate() {
                let after =
                    &mut accumulators[column / 8 * 4 + half + column % 2][lane + column % 8 / 2];
                *after = f32::from_bits(canonical(*accumulator as f32));
            }
        }
        Ok(())
    }
}
