//! Matrices distributed over the lanes of a warp: `ldmatrix`, `stmatrix`, `movmatrix`, `mma` and
//! `wmma`.
//!
//! The PTX manual specifies the positions of elements in registers except for `wmma`, whose
//! fragments are opaque. They use the positions of `mma`, as devices since sm_80 do; a fragment
//! with more registers than needed holds elements twice.

use retrograph_ptx::ast::Type;

use super::access::{LaneFault, Memories};
use super::program::{Access, Width};
use super::races::AccessKind;
use super::registers::{Lanes, Offset, RegisterFile};

mod fragment;
mod product;
mod rows;

pub(super) use product::{Element, Product, multiply, of_half};

/// The matrix of d = a · b + c that a fragment belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The left factor, m × k.
    A,
    /// The right factor, k × n.
    B,
    /// The accumulator, m × n.
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
    /// Rows and columns of a matrix.
    pub(super) fn of(self, role: Role) -> (usize, usize) {
        match role {
            Role::A => (self.m, self.k),
            Role::B => (self.k, self.n),
            Role::C => (self.m, self.n),
        }
    }

    /// Row and column of an element: part `part` of register `index` of a lane, if a register holds
    /// `parts` elements.
    #[inline(always)]
    pub(super) fn position(
        self,
        role: Role,
        index: usize,
        parts: usize,
        part: usize,
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
                // Two adjacent elements of a row, in one or two registers.
                let high = self.m / 8;
                let (pair, part) = if parts == 2 { (index, part) } else { (index / 2, index % 2) };
                (group + 8 * (pair % high), member * 2 + part + 8 * (pair / high))
            }
        }
    }
}

/// The operation of a matrix instruction.
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
    /// `wmma.load`: d…, address, leading dimension.
    LoadFragment(Fragment),
    /// `wmma.store`: address, leading dimension, a….
    StoreFragment(Fragment),
}

/// A fragment in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fragment {
    /// The size of its product.
    pub(super) size: Size,
    /// Its matrix in the product.
    pub(super) role: Role,
    /// The type of an element.
    pub(super) ty: Type,
    /// Whether the matrix is column-major.
    pub(super) by_columns: bool,
}

/// A matrix instruction.
#[derive(Clone, Debug)]
pub(super) struct Matrix {
    /// The operation.
    pub(super) operation: Operation,
    /// The memory access, if there is one.
    pub(super) access: Option<Access>,
    /// The number of registers of the matrix; of d for a product.
    pub(super) count: usize,
    /// The registers: first the written ones, then the read ones.
    pub(super) registers: Vec<Offset>,
}

/// Executes a matrix instruction other than a product, in all lanes.
///
/// # Safety
///
/// The instruction must come from decoding, and the file must belong to a warp of its program.
#[inline(never)]
pub(super) unsafe fn move_matrix(
    memories: &mut Memories<'_>,
    file: RegisterFile,
    matrix: &Matrix,
) -> Result<(), LaneFault> {
    // SAFETY: by the contract.
    unsafe {
        match matrix.operation {
            Operation::Load { transposed } => rows::load(memories, file, matrix, transposed),
            Operation::Store { transposed } => rows::store(memories, file, matrix, transposed),
            Operation::Transpose => {
                rows::transpose(file, matrix);
                Ok(())
            }
            Operation::LoadFragment(what) => fragment::load(memories, file, matrix, what),
            Operation::StoreFragment(what) => fragment::store(memories, file, matrix, what),
            Operation::Product(_) => Ok(()),
        }
    }
}

/// The host bytes of an access of a lane.
fn access_bytes(
    memories: &mut Memories<'_>,
    access: &Access,
    lane: usize,
    address: u64,
    kind: AccessKind,
) -> Result<*mut u8, LaneFault> {
    let host = memories.resolve(access, lane, address).map_err(|kind| (kind, lane as u32))?;
    let seen = memories.watch(access, lane, address, access.bytes, kind);
    seen.map_err(|kind| (kind, lane as u32))?;
    Ok(host)
}

/// The addresses in a register.
///
/// # Safety
///
/// As for [`move_matrix`].
unsafe fn addresses(file: RegisterFile, access: &Access, register: Offset) -> Lanes<u64> {
    // SAFETY: by the contract.
    unsafe {
        match access.address {
            Width::Double => file.read::<u64>(register),
            _ => file.read::<u32>(register).map(u64::from),
        }
    }
}
