//! Test support of `retrograph-driver`, `retrograph-kernels`, `retrograph-runtime` and
//! `retrograph-finetune`.

#[cfg(doctest)]
mod guides;

pub mod device;
pub mod locks;
pub mod model;
pub mod numbers;
pub mod ptx;
pub mod reference;
pub mod threads;

#[doc(hidden)]
pub use static_assertions;
