//! Comparison of `retrograph-driver-sys` and `retrograph-nccl-sys` with other sources of the same
//! interfaces: cuda.h of CUDA 13.0 and 12.9 and nccl.h of NCCL 2.32 and 2.18, read by bindgen and
//! by a C compiler, and `cuda-driver-sys` 0.3.
//!
//! Each source becomes a [`model::Description`], and a description a list of facts such as `offset
//! of CUDA_MEMCPY3D.srcHost` = `40` ([`facts`]). Every fact of our crates must be confirmed. An
//! unconfirmed fact is a [`compare::Difference`], unless [`exceptions`] lists it with a reason.

pub mod check;
pub mod compare;
pub mod exceptions;
pub mod facts;
pub mod flat;
pub mod model;
pub mod oracle;
pub mod ours;
pub mod since;
pub mod source;
pub mod tools;
pub mod types;
