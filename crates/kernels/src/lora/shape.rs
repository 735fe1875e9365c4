//! The sizes of adapters, and the operands that all LoRA launches share.

use retrograph_kernel_abi::lora as abi;

use crate::checks::Check;
use crate::geometry::MAX_GRID_YZ;
use crate::launch::Pointer;
use crate::{KernelError, View};

/// The most adapters of a launch.
pub const LORA_MAX_ADAPTERS: usize = abi::MAX_ADAPTERS;

/// The largest rank at which these kernels are faster than GEMM.
pub const LORA_MAX_RANK: usize = 64;

/// The sizes of an adapter for one of its matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoraShape {
    /// Rows of x and y.
    pub rows: usize,
    /// Elements per row of the wide operand: the inputs of the layer for A, its outputs for B.
    pub width: usize,
    /// The rank of each adapter.
    pub rank: usize,
}

impl LoraShape {
    /// Elements of x or y.
    pub(super) fn long_elements(self, check: Check) -> Result<usize, KernelError> {
        check.product("rows × width", &[self.rows, self.width])
    }

    /// Elements of A or B.
    pub(super) fn matrix_elements(self, check: Check) -> Result<usize, KernelError> {
        check.product("rank × width", &[self.rank, self.width])
    }

    /// Rows, width and rank as parameters.
    pub(super) fn sizes(self, check: Check) -> Result<[u32; 3], KernelError> {
        Ok([
            check.at_most("rows", self.rows, MAX_ROWS)?,
            check.at_most("width", self.width, MAX_WIDTH)?,
            check.at_most("rank", self.rank, MAX_GRID_YZ)?,
        ])
    }
}

/// The most rows: kernels advance rows in steps, and the index must not wrap around.
pub(super) const MAX_ROWS: usize = 1 << 31;
/// The widest rows: 128 columns for each block in y.
const MAX_WIDTH: usize = MAX_GRID_YZ * abi::grad::COLUMNS as usize;

/// The number of adapters, which must be one to three.
pub(super) fn adapter_count(check: Check, count: usize) -> Result<u32, KernelError> {
    let few = (1..=LORA_MAX_ADAPTERS).contains(&count);
    check.rule(few, "a launch has one to three adapters", count)?;
    check.size("the number of adapters", count)
}

/// Returns one pointer per adapter, created from its view; null for absent adapters.
pub(super) fn per_adapter<A, B: Copy>(
    adapters: &[A],
    view: impl Fn(&A) -> Option<View<B, f32>>,
    pointer: impl Fn(View<B, f32>) -> Pointer<B, f32>,
) -> [Pointer<B, f32>; LORA_MAX_ADAPTERS] {
    std::array::from_fn(|at| adapters.get(at).and_then(&view).map_or(Pointer::null(), &pointer))
}
