//! Problems: the sizes that determine entry point and grid of a kernel.

use retrograph_kernel_abi::gemm::SkinnyForm;
use retrograph_kernel_abi::gemv::GemvForm;
use retrograph_kernel_abi::lora::LoraMatrix;

use crate::DType;
use crate::gemm::{GemmProblem, SkinnyProblem};
use crate::gemv::GemvProblem;

/// The sizes of a launch, by the kind of kernel.
///
/// Each kernel supports one kind; see [`Kernel::dispatch`](crate::Kernel::dispatch). A problem with
/// a size of 0 is empty, and nothing is launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Problem {
    /// Independent items: elements, vectors of elements, chunks, or heads.
    Items(u32),
    /// Elements of tensors of one type.
    Elements {
        /// Number of elements.
        count: u32,
        /// The type of the inputs.
        dtype: DType,
    },
    /// Rows of a matrix.
    Rows(RowsProblem),
    /// Columns of a matrix.
    Columns(u32),
    /// Rows of an embedding table.
    Embedding {
        /// Number of tokens.
        positions: u32,
        /// Elements per row.
        hidden: u32,
    },
    /// Sampling from logits.
    Sampling {
        /// Chunks of the vocabulary.
        chunks: u32,
        /// Sequences, each with its own logits.
        sequences: u32,
    },
    /// A matrix product.
    Gemm(GemmProblem),
    /// Products of matrices with one vector.
    Gemv(GemvProblem),
    /// Products of matrices with few rows.
    Skinny(SkinnyProblem),
    /// Fused attention.
    Attention(AttentionProblem),
    /// Attention of one token over a cache.
    Decode {
        /// Blocks for the query heads.
        head_blocks: u32,
        /// Blocks for the splits of the cache.
        split_blocks: u32,
        /// Sequences, each with its own cache.
        batch: u32,
        /// Bytes of shared memory of a block.
        shared_bytes: u32,
        /// Whether scores have a cap.
        softcap: bool,
    },
    /// LoRA shrink: from rows of x or dy to ranks.
    LoraShrink {
        /// Rows.
        rows: u32,
        /// Sum of the ranks of all adapters.
        ranks: u32,
        /// Splits of the contraction.
        splits: u32,
        /// The matrix that is multiplied by.
        matrix: LoraMatrix,
    },
    /// LoRA expand: from ranks to rows of y or dx.
    LoraExpand {
        /// Rows.
        rows: u32,
        /// Elements per row.
        width: u32,
        /// The matrix that is multiplied by.
        matrix: LoraMatrix,
    },
    /// Gradients of LoRA matrices.
    LoraGrad {
        /// Splits of the rows.
        splits: u32,
        /// Elements per row.
        width: u32,
        /// Blocks of ranks of all adapters.
        rank_blocks: u32,
        /// The matrix of the gradient.
        matrix: LoraMatrix,
    },
    /// Columns of a matrix, each multiplied by a factor.
    ScaleColumns {
        /// Rows.
        rows: u32,
        /// Elements per row.
        columns: u32,
        /// The type of the gradient of the result, and of the matrix. They are equal if there is no
        /// gradient.
        dtypes: [DType; 2],
    },
}

/// Rows of a matrix, each reduced or normalized on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RowsProblem {
    /// Rows, or row groups if a block has several rows.
    pub rows: u32,
    /// Elements per row.
    pub width: u32,
    /// Whether every row of every operand starts at a multiple of 16 bytes.
    pub vectorized: bool,
}

/// Attention without stored probabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionProblem {
    /// Batch × heads.
    pub planes: u32,
    /// Tokens per sequence.
    pub seq: u32,
    /// Elements per head.
    pub head_dim: u32,
    /// Whether the launch has tensor maps of its operands.
    pub tensor_maps: bool,
    /// Whether the first token has a position that the device reads, which may be inside a tile.
    pub starts_in_tile: bool,
    /// Whether scores have a cap.
    pub softcap: bool,
}

/// Accessors for kernels that support one kind of problem.
impl Problem {
    pub(crate) fn items(&self) -> Option<u32> {
        if let Self::Items(count) = *self { Some(count) } else { None }
    }

