//! Rows that a block splits into hi and lo terms of f16, or into hi alone:
//! `x[j] · column_scales[j] = scale · (hi[j] + lo[j])`, up to rounding.
//!
//! The threads of a block find the largest exponent of a row ([`largest_exponent_sum`],
//! [`SplitRow::write_scale`]), then write the terms of their elements ([`SplitRow::write`]). The
//! terms do not depend on how the elements are divided among the threads.
//!
//! Infinity and NaN become NaN in both terms and do not affect the scale of their row. Subnormal
//! elements do not affect it either; they, and elements whose product with the column scale exceeds
//! 2^141, are clamped to the range of f16.

use retrograph_kernel_abi::F16;
use retrograph_kernel_abi::gemm::SPLIT_LOG2_MAX;
use retrograph_ptx::SmTarget;
use retrograph_ptx::build::{Kernel, Pred, Ptr, Value};

use super::f16;
use super::registers::{Registers, registers, set, values};
use super::row_registers::RowVec4;
use super::thread_group::ThreadGroup;
use super::vec4::F32x4;

/// The biased exponent of 1.
const ONE: u32 = 127;
/// The biased exponent of the largest element of a scaled row.
const TOP: u32 = ONE + SPLIT_LOG2_MAX;
/// The largest f16.
const LARGEST: f32 = 65504.0;

/// The outputs and the column scales of a row that is split.
#[derive(Clone, Copy)]
pub(crate) struct SplitRow<'k> {
    /// Powers of two by which the columns are multiplied before the split.
    column_scales: Option<ColumnScales<'k>>,
    /// Both terms, as words of two elements.
    hi: Ptr<'k, u32>,
    lo: Ptr<'k, u32>,
    /// Whether lo is written; always if `None`.
    writes_lo: Option<Pred<'k>>,
    scale: Ptr<'k, f32>,
}

/// Column scales, or a null array.
#[derive(Clone, Copy)]
pub(crate) struct ColumnScales<'k> {
    array: Ptr<'k, f32>,
    exist: Pred<'k>,
}

impl<'k> ColumnScales<'k> {
    pub(crate) fn new(array: Ptr<'k, f32>) -> Self {
        Self { array, exist: !array.is_null() }
    }
}

impl<'k> SplitRow<'k> {
    /// A row of a split matrix with two terms and no column scales.
    pub(crate) fn new(
        row: Value<'k, u32>,
        terms: Ptr<'k, F16>,
        scales: Ptr<'k, f32>,
        [rows, columns]: [Value<'k, u32>; 2],
    ) -> Self {
        let first = row.mul_wide(columns);
        let hi = Ptr::<u32>::from_address(terms.address() + (first << 1));
        let lo = Ptr::<u32>::from_address(hi.address() + (rows.mul_wide(columns) << 1));
        Self { column_scales: None, hi, lo, writes_lo: None, scale: scales.at(row) }
    }

    /// The row whose columns are multiplied by `column_scales` before the split.
    pub(crate) fn with_column_scales(self, column_scales: ColumnScales<'k>) -> Self {
        Self { column_scales: Some(column_scales), ..self }
    }

    /// The row whose lo is written only if `writes_lo` holds.
    pub(crate) fn with_lo_if(self, writes_lo: Pred<'k>) -> Self {
        Self { writes_lo: Some(writes_lo), ..self }
    }

    /// The bits of the scales of `N` columns from `column` on. `N` is a multiple of 4.
    pub(crate) fn column_scales<const N: usize>(
        &self,
        column: Value<'k, u32>,
    ) -> [Value<'k, u32>; N] {
        let k = column.kernel();
        let Some(ColumnScales { array, exist }) = self.column_scales else {
            return [k.constant(ONE << 23); N];
        };
        let scales: Registers<'k, N, u32> = registers(&k, ONE << 23);
        k.when(exist, || {
            let others = (4..N as u32).step_by(4).map(|first| column + first);
            let vec4s = std::iter::once(column).chain(others).flat_map(|at| array.load_vec4(at));
            set(&scales, vec4s.map(Value::<f32>::bits));
        });
        values(&scales)
    }

    /// The same for a vec4 of the row; 0 outside the row.
    pub(crate) fn column_scales_of(&self, row_vec4: &RowVec4<'k>) -> [Value<'k, u32>; 4] {
        let k = &row_vec4.first.kernel();
        let scales = registers(k, 0);
        k.when(row_vec4.inside, || set(&scales, self.column_scales::<4>(row_vec4.first)));
        values(&scales)
    }

    /// Splits a row in registers. Elements of the vec4s outside the row are 0 or NaN.
    pub(crate) fn write_vec4s(
        &self,
        k: &Kernel<'k>,
        target: SmTarget,
        vec4s: &[(RowVec4<'k>, F32x4<'k>)],
        column_scales: &[[Value<'k, u32>; 4]],
    ) {
        let largest = vec4s.iter().zip(column_scales).fold(k.constant(0), |largest, vec4| {
            let ((_, elements), column_scales) = vec4;
            largest_exponent_sum(*elements, *column_scales, largest)
        });
        let largest = self.write_scale(k, largest);
        for ((row_vec4, elements), column_scales) in vec4s.iter().zip(column_scales) {
            k.when(row_vec4.inside, || {
                self.write(target, row_vec4.first, *elements, *column_scales, largest);
            });
        }
    }

    /// Writes the scale of the row of this block. `largest` is the largest exponent sum of the
    /// elements of this thread. Returns the largest one of the row, clamped so that the scale is a
    /// normal number.
    pub(crate) fn write_scale(&self, k: &Kernel<'k>, largest: Value<'k, u32>) -> Value<'k, u32> {
        self.write_scale_by(k.tid_x(), k.block_max(largest.cast::<f32>()))
    }

    /// The same for the row of `group`.
    pub(crate) fn write_scale_of(
        &self,
        k: &Kernel<'k>,
        group: ThreadGroup,
        largest: Value<'k, u32>,
    ) -> Value<'k, u32> {
        self.write_scale_by(group.thread_rank(k), group.max(k, largest.cast::<f32>()))
    }

    /// The same from the largest exponent sum of the whole row.
    pub(crate) fn write_scale_by(
        &self,
        thread_rank: Value<'k, u32>,
        largest: Value<'k, f32>,
    ) -> Value<'k, u32> {
        let largest = largest.cast::<u32>().max(TOP + 1).min(TOP + 254);
        let scale = Value::<f32>::from_bits((largest - TOP) << 23);
        thread_rank.kernel().when(thread_rank.eq(0), || self.scale.store(0, scale));
        largest
    }

