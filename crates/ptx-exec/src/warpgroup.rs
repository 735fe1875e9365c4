//! `wgmma`: matrix products that complete at the wait for them.
//!
//! Each of the four warps of a warpgroup computes 16 of the 64 rows. Issuing a product moves its
//! accumulators out of their registers, which become poison. The wait that covers the product reads
//! the matrices and writes the accumulators back. So a missing or early wait, and a stage that is
//! refilled too early, change results. A matrix in registers is read at the wait as well, and must
//! not have changed since the product was issued.
//!
//! Detected undefined behaviour: accumulators and matrices in registers without `wgmma.fence`, or
//! written while a product is in flight; descriptors that differ between threads; matrices written
//! by a store or `cp.async` without a later `fence.proxy.async` of the same warp. Atomics and
//! `stmatrix` are not checked for that fence. A swizzle other than 128 bytes is also reported,
//! because it is not supported.

mod columns;
mod input;
mod pending;
mod shared_matrix;

use retrograph_ptx::ast::Type;

use self::pending::{MatrixA, Pending};
use super::access::{LaneFault, Memories};
use super::fault::FaultKind;
use super::program::LANES;
use super::registers::{Lanes, Offset, RegisterFile};
use super::undefined::Undefined;
use crate::memory::POISON;
use shared_matrix::SharedMatrix;

/// Rows per warp, and the maximum k of a product.
const ROWS: usize = 16;
const STEPS: usize = 16;
/// Registers of matrix a, and of the accumulators of eight columns.
const REGISTERS: usize = 4;
/// Warps of a warpgroup.
const WARPS: usize = 4;

/// A `wgmma` instruction.
#[derive(Clone, Debug)]
pub(super) enum Warpgroup {
    /// `wgmma.fence`, with all registers of matrices a.
    Fence(Vec<Offset>),
    /// `wgmma.mma_async`.
    Start(Product),
    /// `wgmma.commit_group`.
    Commit,
    /// `wgmma.wait_group`: at most this many groups stay in flight.
    Wait(u32),
}

/// A product of 64 rows.
#[derive(Clone, Debug)]
pub(super) struct Product {
    pub(super) columns: usize,
    pub(super) dtype: Type,
    /// Whether a is in registers.
    pub(super) a_in_registers: bool,
    /// Whether a and b are negated.
    pub(super) negated: [bool; 2],
    /// Whether a and b are stored transposed (not contiguous in k).
    pub(super) transposed: [bool; 2],
    /// The accumulators, a, the descriptor of b, and the predicate that keeps the accumulators.
    pub(super) registers: Vec<Offset>,
}

impl Product {
    /// Registers of a or of its descriptor.
    pub(super) fn a_registers(&self) -> usize {
        if self.a_in_registers { REGISTERS } else { 1 }
    }
}

/// Accumulators that a product in flight has moved out of their registers.
#[derive(Clone, Debug)]
struct Accumulators {
    registers: Vec<Offset>,
    lanes: Vec<Lanes<f32>>,
    /// Products in flight.
    open: usize,
}

impl Accumulators {
    /// Fails if a register was written since its value was moved out.
    ///
    /// # Safety
    ///
    /// As for [`Products::execute`].
    unsafe fn check(&self, file: RegisterFile) -> Result<(), LaneFault> {
        const POISONED: Lanes<u32> = [POISON; LANES];
        // SAFETY: by the contract.
        let is_written = |&register: &Offset| unsafe { file.read::<u32>(register) } != POISONED;
        match self.registers.iter().any(is_written) {
            true => undefined(Undefined::AccumulatorWritten),
            false => Ok(()),
        }
    }
}

/// The products in flight of a warp.
#[derive(Clone, Debug, Default)]
pub(super) struct Products {
    pending: Vec<Pending>,
    held: Vec<Accumulators>,
    committed: u32,
    fenced: bool,
    /// Registers of matrices a and their values at the last fence.
    fenced_inputs: Vec<(Offset, Lanes<u32>)>,
}

fn undefined<T>(what: Undefined) -> Result<T, LaneFault> {
    Err((FaultKind::Undefined(what), 0))
}

impl Products {
    /// Resets the state for a new block.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Executes an instruction in all lanes.
    ///
    /// # Safety
    ///
    /// The instruction must come from decoding, and the file must belong to a warp of its program.
    #[inline(never)]
    pub(super) unsafe fn execute(
        &mut self,
        memories: &mut Memories<'_>,
        file: RegisterFile,
        instruction: &Warpgroup,
    ) -> Result<(), LaneFault> {
        match instruction {
            Warpgroup::Fence(registers) => {
                self.fenced = true;
                // SAFETY: by the contract.
                let held = |&register: &Offset| (register, unsafe { file.read(register) });
                self.fenced_inputs = registers.iter().map(held).collect();
            }
            Warpgroup::Commit => self.committed += 1,
            // SAFETY: by the contract.
            Warpgroup::Start(product) => unsafe {
                self.start(file, product, memories.shared.base)?;
            },
            // SAFETY: by the contract.
            Warpgroup::Wait(open) => unsafe { self.wait(memories, file, *open)? },
        }
        Ok(())
    }

