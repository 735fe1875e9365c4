//! The configuration of a linear layer's products, and the split-K that follows from it.

use super::heuristic::{TileTable, splits};
use super::launch::SPLIT_K_UNIT;
use super::{GemmProblem, GemmShape};
use crate::DType;
use crate::tensor::NF4_BLOCK;

/// The element types of a linear layer's products, and how many of them run concurrently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GemmConfig {
    /// The type in which factors are multiplied: f32 or bf16.
    pub compute: DType,
    /// The type of x or dy: f32 or bf16.
    pub activations: DType,
    /// The type of w; f16 if products split both operands.
    pub weights: DType,
    /// Number of products of the same sizes that run concurrently with this one; see
    /// [`Launch::concurrent`](crate::Launch::concurrent).
    pub concurrent: u32,
}

impl GemmConfig {
    /// The length of a split is a multiple of this: of whole NF4 blocks if codes are copied, of
    /// whole stages of split operands, else of vectors of any type.
    fn split_unit(self) -> u32 {
        match (self.activations, self.weights) {
            (DType::Bf16, DType::Nf4) => NF4_BLOCK as u32,
            (_, DType::F16) => SPLIT_K_UNIT as u32,
            _ => 8,
        }
    }

    /// Splits for a result of m × n and a contraction of k.
    fn splits(self, sizes: [usize; 3]) -> usize {
        let [Ok(m), Ok(n), Ok(k)] = sizes.map(u32::try_from) else { return 1 };
        let (activations, weights) = match (self.compute, self.weights) {
            (DType::F32, DType::F16) => (DType::F16, DType::F16),
            // In f32, weights in NF4 are split as those in f32 are.
            (DType::F32, _) => (DType::F32, DType::F32),
            _ => (self.activations, self.weights),
        };
        let table = TileTable::new(self.compute, [activations, weights]);
        let (vectorized, concurrent) = (table.vectorizes(sizes), self.concurrent);
        let mapped = [[DType::Bf16; 2], [DType::F16; 2]].contains(&[activations, weights]);
        let tensor_maps = vectorized && mapped;
        let problem = GemmProblem { m, n, k, planes: 1, vectorized, tensor_maps, concurrent };
        splits(table, problem, self.split_unit()) as usize
    }
}

impl GemmShape {
    /// Number of splits with which `y = x·wᵀ` is predicted to be fastest; 1 for no split-K.
    pub fn fprop_splits(self, config: GemmConfig) -> usize {
        config.splits([self.rows, self.outputs, self.inputs])
    }

    /// Number of splits with which `dx = dy·w` is predicted to be fastest; 1 for no split-K.
    pub fn dgrad_splits(self, config: GemmConfig) -> usize {
        config.splits([self.rows, self.inputs, self.outputs])
    }

    /// Number of splits with which `dw = dyᵀ·x` is predicted to be fastest; 1 for no split-K.
    /// `weights` of the configuration is the type of x, as `activations` is.
    pub fn wgrad_splits(self, config: GemmConfig) -> usize {
        config.splits([self.outputs, self.inputs, self.rows])
    }
}
