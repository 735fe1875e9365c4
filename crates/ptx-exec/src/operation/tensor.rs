//! Matrix instructions of a warp (`ldmatrix`, `mma`, `wmma`, …) and of a warpgroup (`wgmma`).
//!
//! Their registers are in tables of the program, which the operations index.

use crate::access::LaneFault;
use crate::fault::FaultKind;
use crate::interpreter::Machine;
use crate::matrix::{self, move_matrix, multiply};
use crate::registers::ActiveLanes;
use crate::undefined::Undefined;
use crate::warp::Warp;

/// Matrix instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tensor {
    /// An instruction of a warp.
    Matrix {
        /// Its index in the matrices of the program.
        matrix: u32,
    },
    /// An instruction of a warpgroup.
    Warpgroup {
        /// Its index in the `wgmma` instructions of the program.
        instruction: u32,
    },
    /// `fence.proxy.async`.
    FenceAsync,
}

/// An mbarrier or bulk copy instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bulk {
    /// The index in the bulk instructions of the program.
    pub(crate) instruction: u32,
}

impl<R> From<Tensor> for super::Operation<R> {
    fn from(operation: Tensor) -> Self {
        Self::Tensor(operation)
    }
}

impl Tensor {
    /// The undefined behaviour if only some lanes of a warp execute the operation, if any.
    pub(crate) fn needs_all_lanes(self) -> Option<Undefined> {
        match self {
            Self::Matrix { .. } => Some(Undefined::PartialMatrix),
            Self::Warpgroup { .. } => Some(Undefined::PartialWgmma),
            Self::FenceAsync => None,
        }
    }

    /// Executes the operation; all lanes of the warp must be active unless it is a fence.
    ///
    /// # Safety
    ///
    /// The operation must come from decoding the program of `machine`.
    #[inline(always)]
    pub(crate) unsafe fn execute(
        self,
        machine: &mut Machine<'_>,
        warp: &mut Warp,
        lanes: ActiveLanes,
    ) -> Result<(), LaneFault> {
        if let Some(what) = self.needs_all_lanes()
            && lanes.mask != u32::MAX
        {
            return Err((FaultKind::Undefined(what), lanes.mask.trailing_zeros()));
        }
        machine.memories.pc = warp.pc;
        let (program, memories) = (machine.program, &mut machine.memories);
        // SAFETY: decoding created the indices and registers for this program.
        unsafe {
            match self {
                Self::Matrix { matrix } => {
                    let matrix = program.matrices.get_unchecked(matrix as usize);
                    if let matrix::Operation::Product(product) = &matrix.operation {
                        multiply(lanes.file, matrix, product);
                    } else {
                        move_matrix(memories, lanes.file, matrix)?;
                    }
                }
                Self::Warpgroup { instruction } => {
                    let instruction = program.warpgroups.get_unchecked(instruction as usize);
                    warp.products.execute(memories, lanes.file, instruction)?;
                }
                Self::FenceAsync => {
                    let this = memories.warp;
                    memories.unfenced.iter_mut().for_each(|unfenced| unfenced.fence(this));
                    memories.proxy.iter_mut().for_each(|proxy| proxy.fence(this));
                }
            }
        }
        Ok(())
    }
}
