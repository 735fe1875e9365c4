//! RMSNorm, its backward pass and the two-stage reduction of the gradient of gamma.

use super::geometry::{MOST_BLOCKS, linear, row_threads};
use super::stored::Written;
use super::{column_sum, f32, pointer, u32};
use crate::checks::Check;
use crate::{Access, Argument, BufferArgument, Kernel, KernelError, Launch, Problem, View};

/// Kernel of [`RmsNorm`].
pub static RMS_NORM: Kernel = Kernel {
    name: "rms_norm",
    image: "rms_norm",
    parameters: &[
        pointer("x"),
        pointer("gamma"),
        pointer("y"),
        pointer("y_bf16"),
        pointer("rstd"),
        u32("width"),
        f32("eps"),
    ],
    entries: &["rms_norm"],
    dispatch: |problem, _| linear("rms_norm", problem.sizes[0], row_threads(problem.sizes[1])),
};

/// Kernel of [`RmsNormBackward`].
pub static RMS_NORM_BACKWARD: Kernel = Kernel {
    name: "rms_norm_backward",
    image: "rms_norm_backward",
    parameters: &[
        pointer("x"),
        pointer("gamma"),
        pointer("rstd"),
        pointer("grad_out"),
        pointer("grad_input"),
        pointer("gamma_partials"),
        u32("rows"),
        u32("width"),
        u32("rows_per_block"),
        u32("accumulate"),
    ],
    entries: &["rms_norm_backward"],
    dispatch: |problem, _| {
        linear("rms_norm_backward", problem.sizes[2], row_threads(problem.sizes[1]))
    },
};

/// Kernel of [`RmsNormGammaReduce`].
pub static RMS_NORM_GAMMA_REDUCE: Kernel = Kernel {
    name: "rms_norm_gamma_reduce",
    image: "column_sum",
    parameters: column_sum::PARAMETERS,
    entries: column_sum::ENTRIES,
    dispatch: column_sum::dispatch,
};

/// `y = x · rstd · gamma` with `rstd = rsqrt(mean(x²) + eps)` for each row.
///
/// Accurate for |x| from 1e-30 to 1e30: where the plain sum of squares leaves the range of f32, the
/// row is summed again, scaled by a power of two. A row with a NaN or an infinity follows IEEE
/// arithmetic: NaN spreads over the row, an infinity gives NaN in its place and 0 elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct RmsNorm<B, O = View<B, f32>> {
    /// `[rows, width]`, read.
    pub x: View<B, f32>,
    /// `[width]`, read.
    pub gamma: View<B, f32>,
    /// `[rows, width]`, written: as f32, as bf16, or both.
    pub y: O,
    /// `[rows]`, written; the backward pass takes it, so that `eps` is the same in both.
    pub rstd: View<B, f32>,
    /// Number of rows.
    pub rows: usize,
    /// Elements in a row.
    pub width: usize,
    /// Added to the mean square; finite and not negative.
    pub eps: f32,
}

impl<B: Copy, O: Into<Written<B>> + Copy> RmsNorm<B, O> {
    /// The launch.
    pub fn launch(&self) -> Result<Launch<B>, KernelError> {
        let check = Check(RMS_NORM.name);
        let (rows, width) = row_sizes(check, self.rows, self.width)?;
        let elements = check.product("rows × width", &[self.rows, self.width])?;
        check.length("x", self.x, elements)?;
        check.length("gamma", self.gamma, self.width)?;
        let y: Written<B> = self.y.into();
        y.check(check, "y", elements)?;
        check.length("rstd", self.rstd, self.rows)?;
        let holds = self.eps.is_finite() && self.eps >= 0.0;
        check.constant("eps", self.eps, (holds, "finite and not negative"))?;
        let [y, rounded] = y.arguments();
        let arguments = vec![
            Argument::read(self.x),
            Argument::read(self.gamma),
            y,
            rounded,
            Argument::write(self.rstd),
            Argument::U32(width),
            Argument::f32(self.eps),
        ];
        Ok(Launch { kernel: &RMS_NORM, problem: Problem::from([rows, width]), arguments })
    }
}

