//! Elementwise kernels: activations and soft-capping with their gradients, addition, conversion
//! and dropout.
//!
//! One thread handles eight consecutive elements (dropout: four). It accesses them in vectors of 16
//! bytes if every operand is aligned to 16 bytes, otherwise one by one, with the same results. Each
//! element depends only on the same element of the inputs, so an output may be the same view as an
//! input. Views that overlap otherwise give wrong results.

mod activation;
mod add;
mod cast;
mod dropout;
mod gated;
mod launch;
mod softcap;

pub use activation::{SILU, SILU_BACKWARD, Silu, SiluBackward};
pub use add::{ADD, Add};
pub use cast::{CAST, Cast};
pub use dropout::{DROPOUT, Dropout};
pub use gated::{GEGLU, GEGLU_BACKWARD, Glu, GluBackward, SWIGLU, SWIGLU_BACKWARD};
pub use softcap::{SOFTCAP, SOFTCAP_BACKWARD, Softcap, SoftcapBackward};

use crate::Kernel;

/// References in f64.
pub mod reference {
    pub mod dropout;
    pub mod gelu;
    pub mod silu;
    pub mod softcap;
}

/// The kernels of this family.
pub(crate) static KERNELS: &[&Kernel] = &[
    &ADD,
    &CAST,
    &DROPOUT,
    &GEGLU,
    &GEGLU_BACKWARD,
    &SILU,
    &SILU_BACKWARD,
    &SOFTCAP,
    &SOFTCAP_BACKWARD,
    &SWIGLU,
    &SWIGLU_BACKWARD,
];
