//! Configurations of the fused attention kernels.

use retrograph_kernel_abi::DType;
use retrograph_ptx::SmTarget;
use retrograph_ptx::build::{Kernel, Shared};

/// The maximum head dimensions of the entries.
const HEAD_DIMS: [u32; 2] = [64, 128];

/// What an entry is generated for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Config {
    pub(super) target: SmTarget,
    /// Element type in shared memory, bf16 or f32.
    pub(super) dtype: DType,
    /// Maximum head dimension; narrower heads are padded with zeros.
    pub(super) max_head_dim: u32,
}

impl Config {
    /// One configuration per maximum head dimension.
    pub(super) fn all(target: SmTarget, dtype: DType) -> [Self; HEAD_DIMS.len()] {
        HEAD_DIMS.map(|max_head_dim| Self { target, dtype, max_head_dim })
    }

    /// The name of the entry with suffix `suffix`.
    pub(super) fn entry_name(self, suffix: &str) -> String {
        let dtype = match self.dtype {
            DType::F32 => "f32",
            _ => "bf16",
        };
        format!("flash_attention_{dtype}{suffix}")
    }

    /// Whether the target has tensor cores for `dtype`, and `cp.async`.
    pub(super) fn has_tensor_cores(self) -> bool {
        let features = self.target.features();
        features.bf16_mma && features.cp_async
    }

    /// Rows of a block, 16 per warp. The launch geometry of `retrograph-kernels` uses the same.
    /// Before sm_80 shared memory holds only 32 rows in f32.
    pub(super) fn block_rows(self) -> u32 {
        if self.dtype == DType::F32 && !self.has_tensor_cores() { 32 } else { 64 }
    }

    /// Threads of a block.
    pub(super) fn threads(self) -> u32 {
        self.block_rows() / 16 * 32
    }

    /// Words of a row in shared memory.
    pub(super) fn row_words(self) -> u32 {
        self.max_head_dim * self.dtype.bytes() / 4
    }

    /// Steps of K of an `mma` instruction.
    pub(super) fn mma_k(self) -> u32 {
        match self.dtype {
            DType::F32 => 8,
            _ => 16,
        }
    }

    /// `words` words of shared memory: dynamic in f32, which needs more than a kernel can declare.
    pub(super) fn smem<'k>(self, k: &Kernel<'k>, words: u32) -> Shared<'k, u32> {
        match self.dtype {
            DType::F32 => k.dynamic_shared(),
            _ => k.shared("smem", words as usize),
        }
    }
}
