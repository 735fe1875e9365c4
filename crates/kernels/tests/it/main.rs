//! Every kernel against its reference, on the simulated device or on a GPU; see [`harness`].

mod adamw;
#[path = "../../examples/gemm_speed/argument_bytes.rs"]
mod argument_bytes;
mod attention;
mod attention_bounds;
mod attention_rope;
mod bf16_matrix;
mod bounds;
mod cache;
mod clip;
mod cluster_split_k;
mod cross_entropy;
mod decode_attention;
mod dora;
mod dropout;
mod elementwise;
mod embedding;
mod fused_attention;
mod fused_attention_case;
mod geglu;
mod gemm;
mod gemm_bf16;
mod gemm_case;
mod gemm_multistage;
mod gemm_multistage_nf4;
mod gemv;
mod gemv_layers;
mod glu_products;
mod harness;
mod images;
mod kv_cache_bf16;
mod lora;

mod machine;
mod nf4;
mod pdl;
mod planted_mistakes;
mod preference;
mod prefill_attention;
mod product_sums;
mod products;
mod qkv_rope;
mod reductions;
mod rms_norm;
mod rms_norm_sums;
mod rope;
mod row_launches;
mod row_limit;
mod sample;
mod skinny;
mod softcap;
mod softmax;
mod split_cross_entropy;
mod split_errors;
mod split_k;
mod split_products;
mod split_rms_norm;
mod split_swiglu;
mod step_parameters;
#[cfg(packaged)]
mod support;
mod wgrad_squares;

/// Compiled with optimization, unlike tests.
#[cfg(not(packaged))]
use retrograph_test_support as support;