    pub(crate) fn elements(&self) -> Option<(u32, DType)> {
        if let Self::Elements { count, dtype } = *self { Some((count, dtype)) } else { None }
    }

    pub(crate) fn rows(&self) -> Option<RowsProblem> {
        if let Self::Rows(rows) = *self { Some(rows) } else { None }
    }

    pub(crate) fn columns(&self) -> Option<u32> {
        if let Self::Columns(columns) = *self { Some(columns) } else { None }
    }

    pub(crate) fn gemm(&self) -> Option<&GemmProblem> {
        if let Self::Gemm(problem) = self { Some(problem) } else { None }
    }

    pub(crate) fn gemv(&self) -> Option<&GemvProblem> {
        if let Self::Gemv(problem) = self { Some(problem) } else { None }
    }

    pub(crate) fn skinny(&self) -> Option<&SkinnyProblem> {
        if let Self::Skinny(problem) = self { Some(problem) } else { None }
    }

    pub(crate) fn attention(&self) -> Option<AttentionProblem> {
        if let Self::Attention(problem) = *self { Some(problem) } else { None }
    }

    /// Returns problems of every kind with every combination of `sizes`, for checks that visit all
    /// entry points of all kernels.
    pub fn samples(sizes: &[u32]) -> Vec<Self> {
        let mut problems = Vec::new();
        for &a in sizes {
            problems.extend([Self::Items(a), Self::Columns(a)]);
            problems
                .extend([DType::F32, DType::Bf16].map(|dtype| Self::Elements { count: a, dtype }));
            for &b in sizes {
                Self::push_pairs(&mut problems, [a, b]);
                sizes.iter().for_each(|&c| Self::push_triples(&mut problems, [a, b, c]));
            }
        }
        problems
    }

    fn push_pairs(problems: &mut Vec<Self>, [a, b]: [u32; 2]) {
        for vectorized in [false, true] {
            problems.push(Self::Rows(RowsProblem { rows: a, width: b, vectorized }));
        }
        problems.push(Self::Embedding { positions: a, hidden: b });
        problems.push(Self::Sampling { chunks: a, sequences: b });
        for softcap in [false, true] {
            let (head_blocks, split_blocks) = (a, b);
            problems.push(Self::Decode {
                head_blocks,
                split_blocks,
                batch: 1,
                shared_bytes: 0,
                softcap,
            });
        }
        for first in [DType::F32, DType::Bf16] {
            for second in [DType::F32, DType::Bf16] {
                let (rows, columns, dtypes) = (a, b, [first, second]);
                problems.push(Self::ScaleColumns { rows, columns, dtypes });
            }
        }
        for &matrix in LoraMatrix::ALL {
            problems.push(Self::LoraExpand { rows: a, width: b, matrix });
        }
    }

    fn push_triples(problems: &mut Vec<Self>, [a, b, c]: [u32; 3]) {
        for (tensor_maps, softcap) in [(false, false), (false, true), (true, false), (true, true)] {
            problems.push(Self::Attention(AttentionProblem {
                planes: a,
                seq: b,
                head_dim: c,
                tensor_maps,
                starts_in_tile: tensor_maps,
                softcap,
            }));
        }
        for &matrix in LoraMatrix::ALL {
            problems.push(Self::LoraShrink { rows: a, ranks: b, splits: c, matrix });
            problems.push(Self::LoraGrad { splits: a, width: b, rank_blocks: c, matrix });
        }
        for planes in [1, 24] {
            for (vectorized, tensor_maps) in [(false, false), (true, false), (true, true)] {
                let sizes = GemmProblem { m: a, n: b, k: c, planes, ..GemmProblem::default() };
                problems.push(Self::Gemm(GemmProblem { vectorized, tensor_maps, ..sizes }));
            }
        }
        for &form in GemvForm::ALL {
            let problem = GemvProblem { inputs: a, outputs: [b, c, 0], lora_ranks: [0; 3], form };
            problems.push(Self::Gemv(problem));
        }
        for &form in SkinnyForm::ALL {
            problems.push(Self::Skinny(SkinnyProblem { outputs: [a, b, c], form }));
        }
    }
}
