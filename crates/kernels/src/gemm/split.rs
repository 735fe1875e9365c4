//! f32 matrices split into hi and lo terms of f16, whose products have f32 accuracy.

use half::f16;
use half::slice::HalfFloatSliceExt;
use retrograph_kernel_abi::gemm::{self as abi, SPLIT_LOG2_MAX, SPLIT_MAX_TERMS, SplitEntries};

use crate::checks::Check;
use crate::geometry::{MAX_GRID_X, linear};
use crate::launch::{ArgumentTypes, Pointer};
use crate::problem::RowsProblem;
use crate::{Dispatch, Element, Kernel, KernelError, Launch, Problem, View};
use thiserror::Error;

/// Kernel of [`Split`].
pub static SPLIT: Kernel =
    Kernel::new("split_f16", &abi::SPLIT, |problem, _| dispatch(&abi::SPLIT_ENTRIES, problem));

/// Selects the entry with the fewest elements per thread that keeps a row in registers.
pub(super) fn dispatch(entries: &SplitEntries, problem: &Problem) -> Option<Dispatch> {
    let RowsProblem { rows, width, .. } = problem.rows()?;
    let threads = |groups: u32| width.div_ceil(8 * groups).next_multiple_of(32).max(32);
    let fits = |(groups, _): &&(u32, &str)| threads(*groups) <= SplitEntries::MAX_THREADS;
    let (entry, threads) = match entries.in_registers.iter().find(fits) {
        Some(&(groups, entry)) => (entry, threads(groups)),
        None => (entries.any_width, SplitEntries::MAX_THREADS),
    };
    Some(linear(entry, rows, threads))
}

/// A row-major matrix split into two terms of f16, hi and lo: row i is
/// `scales[i] · (terms[0][i] + terms[1][i])`.
///
/// A split matrix has the size of the f32 matrix. The error of an element is at most 2⁻²³ of it or
/// 2⁻³⁹ of the largest element of its row, whichever is larger. Tensor cores multiply f16 at twice
/// the rate of tf32.
///
/// If an element is exactly representable in bf16 or f16, its lo term is 0 or below the second
/// bound. The lo plane of such a matrix can be omitted, which saves half of the bytes and a third
/// of the multiplications.
///
/// Source: Ootomo and Yokota, arXiv 2203.03341.
#[derive(Clone, Copy, Debug)]
pub struct SplitMatrix<B> {
    /// `[term_count, rows, columns]`: the hi terms, then the lo terms.
    pub terms: View<B, f16>,
    /// Number of terms: [`SplitMatrix::MAX_TERMS`], or 1 if the lo terms are 0.
    pub term_count: usize,
    /// `[rows]`: powers of two.
    pub scales: View<B, f32>,
}

impl<B: Copy> SplitMatrix<B> {
    /// The maximum number of terms.
    pub const MAX_TERMS: usize = SPLIT_MAX_TERMS as usize;

    /// Number of elements of the matrix.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.terms.len() / self.term_count.max(1)
    }

    /// Checks the number of terms and the lengths of terms and scales, which have these names.
    pub(crate) fn check(
        &self,
        check: Check,
        [terms, scales]: [&'static str; 2],
        [rows, columns]: [usize; 2],
    ) -> Result<(), KernelError> {
        let rule = "a split matrix must have one term or two";
        let holds = (1..=Self::MAX_TERMS).contains(&self.term_count);
        check.rule(holds, rule, self.term_count)?;
        let elements =
            check.product("terms × rows × columns", &[self.term_count, rows, columns])?;
        check.length(terms, self.terms, elements)?;
        check.length(scales, self.scales, rows)
    }
}

/// An element that needs a lo term.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[error(
    "element {index} is {value}, which one f16 term cannot represent with the scale of its row; \
     split the matrix into two terms"
)]
pub struct NotInF16 {
    /// Index of the element.
    pub index: usize,
    /// The element.
    pub value: f32,
}

/// Splits rows of `columns` values on the host, with the bits of [`Split`], and returns their
/// scales. Writes the hi terms to `terms`, followed by the lo terms if `terms` is twice as long as
/// `values`.
///
/// # Errors
/// If there is no room for lo terms and an element needs one: hi is off by more than 2⁻³⁹ of the
/// largest element of the row.
///
/// # Panics
/// If `terms` is neither as long as `values` nor twice as long, or `columns` is 0.
pub fn split_rows(values: &[f32], columns: usize, terms: &mut [f16]) -> Result<Vec<f32>, NotInF16> {
    let (hi, lo) = terms.split_at_mut(values.len());
    assert!([0, values.len()].contains(&lo.len()), "one term or two per value");
    let mut lo = lo.chunks_mut(columns);
    let exponent = |value: f32| (value.to_bits() >> 23) & 255;
    let (mut scaled, mut rounded) = (vec![0.0; columns], vec![0.0; columns]);
    let mut scales = Vec::with_capacity(values.len() / columns);
    for (row, hi) in (0..).zip(hi.chunks_mut(columns)) {
        let values = &values[row * columns..][..hi.len()];
        let largest = values.iter().map(|value| exponent(*value)).filter(|found| *found < 255);
        // The biased exponent of the scale, which must be a normal number.
        let shift = largest.max().unwrap_or(0).clamp(SPLIT_LOG2_MAX + 1, 254) - SPLIT_LOG2_MAX;
        let factor = f32::from_bits((254 - shift).max(1) << 23);
        for (scaled, value) in scaled.iter_mut().zip(values) {
            *scaled = if value.is_finite() { value * factor } else { NAN };
        }
        hi.convert_from_f32_slice(&scaled[..hi.len()]);
        hi.convert_to_f32_slice(&mut rounded[..hi.len()]);
        // Like the kernel, turns a rounded −0 into +0 before the subtraction.
        scaled.iter_mut().zip(&rounded).for_each(|(scaled, rounded)| *scaled -= rounded + 0.0);
        let rest = &scaled[..hi.len()];
        if let Some(lo) = lo.next() {
            lo.convert_from_f32_slice(rest);
        } else if let Some(column) = rest.iter().position(|rest| rest.abs() > SMALLEST_TERM) {
            return Err(NotInF16 { index: row * columns + column, value: values[column] });
        }
        scales.push(f32::from_bits(shift << 23));
    }
    Ok(scales)
}

