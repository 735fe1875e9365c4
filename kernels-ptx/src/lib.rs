//! Sources of the retrograph kernels: Rust that builds PTX, one file per image.
//!
//! Every file starts with the formula, the grid mapping and the reason why its results are
//! deterministic, and offers `module(target)`: the image for one SM target. Sizes are kernel
//! parameters; no image depends on a shape. [`images`] is what the build script of
//! `retrograph-kernels` prints and embeds.
//!
//! Absent on purpose: launch geometry and argument checks, which live in `retrograph-kernels`
//! beside the descriptors that users see.

use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;

// One line per image, in alphabetical order.

mod adamw;
mod add;
mod cache_append;
mod cache_attention;
mod cast;
mod clip;
mod clip_scale;
mod column_sum;
mod cross_entropy;
mod dropout;
mod embedding;
mod embedding_backward;
mod fused_attention;
mod gemm;
mod gemv;
mod low_rank;
mod mark_tokens;
mod mean;
mod parts_sum;
mod primitives;
mod rms_norm;
mod rms_norm_backward;
mod rope;
mod sample;
mod schedule;
mod silu;
mod silu_backward;
mod softmax;
mod softmax_backward;
mod squared_sums;
mod swiglu;
mod swiglu_backward;
mod take_controls;

/// Builds one image for one SM target.
type Build = fn(SmTarget) -> Module;

/// Every image: its name and what builds it. One line each, in alphabetical order.
const IMAGES: &[(&str, Build)] = &[
    ("adamw", adamw::module),
    ("add", add::module),
    ("cache_append", cache_append::module),
    ("cache_attention", cache_attention::module),
    ("cast", cast::module),
    ("clip", clip::module),
    ("clip_scale", clip_scale::module),
    ("column_sum", column_sum::module),
    ("cross_entropy", cross_entropy::module),
    ("dropout", dropout::module),
    ("embedding", embedding::module),
    ("embedding_backward", embedding_backward::module),
    ("fused_attention", fused_attention::forward),
    ("fused_attention_backward", fused_attention::backward),
    ("fused_attention_f32", fused_attention::forward_f32),
    ("fused_attention_f32_backward", fused_attention::backward_f32),
    ("gemm_bf16_nn", gemm::bf16_nn),
    ("gemm_bf16_nn_bf16", gemm::bf16_nn_bf16),
    ("gemm_bf16_nn_nf4", gemm::bf16_nn_nf4),
    ("gemm_bf16_nt", gemm::bf16_nt),
    ("gemm_bf16_nt_bf16", gemm::bf16_nt_bf16),
    ("gemm_bf16_nt_nf4", gemm::bf16_nt_nf4),
    ("gemm_bf16_tn", gemm::bf16_tn),
    ("gemm_nn", gemm::nn),
    ("gemm_nn_nf4", gemm::nn_nf4),
    ("gemm_nt", gemm::nt),
    ("gemm_nt_nf4", gemm::nt_nf4),
    ("gemm_stream_nn", gemm::stream_nn),
    ("gemm_stream_nn_nf4", gemm::stream_nn_nf4),
    ("gemm_stream_nt", gemm::stream_nt),
    ("gemm_stream_nt_nf4", gemm::stream_nt_nf4),
    ("gemm_stream_tn", gemm::stream_tn),
    ("gemm_tn", gemm::tn),
    ("gemv", gemv::f32),
    ("gemv_bf16", gemv::bf16),
    ("gemv_nf4", gemv::nf4),
    ("low_rank", low_rank::module),
    ("mark_tokens", mark_tokens::module),
    ("mean", mean::module),
    ("parts_sum", parts_sum::module),
    ("rms_norm", rms_norm::module),
    ("rms_norm_backward", rms_norm_backward::module),
    ("rope", rope::module),
    ("sample", sample::module),
    ("schedule", schedule::module),
    ("silu", silu::module),
    ("silu_backward", silu_backward::module),
    ("softmax", softmax::module),
    ("softmax_backward", softmax_backward::module),
    ("squared_sums", squared_sums::module),
    ("swiglu", swiglu::module),
    ("swiglu_backward", swiglu_backward::module),
    ("take_controls", take_controls::module),
];

/// Every image for `target`, by name. The names are the same for every target.
pub fn images(target: SmTarget) -> Vec<(&'static str, Module)> {
    IMAGES
        .iter()
        .map(|(name, build)| (*name, primitives::pdl::insert_waits(build(target))))
        .collect()
}

/// The entries whose launches must provide shared memory for `target`, with how many bytes.
pub fn dynamic_shared(target: SmTarget) -> Vec<(String, u32)> {
    let mut entries = gemm::dynamic_shared(target);
    entries.extend(fused_attention::dynamic_shared(target));
    entries
}
