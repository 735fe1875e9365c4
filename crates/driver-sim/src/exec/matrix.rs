//! Matrices that the lanes of a warp hold together: `ldmatrix`, `stmatrix`, `movmatrix`, `mma` and
//! `wmma`.
//!
//! The place of an element in the registers follows from the PTX manual for all but `wmma`, whose
//! fragments are opaque there. Those use the places of `mma`, as devices since sm_80 do; a fragment
//! with more registers than that holds elements twice.

use retrograph_ptx::ast::Type;

use super::access::{Memories, Trouble, read_element};
use super::fault::FaultKind;
use super::program::{Access, LANES};
use super::races::Touch;
use super::vector::Lanes;

mod product;

pub(super) use product::{Element, Product, multiply};

/// Which matrix of d = a · b + c a fragment is a part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The left factor, m × k.
    A,
    /// The right factor, k × n.
    B,
    /// The sum, m × n.
    C,
}

/// The size of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    /// Rows of the left factor.
    pub(super) m: usize,
    /// Columns of the right factor.
    pub(super) n: usize,
    /// Columns of the left factor.
    pub(super) k: usize,
}

impl Size {
    /// Rows and columns of the matrix.
    pub(super) fn of(self, role: Role) -> (usize, usize) {
        match role {
            Role::A => (self.m, self.k),
            Role::B => (self.k, self.n),
            Role::C => (self.m, self.n),
        }
    }

    /// Row and column of an element: `part` of the register `index` of a lane, when a register
    /// holds `parts` of them.
    #[inline(always)]
    pub(super) fn place(
        self,
        role: Role,
        (index, parts, part): (usize, usize, usize),
        lane: usize,
    ) -> (usize, usize) {
        let (group, member) = (lane / 4, lane % 4);
        match role {
            Role::A => {
                let high = self.m / 8;
                let column = member * parts + 4 * parts * (index / high) + part;
                (group + 8 * (index % high), column % self.k)
            }
            Role::B => {
                let deep = self.k / (4 * parts);
                let row = member * parts + 4 * parts * (index % deep) + part;
                (row, (group + 8 * (index / deep)) % self.n)
            }
            Role::C => {
                // Two neighbours in a row, in one register or in two.
                let high = self.m / 8;
                let (pair, part) = if parts == 2 { (index, part) } else { (index / 2, index % 2) };
                (group + 8 * (pair % high), member * 2 + part + 8 * (pair / high))
            }
        }
    }
}

/// What a matrix instruction does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Operation {
    /// `ldmatrix`: d…, address.
    Load { transposed: bool },
    /// `stmatrix`: address, a….
    Store { transposed: bool },
    /// `movmatrix`: d, a.
    Transpose,
    /// `mma` and `wmma.mma`: d…, a…, b…, c….
    Product(Product),
    /// `wmma.load`: d…, address, distance.
    LoadFragment(Fragment),
    /// `wmma.store`: address, distance, a….
    StoreFragment(Fragment),
}

/// A fragment in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fragment {
    /// The size of the product that it is for.
    pub(super) size: Size,
    /// Which matrix it is.
    pub(super) role: Role,
    /// The type of an element.
    pub(super) ty: Type,
    /// Whether columns are contiguous, not rows.
    pub(super) by_columns: bool,
}

/// A matrix instruction.
#[derive(Clone, Debug)]
pub(super) struct Matrix {
    /// What it does.
    pub(super) operation: Operation,
    /// The memory that it accesses, if it does.
    pub(super) access: Option<Access>,
    /// How many registers it writes, reads as a matrix, or has of each operand.
    pub(super) registers: usize,
    /// Offsets of the slots: those that are written, then those that are read.
    pub(super) slots: Vec<u32>,
}

/// The registers of one warp.
#[derive(Clone, Copy)]
pub(super) struct File(pub(super) *mut u8);

impl File {
    /// Reads a slot.
    ///
    /// # Safety
    ///
    /// The offset must be that of a slot of `Lanes<T>`.
    #[inline(always)]
    pub(super) unsafe fn read<T: Copy>(self, offset: u32) -> Lanes<T> {
        // SAFETY: by the contract.
        unsafe { self.0.add(offset as usize).cast::<Lanes<T>>().read() }
    }

    /// Writes a slot.
    ///
    /// # Safety
    ///
    /// As for [`File::read`].
    #[inline(always)]
    pub(super) unsafe fn write<T: Copy>(self, offset: u32, lanes: Lanes<T>) {
        // SAFETY: by the contract.
        unsafe { self.0.add(offset as usize).cast::<Lanes<T>>().write(lanes) }
    }
}