/// Converts to the NaN that the kernel writes in f16.
const NAN: f32 = f32::from_bits(0x7fff_ffff);

/// Half of the smallest f16: 2⁻²⁵.
const SMALLEST_TERM: f32 = f32::from_bits((127 - 25) << 23);

/// The sizes of matrices whose rows a kernel splits.
#[derive(Clone, Copy)]
pub(crate) struct SplitSizes {
    pub(crate) check: Check,
    rows: usize,
    columns: usize,
    elements: usize,
}

impl SplitSizes {
    pub(crate) fn new(kernel: &Kernel, [rows, columns]: [usize; 2]) -> Result<Self, KernelError> {
        let check = Check(kernel.name);
        let elements = check.product("rows × columns", &[rows, columns])?;
        let rule = "rows of a split matrix must have a multiple of 8 elements";
        check.rule(columns.is_multiple_of(8), rule, columns)?;
        Ok(Self { check, rows, columns, elements })
    }

    /// Checks the lengths and the alignment of the given f32 matrices.
    pub(crate) fn require<B: Copy>(
        &self,
        matrices: &[(&'static str, Option<View<B, f32>>)],
    ) -> Result<(), KernelError> {
        for &(name, view) in matrices {
            let Some(view) = view else { continue };
            self.check.length(name, view, self.elements)?;
            self.require_aligned(view)?;
        }
        Ok(())
    }

    /// Checks column scales, or gains: one number per column.
    pub(crate) fn require_columns<B: Copy>(
        &self,
        name: &'static str,
        values: Option<View<B, f32>>,
    ) -> Result<(), KernelError> {
        let Some(values) = values else { return Ok(()) };
        self.check.length(name, values, self.columns)?;
        self.require_aligned(values)
    }

    /// Checks a split matrix with two terms; `names` are the names of its terms and scales.
    pub(crate) fn require_terms<B: Copy>(
        &self,
        split: SplitMatrix<B>,
        names: [&'static str; 2],
    ) -> Result<(), KernelError> {
        split.check(self.check, names, [self.rows, self.columns])?;
        let (count, both) = (split.term_count, SplitMatrix::<B>::MAX_TERMS);
        let rule = "an activation must be split into two terms";
        self.check.rule(count == both, rule, count)?;
        self.require_aligned(split.terms)
    }

    /// Checks the alignment that vectors need.
    pub(crate) fn require_aligned<B: Copy, T: Element>(
        &self,
        view: View<B, T>,
    ) -> Result<(), KernelError> {
        let rule = "matrices, column scales and terms must start at multiples of 16 bytes";
        self.check.rule(view.is_aligned(16), rule, view.byte_range().start)
    }

    /// The problem, and rows and columns as kernel parameters.
    pub(crate) fn problem(&self) -> Result<(Problem, [u32; 2]), KernelError> {
        let rows = self.check.at_most("the number of rows", self.rows, MAX_GRID_X)?;
        let width = self.check.size("the number of columns", self.columns)?;
        Ok((Problem::Rows(RowsProblem { rows, width, vectorized: true }), [rows, width]))
    }
}

/// Splits the rows of `x`. With `column_scales`, column j is first multiplied by
/// `column_scales[j]`.
///
/// The input gradient `dy·w` contracts over the rows of w, so dy is split with the scales of w as
/// column scales. Infinity and NaN become NaN, which reaches exactly the results that depend on
/// it. Rows whose elements are all below 2⁻¹¹² lose accuracy. If `out` has one term, lo is dropped.
#[derive(Clone, Copy, Debug)]
pub struct Split<B> {
    /// `[rows, columns]`, read.
    pub x: View<B, f32>,
    /// `[columns]`, read: the column scales, powers of two.
    pub column_scales: Option<View<B, f32>>,
    /// Terms and scales, written.
    pub out: SplitMatrix<B>,
    /// Number of rows.
    pub rows: usize,
    /// Elements of a row, a multiple of 8.
    pub columns: usize,
}

impl<B: Copy> Split<B> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If a length does not match, the row length is not a multiple of 8, or x, column scales or
    /// terms are not aligned to 16 bytes.
    pub fn launch(&self) -> Result<Launch<B>, KernelError> {
        let Self { x, column_scales, out, rows, columns } = *self;
        let sizes = SplitSizes::new(&SPLIT, [rows, columns])?;
        sizes.require(&[("x", Some(x))])?;
        sizes.require_columns("column_scales", column_scales)?;
        out.check(sizes.check, ["the terms of out", "the scales of out"], [rows, columns])?;
        sizes.require_aligned(out.terms)?;
        let (problem, [rows, columns]) = sizes.problem()?;
        let parameters = abi::SplitParameters::<ArgumentTypes<B>> {
            x: Pointer::read(x),
            column_scales: Pointer::read_optional(column_scales),
            terms: Pointer::write(out.terms),
            scales: Pointer::write(out.scales),
            rows,
            columns,
            term_count: out.term_count as u32,
        };
        let arguments = parameters.into_arguments();
        Ok(Launch { kernel: &SPLIT, problem, arguments })
    }
}
