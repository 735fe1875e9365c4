//! Configurations of the fused attention kernels.

use std::iter;

use retrograph_kernel_abi::attention::FlashAttention;
use retrograph_kernel_abi::{DType, Signature};
use retrograph_ptx::SmTarget;
use retrograph_ptx::build::{Kernel, Shared, Value};

use crate::primitives::smem_tile::{SmemLayout, SmemTile};

/// A variant of the forward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    /// Whole sequences, with the log-sum-exp for the backward pass.
    Sequences,
    /// New tokens of one sequence over its KV cache.
    Prefill,
}

impl Pass {
    pub(super) fn signature(self, family: &FlashAttention) -> &Signature {
        match self {
            Self::Sequences => &family.forward,
            Self::Prefill => &family.prefill,
        }
    }
}

/// Entries without and with a cap of scores: whether they have one, and the index of the first.
pub(super) fn caps(family: &FlashAttention) -> impl Iterator<Item = (bool, usize)> {
    let capped = family.has_capped_entries().then_some((true, family.first_capped_entry()));
    iter::once((false, 0)).chain(capped)
}

/// The configuration of an entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Config {
    pub(super) target: SmTarget,
    /// Type of the operands, bf16 or f32.
    pub(super) dtype: DType,
    /// Maximum head dimension; narrower heads are padded with zeros.
    pub(super) max_head_dim: u32,
    /// Whether scores have a cap.
    pub(super) capped: bool,
    /// Index of the entry in its kernel.
    pub(super) entry: usize,
}

impl Config {
    /// One configuration per maximum head dimension, without and with a cap of scores.
    pub(super) fn all(target: SmTarget, dtype: DType) -> impl Iterator<Item = Self> {
        let family = FlashAttention::for_dtype(dtype);
        caps(family).flat_map(move |(capped, first)| {
            let entries = (first..).zip(family.max_head_dims);
            entries.map(move |(entry, &max_head_dim)| Self {
                target,
                dtype,
                max_head_dim,
                capped,
                entry,
            })
        })
    }

    /// The kernels for operands of this type.
    pub(super) fn family(self) -> &'static FlashAttention {
        FlashAttention::for_dtype(self.dtype)
    }

    /// Whether the target has bf16 and tf32 tensor cores, and `cp.async`.
    pub(super) fn has_tensor_cores(self) -> bool {
        let features = self.target.features();
        features.bf16_mma && features.cp_async
    }

    /// Rows of a block.
    pub(super) fn block_rows(self) -> u32 {
        self.family().block_rows(self.max_head_dim, self.has_tensor_cores())
    }

    /// Threads of a block.
    pub(super) fn threads(self) -> u32 {
        self.family().block_threads(self.max_head_dim, self.has_tensor_cores())
    }

    /// A tile of `rows` rows in shared memory.
    pub(super) fn tile(self, rows: u32) -> SmemTile {
        let layout = SmemLayout::XorSwizzled;
        SmemTile { runs: rows, length: self.max_head_dim, dtype: self.dtype, layout }
    }

    /// Words of a row in shared memory.
    pub(super) fn row_words(self) -> u32 {
        self.tile(1).pitch()
    }

    /// The words of `elements` elements.
    pub(super) fn words(self, elements: Value<'_, u32>) -> Value<'_, u32> {
        match self.dtype {
            DType::F32 => elements,
            _ => elements >> 1,
        }
    }

    /// Steps of K of an `mma` instruction.
    pub(super) fn mma_k(self) -> u32 {
        match self.dtype {
            DType::F32 => 8,
            _ => 16,
        }
    }

    /// Whether shared memory is dynamic.
    pub(super) fn has_dynamic_smem(self) -> bool {
        self.family().has_long_rows(self.max_head_dim)
    }

    /// `words` words of shared memory.
    pub(super) fn smem<'k>(self, k: &Kernel<'k>, words: u32) -> Shared<'k, u32> {
        if self.has_dynamic_smem() { k.dynamic_shared() } else { k.shared("smem", words as usize) }
    }
}
