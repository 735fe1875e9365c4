//! RMSNorm, of an input or of the sum of two, and the geometry that it shares with its backward
//! pass.

use crate::checks::Check;
use crate::geometry::{MOST_BLOCKS, linear};
use crate::params::{f32, pointer, u32};
use crate::tensor::Written;
use crate::{Argument, Kernel, KernelError, Launch, Problem, View};

/// The most threads of a block.
const MOST_THREADS: u32 = 512;

/// Kernel of [`RmsNorm`].
pub static RMS_NORM: Kernel = Kernel {
    name: "rms_norm",
    image: "rms_norm",
    parameters: &[
        pointer("x"),
        pointer("addend"),
        pointer("sum"),
        pointer("gamma"),
        pointer("y"),
        pointer("y_bf16"),
        pointer("rstd"),
        u32("width"),
        f32("eps"),
    ],
    entries: &["rms_norm", "rms_norm_1", "rms_norm_2", "rms_norm_4"],
    dispatch: |problem, _| {
        let [rows, width, aligned, ..] = problem.sizes;
        let entry = match quads(width) {
            Some(1) if aligned == 1 => "rms_norm_1",
            Some(2) if aligned == 1 => "rms_norm_2",
            Some(4) if aligned == 1 => "rms_norm_4",
            _ => "rms_norm",
        };
        linear(entry, rows, threads(width))
    },
};

/// `y = x · rstd · gamma` with `rstd = rsqrt(mean(x²) + eps)` for each row.
///
/// Accurate for |x| from 1e-30 to 1e30: where the plain sum of squares leaves the range of f32, the
/// row is summed again, scaled by a power of two. A row with a NaN or an infinity follows IEEE
/// arithmetic: NaN spreads over the row, an infinity gives NaN in its place and 0 elsewhere.
///
/// With an addend, the sum of both takes the place of x: a residual and the norm behind it.
#[derive(Clone, Copy, Debug)]
pub struct RmsNorm<B, O = View<B, f32>> {
    /// `[rows, width]`, read.
    pub x: View<B, f32>,
    /// What is added to x first.
    pub addend: Option<Addend<B>>,
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

/// What [`RmsNorm`] adds to its input.
#[derive(Clone, Copy, Debug)]
pub struct Addend<B> {
    /// `[rows, width]`, read.
    pub term: View<B, f32>,
    /// `[rows, width]`, written: x + term, which the backward pass takes as x.
    pub sum: View<B, f32>,
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
        if let Some(Addend { term, sum }) = self.addend {
            check.length("addend", term, elements)?;
            check.length("sum", sum, elements)?;
        }
        let [y, rounded] = y.arguments();
        let arguments = vec![
            Argument::read(self.x),
            self.addend.map_or(Argument::Null, |addend| Argument::read(addend.term)),
            self.addend.map_or(Argument::Null, |addend| Argument::write(addend.sum)),
            Argument::read(self.gamma),
            y,
            rounded,
            Argument::write(self.rstd),
            Argument::U32(width),
            Argument::f32(self.eps),
        ];
        let problem = Problem::from([rows, width, aligned(width, &arguments)]);
        Ok(Launch { kernel: &RMS_NORM, problem, arguments })
    }
}

/// How many quads of a row a thread keeps in registers; `None` where a row has too many.
pub(crate) fn quads(width: u32) -> Option<u32> {
    [1, 2, 4].into_iter().find(|quads| width <= 4 * quads * MOST_THREADS)
}

/// Threads for a row of `width` elements, in whole warps. They do not depend on where the row
/// starts, so that neither do the bits.
pub(crate) fn threads(width: u32) -> u32 {
    let each = quads(width).map_or(MOST_THREADS, |quads| width.div_ceil(4 * quads));
    each.next_multiple_of(32).max(32)
}

/// 1 where rows are whole quads and every operand starts at a multiple of 16 bytes, else 0.
pub(crate) fn aligned<B: Copy>(width: u32, arguments: &[Argument<B>]) -> u32 {
    let mut buffers = arguments.iter().flat_map(Argument::buffers);
    u32::from(width.is_multiple_of(4) && buffers.all(|it| it.bytes.start.is_multiple_of(16)))
}

/// Rows and width as kernel parameters; there is at most one block for each row.
pub(crate) fn row_sizes(
    check: Check,
    rows: usize,
    width: usize,
) -> Result<(u32, u32), KernelError> {
    Ok((check.at_most("rows", rows, MOST_BLOCKS)?, check.size("width", width)?))
}
