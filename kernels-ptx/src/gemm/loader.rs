//! Loaders of operands from global memory into stages in shared memory.

pub(super) mod cp_async;
pub(super) mod nf4;
pub(super) mod register_bf16;
pub(super) mod register_f32;
pub(super) mod tf32_split;
pub(super) mod vector;
