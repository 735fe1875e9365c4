//! Splits the rows of an f32 matrix into two parts of f16, or into the first one alone:
//! `x[i, j] · factors[j] = scales[i] · (high[i, j] + low[i, j])`, up to rounding.
//!
//! Grid: one block per row. The threads find the largest exponent of the row, and then split it,
//! eight elements at a time. Entries `split_f16_1`, `_2` and `_4` keep that many groups of eight
//! elements per thread in registers; `split_f16` reads a row twice.
//!
//! An infinity or NaN becomes NaN, and has no part in the scale of its row. Elements that are
//! subnormal, or whose product with the factor exceeds 2^141, are clamped in the range of f16.
//!
//! Deterministic: a maximum does not depend on the order, and one thread computes each element.

use retrograph_kernel_abi::gemm::{
    SPLIT_ANY_WIDTH, SPLIT_IN_REGISTERS, SPLIT_MAX_THREADS, SplitParameters,
};
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::{Kernel, ModuleBuilder, Pred, Ptr, Value};

use crate::primitives::f16;
use crate::primitives::parameters::Declarations;
use crate::primitives::registers::{Registers, registers, set};

/// Elements of a group, which one thread splits.
const GROUP: u32 = 8;
/// The biased exponent of 1.
const ONE: u32 = 127;
/// The biased exponent of 2^14, below which the largest element of a row is scaled.
const TOP: u32 = ONE + 14;
/// The largest f16.
const LARGEST: f32 = 65504.0;

/// Builds the image.
pub(crate) fn module(target: SmTarget) -> Module {
    let any_width = Kernel::build(SPLIT_ANY_WIDTH, |k| any_width(k, &Row::declare(k)));
    SPLIT_IN_REGISTERS
        .into_iter()
        .fold(ModuleBuilder::new(target).entry(any_width), |module, (groups, name)| {
            let entry = Kernel::build(name, |k| in_registers(k, &Row::declare(k), groups));
            module.entry(entry)
        })
        .build()
}

/// The operands of one row.
struct Row<'k> {
    x: Ptr<'k, f32>,
    /// The factors of the columns, or null.
    factors: Ptr<'k, f32>,
    has_factors: Pred<'k>,
    /// Both parts, as words of two elements.
    high: Ptr<'k, u32>,
    low: Ptr<'k, u32>,
    writes_low: Pred<'k>,
    scale: Ptr<'k, f32>,
    columns: Value<'k, u32>,
}

/// The elements of a group.
type Group<'k> = Registers<'k, { GROUP as usize }>;

impl<'k> Row<'k> {
    /// Declares the parameters and selects the row of this block.
    fn declare(k: &Kernel<'k>) -> Self {
        let SplitParameters { x, factors, parts, scales, rows, columns, count } =
            SplitParameters::declare(&mut Declarations(*k));
        k.max_threads(SPLIT_MAX_THREADS);
        let first = k.ctaid_x().mul_wide(columns);
        let high = Ptr::<u32>::from_address(parts.address() + (first << 1));
        let low = Ptr::<u32>::from_address(high.address() + (rows.mul_wide(columns) << 1));
        let (x, scale) = (x.at(first), scales.at(k.ctaid_x()));
        let (has_factors, writes_low) = (!factors.is_null(), count.gt(1));
        Self { x, factors, has_factors, high, low, writes_low, scale, columns }
    }

    /// Loads the elements from `column` on.
    fn fetch(&self, column: Value<'k, u32>, group: &Group<'k>) {
        let vec4s = [column, column + 4].map(|at| self.x.load_vec4(at));
        set(group, vec4s.into_iter().flatten());
    }

    /// The bits of the factors from `column` on.
    fn factors(&self, column: Value<'k, u32>) -> Vec<Value<'k, u32>> {
        let k = column.kernel();
        let factors = [(); GROUP as usize].map(|()| k.var(ONE << 23));
        k.when(self.has_factors, || {
            let vec4s = [column, column + 4].map(|at| self.factors.load_vec4(at));
            set(&factors, vec4s.into_iter().flatten().map(Value::<f32>::bits));
        });
        factors.map(|factor| factor.get()).to_vec()
    }

    /// The larger one of `largest` and the sums of exponents of a group.
    fn largest(
        &self,
        (column, group): (Value<'k, u32>, &Group<'k>),
        largest: Value<'k, u32>,
    ) -> Value<'k, u32> {
        let sums = group.iter().zip(self.factors(column));
        sums.map(|(value, factor)| exponent_sum(value.get(), factor))
            .fold(largest, |largest, sum| largest.max(sum))
    }

