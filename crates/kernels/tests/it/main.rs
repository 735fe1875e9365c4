//! Every kernel against its reference, on the simulated device or on a GPU; see [`harness`].

mod adamw;
mod attention;
mod bounds;
mod cache;
mod clip;
mod cross_entropy;
mod dropout;
mod embedding;
mod gemm;
mod gemm_case;
mod gemv;
mod harness;
mod images;
mod machine;
mod mixed;
mod nf4;
mod parts;
mod rms_norm;
mod rope;
mod row_launches;
mod sample;
mod softmax;
mod stream;
mod streams;
mod sums;
mod support;
