//! `ldmatrix`, `stmatrix` and `movmatrix`: matrices of 8 × 8 elements of 16 bits; each lane holds
//! the address of a row.

use super::{Matrix, access_bytes, addresses};
use crate::access::{LaneFault, Memories};
use crate::program::Access;
use crate::races::AccessKind;
use crate::registers::{Lanes, RegisterFile};

/// A matrix of 8 × 8 elements of 16 bits.
type Rows = [[u16; 8]; 8];

/// The elements of a matrix in each lane: two adjacent elements of a row, or of a column if
/// transposed.
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

/// The host bytes of a row of a matrix, whose address a lane holds.
fn row(
    memories: &mut Memories<'_>,
    access: &Access,
    addresses: &Lanes<u64>,
    lane: usize,
    kind: AccessKind,
) -> Result<*mut u8, LaneFault> {
    let address = addresses[lane].wrapping_add(access.offset as u64);
    access_bytes(memories, access, lane, address, kind)
}

/// `ldmatrix`.
///
/// # Safety
///
/// As for [`super::move_matrix`].
pub(super) unsafe fn load(
    memories: &mut Memories<'_>,
    file: RegisterFile,
    matrix: &Matrix,
    transposed: bool,
) -> Result<(), LaneFault> {
    let Some(access) = &matrix.access else { return Ok(()) };
    let count = matrix.count;
    // SAFETY: by the contract; every row is resolved before it is read.
    unsafe {
        let all = addresses(file, access, matrix.registers[count]);
        for index in 0..count {
            let mut rows = Rows::default();
            for (line, values) in rows.iter_mut().enumerate() {
                let lane = 8 * index + line;
                let from = row(memories, access, &all, lane, AccessKind::Read)?;
                *values = from.cast::<[u16; 8]>().read_unaligned();
            }
            file.write(matrix.registers[index], lanes_of_rows(&rows, transposed));
        }
    }
    Ok(())
}

/// `stmatrix`.
///
/// # Safety
///
/// As for [`super::move_matrix`].
pub(super) unsafe fn store(
    memories: &mut Memories<'_>,
    file: RegisterFile,
    matrix: &Matrix,
    transposed: bool,
) -> Result<(), LaneFault> {
    let Some(access) = &matrix.access else { return Ok(()) };
    // SAFETY: by the contract; every row is resolved before it is written.
    unsafe {
        let all = addresses(file, access, matrix.registers[0]);
        for index in 0..matrix.count {
            let rows = rows_of(&file.read::<u32>(matrix.registers[1 + index]), transposed);
            for (line, values) in rows.iter().enumerate() {
                let lane = 8 * index + line;
                let to = row(memories, access, &all, lane, AccessKind::Write { same: false })?;
                to.cast::<[u16; 8]>().write_unaligned(*values);
                let address = all[lane].wrapping_add(access.offset as u64);
                memories.mark_unfenced(access.space, address, u64::from(access.bytes));
            }
        }
    }
    Ok(())
}

/// `movmatrix`.
///
/// # Safety
///
/// As for [`super::move_matrix`].
pub(super) unsafe fn transpose(file: RegisterFile, matrix: &Matrix) {
    // SAFETY: by the contract.
    unsafe {
        let from = file.read::<u32>(matrix.registers[1]);
        file.write(matrix.registers[0], lanes_of_rows(&rows_of(&from, false), true));
    }
}
