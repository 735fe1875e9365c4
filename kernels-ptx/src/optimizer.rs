//! The optimizer step: parameters of the step, gradient clipping, AdamW.

pub(crate) mod adamw;
pub(crate) mod clip_factor;
pub(crate) mod clip_grads;
pub(crate) mod fetch_step_parameters;
pub(crate) mod grad_norm;
pub(crate) mod lr_schedule;