    /// Writes the scale, and returns the largest sum of exponents of the row, in the range in which
    /// the scale and its reciprocal are normal numbers.
    fn write_scale(&self, k: &Kernel<'k>, largest: Value<'k, u32>) -> Value<'k, u32> {
        let largest = k.block_max(largest.cast::<f32>()).cast::<u32>();
        let largest = largest.max(TOP + 1).min(TOP + 254);
        let scale = Value::<f32>::from_bits((largest - TOP) << 23);
        k.when(k.tid_x().eq(0), || self.scale.store(0, scale));
        largest
    }

    /// Writes the parts of a group.
    fn write(&self, (column, group): (Value<'k, u32>, &Group<'k>), largest: Value<'k, u32>) {
        let elements = group.iter().zip(self.factors(column));
        let parts: Vec<_> =
            elements.map(|(value, factor)| split(value.get(), factor, largest)).collect();
        let store = |part: usize, to: Ptr<'k, u32>| {
            let word = |at: usize| parts[at][part] | (parts[at + 1][part] << 16);
            to.store_vec4(column >> 1, [0, 2, 4, 6].map(word));
        };
        store(0, self.high);
        column.kernel().when(self.writes_low, || store(1, self.low));
    }
}

/// A row of any width, read twice.
fn any_width<'k>(k: &Kernel<'k>, row: &Row<'k>) {
    let (first, step) = (k.tid_x() * GROUP, k.ntid_x() * GROUP);
    let (largest, group) = (k.var(0_u32), registers(k, 0.0));
    k.range(first, row.columns, step, |column| {
        row.fetch(column, &group);
        largest.update(|largest| row.largest((column, &group), largest));
    });
    let largest = row.write_scale(k, largest.get());
    k.range(first, row.columns, step, |column| {
        row.fetch(column, &group);
        row.write((column, &group), largest);
    });
}

/// A row of which each thread has `groups` groups.
fn in_registers<'k>(k: &Kernel<'k>, row: &Row<'k>, groups: u32) {
    let groups: Vec<(Value<'k, u32>, Group<'k>)> = (0..groups)
        .map(|number| ((k.tid_x() + k.ntid_x() * number) * GROUP, registers(k, 0.0)))
        .collect();
    let inside = |column: Value<'k, u32>| column.lt(row.columns);
    for &(column, ref group) in &groups {
        k.when(inside(column), || row.fetch(column, group));
    }
    let largest = k.var(0_u32);
    for &(column, ref group) in &groups {
        k.when(inside(column), || largest.update(|largest| row.largest((column, group), largest)));
    }
    let largest = row.write_scale(k, largest.get());
    for &(column, ref group) in &groups {
        k.when(inside(column), || row.write((column, group), largest));
    }
}

/// The sum of the biased exponents of an element and its factor; 0 for 0, infinities and NaN.
fn exponent_sum<'k>(value: Value<'k, f32>, factor: Value<'k, u32>) -> Value<'k, u32> {
    let exponent = exponent(value.bits());
    let counts = exponent.gt(0) & exponent.lt(255);
    counts.select(exponent + self::exponent(factor), 0)
}

/// The biased exponent of a float with these bits.
fn exponent(bits: Value<'_, u32>) -> Value<'_, u32> {
    (bits >> 23) & 255
}

/// The bits of both parts of an element. `largest` is the largest sum of exponents of its row.
fn split<'k>(
    value: Value<'k, f32>,
    factor: Value<'k, u32>,
    largest: Value<'k, u32>,
) -> [Value<'k, u32>; 2] {
    // The factor divided by the scale, which alone may be out of range.
    let shifted = (exponent(factor) + (TOP + ONE)).max(largest + 1) - largest;
    let scaled = value * Value::<f32>::from_bits(shifted.min(254) << 23);
    let scaled = scaled.max(-LARGEST).min(LARGEST);
    let high = f16::round(scaled);
    let low = f16::round(scaled - high);
    let finite = exponent(value.bits()).lt(255);
    [finite.select(f16::bits(high), f16::NAN), finite.select(f16::bits(low), 0)]
}
