//! Softmax over rows, with or without a causal mask, and its gradient.

use crate::checks::Check;
use crate::geometry::{MAX_GRID_X, linear};
use crate::params::{pointer, u32};
use crate::problem::RowsProblem;
use crate::{Argument, Dispatch, Kernel, KernelError, Launch, Problem, View};

/// Kernel of [`Softmax`], [`SoftmaxInPlace`] and [`CacheSoftmax`].
pub static SOFTMAX: Kernel = Kernel {
    name: "softmax",
    image: "softmax",
    parameters: &[
        pointer("input"),
        pointer("output"),
        pointer("start"),
        u32("rows"),
        u32("width"),
        u32("queries"),
        u32("causal"),
    ],
    entries: &["softmax_warp_per_row", "softmax_block_per_row"],
    dispatch: |problem, _| by_width(problem, SOFTMAX.entries),
};

/// Kernel of [`SoftmaxBackward`].
pub static SOFTMAX_BACKWARD: Kernel = Kernel {
    name: "softmax_backward",
    image: "softmax_backward",
    parameters: &[
        pointer("probs"),
        pointer("grad_out"),
        pointer("grad_input"),
        u32("rows"),
        u32("width"),
        u32("causal"),
    ],
    entries: &["softmax_backward_warp_per_row", "softmax_backward_block_per_row"],
    dispatch: |problem, _| by_width(problem, SOFTMAX_BACKWARD.entries),
};

/// Rows per block of the entries `…_warp_per_row`: one for each warp.
const ROWS_PER_BLOCK: u32 = 4;
/// The widest row of one warp.
const MAX_WARP_WIDTH: u32 = 1024;
/// Threads per block of the entries `…_block_per_row`, which have one row.
const BLOCK_THREADS: u32 = 256;

/// One warp per narrow row, or one block per wide row.
fn by_width(problem: &Problem, entries: &[&'static str]) -> Option<Dispatch> {
    let RowsProblem { rows, width, .. } = problem.rows()?;
    let rows = if width == 0 { 0 } else { rows };
    Some(if width <= MAX_WARP_WIDTH {
        linear(entries[0], rows.div_ceil(ROWS_PER_BLOCK), ROWS_PER_BLOCK * 32)
    } else {
        linear(entries[1], rows, BLOCK_THREADS)
    })
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
    tensors: [Argument<B>; 2],
    (rows, width): (usize, usize),
    mask: Mask<B>,
) -> Result<Launch<B>, KernelError> {
    let check = Check(SOFTMAX.name);
    let mut arguments = Vec::from(tensors);
    arguments.push(Argument::read_optional(mask.start));
    let rows = check.at_most("rows", rows, MAX_GRID_X)?;
    let width = check.at_most("width", width, MAX_GRID_X)?;
    let queries = check.at_most("queries", mask.queries, MAX_GRID_X)?;
    arguments.extend([rows, width, queries, u32::from(mask.causal)].map(Argument::U32));
    let problem = Problem::Rows(RowsProblem { rows, width, vectorized: false });
    Ok(Launch { kernel: &SOFTMAX, problem, arguments })
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
        forward([Argument::read(input), Argument::write(output)], (rows, width), mask)
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
        forward([Argument::read(values), Argument::update(values)], (rows, width), mask)
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
        let tensors = [Argument::read(values), Argument::update(values)];
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
        let mut arguments =
            vec![Argument::read(probs), Argument::read(grad_out), Argument::write(grad_input)];
        let rows = check.at_most("rows", rows, MAX_GRID_X)?;
        let width = check.at_most("width", width, MAX_GRID_X)?;
        arguments.extend([rows, width, u32::from(causal)].map(Argument::U32));
        let problem = Problem::Rows(RowsProblem { rows, width, vectorized: false });
        Ok(Launch { kernel: &SOFTMAX_BACKWARD, problem, arguments })
    }
}
