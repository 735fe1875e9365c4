//! A linear layer, with a bias and a LoRA update if it has them.
//!
//! ```text
//! y  = x·Wᵀ + b      dW = dyᵀ·x      db = Σ rows of dy      dx = dy·W
//! ```

mod backward;
mod dora;
mod forward;
mod layer;
mod products;
mod split;

pub(super) use backward::{Backward, backward, backward_through_glu};
pub(super) use forward::{
    Forward, Forwarded, Output, Saved, forward, forward_glu, forward_qkv_rope,
};
pub(super) use layer::Linear;
pub(super) use products::{declare_terms, split};
pub(super) use split::{split_swiglu, split_swiglu_backward};
