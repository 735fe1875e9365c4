//! Sources of the retrograph kernels: Rust that builds PTX.
//!
//! The modules are families of kernels. A file starts with the formula, the grid mapping and the
//! reason why its results are deterministic. A `module(target)` function builds an image, the PTX
//! module of one or more entries for one SM target. Sizes are kernel parameters; no image depends
//! on a shape. The build script of `retrograph-kernels` embeds [`images`]; launch geometry and
//! argument checks are in that crate.
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
//! | `gemm_bf16_nt_multistage` | `gemm_bf16_nt_multistage_64x64` | bf16 operands, multistage |
//! | `gemm_bf16_nt_multistage` | `gemm_bf16_nt_multistage_tma_128x192` | … warp-specialized, TMA |
//! | `flash_attention_bf16` | `flash_attention_bf16_hd64` | head dimension of at most 64 |
//! | `gemv_bf16` | `gemv_bf16_norm_split4` | fused with RMSNorm, four warps share a row |
//! | `softmax` | `softmax_warp_per_row` | one warp per row |
//!
//! The dtype is the type of the multiplication (GEMM, attention) or of the stored operand; kernels
//! without one are f32. An entry has the same name on all SM targets: a multistage entry uses fused
//! multiply-adds on sm_75, `mma.sync` from sm_80 on, and `wgmma` on sm_90a. Some entries exist only
//! with `wgmma` (such as `tma` and `wgmma` ones), a few only without it.

use retrograph_kernel_abi as abi;
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;

mod attention;
mod elementwise;
mod embedding;
mod gemm;
mod gemv;
mod lora;
mod loss;
mod nf4;
mod norm;
mod optimizer;
mod primitives;
mod rope;
mod sampling;

/// The crate of modules and SM targets.
pub use retrograph_ptx as ptx;

/// Builds one image for one SM target.
type Build = fn(SmTarget) -> Module;

