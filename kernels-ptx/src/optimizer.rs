//! The optimizer step: gradient clipping, learning-rate schedule, AdamW.

pub(crate) mod adamw;
pub(crate) mod clip_factor;
pub(crate) mod clip_grads;
pub(crate) mod grad_norm;
pub(crate) mod lr_schedule;
