//! DoRA: `y = (x·Wᵀ + s·(x·Aᵀ)·Bᵀ) ⊙ m / n + bias`, with `n_j = ‖W_j + s·B_j·A‖₂`.
//!
//! | Entries | Formula | Used for |
//! |---|---|---|
//! | `dora_norms*` | `n` and `m / n` | once for each update of the matrices |
//! | `dora_scale*` | `y = z ⊙ mag_norm_scales + bias` | forward pass |
//! | `dora_scale_backward*` | `dz = dy ⊙ mag_norm_scales`, `dm = Σ dy ⊙ z / n` | backward pass |
//!
//! The kernels of LoRA compute the products and their updates. All arithmetic is f32.

mod norms;
mod scale;

use retrograph_kernel_abi::lora::dora::{norms as norms_abi, scale as scale_abi};
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::ModuleBuilder;

/// Builds the image.
pub(crate) fn module(target: SmTarget) -> Module {
    let mut module = ModuleBuilder::new(target);
    for &dtype in norms_abi::DTYPES {
        module = module.entry(norms::entry(dtype));
    }
    for &x in scale_abi::DTYPES {
        module = module.entry(scale::entry(target, x));
        for &grad_out in scale_abi::DTYPES {
            module = module.entry(scale::backward_entry(target, [grad_out, x]));
        }
    }
    module.build()
}
