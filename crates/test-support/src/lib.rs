//! Test support of `retrograph-kernels` and `retrograph-finetune`.
//!
//! The tests of `retrograph-driver`, `retrograph-kernels` and `retrograph-runtime` link some of its
//! files, so that their packages contain them.

#[cfg(doctest)]
mod guides;

pub mod device;
pub mod model;
pub mod numbers;
mod options;
pub mod reference;

pub use options::with;
