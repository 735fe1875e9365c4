//! Fused causal attention (FlashAttention-2) and its gradients, in bf16 or f32.
//!
//! ```text
//! s_ij  = scale · q_i·k_j                                        first_key_i ≤ j ≤ i
//! out_i = Σ_j exp(s_ij − max_i) · v_j ÷ Σ_j exp(s_ij − max_i)        lse_i = log₂ Σ_j exp(s_ij)
//! p_ij  = exp(s_ij) ÷ 2^lse_i        delta_i = grad_out_i·out_i
//! ds_ij = p_ij · (grad_out_i·v_j − delta_i)
//! grad_q_i = scale · Σ_j ds_ij · k_j        grad_k_j = scale · Σ_i ds_ij · q_i
//! grad_v_j = Σ_i p_ij · grad_out_i
//! ```
//!
//! Source: Dao, "FlashAttention-2", arXiv 2307.08691. A block keeps 64 rows, loops over tiles of
//! the other side up to the diagonal (or from it on), and keeps scores in registers; the backward
//! pass recomputes them. Operands are bf16 or f32; accumulators, log-sum-exp and gradients are f32.
//!
//! **Mask.** Causal. `first_key` is 0, or data of the launch, which expresses packed documents and
//! sliding windows; see [`row_bounds`]. Fully masked tiles are skipped.
//!
//! **Prefill.** The queries are new tokens at consecutive positions, keys and values the KV cache
//! of their sequence, and the window is a number. There is no backward pass and no log-sum-exp.
//!
//! **bf16.** Probabilities and score gradients are rounded in registers.
//!
//! **f32.** From sm_80 on, each product takes three tf32 products, as in `gemm/mainloop/tf32x3.rs`.
//! Each 32 elements of K accumulate from zero and are then added in f32.
//!
//! **sm_90a.** A head_dim of 64, 96, 128 or, in bf16, 256 has its own entries, see [`wgmma`]. In
//! f32 they read operands split into f16 terms.
//!
//! **Grid.** Each entry handles heads of up to 64, 128 or, in bf16, 256 elements, and pads narrower
//! ones with zeros. A warp has 16 rows of its block. [`forward`] and `grad_q`: one block per 64
//! queries of a head, blocks with the most keys first. `grad_kv`: one block per 64 keys of a key
//! head and per split of its group of heads, blocks with the most queries first; for heads of more
//! than 128 elements one block for k and one for v, since registers hold one gradient. Loops take
//! 32 rows at a time. Before sm_80, blocks of f32 and of these heads have 32 rows to fit into
//! shared memory.
//!
//! **Determinism.** Loops run in ascending order of tiles and of the heads of a group. One lane
//! computes each sum, or four lanes and a butterfly. There are no atomics: `grad_q` and `grad_kv`
//! each recompute the probabilities.

mod backward;
mod backward_preprocess;
mod config;
pub(crate) mod decode;
mod epilogue;
mod fma;
mod forward;
mod inverse_rope;
pub(crate) mod kv_cache_append;
mod loader;
mod mask;
mod mma;
mod online_softmax;
mod row_bounds;
mod score_grads;
mod score_scale;
pub(crate) mod softmax;
pub(crate) mod softmax_backward;
mod wgmma;

use retrograph_kernel_abi::DType;
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::ModuleBuilder;

use backward::Side;
use config::{Config, Pass};

/// Rows of a tile that a block loops over.
const TILE_ROWS: u32 = 32;

/// Builds the image of the forward pass in bf16.
pub(crate) fn forward_bf16(target: SmTarget) -> Module {
    forward_image(target, DType::Bf16, Pass::Sequences)
}

/// Builds the image of the forward pass in f32.
pub(crate) fn forward_f32(target: SmTarget) -> Module {
    forward_image(target, DType::F32, Pass::Sequences)
}

/// Builds the image of prefill in bf16.
pub(crate) fn prefill_bf16(target: SmTarget) -> Module {
    forward_image(target, DType::Bf16, Pass::Prefill)
}

/// Builds the image of prefill in f32.
pub(crate) fn prefill_f32(target: SmTarget) -> Module {
    forward_image(target, DType::F32, Pass::Prefill)
}

/// Builds the image of the backward pass in bf16.
pub(crate) fn backward_bf16(target: SmTarget) -> Module {
    backward_image(target, DType::Bf16)
}

/// Builds the image of the backward pass in f32.
pub(crate) fn backward_f32(target: SmTarget) -> Module {
    backward_image(target, DType::F32)
}

fn forward_image(target: SmTarget, dtype: DType, pass: Pass) -> Module {
    let portable = Config::all(target, dtype).map(|config| forward::entry(config, pass));
    let wgmma = wgmma::Config::all(target, dtype).into_iter();
    let wgmma = wgmma.filter(|config| config.passes().contains(&pass));
    let wgmma = wgmma.map(|config| wgmma::forward::entry(config, pass));
    let entries = portable.into_iter().chain(wgmma);
    entries.fold(ModuleBuilder::new(target), ModuleBuilder::entry).build()
}

fn backward_image(target: SmTarget, dtype: DType) -> Module {
    let configs: Vec<_> = Config::all(target, dtype).collect();
    let mut module = ModuleBuilder::new(target).entry(backward_preprocess::entry(configs[0]));
    for side in [Side::Queries, Side::Keys] {
        for &config in &configs {
            module = module.entry(backward::entry(config, side));
        }
    }
    let entries = wgmma::Config::all(target, dtype)
        .into_iter()
        .flat_map(|config| [wgmma::grad_q::entry(config), wgmma::grad_kv::entry(config)]);
    entries.fold(module, ModuleBuilder::entry).build()
}

/// The entries that need dynamic shared memory, with their bytes.
pub(crate) fn dynamic_shared(target: SmTarget) -> impl Iterator<Item = (&'static str, u32)> {
    let configs = [DType::F32, DType::Bf16].into_iter().flat_map(move |it| Config::all(target, it));
    let portable = configs.filter(|config| config.has_dynamic_smem()).flat_map(|config| {
        let forward = forward::smem_tiles(config).1 * 4;
        [
            (forward::name(config, Pass::Sequences), forward),
            (forward::name(config, Pass::Prefill), forward),
            (backward::name(config, Side::Queries), backward::smem_tiles(config).1 * 4),
            (backward::name(config, Side::Keys), backward::smem_tiles(config).1 * 4),
        ]
    });
    portable.chain(wgmma::dynamic_shared(target))
}
