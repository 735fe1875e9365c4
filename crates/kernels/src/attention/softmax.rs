//! Softmax over rows, with or without a causal mask, and its gradient.

use retrograph_kernel_abi::{RowKernel, attention as abi};

use crate::checks::Check;
use crate::geometry::{MAX_GRID_X, per_row};
use crate::launch::{ArgumentTypes, Pointer};
use crate::problem::RowsProblem;
use crate::{Dispatch, Kernel, KernelError, Launch, Problem, View};

/// Kernel of [`Softmax`], [`SoftmaxInPlace`] and [`CacheSoftmax`].
pub static SOFTMAX: Kernel =
    Kernel::new("softmax", &abi::SOFTMAX.signature, |problem, _| dispatch(problem, &abi::SOFTMAX));

/// Kernel of [`SoftmaxBackward`].
pub static SOFTMAX_BACKWARD: Kernel =
    Kernel::new("softmax_backward", &abi::SOFTMAX_BACKWARD.signature, |problem, _| {
        dispatch(problem, &abi::SOFTMAX_BACKWARD)
    });

fn dispatch(problem: &Problem, kernel: &RowKernel) -> Option<Dispatch> {
    let RowsProblem { rows, width, .. } = problem.rows()?;
    Some(per_row(kernel, if width == 0 { 0 } else { rows }, width))
}

/// Which columns a row keeps.
#[derive(Clone, Copy)]
struct Mask<B> {
    /// The position of the first of `queries` consecutive rows; 0 if `None`.
    start: Option<View<B, u32>>,
    queries: usize,
    causal: bool,
}

/// The softmax from `input` to `output`, which may be the same tensor.
fn forward<B: Copy>(
    [input, output]: [Pointer<B, f32>; 2],
    (rows, width): (usize, usize),
    mask: Mask<B>,
) -> Result<Launch<B>, KernelError> {
    let check = Check(SOFTMAX.name);
    let rows = check.at_most("rows", rows, MAX_GRID_X)?;
    let width = check.at_most("width", width, MAX_GRID_X)?;
    let parameters = abi::SoftmaxParameters::<ArgumentTypes<B>> {
        input,
        output,
        start: Pointer::read_optional(mask.start),
        rows,
        width,
        queries: check.at_most("queries", mask.queries, MAX_GRID_X)?,
        causal: mask.causal,
    };
    let problem = Problem::Rows(RowsProblem { rows, width, vectorized: false });
    Ok(Launch { kernel: &SOFTMAX, problem, arguments: parameters.into_arguments() })
}

/// `output = exp(input − max) ÷ Σ exp(input − max)` over each row.
///
/// With the causal mask row r keeps the columns up to r mod width, as for scores
/// `[batch, heads, seq, seq]`; the others become 0 without being read. A row whose kept columns
/// have a NaN or a positive infinity, or only negative infinities, becomes NaN.
#[derive(Clone, Copy, Debug)]
pub struct Softmax<B> {
    /// `[rows, width]`, read.
    pub input: View<B, f32>,
    /// `[rows, width]`, written; not `input` (see [`SoftmaxInPlace`]).
    pub output: View<B, f32>,
    /// Number of rows.
    pub rows: usize,
    /// Elements in a row.
    pub width: usize,
    /// Whether the causal mask applies.
    pub causal: bool,
}

impl<B: Copy> Softmax<B> {
    /// Checks the operands and describes the launch.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { input, output, rows, width, causal } = self;
        let check = Check(SOFTMAX.name);
        let elements = check.product("rows × width", &[rows, width])?;
        check.length("input", input, elements)?;
        check.length("output", output, elements)?;
        let mask = Mask { start: None, queries: width, causal };
        forward([Pointer::read(input), Pointer::write(output)], (rows, width), mask)
    }
}

/// [`Softmax`] in place.
#[derive(Clone, Copy, Debug)]
pub struct SoftmaxInPlace<B> {
    /// `[rows, width]`, read and written.
    pub values: View<B, f32>,
    /// Number of rows.
    pub rows: usize,
    /// Elements in a row.
    pub width: usize,
    /// Whether the causal mask applies.
    pub causal: bool,
}

impl<B: Copy> SoftmaxInPlace<B> {
    /// Checks the operand and describes the launch.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { values, rows, width, causal } = self;
        let check = Check(SOFTMAX.name);
        check.length("values", values, check.product("rows × width", &[rows, width])?)?;
        let mask = Mask { start: None, queries: width, causal };
        forward([Pointer::read(values), Pointer::update(values)], (rows, width), mask)
    }
}

/// [`SoftmaxInPlace`] for the scores of new tokens over a cache. Query r has position `start + r`
/// and keeps the columns up to it; the others become 0 without being read.
#[derive(Clone, Copy, Debug)]
pub struct CacheSoftmax<B> {
    /// `[heads, queries, width]`, read and written.
    pub values: View<B, f32>,
    /// `[1]`, read: the position of the first query.
    pub start: View<B, u32>,
    /// Query heads.
    pub heads: usize,
    /// New tokens.
    pub queries: usize,
    /// Capacity of the cache.
    pub width: usize,
}

impl<B: Copy> CacheSoftmax<B> {
    /// Checks the operands and describes the launch.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { values, start, heads, queries, width } = self;
        let check = Check(SOFTMAX.name);
        check.length("start", start, 1)?;
        let elements = check.product("heads × queries × width", &[heads, queries, width])?;
        check.length("values", values, elements)?;
        let mask = Mask { start: Some(start), queries, causal: true };
        let tensors = [Pointer::read(values), Pointer::update(values)];
        forward(tensors, (heads * queries, width), mask)
    }
}

/// `grad_input = probs ⊙ (grad_out − Σ probs ⊙ grad_out)` over each row.
///
/// With the causal mask, masked columns are not read and their gradient becomes 0.
#[derive(Clone, Copy, Debug)]
pub struct SoftmaxBackward<B> {
    /// `[rows, width]`, read: the output of the forward pass.
    pub probs: View<B, f32>,
    /// `[rows, width]`, read.
    pub grad_out: View<B, f32>,
    /// `[rows, width]`, written.
    pub grad_input: View<B, f32>,
    /// Number of rows.
    pub rows: usize,
    /// Elements in a row.
    pub width: usize,
    /// Whether the causal mask applies.
    pub causal: bool,
}

impl<B: Copy> SoftmaxBackward<B> {
    /// Checks the operands and describes the launch.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { probs, grad_out, grad_input, rows, width, causal } = self;
        let check = Check(SOFTMAX_BACKWARD.name);
        let elements = check.product("rows × width", &[rows, width])?;
        check.length("probs", probs, elements)?;
        check.length("grad_out", grad_out, elements)?;
        check.length("grad_input", grad_input, elements)?;
        let rows = check.at_most("rows", rows, MAX_GRID_X)?;
        let width = check.at_most("width", width, MAX_GRID_X)?;
        let parameters = abi::SoftmaxBackwardParameters::<ArgumentTypes<B>> {
            probs: Pointer::read(probs),
            grad_out: Pointer::read(grad_out),
            grad_input: Pointer::write(grad_input),
            rows,
            width,
            causal,
        };
        let problem = Problem::Rows(RowsProblem { rows, width, vectorized: false });
        Ok(Launch { kernel: &SOFTMAX_BACKWARD, problem, arguments: parameters.into_arguments() })
    }
}
