//! LoRA: the products of low-rank adapters, `y += s·(x·Aᵀ)·Bᵀ`, and their gradients, all in f32.
//!
//! ```text
//! t  = x·Aᵀ         LoraShrink, A         dt = s·dy·B      LoraShrink, B
//! y += s·t·Bᵀ       LoraExpand, B         dx += Σ dt·A     LoraExpand, A
//! dA = dtᵀ·x        LoraGrad,   A         dB = s·dyᵀ·t     LoraGrad,   B
//! ```
//!
//! A launch has one to three adapters of one rank that share the long operand: x, dx, dy or y. Its
//! contraction is split so that there are enough blocks. The number of splits depends on the sizes
//! alone ([`LoraShape::shrink_splits`], [`LoraShape::grad_splits`]), and so do the bits of the
//! result.
//!
//! Everything is f32, whatever type the products with the weights compute in. Any rank works, but
//! above [`LORA_MAX_RANK`] the tiled products ([`Fprop`](crate::gemm::Fprop) and so on) are faster.

mod expand;
mod grad;
mod shrink;

pub use expand::{LORA_EXPAND, LoraExpand, LoraExpandAdapter};
pub use grad::{LORA_GRAD, LoraGrad, LoraGradAdapter};
pub use retrograph_kernel_abi::lora::LoraMatrix;
pub use shrink::{LORA_SHRINK, LoraShrink, LoraShrinkAdapter};

use retrograph_kernel_abi::lora as abi;

use crate::checks::Check;
use crate::geometry::MAX_GRID_YZ;
use crate::launch::Pointer;
use crate::{Kernel, KernelError, View};

/// The most adapters of a launch.
pub const LORA_MAX_ADAPTERS: usize = abi::MAX_ADAPTERS;

/// The greatest rank for which these kernels are meant.
pub const LORA_MAX_RANK: usize = 64;

/// The sizes of an adapter, as one of its matrices sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoraShape {
    /// Rows of x and y.
    pub rows: usize,
    /// Elements per row of the long operand: the inputs of the layer for A, its outputs for B.
    pub width: usize,
    /// The rank of each adapter.
    pub rank: usize,
}

/// Two blocks on each of 132 SMs.
const MIN_BLOCKS: usize = 264;

impl LoraShape {
    /// Number of splits of the contraction of a [`LoraShrink`] of `adapters` adapters.
    pub fn shrink_splits(self, adapters: usize) -> usize {
        shrink::splits(self, adapters)
    }

    /// Number of splits of the rows of a [`LoraGrad`] of `adapters` adapters.
    pub fn grad_splits(self, adapters: usize) -> usize {
        grad::splits(self, adapters)
    }

    /// Elements of x or y.
    fn long_elements(self, check: Check) -> Result<usize, KernelError> {
        check.product("rows × width", &[self.rows, self.width])
    }

    /// Elements of A or B.
    fn matrix_elements(self, check: Check) -> Result<usize, KernelError> {
        check.product("rank × width", &[self.rank, self.width])
    }

    /// Rows, width and rank as parameters.
    fn sizes(self, check: Check) -> Result<[u32; 3], KernelError> {
        Ok([
            check.at_most("rows", self.rows, MAX_ROWS)?,
            check.at_most("width", self.width, MAX_WIDTH)?,
            check.at_most("rank", self.rank, MAX_GRID_YZ)?,
        ])
    }
}

/// The most rows: kernels count them in steps, which must not wrap around.
const MAX_ROWS: usize = 1 << 31;
/// The widest rows: 128 columns for each block in y.
const MAX_WIDTH: usize = MAX_GRID_YZ * abi::grad::COLUMNS as usize;

/// The number of adapters, which must be one to three.
fn adapters(check: Check, count: usize) -> Result<u32, KernelError> {
    let few = (1..=LORA_MAX_ADAPTERS).contains(&count);
    check.rule(few, "a launch has one to three adapters", (count, LORA_MAX_ADAPTERS))?;
    check.size("the number of adapters", count)
}

/// One pointer per adapter, made from its view, and null for those that are absent.
fn per_adapter<A, B: Copy>(
    adapters: &[A],
    view: impl Fn(&A) -> Option<View<B, f32>>,
    pointer: impl Fn(View<B, f32>) -> Pointer<B, f32>,
) -> [Pointer<B, f32>; LORA_MAX_ADAPTERS] {
    std::array::from_fn(|at| adapters.get(at).and_then(&view).map_or(Pointer::null(), &pointer))
}

/// The kernels of this family.
pub(crate) static KERNELS: &[&Kernel] = &[&LORA_EXPAND, &LORA_GRAD, &LORA_SHRINK];
