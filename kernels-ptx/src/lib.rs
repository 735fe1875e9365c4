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

/// Every image: its name and what builds it. One line each, in alphabetical order.
const IMAGES: &[(&str, Build)] = &[
    ("adamw", optimizer::adamw::module),
    ("add", elementwise::add::module),
    ("cache_append", attention::kv_cache_append::module),
    ("cache_attention", attention::decode::module),
    ("cast", elementwise::cast::module),
    ("clip", optimizer::clip_grads::module),
    ("clip_scale", optimizer::clip_factor::module),
    ("column_sum", norm::column_sum::module),
    ("cross_entropy", loss::cross_entropy::module),
    ("dropout", elementwise::dropout::module),
    ("embedding", embedding::lookup::module),
    ("embedding_backward", embedding::backward::module),
    ("fused_attention", attention::forward),
    ("fused_attention_backward", attention::backward),
    ("fused_attention_f32", attention::forward_f32),
    ("fused_attention_f32_backward", attention::backward_f32),
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
    ("low_rank", lora::module),
    ("mark_tokens", sampling::mark_seen::module),
    ("mean", loss::mean::module),
    ("parts_sum", gemm::split_k_sum::module),
    ("rms_norm", norm::rms_norm::module),
    ("rms_norm_backward", norm::rms_norm_backward::module),
    ("rope", rope::module),
    ("sample", sampling::module),
    ("schedule", optimizer::lr_schedule::module),
    ("silu", elementwise::silu::module),
    ("silu_backward", elementwise::silu_backward::module),
    ("softmax", attention::softmax::module),
    ("softmax_backward", attention::softmax_backward::module),
    ("squared_sums", optimizer::grad_norm::module),
    ("swiglu", elementwise::swiglu::module),
    ("swiglu_backward", elementwise::swiglu_backward::module),
    ("take_controls", optimizer::fetch_step_parameters::module),
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
    entries.extend(attention::dynamic_shared(target));
    entries
}
