//! `wgmma`: products of matrices in shared memory that are made at their wait.
//!
//! Each of the four warps of a warpgroup makes its own 16 of the 64 rows. A product is noted when
//! it is started: its sums are taken from the registers, which become poison. The matrices are read
//! and the sums come back by the wait that covers the product, so that a wait that was forgotten or
//! comes too early, and a stage that is filled too early, are found by what is read.
//!
//! A factor in registers is read at the wait, too, and must be then what it was at the start.
//!
//! Refused as undefined: sums and factors that were not fenced or that are written while a product
//! is under way, descriptors that differ among threads or that say something other than lines of
//! 128 bytes, and matrices that were written by a store or an asynchronous copy without a
//! `fence.proxy.async` of the same warp after it. Atomics and `stmatrix` are not asked for it.

mod lines;

use super::access::{LaneFault, Memories};
use super::fault::FaultKind;
use super::float::canonical;
use super::program::LANES;
use super::registers::{Lanes, Offset, RegisterFile};
use crate::memory::POISON;
use lines::Lines;

/// Rows that a warp makes, and most steps of the contraction of one product.
const ROWS: usize = 16;
const STEPS: usize = 16;
/// Registers of a factor.
const REGISTERS: usize = 4;
/// Warps of a warpgroup.
const WARPS: usize = 4;

/// A `wgmma` instruction.
#[derive(Clone, Debug)]
pub(super) enum Warpgroup {
    /// `wgmma.fence`. Offsets of the slots of all factors that are in registers.
    Fence(Vec<Offset>),
    /// `wgmma.mma_async`.
    Start(Product),
    /// `wgmma.commit_group`.
    Commit,
    /// `wgmma.wait_group`: all groups but so many.
    Wait(u32),
}

/// A product of 64 rows.
#[derive(Clone, Debug)]
pub(super) struct Product {
    pub(super) columns: usize,
    pub(super) factor: Factor,
    /// Whether the signs of a and of b are changed.
    pub(super) negated: [bool; 2],
    /// Whether a line holds rows of a or columns of b, and not steps of the contraction.
    pub(super) transposed: [bool; 2],
    /// Offsets of the slots: the sums, a, the descriptor of b, and whether the sums are added to.
    pub(super) slots: Vec<Offset>,
}

/// What is multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Factor {
    /// bf16, with both matrices in shared memory.
    Brain,
    /// tf32, with a in registers.
    Tf32,
}

impl Factor {
    /// Steps of the contraction of one product.
    fn steps(self) -> usize {
        match self {
            Self::Brain => 16,
            Self::Tf32 => 8,
        }
    }

    /// Bytes of an element.
    fn bytes(self) -> usize {
        32 / self.steps()
    }

    /// How many slots say where a is.
    pub(super) fn left(self) -> usize {
        match self {
            Self::Brain => 1,
            Self::Tf32 => REGISTERS,
        }
    }
}

/// The value of a factor in tf32, whose lowest bits are ignored.
fn of_tf32(bits: u32) -> f32 {
    f32::from_bits(bits & 0xffff_e000)
}

/// Sums that are not in their registers.
#[derive(Clone, Debug)]
struct Held {
    slots: Vec<Offset>,
    lanes: Vec<Lanes<f32>>,
    /// Products under way.
    open: usize,
}

/// Where a is.
#[derive(Clone, Debug)]
enum Left {
    Lines(Lines),
    /// Its slots, with what they held.
    Registers(Box<[(Offset, Lanes<u32>); REGISTERS]>),
}

#[derive(Clone, Debug)]
struct Pending {
    /// The group that the product belongs to.
    group: u32,
    columns: usize,
    steps: usize,
    negated: bool,
    left: Left,
    right: Lines,
    adds: bool,
    /// The first slot of its sums.
    sums: Offset,
}

/// The products of a warp that are under way.
#[derive(Clone, Debug, Default)]
pub(super) struct Products {
    pending: Vec<Pending>,
    held: Vec<Held>,
    committed: u32,
    fenced: bool,
    /// Slots of factors, and what they held at the last fence.
    factors: Vec<(Offset, Lanes<u32>)>,
}

fn undefined<T>(what: &'static str) -> Result<T, LaneFault> {
    Err((FaultKind::Undefined { what }, 0))
}

impl Products {
    /// Forgets everything, for a new block.
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
            Warpgroup::Fence(slots) => {
                self.fenced = true;
                // SAFETY: by the contract.
                let held = |&slot: &Offset| (slot, unsafe { file.read(slot) });
                self.factors = slots.iter().map(held).collect();
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
        let (sums, rest) = product.slots.split_at(product.columns / 2);
        let (a, rest) = rest.split_at(product.factor.left());
        // SAFETY: decoding gave slots of these widths.
        let adds = unsafe { file.predicate(rest[1]) };
        if adds != 0 && adds != u32::MAX {
            return undefined("sums that some threads add to and others do not");
        }
        // SAFETY: by the contract.
        unsafe { self.hold(file, sums)? };
        let matrix = |slot: Offset, transposed| {
            // SAFETY: decoding gave the slot of a descriptor.
            let lanes = unsafe { file.read::<u64>(slot) };
            if lanes.iter().any(|descriptor| *descriptor != lanes[0]) {
                return undefined("a matrix descriptor that differs among the threads of a warp");
            }
            let lines = Lines::of((lanes[0], transposed), product.factor);
            lines.map_err(|what| (FaultKind::Undefined { what }, 0))
        };
        let left = match product.factor {
            Factor::Brain => Left::Lines(matrix(a[0], product.transposed[0])?),
            Factor::Tf32 => {
                let held = [a[0], a[1], a[2], a[3]].map(|slot| {
                    // SAFETY: by the contract.
                    (slot, unsafe { file.read(slot) })
                });
                if !held.iter().all(|held| self.factors.contains(held)) {
                    return undefined("a factor without wgmma.fence between it and its product");
                }
                Left::Registers(Box::new(held))
            }
        };
        self.pending.push(Pending {
            group: self.committed,
            columns: product.columns,
            steps: product.factor.steps(),
            negated: product.negated[0] != product.negated[1],
            left,
            right: matrix(rest[0], product.transposed[1])?,
            adds: adds != 0,
            sums: sums[0],
        });
        Ok(())
    }

