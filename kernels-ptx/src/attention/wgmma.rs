//! Fused attention in bf16 for sm_90a: two warpgroups multiply by `wgmma` tiles copied by TMA.
//!
//! A block has 128 rows (queries, or keys in [`grad_kv`]), 64 per warpgroup, which stay in shared
//! memory. It loops over pairs of tiles (keys and values, or queries and gradients of the output),
//! which alternate in a pipeline of stages. Probabilities and score gradients stay in registers, as
//! the left operand of the next product.
//!
//! **Copies.** One thread of the second warpgroup starts them, since that warpgroup runs after the
//! first. There is no producer warp: with one, a quarter of an SM would hold three warps, and each
//! thread would have 168 registers instead of 255.
//!
//! **Heads** have exactly 64, 96 or 128 elements. Rows past the end of a sequence are zeros.
//!
//! **Determinism.** As in the other kernels: tiles and heads in ascending order, without atomics.

pub(super) mod forward;
pub(super) mod grad_kv;
pub(super) mod grad_q;
mod smem;

use retrograph_kernel_abi::attention::{
    FLASH_ATTENTION_BF16, FlashAttention, MAX_HEAD_DIMS, WGMMA_HEAD_DIMS, WGMMA_THREADS,
};
use retrograph_ptx::SmTarget;
use retrograph_ptx::build::{HalfType, Kernel, MatrixA, ScaleD, Value};

use super::mma::Fragments;
use crate::primitives::mma::{AccFragment, acc_registers};
use crate::primitives::smem_tile::SmemTile;
use crate::primitives::wgmma::STEPS;
use smem::PlacedTile;

/// Warps of a block.
const WARPS: u32 = WGMMA_THREADS / 32;

/// The configuration of an entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Config {
    target: SmTarget,
    head_dim: u32,
    /// Index of the entry in its kernel.
    entry: usize,
}

impl Config {
    /// One configuration per head dimension, if the target has `wgmma` and TMA.
    pub(super) fn all(target: SmTarget) -> Vec<Self> {
        let features = target.features();
        let supported = features.wgmma && features.tma;
        let head_dims = WGMMA_HEAD_DIMS.into_iter().filter(|_| supported);
        let first = MAX_HEAD_DIMS.len();
        (first..).zip(head_dims).map(|(entry, head_dim)| Self { target, head_dim, entry }).collect()
    }

    fn family() -> &'static FlashAttention {
        &FLASH_ATTENTION_BF16
    }

    /// A tile of `rows` rows.
    fn tile(self, rows: u32) -> SmemTile {
        SmemTile::swizzled_bf16([rows, self.head_dim])
    }
}

/// Starts `acc = a·bᵀ`, for 64 rows of a and all rows of b.
fn multiply_transposed<'k>(k: &Kernel<'k>, [a, b]: [PlacedTile<'k>; 2], acc: &[AccFragment<'k>]) {
    let acc = acc_registers(acc);
    k.wgmma_fence();
    for step in 0..a.tile.length / STEPS {
        let scale_d = if step == 0 { ScaleD::Zero } else { ScaleD::One };
        let operands = (MatrixA::Shared(a.k_major(step)), b.k_major(step));
        k.wgmma_mma_async(HalfType::Bf16, operands, &acc, scale_d);
    }
    k.wgmma_commit_group();
}

/// Starts `acc += p·b`, for all rows of b. The fragments must not change before the wait.
fn multiply<'k>(k: &Kernel<'k>, (p, b): (&Fragments<'k>, PlacedTile<'k>), acc: &[AccFragment<'k>]) {
    assert_eq!(p.len() as u32 * STEPS, b.tile.runs, "a fragment for each step of K");
    let acc = acc_registers(acc);
    k.wgmma_fence();
    for (step, fragment) in (0..).zip(p) {
        let operands = (MatrixA::Registers(*fragment), b.mn_major(step));
        k.wgmma_mma_async(HalfType::Bf16, operands, &acc, ScaleD::One);
    }
    k.wgmma_commit_group();
}

/// Bounds the block, which has an SM to itself.
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
    Config::all(target).into_iter().flat_map(|config| {
        [
            (forward::name(config), forward::smem_layout(config).bytes()),
            (grad_q::name(config), grad_q::smem_layout(config).bytes()),
            (grad_kv::name(config), grad_kv::smem_layout(config).bytes()),
        ]
    })
}
