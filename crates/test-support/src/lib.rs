//! Test support of `retrograph-driver` and `retrograph-runtime`.

#[cfg(doctest)]
mod guides;

pub mod device;
pub mod locks;
pub mod ptx;
pub mod threads;

#[doc(hidden)]
pub use static_assertions;
