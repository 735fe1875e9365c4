//! Test support of `retrograph-driver`, `retrograph-kernels`, `retrograph-runtime` and
//! `retrograph-finetune`.

#[cfg(doctest)]
mod guides;

pub mod device;
pub mod fatbin;
pub mod locks;
pub mod model;
pub mod numbers;
pub mod ptx;
pub mod reference;
pub mod threads;

/// Returns `value` after `change`, for options, whose structs other crates cannot write in full.
pub fn with<T>(mut value: T, change: impl FnOnce(&mut T)) -> T {
    change(&mut value);
    value
}

#[doc(hidden)]
pub use static_assertions;
