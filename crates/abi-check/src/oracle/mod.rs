//! The sources: bindgen, a C compiler and `cuda-driver-sys`.

pub mod bindgen;
pub mod c;
pub mod generated;
pub mod include;
pub mod old_crate;
