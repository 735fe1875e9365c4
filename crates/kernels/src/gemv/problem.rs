//! The sizes of matrix-vector products.

use retrograph_kernel_abi::gemv::GemvForm;

/// The sizes that determine entry point and grid of matrix-vector products.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GemvProblem {
    /// Elements of x.
    pub inputs: u32,
    /// Outputs of each layer; 0 for no layer.
    pub outputs: [u32; 3],
    /// Rank of each LoRA matrix A; 0 for none.
    pub lora_ranks: [u32; 3],
    /// The form.
    pub form: GemvForm,
}
