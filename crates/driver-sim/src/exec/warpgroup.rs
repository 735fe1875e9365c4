//! `wgmma`: products of matrices in shared memory that complete at their wait.
//!
//! Each of the four warps of a warpgroup computes 16 of the 64 rows. Issuing a product takes its
//! accumulators out of their registers, which become poison. The wait that covers the product reads
//! the matrices and writes the accumulators back. So a missing or early wait, and a stage that is
//! refilled too early, change results. A matrix in registers is read at the wait as well, and must
//! not have changed since the product was issued.
//!
//! Undefined behaviour that is reported: accumulators and matrices in registers without
//! `wgmma.fence`, or written while a product is in flight; descriptors that differ among threads or
//! select another swizzle than 128 bytes; matrices written by a store or `cp.async` without a later
//! `fence.proxy.async` of the same warp. Atomics and `stmatrix` are not checked for that fence.

mod shared_matrix;

use super::access::{LaneFault, Memories};
use super::fault::FaultKind;
use super::float::canonical;
use super::program::LANES;
use super::registers::{Lanes, Offset, RegisterFile};
use super::rounding::Format;
use super::undefined::Undefined;
use crate::memory::POISON;
use shared_matrix::SharedMatrix;

/// Rows that a warp computes, and the largest k of a product.
const ROWS: usize = 16;
const STEPS: usize = 16;
/// Registers of matrix a.
const REGISTERS: usize = 4;
/// Warps of a warpgroup.
const WARPS: usize = 4;

/// A `wgmma` instruction.
#[derive(Clone, Debug)]
pub(super) enum Warpgroup {
    /// `wgmma.fence`, with all registers that hold a matrix a.
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
    pub(super) input: InputType,
    /// Whether a is in registers.
    pub(super) a_in_registers: bool,
    /// Whether a and b are negated.
    pub(super) negated: [bool; 2],
    /// Whether a and b are stored transposed (not contiguous in k).
    pub(super) transposed: [bool; 2],
    /// The accumulators, a, the descriptor of b, and the predicate that keeps the accumulators.
    pub(super) registers: Vec<Offset>,
}

/// The type of both matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InputType {
    /// bf16.
    Bf16,
    /// f16.
    F16,
    /// tf32.
    Tf32,
}

impl InputType {
    /// The k of one product.
    fn steps(self) -> usize {
        match self {
            Self::Bf16 | Self::F16 => 16,
            Self::Tf32 => 8,
        }
    }

    /// Bytes of an element.
    fn bytes(self) -> usize {
        32 / self.steps()
    }

    /// The element of 16 bits in the low bits.
    fn of_half(self, bits: u16) -> f32 {
        match self {
            Self::F16 => Format::F16.widen(bits.into()) as f32,
            Self::Bf16 | Self::Tf32 => f32::from_bits(u32::from(bits) << 16),
        }
    }

    /// The elements of a that a register of a lane holds: the row among 16, the step, the value.
    fn elements_of(self, (index, lane): (usize, usize), bits: u32) -> Vec<(usize, usize, f32)> {
        let (row, member) = (lane / 4 + index % 2 * 8, lane % 4);
        match self {
            Self::Tf32 => vec![(row, member + index / 2 * 4, of_tf32(bits))],
            Self::Bf16 | Self::F16 => {
                let step = 2 * member + index / 2 * 8;
                let [low, high] = [bits as u16, (bits >> 16) as u16].map(|half| self.of_half(half));
                vec![(row, step, low), (row, step + 1, high)]
            }
        }
    }
}

impl Product {
    /// Registers of a or of its descriptor.
    pub(super) fn a_registers(&self) -> usize {
        if self.a_in_registers { REGISTERS } else { 1 }
    }
}

/// A tf32 value; its low bits are ignored.
fn of_tf32(bits: u32) -> f32 {
    f32::from_bits(bits & 0xffff_e000)
}

/// Accumulators that a product in flight has taken from their registers.
#[derive(Clone, Debug)]
struct Accumulators {
    registers: Vec<Offset>,
    lanes: Vec<Lanes<f32>>,
    /// Products in flight.
    open: usize,
}

