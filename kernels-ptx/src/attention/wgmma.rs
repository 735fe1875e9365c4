//! Fused attention for sm_90a: two warpgroups multiply by `wgmma` tiles copied by TMA. Operands are
//! bf16, or f32 split into two terms, see [`split`].
//!
//! A block computes tiles of 128 rows (queries, or keys in [`grad_kv`]), 64 per warpgroup, one
//! tile after the other ([`tile_scheduler`]). With heads of 256 elements a tile has 64 keys, and
//! one gradient per warpgroup. The rows stay in shared memory, while the block loops over pairs
//! of tiles (keys and values, or queries and gradients of the output), which alternate in a
//! pipeline of stages. Probabilities and score gradients stay in registers, as the left operand of
//! the next product.
//!
//! **Copies.** A warp of the second warpgroup starts them, since that warpgroup runs after the
//! first. There is no producer warp: with one, an SM sub-partition would hold three warps, and each
//! thread would have 168 registers instead of 255.
//!
//! **Heads** have exactly 64, 96, 128 or, in bf16, 256 elements. Rows past the end of a sequence
//! are zeros.
//!
//! **Determinism.** As in the other kernels: tiles and heads in ascending order, without atomics.

pub(super) mod forward;
pub(super) mod grad_kv;
pub(super) mod grad_q;
mod smem;
mod split;
mod tile_scheduler;

use retrograph_kernel_abi::DType;
use retrograph_kernel_abi::attention::{
    FLASH_ATTENTION_BF16, FLASH_ATTENTION_F32, FlashAttention, FlashBackwardParameters,
    SPLIT_TENSOR_MAP_BOX, WGMMA_THREADS,
};
use retrograph_kernel_abi::gemm::SPLIT_MAX_TERMS;
use retrograph_ptx::SmTarget;
use retrograph_ptx::build::{HalfType, Kernel, MatrixA, ScaleD, Value};

use super::config::{Pass, caps};
use super::inverse_rope::InverseRope;
use super::mma::Fragments;
use crate::primitives::mma::{AccFragment, acc_registers};
use crate::primitives::parameters::Declarations;
use crate::primitives::smem_tile::SmemTile;
use crate::primitives::tma_pipeline::BOX;
use crate::primitives::wgmma::{SPLIT_PRODUCTS, STEPS};
use smem::PlacedTile;

/// Warps of a block.
const WARPS: u32 = WGMMA_THREADS / 32;

/// The form of the operands in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operands {
    Bf16,
    /// f32 split into two f16 terms, with a scale per token.
    Split,
}

impl Operands {
    fn family(self) -> &'static FlashAttention {
        match self {
            Self::Bf16 => &FLASH_ATTENTION_BF16,
            Self::Split => &FLASH_ATTENTION_F32,
        }
    }

    fn terms(self) -> u32 {
        match self {
            Self::Bf16 => 1,
            Self::Split => SPLIT_MAX_TERMS,
        }
    }

    /// The terms of a and b in each of their products.
    fn products(self) -> &'static [[usize; 2]] {
        match self {
            Self::Bf16 => &[[0, 0]],
            Self::Split => SPLIT_PRODUCTS,
        }
    }

    fn half_type(self) -> HalfType {
        match self {
            Self::Bf16 => HalfType::Bf16,
            Self::Split => HalfType::F16,
        }
    }

    /// Rows of the boxes of tensor maps.
    fn box_rows(self) -> u32 {
        match self {
            Self::Bf16 => BOX,
            Self::Split => SPLIT_TENSOR_MAP_BOX[1],
        }
    }
}

/// The configuration of an entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Config {
    target: SmTarget,
    operands: Operands,
    head_dim: u32,
    /// Whether scores have a cap.
    capped: bool,
    /// Index of the entry in its kernel.
    entry: usize,
}

impl Config {
    /// One configuration per head dimension, without and with a cap of scores, if the target has
    /// `wgmma` and TMA, for operands in `dtype`, bf16 or f32.
    pub(super) fn all(target: SmTarget, dtype: DType) -> Vec<Self> {
        let features = target.features();
        let supported = features.wgmma && features.tma;
        let operands = if dtype == DType::Bf16 { Operands::Bf16 } else { Operands::Split };
        let family = operands.family();
        let configs = caps(family).filter(|_| supported).flat_map(|(capped, first)| {
            let entries = (first + family.max_head_dims.len()..).zip(family.wgmma_head_dims);
            entries.map(move |(entry, &head_dim)| Self {
                target,
                operands,
                head_dim,
                capped,
                entry,
            })
        });
        configs.collect()
    }