/// Every image except the GEMM images, which `retrograph-kernel-abi` lists: name and builder.
const IMAGES: &[(&str, Build)] = &[
    (abi::optimizer::ADAMW.image, optimizer::adamw::module),
    (abi::elementwise::ADD.image, elementwise::add::module),
    (abi::elementwise::CAST.image, elementwise::cast::module),
    (abi::optimizer::CLIP_FACTOR.image, optimizer::clip_factor::module),
    (abi::optimizer::CLIP_GRADS.image, optimizer::clip_grads::module),
    (abi::norm::COLUMN_SUM.image, norm::column_sum::module),
    (abi::loss::CROSS_ENTROPY.signature.image, loss::cross_entropy::module),
    (abi::loss::CROSS_ENTROPY_BF16.signature.image, loss::cross_entropy::module_bf16),
    (abi::loss::CROSS_ENTROPY_SOFTCAP.signature.image, loss::cross_entropy::module_softcap),
    (
        abi::loss::CROSS_ENTROPY_SOFTCAP_BF16.signature.image,
        loss::cross_entropy::module_softcap_bf16,
    ),
    (abi::attention::DECODE_ATTENTION.image, attention::decode::module),
    (abi::lora::dora::IMAGE, lora::dora::module),
    (abi::elementwise::DROPOUT.image, elementwise::dropout::module),
    (abi::embedding::EMBEDDING.image, embedding::lookup::module),
    (abi::embedding::EMBEDDING_BACKWARD.image, embedding::backward::module),
    (abi::step_parameters::FETCH_STEP_PARAMETERS.image, abi::step_parameters::module),
    (abi::attention::FLASH_ATTENTION_BF16.forward.image, attention::forward_bf16),
    (abi::attention::FLASH_ATTENTION_BF16.grad_q.image, attention::backward_bf16),
    (abi::attention::FLASH_ATTENTION_BF16.prefill.image, attention::prefill_bf16),
    (abi::attention::FLASH_ATTENTION_F32.forward.image, attention::forward_f32),
    (abi::attention::FLASH_ATTENTION_F32.grad_q.image, attention::backward_f32),
    (abi::attention::FLASH_ATTENTION_F32.prefill.image, attention::prefill_f32),
    (abi::elementwise::GEGLU.image, elementwise::geglu::module),
    (abi::elementwise::GEGLU_BACKWARD.image, elementwise::geglu_backward::module),
    (abi::elementwise::SOFTCAP.image, elementwise::softcap::module),
    (abi::elementwise::SOFTCAP_BACKWARD.image, elementwise::softcap_backward::module),
    (abi::gemv::GEMV.signature.image, gemv::f32),
    (abi::gemv::GEMV_BF16.signature.image, gemv::bf16),
    (abi::gemv::GEMV_NF4.signature.image, gemv::nf4),
    (abi::optimizer::GRAD_NORM_PARTIALS.image, optimizer::grad_norm::module),
    (abi::attention::KV_CACHE_APPEND.image, attention::kv_cache_append::module),
    (abi::loss::LOG_RATIOS.image, loss::log_ratios::module),
    (abi::lora::SHRINK.image, lora::module),
    (abi::optimizer::LR_SCHEDULE.image, optimizer::lr_schedule::module),
    (abi::sampling::MARK_SEEN_TOKENS.image, sampling::mark_seen::module),
    (abi::loss::MEAN.image, loss::mean::module),
    (abi::loss::PREFERENCE.image, loss::preference::module),
    (abi::nf4::NF4_DEQUANTIZE.image, nf4::module),
    (abi::norm::RMS_NORM.image, norm::rms_norm::module),
    (abi::norm::RMS_NORM_BACKWARD.image, norm::rms_norm_backward::module),
    (abi::rope::ROPE.image, rope::module),
    (abi::sampling::SAMPLE_ADJUST.image, sampling::module),
    (abi::loss::GATHER_ROWS.image, loss::row_order::module),
    (abi::elementwise::SILU.image, elementwise::silu::module),
    (abi::elementwise::SILU_BACKWARD.image, elementwise::silu_backward::module),
    (abi::loss::SCALE_ROWS.image, loss::scale_rows::module),
    (abi::attention::SOFTMAX.signature.image, attention::softmax::module),
    (abi::attention::SOFTMAX_BACKWARD.signature.image, attention::softmax_backward::module),
    (abi::gemm::SKINNY.image, gemm::skinny::module),
    (abi::gemm::SPLIT.image, gemm::split::module),
    (abi::loss::SPLIT_CROSS_ENTROPY.signature.image, loss::cross_entropy::split),
    (abi::norm::SPLIT_RMS_NORM.image, norm::rms_norm::split),
    (abi::norm::SPLIT_RMS_NORM_BACKWARD.image, norm::rms_norm_backward::split),
    (abi::gemm::SPLIT_SWIGLU.image, gemm::split::swiglu),
    (abi::gemm::SPLIT_SWIGLU_BACKWARD.image, gemm::split::swiglu_backward),
    (abi::gemm::SPLIT_K_SUM.image, gemm::split_k_sum::module),
    (abi::elementwise::SWIGLU.image, elementwise::swiglu::module),
    (abi::elementwise::SWIGLU_BACKWARD.image, elementwise::swiglu_backward::module),
];

/// Every image for `target`, by name. The names are the same for every target.
pub fn images(target: SmTarget) -> Vec<(&'static str, Module)> {
    let gemm = abi::gemm::IMAGES.iter().map(|image| (image.name, gemm::module(target, image)));
    let others = IMAGES.iter().map(|(name, build)| (*name, build(target)));
    let images = gemm.chain(others);
    let mut images: Vec<_> =
        images.map(|(name, module)| (name, abi::pdl::insert_waits(module))).collect();
    images.sort_by_key(|(name, _)| *name);
    images
}

/// The entries whose launches must provide dynamic shared memory on `target`, with its bytes.
pub fn dynamic_shared(target: SmTarget) -> Vec<(&'static str, u32)> {
    let mut entries = gemm::dynamic_shared(target);
    entries.extend(attention::dynamic_shared(target));
    entries
}

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