/// Executes a matrix instruction other than a product, in all lanes.
///
/// # Safety
///
/// The instruction must come from decoding, and the file be that of a warp of its program.
#[inline(never)]
pub(super) unsafe fn move_matrix(
    memories: &mut Memories<'_>,
    file: File,
    matrix: &Matrix,
) -> Result<(), Trouble> {
    // SAFETY: by the contract.
    unsafe {
        match matrix.operation {
            Operation::Load { transposed } => load(memories, file, (matrix, transposed)),
            Operation::Store { transposed } => store(memories, file, (matrix, transposed)),
            Operation::Transpose => {
                let from = file.read::<u32>(matrix.slots[1]);
                let rows = rows_of(&from, false);
                file.write(matrix.slots[0], lanes_of_rows(&rows, true));
                Ok(())
            }
            Operation::LoadFragment(fragment) => load_fragment(memories, file, (matrix, fragment)),
            Operation::StoreFragment(fragment) => {
                store_fragment(memories, file, (matrix, fragment))
            }
            Operation::Product(_) => Ok(()),
        }
    }
}

/// A matrix of 8 × 8 elements of 16 bits.
type Rows = [[u16; 8]; 8];

/// What each lane holds of a matrix: two neighbours in a row, or in a column when transposed.
fn lanes_of_rows(rows: &Rows, transposed: bool) -> Lanes<u32> {
    std::array::from_fn(|lane| {
        let at = |part: usize| {
            let (row, column) = (lane / 4, lane % 4 * 2 + part);
            u32::from(if transposed { rows[column][row] } else { rows[row][column] })
        };
        at(0) | at(1) << 16
    })
}

/// The matrix that the lanes hold.
fn rows_of(lanes: &Lanes<u32>, transposed: bool) -> Rows {
    let mut rows = Rows::default();
    for (lane, &word) in lanes.iter().enumerate() {
        for part in 0..2 {
            let (row, column) = (lane / 4, lane % 4 * 2 + part);
            let value = (word >> (16 * part)) as u16;
            *(if transposed { &mut rows[column][row] } else { &mut rows[row][column] }) = value;
        }
    }
    rows
}

/// The host bytes behind a row of a matrix, whose address is that of a lane.
fn row(
    memories: &mut Memories<'_>,
    (access, addresses): (&Access, &Lanes<u64>),
    (lane, touch): (usize, Touch),
) -> Result<*mut u8, Trouble> {
    let address = addresses[lane].wrapping_add(access.offset as u64);
    touched(memories, access, (lane, address), touch)
}

/// The host bytes of an access of a lane.
fn touched(
    memories: &mut Memories<'_>,
    access: &Access,
    (lane, address): (usize, u64),
    touch: Touch,
) -> Result<*mut u8, Trouble> {
    let host = memories.resolve(access, lane, address).map_err(|kind| (kind, lane as u32))?;
    let seen = memories.watch(access, (lane, address, access.bytes), touch);
    seen.map_err(|kind| (kind, lane as u32))?;
    Ok(host)
}

/// The addresses in a slot.
///
/// # Safety
///
/// As for [`move_matrix`].
unsafe fn addresses(file: File, access: &Access, offset: u32) -> Lanes<u64> {
    // SAFETY: by the contract.
    unsafe {
        match access.address {
            super::program::Width::Double => file.read::<u64>(offset),
            _ => file.read::<u32>(offset).map(u64::from),
        }
    }
}

/// # Safety
///
/// As for [`move_matrix`].
unsafe fn load(
    memories: &mut Memories<'_>,
    file: File,
    (matrix, transposed): (&Matrix, bool),
) -> Result<(), Trouble> {
    let Some(access) = &matrix.access else { return Ok(()) };
    let count = matrix.registers;
    // SAFETY: by the contract; every row is resolved before it is read.
    unsafe {
        let all = addresses(file, access, matrix.slots[count]);
        for index in 0..count {
            let mut rows = Rows::default();
            for (line, values) in rows.iter_mut().enumerate() {
                let lane = 8 * index + line;
                let from = row(memories, (access, &all), (lane, Touch::Read))?;
                *values = from.cast::<[u16; 8]>().read_unaligned();
            }
            file.write(matrix.slots[index], lanes_of_rows(&rows, transposed));
        }
    }
    Ok(())
}

/// # Safety
///
/// As for [`move_matrix`].
unsafe fn store(
    memories: &mut Memories<'_>,
    file: File,
    (matrix, transposed): (&Matrix, bool),
) -> Result<(), Trouble> {
    let Some(access) = &matrix.access else { return Ok(()) };
    // SAFETY: by the contract; every row is resolved before it is written.
    unsafe {
        let all = addresses(file, access, matrix.slots[0]);
        for index in 0..matrix.registers {
            let rows = rows_of(&file.read::<u32>(matrix.slots[1 + index]), transposed);
            for (line, values) in rows.iter().enumerate() {
                let lane = 8 * index + line;
                let to = row(memories, (access, &all), (lane, Touch::Write { same: false }))?;
                to.cast::<[u16; 8]>().write_unaligned(*values);
            }
        }
    }
    Ok(())
}

impl Fragment {
    /// Elements that a register holds.
    fn parts(&self) -> usize {
        (4 / self.ty.size().min(4)) as usize
    }

    /// Elements between the start of the matrix and an element.
    fn distance(&self, (row, column): (usize, usize), stride: u64) -> u64 {
        let (line, along) = if self.by_columns { (column, row) } else { (row, column) };
        stride.wrapping_mul(line as u64).wrapping_add(along as u64)
    }
}

