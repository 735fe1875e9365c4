//! Elementwise kernels: activations, addition, conversion and dropout.

mod activation;
mod dropout;

pub use activation::{ADD, Add, CAST, Cast, SILU, SILU_BACKWARD, SWIGLU, SWIGLU_BACKWARD};
pub use activation::{Silu, SiluBackward, SwiGlu, SwiGluBackward};
pub use dropout::{DROPOUT, Dropout};

use crate::Kernel;

/// References in f64.
pub mod reference {
    pub mod dropout;
    pub mod silu;
}

/// The kernels of this family.
pub(crate) static KERNELS: &[&Kernel] =
    &[&ADD, &CAST, &DROPOUT, &SILU, &SILU_BACKWARD, &SWIGLU, &SWIGLU_BACKWARD];