/// Gradients of [`RmsNorm`]: with `h = x · rstd` and `u = gamma ⊙ grad_out`,
/// `grad_input = rstd · (u − h · mean(u ⊙ h))`, and each block's share of `Σ_rows grad_out ⊙ h`.
///
/// Row p of `gamma_partials` is the sum, in order, over one run of consecutive rows;
/// [`RmsNormGammaReduce`] adds the runs. Both stages have a fixed order, so that the gradient has
/// the same bits each time.
#[derive(Clone, Copy, Debug)]
pub struct RmsNormBackward<B> {
    /// `[rows, width]`, read: the input of the forward pass.
    pub x: View<B, f32>,
    /// `[width]`, read.
    pub gamma: View<B, f32>,
    /// `[rows]`, read: as the forward pass wrote it.
    pub rstd: View<B, f32>,
    /// `[rows, width]`, read.
    pub grad_out: View<B, f32>,
    /// `[rows, width]`, written, or added to where `accumulate` is set.
    pub grad_input: View<B, f32>,
    /// `[partial_rows(rows), width]`, written; `None` where gamma is frozen.
    pub gamma_partials: Option<View<B, f32>>,
    /// Number of rows.
    pub rows: usize,
    /// Elements in a row.
    pub width: usize,
    /// Whether `grad_input` is added to.
    pub accumulate: bool,
}

impl<B: Copy> RmsNormBackward<B> {
    /// How many rows `gamma_partials` has for an input of `rows` rows.
    pub fn partial_rows(rows: usize) -> usize {
        rows.div_ceil(rows_per_block(rows))
    }

    /// The launch.
    pub fn launch(&self) -> Result<Launch<B>, KernelError> {
        let check = Check(RMS_NORM_BACKWARD.name);
        let (rows, width) = row_sizes(check, self.rows, self.width)?;
        let elements = check.product("rows × width", &[self.rows, self.width])?;
        check.length("x", self.x, elements)?;
        check.length("gamma", self.gamma, self.width)?;
        check.length("rstd", self.rstd, self.rows)?;
        check.length("grad_out", self.grad_out, elements)?;
        check.length("grad_input", self.grad_input, elements)?;
        let blocks = Self::partial_rows(self.rows);
        if let Some(partials) = self.gamma_partials {
            check.length("gamma_partials", partials, blocks * self.width)?;
        }
        let access = if self.accumulate { Access::ReadWrite } else { Access::Write };
        let arguments = vec![
            Argument::read(self.x),
            Argument::read(self.gamma),
            Argument::read(self.rstd),
            Argument::read(self.grad_out),
            Argument::Buffer(BufferArgument::new(self.grad_input, access)),
            self.gamma_partials.map_or(Argument::Null, Argument::write),
            Argument::U32(rows),
            Argument::U32(width),
            Argument::U32(check.size("rows per block", rows_per_block(self.rows))?),
            Argument::U32(u32::from(self.accumulate)),
        ];
        // There are no more blocks than rows, whose number was checked.
        let problem = Problem::from([rows, width, blocks as u32]);
        Ok(Launch { kernel: &RMS_NORM_BACKWARD, problem, arguments })
    }
}

/// `grad_gamma = Σ_p partials[p]`: the second stage of the gradient of gamma.
#[derive(Clone, Copy, Debug)]
pub struct RmsNormGammaReduce<B> {
    /// `[partial_rows, width]`, read.
    pub partials: View<B, f32>,
    /// `[width]`, written.
    pub grad_gamma: View<B, f32>,
    /// [`RmsNormBackward::partial_rows`] of the number of rows.
    pub partial_rows: usize,
    /// Elements in a row.
    pub width: usize,
}

impl<B: Copy> RmsNormGammaReduce<B> {
    /// The launch.
    pub fn launch(&self) -> Result<Launch<B>, KernelError> {
        let check = Check(RMS_NORM_GAMMA_REDUCE.name);
        let elements = check.product("partial rows × width", &[self.partial_rows, self.width])?;
        check.length("partials", self.partials, elements)?;
        check.length("grad_gamma", self.grad_gamma, self.width)?;
        let (rows, columns) = (self.partial_rows, self.width);
        let launch = column_sum::launch(check, (self.partials, self.grad_gamma), (rows, columns))?;
        Ok(Launch { kernel: &RMS_NORM_GAMMA_REDUCE, ..launch })
    }
}

/// Rows of one block of the backward kernel: one, until there would be more than 256 blocks.
fn rows_per_block(rows: usize) -> usize {
    rows.div_ceil(256).max(1)
}

/// Rows and width as kernel parameters; there is at most one block for each row.
fn row_sizes(check: Check, rows: usize, width: usize) -> Result<(u32, u32), KernelError> {
    Ok((check.at_most("rows", rows, MOST_BLOCKS)?, check.size("width", width)?))
}