    /// Writes the terms of four or eight elements. `largest` is the result of
    /// [`SplitRow::write_scale`].
    pub(crate) fn write<const N: usize>(
        &self,
        target: SmTarget,
        column: Value<'k, u32>,
        elements: [Value<'k, f32>; N],
        column_scales: [Value<'k, u32>; N],
        largest: Value<'k, u32>,
    ) {
        let elements = elements.into_iter().zip(column_scales);
        let terms: Vec<_> = elements.map(|(value, scale)| split(value, scale, largest)).collect();
        let store = |term: usize, to: Ptr<'k, u32>| {
            let word = |at: usize| f16::pack(target, [terms[at][term], terms[at + 1][term]]);
            match N {
                4 => to.store_vec2(column >> 1, [0, 2].map(word)),
                8 => to.store_vec4(column >> 1, [0, 2, 4, 6].map(word)),
                _ => unreachable!("a thread splits four or eight elements, not {N}"),
            }
        };
        store(0, self.hi);
        match self.writes_lo {
            None => store(1, self.lo),
            Some(writes_lo) => column.kernel().when(writes_lo, || store(1, self.lo)),
        }
    }
}

/// The maximum of `largest` and the exponent sums of elements and their column scales.
pub(crate) fn largest_exponent_sum<'k, const N: usize>(
    elements: [Value<'k, f32>; N],
    column_scales: [Value<'k, u32>; N],
    largest: Value<'k, u32>,
) -> Value<'k, u32> {
    let sums = elements.into_iter().zip(column_scales);
    sums.map(|(value, column_scale)| exponent_sum(value, column_scale))
        .fold(largest, |largest, sum| largest.max(sum))
}

/// The sum of the biased exponents of an element and its column scale; 0 for 0, infinities and NaN.
fn exponent_sum<'k>(value: Value<'k, f32>, column_scale: Value<'k, u32>) -> Value<'k, u32> {
    let exponent = exponent(value.bits());
    let counts = exponent.gt(0) & exponent.lt(255);
    counts.select(exponent + self::exponent(column_scale), 0)
}

/// The biased exponent of a float with these bits.
fn exponent(bits: Value<'_, u32>) -> Value<'_, u32> {
    (bits >> 23) & 255
}

/// Both terms of an element before their rounding to f16. `largest` is the largest exponent sum of
/// its row.
fn split<'k>(
    value: Value<'k, f32>,
    column_scale: Value<'k, u32>,
    largest: Value<'k, u32>,
) -> [Value<'k, f32>; 2] {
    // The column scale divided by the scale of the row, whose reciprocal alone may be out of range.
    let shifted = (exponent(column_scale) + (TOP + ONE)).max(largest + 1) - largest;
    let scaled = value * Value::<f32>::from_bits(shifted.min(254) << 23);
    let finite = exponent(value.bits()).lt(255);
    let scaled = finite.select(scaled.max(-LARGEST).min(LARGEST), f32::NAN);
    [scaled, scaled - f16::round(scaled)]
}
