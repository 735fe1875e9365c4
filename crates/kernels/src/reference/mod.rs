//! References in f64 on the CPU: the formula of every kernel, written once more without its
//! mapping to threads, as an oracle for tests and a definition for readers.

// One line per kernel file, in alphabetical order.

pub mod adamw;
pub mod attention;
pub mod cache;
pub mod clip;
pub mod column_sum;
pub mod cross_entropy;
pub mod dropout;
pub mod embedding;
pub mod fused_attention;
pub mod gemm;
pub mod rms_norm;
pub mod rope;
pub mod sample;
pub mod silu;
pub mod softmax;
