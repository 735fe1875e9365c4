//! Splits the rows of an f32 matrix into two parts of f16:
//! `x[i, j] · factors[j] = scales[i] · (high[i, j] + low[i, j])`, up to rounding.
//!
//! Grid: one block of 128 threads per row, which is read twice: first the threads find the largest
//! exponent of the row, then they split it, eight elements at a time.
//!
//! An infinity or NaN becomes NaN, and has no part in the scale of its row. Elements that are
//! subnormal, or whose product with the factor exceeds 2^141, are clamped in the range of f16.
//!
//! Deterministic: a maximum does not depend on the order, and one thread computes each element.

use retrograph_kernel_abi::gemm::{SPLIT, SPLIT_THREADS as THREADS, SplitParameters};
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::{Kernel, ModuleBuilder, Pred, Ptr, Value, Var};

use crate::primitives::f16;
use crate::primitives::parameters::Declarations;

/// Elements that a thread splits at a time.
const ELEMENTS: u32 = 8;
/// The biased exponent of 1.
const ONE: u32 = 127;
/// The biased exponent of 2^14, below which the largest element of a row is scaled.
const TOP: u32 = ONE + 14;
/// The largest f16.
const LARGEST: f32 = 65504.0;

/// Builds the image.
pub(crate) fn module(target: SmTarget) -> Module {
    ModuleBuilder::new(target).entry(Kernel::build(SPLIT.entry(), split)).build()
}

fn split<'k>(k: &Kernel<'k>) {
    let SplitParameters { x, factors, parts, scales, rows, columns } =
        SplitParameters::declare(&mut Declarations(*k));
    k.max_threads(THREADS);

    let row = k.ctaid_x();
    let x = x.at(row.mul_wide(columns));
    let high = Ptr::<u32>::from_address(parts.address() + (row.mul_wide(columns) << 1));
    let low = Ptr::<u32>::from_address(high.address() + (rows.mul_wide(columns) << 1));
    let inputs = Inputs { x, factors, has_factors: !factors.is_null() };

    let largest = k.var(0_u32);
    let (first, step) = (k.tid_x() * ELEMENTS, THREADS * ELEMENTS);
    k.range(first, columns, step, |column| {
        for (value, factor) in inputs.load(k, column) {
            largest.update(|largest| largest.max(exponent_sum(value.get(), factor.get())));
        }
    });
    let largest = k.block_max(largest.get().cast::<f32>()).cast::<u32>();
    // The scale and its reciprocal are normal numbers.
    let largest = largest.max(TOP + 1).min(TOP + 254);
    k.when(k.tid_x().eq(0), || scales.store(row, Value::<f32>::from_bits((largest - TOP) << 23)));

    k.range(first, columns, step, |column: Value<'k, u32>| {
        let halves: Vec<_> = inputs
            .load(k, column)
            .into_iter()
            .map(|(value, factor)| split_element(value.get(), factor.get(), largest))
            .collect();
        let words = |part: usize| {
            [0, 2, 4, 6].map(|at: usize| halves[at][part] | (halves[at + 1][part] << 16))
        };
        high.store_vec4(column >> 1, words(0));
        low.store_vec4(column >> 1, words(1));
    });
}

/// A row and the factors of its columns.
struct Inputs<'k> {
    x: Ptr<'k, f32>,
    factors: Ptr<'k, f32>,
    has_factors: Pred<'k>,
}

impl<'k> Inputs<'k> {
    /// Elements from `column` on, each with the bits of its factor.
    fn load(&self, k: &Kernel<'k>, column: Value<'k, u32>) -> Vec<(Var<'k, f32>, Var<'k, u32>)> {
        let vec4s = [column, column + 4];
        let values = vec4s.map(|at| self.x.load_vec4(at).map(|value| k.var(value)));
        let factors = [(); ELEMENTS as usize].map(|()| k.var(ONE << 23));
        k.when(self.has_factors, || {
            let loaded = vec4s.map(|at| self.factors.load_vec4(at).map(Value::<f32>::bits));
            factors.iter().zip(loaded.as_flattened()).for_each(|(to, &bits)| to.set(bits));
        });
        values.as_flattened().iter().copied().zip(factors).collect()
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
fn split_element<'k>(
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
