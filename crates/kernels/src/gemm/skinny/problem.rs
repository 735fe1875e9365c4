//! The sizes of a skinny product.

use retrograph_kernel_abi::gemm::{self as abi, SkinnyForm};

/// The sizes that determine entry point and grid of a skinny product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SkinnyProblem {
    /// Outputs of each layer; 0 for no layer.
    pub outputs: [u32; abi::SKINNY_MAX_LAYERS],
    /// The form.
    pub form: SkinnyForm,
}
