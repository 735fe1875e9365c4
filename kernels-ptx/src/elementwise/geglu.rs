//! GeGLU: `out = gelu(gate) · up`, by the tanh approximation. Inputs are f32, or bf16 in
//! `geglu_bf16`.
//!
//! Grid: one thread for every eight elements.
//! Deterministic: one thread computes each element from one element of each input.

use retrograph_kernel_abi::DType;
use retrograph_kernel_abi::elementwise::{GEGLU_ENTRIES, GatedParameters};
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::{ModuleBuilder, Ptr};

use super::kernel::{Elementwise, elementwise};
use crate::primitives::gelu::geglu;
use crate::primitives::output::Output;
use crate::primitives::parameters::Declarations;

/// Builds the image.
pub(crate) fn module(target: SmTarget) -> Module {
    let [in_f32, in_bf16] = GEGLU_ENTRIES;
    ModuleBuilder::new(target)
        .entry(elementwise((target, in_f32, DType::F32), operands, |[gate, up]| [geglu(gate, up)]))
        .entry(elementwise((target, in_bf16, DType::Bf16), operands, |[gate, up]| {
            [geglu(gate, up)]
        }))
        .build()
}

fn operands<'k>(k: &mut Declarations<'k>) -> Elementwise<'k, 2, 1> {
    let GatedParameters { gate, up, out, out_bf16, n } = GatedParameters::declare(k);
    let inputs = [gate, up].map(Ptr::reinterpret);
    Elementwise { inputs, outputs: [Output::new(out, out_bf16)], n }
}
