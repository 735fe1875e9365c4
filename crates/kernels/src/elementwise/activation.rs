//! The kernels that go over elements one by one: SiLU, SwiGLU, their backward passes, addition, and
//! rounding to bf16. Each result can be written as f32, as bf16, or both; SwiGLU reads either.
//!
//! Four neighbouring elements belong to one thread, which moves them by 16-byte accesses where
//! every operand is aligned to 16 bytes, and one by one elsewhere, with the same results. Each
//! element depends on the same place of the inputs alone, so that an output may be the same view
//! as an input; views that overlap in part are wrong.

use half::bf16;

use crate::checks::Check;
use crate::geometry::streaming;
use crate::params::{pointer, u32};
use crate::tensor::{Compute, Stored, Written};
use crate::{Argument, Kernel, KernelError, Launch, Problem, View};

/// Kernel of [`Silu`].
pub static SILU: Kernel = Kernel {
    name: "silu",
    image: "silu",
    parameters: &[pointer("x"), pointer("y"), pointer("y_bf16"), u32("n")],
    entries: &["silu"],
    dispatch: |problem, _| streaming("silu", problem),
};

/// Kernel of [`SiluBackward`].
pub static SILU_BACKWARD: Kernel = Kernel {
    name: "silu_backward",
    image: "silu_backward",
    parameters: &[
        pointer("x"),
        pointer("grad_out"),
        pointer("grad_input"),
        pointer("grad_input_bf16"),
        u32("n"),
    ],
    entries: &["silu_backward"],
    dispatch: |problem, _| streaming("silu_backward", problem),
};

/// Kernel of [`SwiGlu`].
pub static SWIGLU: Kernel = Kernel {
    name: "swiglu",
    image: "swiglu",
    parameters: &[pointer("gate"), pointer("up"), pointer("out"), pointer("out_bf16"), u32("n")],
    entries: &["swiglu", "swiglu_bf16"],
    dispatch: |problem, _| streaming(SWIGLU.entries[problem.sizes[1] as usize & 1], problem),
};

/// Kernel of [`SwiGluBackward`].
pub static SWIGLU_BACKWARD: Kernel = Kernel {
    name: "swiglu_backward",
    image: "swiglu_backward",
    parameters: &[
        pointer("gate"),
        pointer("up"),
        pointer("grad_out"),
        pointer("grad_gate"),
        pointer("grad_gate_bf16"),
        pointer("grad_up"),
        pointer("grad_up_bf16"),
        u32("n"),
    ],
    entries: &["swiglu_backward", "swiglu_backward_bf16"],
    dispatch: |problem, _| {
        streaming(SWIGLU_BACKWARD.entries[problem.sizes[1] as usize & 1], problem)
    },
};

/// Kernel of [`Add`].
pub static ADD: Kernel = Kernel {
    name: "add",
    image: "add",
    parameters: &[pointer("a"), pointer("b"), pointer("out"), pointer("out_bf16"), u32("n")],
    entries: &["add"],
    dispatch: |problem, _| streaming("add", problem),
};

/// Kernel of [`Cast`].
pub static CAST: Kernel = Kernel {
    name: "cast",
    image: "cast",
    parameters: &[pointer("x"), pointer("y"), pointer("y_bf16"), u32("n")],
    entries: &["cast"],
    dispatch: |problem, _| streaming("cast", problem),
};

/// `y = x`, rounded to bf16 to the nearest, ties to even; NaN stays NaN.
#[derive(Clone, Copy, Debug)]
pub struct Cast<B> {
    /// `[n]`, read.
    pub x: View<B, f32>,
    /// `[n]`, written.
    pub y: View<B, bf16>,
}

impl<B: Copy> Cast<B> {
    /// The launch.
    pub fn launch(&self) -> Result<Launch<B>, KernelError> {
        stream(&CAST, &[("x", self.x.into())], &[("y", self.y.into())])
    }
}

/// `y = x · σ(x)`; −∞ gives NaN, as `x / (1 + exp(−x))` does.
#[derive(Clone, Copy, Debug)]
pub struct Silu<B, O = View<B, f32>> {
    /// `[n]`, read.
    pub x: View<B, f32>,
    /// `[n]`, written.
    pub y: O,
}

impl<B: Copy, O: Into<Written<B>> + Copy> Silu<B, O> {
    /// The launch.
    pub fn launch(&self) -> Result<Launch<B>, KernelError> {
        stream(&SILU, &[("x", self.x.into())], &[("y", self.y.into())])
    }
}

/// `grad_input = grad_out · σ(x) · (1 + x · σ(−x))`.
#[derive(Clone, Copy, Debug)]
pub struct SiluBackward<B, O = View<B, f32>> {
    /// `[n]`, read: the input of the forward pass.
    pub x: View<B, f32>,
    /// `[n]`, read.
    pub grad_out: View<B, f32>,
    /// `[n]`, written.
    pub grad_input: O,
}

