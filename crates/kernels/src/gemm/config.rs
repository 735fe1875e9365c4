//! The GEMM configuration of a linear layer, and the number of split-K splits that follows from it.

use retrograph_kernel_abi::gemm::Layout;

use super::heuristic::{TileTable, splits};
use super::launch::SPLIT_K_UNIT;
use super::{GemmProblem, GemmShape};
use crate::DType;
use crate::tensor::NF4_BLOCK;

/// The element types of a linear layer's products, and the number of concurrent products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GemmConfig {
    /// The type in which operands are multiplied: f32 or bf16.
    pub compute: DType,
    /// The type of x or dy: f32 or bf16.
    pub activations: DType,
    /// The type of w; f16 if both operands are split matrices.
    pub weights: DType,
    /// Number of other products of the same sizes that run concurrently; see
    /// [`Launch::concurrent`](crate::Launch::concurrent).
    pub concurrent: u32,
}

impl GemmConfig {
    /// The unit of the split length: an NF4 block if codes are copied, a stage for split operands,
    /// else a vector of any type.
    fn split_unit(self) -> u32 {
        match (self.activations, self.weights) {
            (DType::Bf16, DType::Nf4) => NF4_BLOCK as u32,
            (_, DType::F16) => SPLIT_K_UNIT as u32,
            _ => 8,
        }
    }

    /// The number of splits for a result of m × n and a contraction of k in this layout.
    fn splits(self, layout: Layout, sizes: [usize; 3]) -> usize {
        let [Ok(m), Ok(n), Ok(k)] = sizes.map(u32::try_from) else { return 1 };
        let (activations, weights) = match (self.compute, self.weights) {
            (DType::F32, DType::F16) => (DType::F16, DType::F16),
            // In f32, NF4 weights use the same number of splits as f32 weights.
            (DType::F32, _) => (DType::F32, DType::F32),
            _ => (self.activations, self.weights),
        };
        let table = TileTable::new(layout, self.compute, [activations, weights]);
        let (vectorized, concurrent) = (table.vectorizes(sizes), self.concurrent);
        let mapped = [[DType::Bf16; 2], [DType::F16; 2]].contains(&[activations, weights]);
        let tensor_maps = vectorized && mapped;
        let problem = GemmProblem { m, n, k, planes: 1, vectorized, tensor_maps, concurrent };
        let is_bf16 = [activations, weights] == [DType::Bf16; 2];
        let bytes = if is_bf16 { 2 * (u128::from(m) + u128::from(n)) * u128::from(k) } else { 0 };
        splits(table, problem, self.split_unit(), bytes) as usize
    }
}

impl GemmShape {
    /// The predicted best number of splits for `y = x·wᵀ`; 1 for no split-K.
    pub fn fprop_splits(self, config: GemmConfig) -> usize {
        config.splits(Layout::Nt, [self.rows, self.outputs, self.inputs])
    }

    /// The predicted best number of splits for `dx = dy·w`; 1 for no split-K.
    pub fn dgrad_splits(self, config: GemmConfig) -> usize {
        config.splits(Layout::Nn, [self.rows, self.inputs, self.outputs])
    }

    /// The predicted best number of splits for `dw = dyᵀ·x`; 1 for no split-K. `activations` and
    /// `weights` of the configuration are both the type of dy and x.
    pub fn wgrad_splits(self, config: GemmConfig) -> usize {
        config.splits(Layout::Tn, [self.outputs, self.inputs, self.rows])
    }
}