/// The one address and distance of lines that all lanes name.
///
/// # Safety
///
/// As for [`move_matrix`].
unsafe fn uniform(file: File, access: &Access, slots: (u32, u32)) -> Result<(u64, u64), Trouble> {
    // SAFETY: by the contract.
    let (all, strides) = unsafe { (addresses(file, access, slots.0), file.read::<u32>(slots.1)) };
    for lane in 1..LANES {
        if all[lane] != all[0] || strides[lane] != strides[0] {
            let what = "lanes name different places of a matrix";
            return Err((FaultKind::Undefined { what }, lane as u32));
        }
    }
    Ok((all[0].wrapping_add(access.offset as u64), u64::from(strides[0])))
}

/// # Safety
///
/// As for [`move_matrix`].
unsafe fn load_fragment(
    memories: &mut Memories<'_>,
    file: File,
    (matrix, fragment): (&Matrix, Fragment),
) -> Result<(), Trouble> {
    let Some(access) = &matrix.access else { return Ok(()) };
    let (count, parts) = (matrix.registers, fragment.parts());
    let bytes = access.bytes as usize;
    // SAFETY: by the contract; every element is resolved before it is read.
    unsafe {
        let slots = (matrix.slots[count], matrix.slots[count + 1]);
        let (base, stride) = uniform(file, access, slots)?;
        for index in 0..count {
            let mut words = [0u32; LANES];
            for (lane, word) in words.iter_mut().enumerate() {
                for part in 0..parts {
                    let place = fragment.size.place(fragment.role, (index, parts, part), lane);
                    let at = fragment.distance(place, stride).wrapping_mul(bytes as u64);
                    let at = (lane, base.wrapping_add(at));
                    let from = touched(memories, access, at, Touch::Read)?;
                    *word |= (read_element(from, bytes, false) as u32) << (8 * bytes * part);
                }
            }
            file.write(matrix.slots[index], words);
        }
    }
    Ok(())
}

/// # Safety
///
/// As for [`move_matrix`].
unsafe fn store_fragment(
    memories: &mut Memories<'_>,
    file: File,
    (matrix, fragment): (&Matrix, Fragment),
) -> Result<(), Trouble> {
    let Some(access) = &matrix.access else { return Ok(()) };
    let parts = fragment.parts();
    let bytes = access.bytes as usize;
    // SAFETY: by the contract; every element is resolved before it is written.
    unsafe {
        let (base, stride) = uniform(file, access, (matrix.slots[0], matrix.slots[1]))?;
        for index in 0..matrix.registers {
            let words = file.read::<u32>(matrix.slots[2 + index]);
            for (lane, word) in words.iter().enumerate() {
                for part in 0..parts {
                    let place = fragment.size.place(fragment.role, (index, parts, part), lane);
                    let at = fragment.distance(place, stride).wrapping_mul(bytes as u64);
                    let at = (lane, base.wrapping_add(at));
                    let to = touched(memories, access, at, Touch::Write { same: false })?;
                    let value = (word >> ((8 * bytes * part) % 32)).to_le_bytes();
                    std::ptr::copy_nonoverlapping(value.as_ptr(), to, bytes);
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// How often each element is held.
    fn census(size: Size, role: Role, registers: usize, parts: usize) -> Vec<usize> {
        let mut count = BTreeMap::new();
        for lane in 0..LANES {
            for index in 0..registers {
                for part in 0..parts {
                    *count.entry(size.place(role, (index, parts, part), lane)).or_insert(0) += 1;
                }
            }
        }
        let (rows, columns) = size.of(role);
        (0..rows * columns)
            .map(|i| count.remove(&(i / columns, i % columns)).unwrap_or(0))
            .collect()
    }

    #[test]
    fn every_element_has_as_many_places_as_registers_allow() {
        let sizes = [(16, 8, 8), (16, 8, 16), (16, 16, 16), (32, 8, 16), (8, 32, 16), (8, 8, 16)];
        for (m, n, k) in sizes {
            let size = Size { m, n, k };
            for (role, parts) in [(Role::A, 2), (Role::B, 2), (Role::A, 4), (Role::C, 1)] {
                if parts == 4 && k < 16 {
                    continue;
                }
                let (rows, columns) = size.of(role);
                let least = rows * columns / (LANES * parts);
                for times in [1, 2] {
                    let held = census(size, role, least.max(1), parts);
                    let often = held[0];
                    assert!(often > 0 && held.iter().all(|&n| n == often), "{size:?} {role:?}");
                    if role != Role::C {
                        let held = census(size, role, least.max(1) * times, parts);
                        assert!(held.iter().all(|&n| n == often * times), "{size:?} {role:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn transposing_twice_changes_nothing() {
        let lanes: Lanes<u32> =
            std::array::from_fn(|lane| (2 * lane + ((2 * lane + 1) << 16)) as u32);
        let once = lanes_of_rows(&rows_of(&lanes, false), true);
        assert_eq!(once[1] & 0xffff, 16);
        assert_eq!(lanes_of_rows(&rows_of(&once, false), true), lanes);
    }
}
