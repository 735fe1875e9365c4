//! Attention: fused, over a cache, and the softmax of unfused attention.

mod decode;
mod fused;
mod kv_cache;
mod softmax;

pub use decode::*;
pub use fused::*;
pub use kv_cache::*;
pub use softmax::*;