impl<B: Copy, O: Into<Written<B>> + Copy> SiluBackward<B, O> {
    /// The launch.
    pub fn launch(&self) -> Result<Launch<B>, KernelError> {
        let inputs = [("x", self.x.into()), ("grad_out", self.grad_out.into())];
        stream(&SILU_BACKWARD, &inputs, &[("grad_input", self.grad_input.into())])
    }
}

/// `out = silu(gate) · up`.
#[derive(Clone, Copy, Debug)]
pub struct SwiGlu<I, O> {
    /// `[n]`, read: f32 or bf16, the same for both.
    pub gate: I,
    /// `[n]`, read.
    pub up: I,
    /// `[n]`, written.
    pub out: O,
}

impl<I: Copy, O: Copy> SwiGlu<I, O> {
    /// The launch.
    pub fn launch<B: Copy>(&self) -> Result<Launch<B>, KernelError>
    where
        I: Into<Stored<B>>,
        O: Into<Written<B>>,
    {
        let inputs = [("gate", self.gate.into()), ("up", self.up.into())];
        stream(&SWIGLU, &inputs, &[("out", self.out.into())])
    }
}

/// `grad_gate = grad_out · (up · silu'(gate))` and `grad_up = grad_out · silu(gate)`.
#[derive(Clone, Copy, Debug)]
pub struct SwiGluBackward<I, O> {
    /// `[n]`, read: the gate of the forward pass, f32 or bf16, the same for all three.
    pub gate: I,
    /// `[n]`, read: the other input of the forward pass.
    pub up: I,
    /// `[n]`, read.
    pub grad_out: I,
    /// `[n]`, written.
    pub grad_gate: O,
    /// `[n]`, written.
    pub grad_up: O,
}

impl<I: Copy, O: Copy> SwiGluBackward<I, O> {
    /// The launch.
    pub fn launch<B: Copy>(&self) -> Result<Launch<B>, KernelError>
    where
        I: Into<Stored<B>>,
        O: Into<Written<B>>,
    {
        let [gate, up, grad_out] = [self.gate, self.up, self.grad_out].map(Into::into);
        let inputs = [("gate", gate), ("up", up), ("grad_out", grad_out)];
        let outputs = [("grad_gate", self.grad_gate.into()), ("grad_up", self.grad_up.into())];
        stream(&SWIGLU_BACKWARD, &inputs, &outputs)
    }
}

/// `out = a + b`.
#[derive(Clone, Copy, Debug)]
pub struct Add<B, O = View<B, f32>> {
    /// `[n]`, read.
    pub a: View<B, f32>,
    /// `[n]`, read.
    pub b: View<B, f32>,
    /// `[n]`, written.
    pub out: O,
}

impl<B: Copy, O: Into<Written<B>> + Copy> Add<B, O> {
    /// The launch.
    pub fn launch(&self) -> Result<Launch<B>, KernelError> {
        stream(&ADD, &[("a", self.a.into()), ("b", self.b.into())], &[("out", self.out.into())])
    }
}

/// An input and the field that holds it.
type Operand<B> = (&'static str, Stored<B>);

/// The launch over inputs and outputs that must all have the length of the first input. Inputs are
/// f32, or all of them bf16 where the kernel has an entry for that.
fn stream<B: Copy>(
    kernel: &'static Kernel,
    inputs: &[Operand<B>],
    outputs: &[(&'static str, Written<B>)],
) -> Result<Launch<B>, KernelError> {
    let check = Check(kernel.name);
    let expected = inputs[0].1.len();
    let n = check.size("the number of elements", expected)?;
    let all = |form: fn(&Stored<B>) -> bool| inputs.iter().all(|(_, input)| form(input));
    let rounded = kernel.entries.len() > 1 && all(|input| matches!(input, Stored::Bf16(_)));
    let other = |input: &Stored<B>| !rounded && !matches!(input, Stored::F32(_));
    if let Some((_, input)) = inputs.iter().find(|(_, input)| other(input)) {
        return Err(KernelError::Storage {
            kernel: kernel.name,
            compute: Compute::F32.name(),
            stored: input.name(),
            way_out: "read all inputs in f32; SwiGLU may read all of them in bf16 instead",
        });
    }
    for &(name, input) in inputs {
        check.elements(name, input.len(), expected)?;
    }
    for &(name, written) in outputs {
        written.check(check, name, expected)?;
    }
    let reads = inputs.iter().map(|(_, input)| input.arguments().0);
    let writes = outputs.iter().flat_map(|&(_, written)| written.arguments());
    let arguments = reads.chain(writes).chain([Argument::U32(n)]).collect();
    Ok(Launch { kernel, problem: Problem::from([n, rounded.into()]), arguments })
}
