//! The problem and the geometry of an elementwise kernel.

use crate::checks::Check;
use crate::geometry::elementwise;
use crate::{DType, Dispatch, Kernel, KernelError, Output, Problem, TensorView};

/// Launch geometry. The first entry reads f32; the second, if any, reads bf16.
pub(super) fn dispatch(problem: &Problem, entries: &[&'static str]) -> Option<Dispatch> {
    let (count, dtype) = problem.elements()?;
    let in_bf16 = dtype == DType::Bf16 && entries.len() > 1;
    Some(elementwise(entries[usize::from(in_bf16)], count))
}

/// Checks inputs and outputs, named by the fields of the caller, and returns the problem and the
/// number of elements. All must have the length of the first input. Inputs are all f32, or all bf16
/// if the kernel has an entry for bf16.
pub(super) fn check<B: Copy>(
    kernel: &Kernel,
    inputs: &[(&'static str, TensorView<B>)],
    outputs: &[(&'static str, Output<B>)],
) -> Result<(Problem, u32), KernelError> {
    let check = Check(kernel.name);
    let expected = inputs[0].1.len();
    let count = check.size("the number of elements", expected)?;
    let all_bf16 = inputs.iter().all(|(_, input)| input.dtype() == DType::Bf16);
    let dtype = if all_bf16 && kernel.entries.len() > 1 { DType::Bf16 } else { DType::F32 };
    if let Some((_, input)) = inputs.iter().find(|(_, input)| input.dtype() != dtype) {
        return Err(KernelError::UnsupportedDType {
            kernel: kernel.name,
            compute: DType::F32,
            dtype: input.dtype(),
            help: "read all inputs in f32; SwiGLU and GeGLU may read all of them in bf16 instead",
        });
    }
    for &(name, input) in inputs {
        check.elements(name, input.len(), expected)?;
    }
    for &(name, output) in outputs {
        output.check(check, name, expected)?;
    }
    Ok((Problem::Elements { count, dtype }, count))
}
