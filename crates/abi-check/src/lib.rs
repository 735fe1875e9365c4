//! Compares `retrograph-driver-sys` with those who know the interface of the CUDA driver: the
//! cuda.h of CUDA 13.0 and 12.9, read by bindgen and by a C compiler, and `cuda-driver-sys` 0.3.
//!
//! Each side becomes a [`model::Description`], a description becomes a list of statements such as
//! `offset of CUDA_MEMCPY3D.srcHost` = `40` ([`facts`]), and every statement of driver-sys must be
//! confirmed. What is not confirmed is a [`compare::Difference`], unless [`exceptions`] lists it
//! with a reason.

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
