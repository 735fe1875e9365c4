//! Softmax over rows, with or without a mask, and its gradient.

use retrograph_kernel_abi::{RowKernel, attention as abi};

use super::decode::check_window;
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

/// The columns that a row of scores `[batch, heads, seq, seq]` keeps. The others become 0 without
/// being read.
#[derive(Clone, Copy, Debug)]
pub enum SoftmaxMask<B> {
    /// All.
    None,
    /// Row r keeps the columns up to r mod seq.
    Causal,
    /// Causal, and only from the first key of the query on: `[batch, seq]`, read; see
    /// [`AttentionBounds`](crate::attention::AttentionBounds).
    From(View<B, u32>),
}

impl<B: Copy> SoftmaxMask<B> {
    fn is_causal(self) -> bool {
        !matches!(self, Self::None)
    }

    /// Returns the first key of each query, if the mask has them, and the number of rows per
    /// sequence.
    fn first_columns(
        self,
        check: Check,
        [rows, width]: [usize; 2],
    ) -> Result<(Option<View<B, u32>>, u32), KernelError> {
        let Self::From(first_keys) = self else { return Ok((None, 1)) };
        let sequences = first_keys.len() / width.max(1);
        let rows_per_sequence = rows / sequences.max(1);
        let rule = "first_keys must have whole sequences, and rows a whole number of heads of each";
        let whole = sequences * width == first_keys.len()
            && (rows_per_sequence * sequences, rows_per_sequence % width.max(1)) == (rows, 0);
        check.rule(whole, rule, [first_keys.len(), rows])?;
        let rows_per_sequence = check.size("rows of a sequence", rows_per_sequence.max(1))?;
        Ok((Some(first_keys), rows_per_sequence))
    }
}

/// The position and window of rows over a cache.
#[derive(Clone, Copy)]
struct CacheRows<B> {
    /// The position of the first of `queries` consecutive rows.
    start: View<B, u32>,
    queries: usize,
    window: Option<u32>,
}

/// Describes the softmax of `input` to `output`, which may be the same tensor.
fn forward<B: Copy>(
    [input, output]: [Pointer<B, f32>; 2],
    rows: usize,
    width: usize,
    mask: SoftmaxMask<B>,
    cache: Option<CacheRows<B>>,
) -> Result<Launch<B>, KernelError> {
    let check = Check(SOFTMAX.name);
    let (first_columns, rows_per_sequence) = mask.first_columns(check, [rows, width])?;
    let queries = cache.map_or(width, |cache| cache.queries);
    let rows = check.at_most("rows", rows, MAX_GRID_X)?;
    let width = check.at_most("width", width, MAX_GRID_X)?;
    let parameters = abi::SoftmaxParameters::<ArgumentTypes<B>> {
        input,
        output,
        start: Pointer::read_optional(cache.map(|cache| cache.start)),
        first_columns: Pointer::read_optional(first_columns),
        rows,
        width,
        queries: check.at_most("queries", queries, MAX_GRID_X)?,
        rows_per_sequence,
        window: check_window(check, cache.and_then(|cache| cache.window))?,
        causal: mask.is_causal(),
    };
    let problem = Problem::Rows(RowsProblem { rows, width, vectorized: false });
    Ok(Launch { kernel: &SOFTMAX, problem, arguments: parameters.into_arguments() })
}

/// `output = exp(input − max) ÷ Σ exp(input − max)` over each row.
///
/// A row whose kept columns have a NaN or a positive infinity, or only negative infinities, becomes
/// NaN.
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
    /// The columns that each row keeps.
    pub mask: SoftmaxMask<B>,
}

impl<B: Copy> Softmax<B> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If a length is not rows × width, the mask does not match the rows, or a size is out of
    /// range.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { input, output, rows, width, mask } = self;
        let check = Check(SOFTMAX.name);
        let elements = check.product("rows × width", &[rows, width])?;
        check.length("input", input, elements)?;
        check.length("output", output, elements)?;
        forward([Pointer::read(input), Pointer::write(output)], rows, width, mask, None)
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
    /// The columns that each row keeps.
    pub mask: SoftmaxMask<B>,
}

impl<B: Copy> SoftmaxInPlace<B> {
    /// Checks the operand and describes the launch.
    ///
    /// # Errors
    /// If the length is not rows × width, the mask does not match the rows, or a size is out of
    /// range.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { values, rows, width, mask } = self;
        let check = Check(SOFTMAX.name);
        check.length("values", values, check.product("rows × width", &[rows, width])?)?;
        forward([Pointer::read(values), Pointer::update(values)], rows, width, mask, None)
    }
}

/// [`SoftmaxInPlace`] for the scores of new tokens over a cache. Query r has position `start + r`
/// and keeps the columns up to it, or the last `window` of them; the others become 0 without being
/// read.
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
    /// The most positions that a query attends to, itself included; all if `None`.
    pub window: Option<u32>,
}

impl<B: Copy> CacheSoftmax<B> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If `start` does not have one element, the length of `values` is not heads × queries × width,
    /// or a size is out of range.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { values, start, heads, queries, width, window } = self;
        let check = Check(SOFTMAX.name);
        check.length("start", start, 1)?;
        let elements = check.product("heads × queries × width", &[heads, queries, width])?;
        check.length("values", values, elements)?;
        let cache = Some(CacheRows { start, queries, window });
        let tensors = [Pointer::read(values), Pointer::update(values)];
        forward(tensors, heads * queries, width, SoftmaxMask::Causal, cache)
    }
}

/// `grad_input = probs ⊙ (grad_out − Σ probs ⊙ grad_out)` over each row.
///
/// Masked columns are not read and their gradient becomes 0.
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
    /// The columns that each row keeps.
    pub mask: SoftmaxMask<B>,
}

impl<B: Copy> SoftmaxBackward<B> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If a length is not rows × width, the mask does not match the rows, or a size is out of
    /// range.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { probs, grad_out, grad_input, rows, width, mask } = self;
        let check = Check(SOFTMAX_BACKWARD.name);
        let elements = check.product("rows × width", &[rows, width])?;
        check.length("probs", probs, elements)?;
        check.length("grad_out", grad_out, elements)?;
        check.length("grad_input", grad_input, elements)?;
        let (first_columns, rows_per_sequence) = mask.first_columns(check, [rows, width])?;
        let rows = check.at_most("rows", rows, MAX_GRID_X)?;
        let width = check.at_most("width", width, MAX_GRID_X)?;
        let parameters = abi::SoftmaxBackwardParameters::<ArgumentTypes<B>> {
            probs: Pointer::read(probs),
            grad_out: Pointer::read(grad_out),
            grad_input: Pointer::write(grad_input),
            first_columns: Pointer::read_optional(first_columns),
            rows,
            width,
            rows_per_sequence,
            causal: mask.is_causal(),
        };
        let problem = Problem::Rows(RowsProblem { rows, width, vectorized: false });
        Ok(Launch { kernel: &SOFTMAX_BACKWARD, problem, arguments: parameters.into_arguments() })
    }
}
