//! `wmma.load` and `wmma.store`: fragments with an opaque register layout.
//!
//! Only the alignment of elements is checked, not the alignment of the matrix.

use super::{Fragment, Matrix, access_bytes, addresses};
use crate::access::{LaneFault, Memories, read_element};
use crate::fault::FaultKind;
use crate::program::{Access, LANES};
use crate::races::AccessKind;
use crate::registers::{Offset, RegisterFile};
use crate::undefined::Undefined;

impl Fragment {
    /// Elements that a register holds.
    fn parts(&self) -> usize {
        (4 / self.ty.size().min(4)) as usize
    }

    /// Elements between the start of the matrix and an element.
    fn distance(&self, row: usize, column: usize, stride: u64) -> u64 {
        let (line, along) = if self.by_columns { (column, row) } else { (row, column) };
        stride.wrapping_mul(line as u64).wrapping_add(along as u64)
    }
}

/// The address and leading dimension, which must be the same in all lanes.
///
/// # Safety
///
/// As for [`super::move_matrix`].
unsafe fn uniform(
    file: RegisterFile,
    access: &Access,
    address: Offset,
    leading_dimension: Offset,
) -> Result<(u64, u64), LaneFault> {
    // SAFETY: by the contract.
    let (all, strides) =
        unsafe { (addresses(file, access, address), file.read::<u32>(leading_dimension)) };
    for lane in 1..LANES {
        if all[lane] != all[0] || strides[lane] != strides[0] {
            let kind = FaultKind::Undefined(Undefined::MatrixAddressesDiffer);
            return Err((kind, lane as u32));
        }
    }
    Ok((all[0].wrapping_add(access.offset as u64), u64::from(strides[0])))
}

/// `wmma.load`.
///
/// # Safety
///
/// As for [`super::move_matrix`].
pub(super) unsafe fn load(
    memories: &mut Memories<'_>,
    file: RegisterFile,
    matrix: &Matrix,
    fragment: Fragment,
) -> Result<(), LaneFault> {
    let Some(access) = &matrix.access else { return Ok(()) };
    let (count, parts) = (matrix.count, fragment.parts());
    let bytes = access.bytes as usize;
    // SAFETY: by the contract; every element is resolved before it is read.
    unsafe {
        let (address, leading_dimension) = (matrix.registers[count], matrix.registers[count + 1]);
        let (base, stride) = uniform(file, access, address, leading_dimension)?;
        for index in 0..count {
            let mut words = [0u32; LANES];
            for (lane, word) in words.iter_mut().enumerate() {
                for part in 0..parts {
                    let (row, column) =
                        fragment.size.position(fragment.role, index, parts, part, lane);
                    let at = fragment.distance(row, column, stride).wrapping_mul(bytes as u64);
                    let at = base.wrapping_add(at);
                    let from = access_bytes(memories, access, lane, at, AccessKind::Read)?;
                    *word |= (read_element(from, bytes, false) as u32) << (8 * bytes * part);
                }
            }
            file.write(matrix.registers[index], words);
        }
    }
    Ok(())
}

/// `wmma.store`.
///
/// # Safety
///
/// As for [`super::move_matrix`].
pub(super) unsafe fn store(
    memories: &mut Memories<'_>,
    file: RegisterFile,
    matrix: &Matrix,
    fragment: Fragment,
) -> Result<(), LaneFault> {
    let Some(access) = &matrix.access else { return Ok(()) };
    let parts = fragment.parts();
    let bytes = access.bytes as usize;
    // SAFETY: by the contract; every element is resolved before it is written.
    unsafe {
        let (base, stride) = uniform(file, access, matrix.registers[0], matrix.registers[1])?;
        for index in 0..matrix.count {
            let words = file.read::<u32>(matrix.registers[2 + index]);
            for (lane, word) in words.iter().enumerate() {
                for part in 0..parts {
                    let (row, column) =
                        fragment.size.position(fragment.role, index, parts, part, lane);
                    let at = fragment.distance(row, column, stride).wrapping_mul(bytes as u64);
                    let at = base.wrapping_add(at);
                    let kind = AccessKind::Write { same: false };
                    let to = access_bytes(memories, access, lane, at, kind)?;
                    let value = (word >> ((8 * bytes * part) % 32)).to_le_bytes();
                    std::ptr::copy_nonoverlapping(value.as_ptr(), to, bytes);
                }
            }
        }
    }
    Ok(())
}
