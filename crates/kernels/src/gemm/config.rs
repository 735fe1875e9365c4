//! The configuration of a linear layer's products, and the split-K that follows from it.

use super::heuristic::{TileTable, splits};
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
    /// The type of w.
    pub weights: DType,
    /// Number of products of the same sizes that run concurrently with this one; see
    /// [`Launch::concurrent`](crate::Launch::concurrent).
    pub concurrent: u32,
}

impl GemmConfig {
    /// The length of a split is a multiple of this: of whole NF4 blocks if codes are copied, else
    /// of vectors of any type.
    fn split_unit(self) -> u32 {
        let copies_codes = self.activations == DType::Bf16 && self.weights == DType::Nf4;
        if copies_codes { NF4_BLOCK as u32 } else { 8 }
    }

    /// Splits for a result of m × n and a contraction of k.
    fn splits(self, sizes: [usize; 3]) -> usize {
        let [Ok(m), Ok(n), Ok(k)] = sizes.map(u32::try_from) else { return 1 };
        // In f32, weights in NF4 are split as those in f32 are.
        let (activations, weights) = match self.compute {
            DType::F32 => (DType::F32, DType::F32),
            _ => (self.activations, self.weights),
        };
        let table = TileTable::new(self.compute, [activations, weights]);
        let (vectorized, concurrent) = (table.vectorizes(sizes), self.concurrent);
        let tensor_maps = vectorized && activations == DType::Bf16 && weights == DType::Bf16;
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