    /// Whether a warpgroup has registers for only one gradient of 64 rows.
    fn is_wide(self) -> bool {
        FlashAttention::is_wide(self.head_dim)
    }

    /// The variants of the forward pass. A KV cache is not split.
    pub(super) fn passes(self) -> &'static [Pass] {
        match self.operands {
            Operands::Bf16 => &[Pass::Sequences, Pass::Prefill],
            Operands::Split => &[Pass::Sequences],
        }
    }

    fn family(self) -> &'static FlashAttention {
        self.operands.family()
    }

    /// The rotation of the gradients of queries and keys; `None` for f32 operands.
    fn rotation<'k>(
        self,
        parameters: &FlashBackwardParameters<Declarations<'k>>,
        sequence: Value<'k, u32>,
    ) -> Option<InverseRope<'k>> {
        (self.operands == Operands::Bf16).then(|| InverseRope::new(parameters, sequence))
    }

    /// A tile of `rows` rows.
    fn tile(self, rows: u32) -> SmemTile {
        SmemTile::swizzled_16_bit([rows, self.head_dim])
    }
}

/// Starts `acc = a·bᵀ`, without scales, for 64 rows of a and all rows of b.
fn multiply_transposed<'k>(
    k: &Kernel<'k>,
    operands: Operands,
    [a, b]: [PlacedTile<'k>; 2],
    acc: &[AccFragment<'k>],
) {
    let acc = acc_registers(acc);
    k.wgmma_fence();
    for (index, &[term_a, term_b]) in operands.products().iter().enumerate() {
        for step in 0..a.tile.length / STEPS {
            let scale_d = if index == 0 && step == 0 { ScaleD::Zero } else { ScaleD::One };
            let a = MatrixA::Shared(a.term(term_a).k_major(step));
            let b = b.term(term_b).k_major(step);
            k.wgmma_mma_async(operands.half_type(), a, b, &acc, scale_d);
        }
    }
    k.wgmma_commit_group();
}

/// Starts `acc += p·b`, for all rows of b. The fragments must not change before the wait.
fn multiply<'k>(k: &Kernel<'k>, p: &Fragments<'k>, b: PlacedTile<'k>, acc: &[AccFragment<'k>]) {
    assert_eq!(p.len() as u32 * STEPS, b.tile.runs, "a fragment for each step of K");
    let acc = acc_registers(acc);
    k.wgmma_fence();
    for (step, fragment) in (0..).zip(p) {
        let (a, b) = (MatrixA::Registers(*fragment), b.mn_major(step));
        k.wgmma_mma_async(HalfType::Bf16, a, b, &acc, ScaleD::One);
    }
    k.wgmma_commit_group();
}

/// Sets the launch bounds: one block per SM.
fn bound_block(k: &Kernel<'_>) {
    k.max_threads(WGMMA_THREADS);
    k.min_blocks(1);
}

/// The index of the warpgroup. Broadcast within the warp, so that the compiler knows it is uniform.
fn warpgroup<'k>(k: &Kernel<'k>) -> Value<'k, u32> {
    k.shfl_idx(k.warp() >> 2, 0)
}

/// The entries that need dynamic shared memory, with their bytes.
pub(super) fn dynamic_shared(target: SmTarget) -> impl Iterator<Item = (&'static str, u32)> {
    let configs = [DType::F32, DType::Bf16].map(|dtype| Config::all(target, dtype));
    configs.into_iter().flatten().flat_map(|config| {
        let passes = config.passes().iter();
        let forward = forward::smem_layout(config).bytes();
        let forward = passes.map(move |pass| (forward::name(config, *pass), forward));
        let backward = [
            (grad_q::name(config), grad_q::smem_bytes(config)),
            (grad_kv::name(config), grad_kv::smem_layout(config).bytes()),
        ];
        forward.chain(backward)
    })
}