    /// # Safety
    ///
    /// As for [`Products::execute`].
    unsafe fn start(
        &mut self,
        file: RegisterFile,
        product: &Product,
        base: u64,
    ) -> Result<(), LaneFault> {
        let (accumulators, rest) = product.registers.split_at(product.columns / 2);
        let (a, rest) = rest.split_at(product.a_registers());
        // SAFETY: decoding ensures the widths of these registers.
        let adds = unsafe { file.predicate(rest[1]) };
        if adds != 0 && adds != u32::MAX {
            return undefined(Undefined::ScaleDiffers);
        }
        // SAFETY: by the contract.
        unsafe { self.hold(file, accumulators)? };
        let matrix = |register: Offset, transposed| {
            // SAFETY: decoding ensures that this is the register of a descriptor.
            let lanes = unsafe { file.read::<u64>(register) };
            if lanes.iter().any(|descriptor| *descriptor != lanes[0]) {
                return undefined(Undefined::DescriptorsDiffer);
            }
            let lines = SharedMatrix::of(lanes[0], transposed, product.dtype, base);
            lines.or_else(undefined)
        };
        let a = match product.a_in_registers {
            false => MatrixA::Shared(matrix(a[0], product.transposed[0])?),
            true => {
                let held = [a[0], a[1], a[2], a[3]].map(|register| {
                    // SAFETY: by the contract.
                    (register, unsafe { file.read(register) })
                });
                if !held.iter().all(|held| self.fenced_inputs.contains(held)) {
                    return undefined(Undefined::UnfencedMatrixA);
                }
                MatrixA::Registers(Box::new(held))
            }
        };
        self.pending.push(Pending {
            group: self.committed,
            columns: product.columns,
            dtype: product.dtype,
            negated: product.negated[0] != product.negated[1],
            a,
            b: matrix(rest[0], product.transposed[1])?,
            adds: adds != 0,
            accumulators: accumulators[0],
        });
        Ok(())
    }

    /// Moves accumulators out of their registers, unless a product in flight already has.
    ///
    /// # Safety
    ///
    /// As for [`Products::execute`].
    unsafe fn hold(&mut self, file: RegisterFile, registers: &[Offset]) -> Result<(), LaneFault> {
        if let Some(held) = self.held.iter_mut().find(|held| held.registers == registers) {
            // SAFETY: by the contract.
            unsafe { held.check(file)? };
            held.open += 1;
            return Ok(());
        }
        if self
            .held
            .iter()
            .any(|held| held.registers.iter().any(|register| registers.contains(register)))
        {
            return undefined(Undefined::AccumulatorsShared);
        }
        if !self.fenced {
            return undefined(Undefined::UnfencedAccumulators);
        }
        // SAFETY: by the contract.
        let lanes = registers.iter().map(|&register| unsafe { file.read(register) }).collect();
        // SAFETY: by the contract.
        registers.iter().for_each(|&register| unsafe { file.write(register, [POISON; LANES]) });
        self.held.push(Accumulators { registers: registers.to_vec(), lanes, open: 1 });
        Ok(())
    }

    /// Fails if an accumulator of a product in flight was written. Called when the warp ends.
    ///
    /// # Safety
    ///
    /// As for [`Products::execute`].
    pub(super) unsafe fn check_held(&self, file: RegisterFile) -> Result<(), LaneFault> {
        // SAFETY: by the contract.
        self.held.iter().try_for_each(|held| unsafe { held.check(file) })
    }

    /// # Safety
    ///
    /// As for [`Products::execute`].
    unsafe fn wait(
        &mut self,
        memories: &mut Memories<'_>,
        file: RegisterFile,
        open: u32,
    ) -> Result<(), LaneFault> {
        let last = self.committed.saturating_sub(open);
        // Groups are in ascending order.
        let count = self.pending.iter().take_while(|product| product.group < last).count();
        for product in self.pending.drain(..count) {
            let held = self.held.iter_mut().find(|held| held.registers[0] == product.accumulators);
            let held = held.expect("accumulators are held until their last product");
            // SAFETY: by the contract.
            unsafe { product.complete(memories, file, &mut held.lanes)? };
            held.open -= 1;
            if held.open == 0 {
                // SAFETY: by the contract.
                unsafe { held.check(file)? };
                for (&register, lanes) in held.registers.iter().zip(&held.lanes) {
                    // SAFETY: by the contract.
                    unsafe { file.write(register, *lanes) };
                }
                self.held.retain(|held| held.open > 0);
            }
        }
        self.fenced &= !self.held.is_empty();
        Ok(())
    }
}