    /// Takes sums from their registers, unless a product has them already.
    ///
    /// # Safety
    ///
    /// As for [`Products::execute`].
    unsafe fn hold(&mut self, file: RegisterFile, slots: &[Offset]) -> Result<(), LaneFault> {
        const POISONED: Lanes<u32> = [POISON; LANES];
        if let Some(held) = self.held.iter_mut().find(|held| held.slots == slots) {
            // SAFETY: by the contract.
            if slots.iter().any(|&slot| unsafe { file.read::<u32>(slot) } != POISONED) {
                return undefined("a sum that was written while a product of it is under way");
            }
            held.open += 1;
            return Ok(());
        }
        if self.held.iter().any(|held| held.slots.iter().any(|slot| slots.contains(slot))) {
            return undefined("products of different shapes under way to the same sums");
        }
        if !self.fenced {
            return undefined("sums without wgmma.fence between their threads and a product");
        }
        // SAFETY: by the contract.
        let lanes = slots.iter().map(|&slot| unsafe { file.read(slot) }).collect();
        // SAFETY: by the contract.
        slots.iter().for_each(|&slot| unsafe { file.write(slot, POISONED) });
        self.held.push(Held { slots: slots.to_vec(), lanes, open: 1 });
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
            let held = self.held.iter_mut().find(|held| held.slots[0] == product.sums);
            let held = held.expect("sums are held until their last product");
            // SAFETY: by the contract.
            unsafe { product.land(memories, file, &mut held.lanes)? };
            held.open -= 1;
            if held.open == 0 {
                for (&slot, lanes) in held.slots.iter().zip(&held.lanes) {
                    // SAFETY: by the contract.
                    unsafe { file.write(slot, *lanes) };
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
        let held = match &self.left {
            Left::Lines(lines) => {
                let first = memories.warp % WARPS * ROWS;
                return lines.read(memories, first..first + ROWS);
            }
            Left::Registers(held) => held,
        };
        let mut rows = vec![[0.0; STEPS]; ROWS];
        for (index, &(slot, before)) in held.iter().enumerate() {
            // SAFETY: by the contract.
            let lanes = unsafe { file.read::<u32>(slot) };
            if lanes != before {
                return undefined("a factor that was written while a product of it is under way");
            }
            // Of rows `group` and `group + 8` the step `member`, and then 4 steps further.
            for (lane, bits) in lanes.into_iter().enumerate() {
                rows[lane / 4 + index % 2 * 8][lane % 4 + index / 2 * 4] = of_tf32(bits);
            }
        }
        Ok(rows)
    }

    /// Adds the product to the sums of the warp.
    ///
    /// # Safety
    ///
    /// As for [`Products::execute`].
    unsafe fn land(
        &self,
        memories: &mut Memories<'_>,
        file: RegisterFile,
        sums: &mut [Lanes<f32>],
    ) -> Result<(), LaneFault> {
        // SAFETY: by the contract.
        let left = unsafe { self.rows(memories, file)? };
        let right = self.right.read(memories, 0..self.columns)?;
        // Step after step, so that all columns of a row are one run.
        let right: Vec<f64> = (0..self.steps)
            .flat_map(|step| right.iter().map(move |line| f64::from(line[step])))
            .collect();
        let sign = if self.negated { -1.0 } else { 1.0 };
        let mut row_sums = vec![0.0; self.columns];
        for (row, left) in left.iter().enumerate() {
            // Rows `group` and `group + 8` of a lane, two neighbours of each eight columns.
            let (half, lane) = (row / 8 * 2, row % 8 * 4);
            for (column, sum) in row_sums.iter_mut().enumerate() {
                let before = sums[column / 8 * 4 + half + column % 2][lane + column % 8 / 2];
                *sum = if self.adds { f64::from(before) } else { 0.0 };
            }
            for (step, right) in right.chunks_exact(self.columns).enumerate() {
                let left = sign * f64::from(left[step]);
                row_sums.iter_mut().zip(right).for_each(|(sum, right)| *sum += left * right);
            }
            for (column, sum) in row_sums.iter().enumerate() {
                let after = &mut sums[column / 8 * 4 + half + column % 2][lane + column % 8 / 2];
                *after = f32::from_bits(canonical(*sum as f32));
            }
        }
        Ok(())
    }
}