/// Matrix a.
#[derive(Clone, Debug)]
enum MatrixA {
    Shared(SharedMatrix),
    /// Its registers and their values when the product was issued.
    Registers(Box<[(Offset, Lanes<u32>); REGISTERS]>),
}

#[derive(Clone, Debug)]
struct Pending {
    /// The group that the product belongs to.
    group: u32,
    columns: usize,
    input: InputType,
    negated: bool,
    a: MatrixA,
    b: SharedMatrix,
    adds: bool,
    /// The first register of its accumulators.
    accumulators: Offset,
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
    /// The instruction must come from decoding, and the file be that of a warp of its program.
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
            Warpgroup::Start(product) => unsafe { self.start(file, product)? },
            // SAFETY: by the contract.
            Warpgroup::Wait(open) => unsafe { self.wait(memories, file, *open)? },
        }
        Ok(())
    }

    /// # Safety
    ///
    /// As for [`Products::execute`].
    unsafe fn start(&mut self, file: RegisterFile, product: &Product) -> Result<(), LaneFault> {
        let (accumulators, rest) = product.registers.split_at(product.columns / 2);
        let (a, rest) = rest.split_at(product.a_registers());
        // SAFETY: decoding gave registers of these widths.
        let adds = unsafe { file.predicate(rest[1]) };
        if adds != 0 && adds != u32::MAX {
            return undefined(Undefined::ScaleDiffers);
        }
        // SAFETY: by the contract.
        unsafe { self.hold(file, accumulators)? };
        let matrix = |register: Offset, transposed| {
            // SAFETY: decoding gave the register of a descriptor.
            let lanes = unsafe { file.read::<u64>(register) };
            if lanes.iter().any(|descriptor| *descriptor != lanes[0]) {
                return undefined(Undefined::DescriptorsDiffer);
            }
            let lines = SharedMatrix::of((lanes[0], transposed), product.input);
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
            input: product.input,
            negated: product.negated[0] != product.negated[1],
            a,
            b: matrix(rest[0], product.transposed[1])?,
            adds: adds != 0,
            accumulators: accumulators[0],
        });
        Ok(())
    }

    /// Takes accumulators from their registers unless a product in flight already has.
    ///
    /// # Safety
    ///
    /// As for [`Products::execute`].
    unsafe fn hold(&mut self, file: RegisterFile, registers: &[Offset]) -> Result<(), LaneFault> {
        const POISONED: Lanes<u32> = [POISON; LANES];
        if let Some(held) = self.held.iter_mut().find(|held| held.registers == registers) {
            // SAFETY: by the contract.
            if registers.iter().any(|&register| unsafe { file.read::<u32>(register) } != POISONED) {
                return undefined(Undefined::AccumulatorWritten);
            }
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
        registers.iter().for_each(|&register| unsafe { file.write(register, POISONED) });
        self.held.push(Accumulators { registers: registers.to_vec(), lanes, open: 1 });
        Ok(())
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
        // Groups are in their order.
        let count = self.pending.iter().take_while(|product| product.group < last).count();
        for product in self.pending.drain(..count) {
            let held = self.held.iter_mut().find(|held| held.registers[0] == product.accumulators);
            let held = held.expect("accumulators are held until their last product");
            // SAFETY: by the contract.
            unsafe { product.complete(memories, file, &mut held.lanes)? };
            held.open -= 1;
            if held.open == 0 {
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
                for (row, step, value) in self.input.elements_of((index, lane), bits) {
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
    unsafe fn complete(
        &self,
        memories: &mut Memories<'_>,
        file: RegisterFile,
        accumulators: &mut [Lanes<f32>],
    ) -> Result<(), LaneFault> {
        // SAFETY: by the contract.
        let a = unsafe { self.rows(memories, file)? };
        let b = self.b.read(memories, 0..self.columns)?;
        // Step after step, so that all columns of a row are one run.
        let b: Vec<f64> = (0..self.input.steps())
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
