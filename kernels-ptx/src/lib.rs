//! Sources of the retrograph kernels: Rust that builds PTX.
//!
//! The modules are families of kernels. A file starts with the formula, the grid mapping and the
//! reason why its results are deterministic. A `module(target)` function builds an image, the PTX
//! module of one or more entries for one SM target. Sizes are kernel parameters; no image depends
//! on a shape. [`images`] is what the build script of `retrograph-kernels` embeds; launch geometry
//! and argument checks are in that crate.
//!
//! # Names
//!
//! Images are named `family[_dtype][_layout][_mainloop][_b-dtype]`, their entries the same with the
//! variant appended:
//!
//! | Image | Entry | Meaning |
//! |---|---|---|
//! | `gemm_f32_nt` | `gemm_f32_nt_128x128` | f32, c = a·bᵀ, 128 × 128 tile, register-staged |
//! | `gemm_f32_nt` | `gemm_f32_nt_32x32_sliced8` | … with eight slices of K in a block |
//! | `gemm_f32_nt` | `gemm_f32_nt_multistage_64x64` | … with the multistage mainloop |
//! | `gemm_bf16_nn_nf4` | `gemm_bf16_nn_nf4_64x64` | bf16 multiplication, c = a·b, b in NF4 |
//! | `gemm_bf16_nt_multistage` | `gemm_bf16_nt_multistage_128x192` | bf16 operands, multistage |
//! | `flash_attention_bf16` | `flash_attention_bf16_hd64` | head dimension of at most 64 |
//! | `gemv_bf16` | `gemv_bf16_norm_split4` | fused with RMSNorm, four warps share a row |
//! | `softmax` | `softmax_warp_per_row` | one warp per row |
//!
//! The dtype is that of the multiplication (GEMM, attention) or of the stored operand; kernels
//! without one are f32. Names don't depend on the SM target: a multistage entry uses `mma.sync` on
//! sm_80 and `wgmma` on sm_90a.

use retrograph_kernel_abi::gemm as gemm_abi;
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;

mod attention;
mod elementwise;
mod embedding;
mod gemm;
mod gemv;
mod lora;
mod loss;
mod norm;
mod optimizer;
mod primitives;
mod rope;
mod sampling;

/// Builds one image for one SM target.
type Build = fn(SmTarget) -> Module;

/// Every image except those of GEMM, which `retrograph-kernel-abi` lists: name and builder, in
/// alphabetical order.
const IMAGES: &[(&str, Build)] = &[
    ("adamw", optimizer::adamw::module),
    ("add", elementwise::add::module),
    ("cast", elementwise::cast::module),
    ("clip_factor", optimizer::clip_factor::module),
    ("clip_grads", optimizer::clip_grads::module),
    ("column_sum", norm::column_sum::module),
    ("cross_entropy", loss::cross_entropy::module),
    ("decode_attention", attention::decode::module),
    ("dropout", elementwise::dropout::module),
    ("embedding", embedding::lookup::module),
    ("embedding_backward", embedding::backward::module),
    ("fetch_step_parameters", optimizer::fetch_step_parameters::module),
    ("flash_attention_bf16", attention::forward_bf16),
    ("flash_attention_bf16_backward", attention::backward_bf16),
    ("flash_attention_f32", attention::forward_f32),
    ("flash_attention_f32_backward", attention::backward_f32),
    ("gemv", gemv::f32),
    ("gemv_bf16", gemv::bf16),
    ("gemv_nf4", gemv::nf4),
    ("grad_norm_partials", optimizer::grad_norm::module),
    ("kv_cache_append", attention::kv_cache_append::module),
    ("lora", lora::module),
    ("lr_schedule", optimizer::lr_schedule::module),
    ("mark_seen_tokens", sampling::mark_seen::module),
    ("mean", loss::mean::module),
    ("rms_norm", norm::rms_norm::module),
    ("rms_norm_backward", norm::rms_norm_backward::module),
    ("rope", rope::module),
    ("sample", sampling::module),
    ("silu", elementwise::silu::module),
    ("silu_backward", elementwise::silu_backward::module),
    ("softmax", attention::softmax::module),
    ("softmax_backward", attention::softmax_backward::module),
    (gemm_abi::SPLIT_K_SUM.image, gemm::split_k_sum::module),
    ("swiglu", elementwise::swiglu::module),
    ("swiglu_backward", elementwise::swiglu_backward::module),
];

/// Every image for `target`, by name. The names are the same for every target.
pub fn images(target: SmTarget) -> Vec<(&'static str, Module)> {
    let gemm = gemm_abi::IMAGES.map(|image| (image.name, gemm::module(target, image)));
    let others = IMAGES.iter().map(|(name, build)| (*name, build(target)));
    let images = gemm.into_iter().chain(others);
    let mut images: Vec<_> =
        images.map(|(name, module)| (name, primitives::pdl::insert_waits(module))).collect();
    images.sort_by_key(|(name, _)| *name);
    images
}

/// The entries whose launches must provide dynamic shared memory on `target`, with its bytes.
pub fn dynamic_shared(target: SmTarget) -> Vec<(String, u32)> {
    let mut entries = gemm::dynamic_shared(target);
    entries.extend(attention::dynamic_shared(target));
    entries
}
