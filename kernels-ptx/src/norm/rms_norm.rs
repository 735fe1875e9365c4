//! RMSNorm, optionally fused with the preceding residual addition.
//!
//! ```text
//! x    = x + residual, also written to sum    if a residual is given
//! rstd = 1 / sqrt(mean(x²) + eps)
//! y    = x · rstd · gamma
//! ```
//!
//! `split_f16_rms_norm` also splits the rows of y into terms of f16, or writes only the terms.
//!
//! Grid: one block per row. Entries `…_1`, `…_2` and `…_4` keep the row in registers, that many
//! vec4s per thread. The others handle rows of any width, `rms_norm` also of any alignment. They
//! read a row twice, or three times if they split it. All add in the same order and give the same
//! bits.
//!
//! Deterministic: each thread adds its squares in order, and a block reduction of fixed shape adds
//! the threads.
//!
//! Range: if the sum of squares exceeds 2^100, or is below 2^-80 and eps is negligible, it is
//! computed again with x scaled by 2^∓64. Inputs from 1e-30 to 1e30 keep full accuracy. The branch
//! is uniform, because all threads of the block have the sum.

use retrograph_kernel_abi::norm::{
    MAX_THREADS, RMS_NORM_ANY_WIDTH, RMS_NORM_IN_REGISTERS, RmsNormParameters,
    SPLIT_RMS_NORM_ANY_WIDTH, SPLIT_RMS_NORM_IN_REGISTERS, SplitRmsNormParameters,
};
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::{Kernel, ModuleBuilder, Pred, Ptr, Value, Var};

use crate::primitives::input::Input;
use crate::primitives::output::Output;
use crate::primitives::parameters::Declarations;
use crate::primitives::pdl;
use crate::primitives::registers::{registers, values};
use crate::primitives::row_registers::row_vec4s;
use crate::primitives::split_row::{SplitRow, largest_exponent_sum};
use crate::primitives::vec4::{F32x4, Vec4, aligned, for_each_vec4};

/// 2^64, the scale for rows whose squares would leave the range of f32.
const SCALE: f32 = 18_446_744_073_709_551_616.0;

/// Builds the image.
pub(crate) fn module(target: SmTarget) -> Module {
    build(target, RMS_NORM_ANY_WIDTH, RMS_NORM_IN_REGISTERS, |k| {
        let row = row(k);
        start(k, target);
        row
    })
}

/// Builds the image that splits the results.
pub(crate) fn split(target: SmTarget) -> Module {
    let in_registers = SPLIT_RMS_NORM_IN_REGISTERS;
    build(target, SPLIT_RMS_NORM_ANY_WIDTH, in_registers, row_to_split)
}

/// Builds an image. `declare` declares the parameters and describes the row.
fn build(
    target: SmTarget,
    any_width: &str,
    in_registers: &[(u32, &str)],
    declare: impl for<'k> Fn(&Kernel<'k>) -> Row<'k>,
) -> Module {
    let any_width = Kernel::build(any_width, |k| self::any_width(k, target, declare(k)));
    let entry = |&(vec4s, name): &(u32, &str)| {
        Kernel::build(name, |k| self::in_registers(k, target, declare(k), vec4s))
    };
    let module = ModuleBuilder::new(target).entry(any_width);
    in_registers.iter().map(entry).fold(module, ModuleBuilder::entry).build()
}

/// Maximum blocks for an early start of the next launch. In a decode step it prefetches its weights
/// meanwhile. In a training step it would only occupy the SMs.
const DECODE_BLOCKS: u32 = 8;

/// Lets the next launch start in a decode step, and waits for the previous one.
fn start(k: &Kernel<'_>, target: SmTarget) {
    k.when(k.nctaid_x().le(DECODE_BLOCKS), || pdl::launch_dependents(k, target));
    pdl::wait(k, target);
}

/// The operands of one row.
#[derive(Clone, Copy)]
struct Row<'k> {
    x: Ptr<'k, f32>,
    /// Added to x if `adds` holds; `sum` receives the result.
    residual: Input<'k>,
    sum: Ptr<'k, f32>,
    adds: Pred<'k>,
    gamma: Ptr<'k, f32>,
    y: Output<'k>,
    /// The terms of y, if it is split.
    split: Option<SplitRow<'k>>,
    rstd: Ptr<'k, f32>,
    width: Value<'k, u32>,
    eps: Value<'k, f32>,
}

impl<'k> Row<'k> {
    /// x plus the residual, if there is one.
    fn input(&self, vec4: Vec4<'k>) -> F32x4<'k> {
        let k = self.adds.kernel();
        let registers = vec4.load(self.x).map(|x| k.var(x));
        k.when(self.adds, || {
            registers.iter().zip(vec4.read(self.residual)).for_each(|(slot, a)| slot.add_assign(a));
        });
        values(&registers)
    }
}

/// Declares the parameters of `rms_norm` and selects the row of this block.
fn row<'k>(k: &Kernel<'k>) -> Row<'k> {
    let parameters = RmsNormParameters::declare(&mut Declarations(*k));
    let RmsNormParameters { x, residual, residual_bf16, sum, gamma, .. } = parameters;
    let RmsNormParameters { y, y_bf16, rstd, width, eps, .. } = parameters;
    let residual = Input::new(residual, residual_bf16);
    let (y, rstd) = (Output::new(y, y_bf16), rstd.at(k.ctaid_x()));
    k.max_threads(MAX_THREADS);
    let (adds, start) = (residual.is_given(), k.ctaid_x().mul_wide(width));
    let (x, residual, sum) = (x.at(start), residual.at(start), sum.at(start));
    Row { x, residual, sum, adds, gamma, y: y.at(start), split: None, rstd, width, eps }
}

/// Declares the parameters of `split_f16_rms_norm` and selects the row of this block.
fn row_to_split<'k>(k: &Kernel<'k>) -> Row<'k> {
    let parameters = SplitRmsNormParameters::declare(&mut Declarations(*k));
    let SplitRmsNormParameters { x, residual, sum, gamma, y, .. } = parameters;
    let SplitRmsNormParameters { terms, scales, rstd, rows, width, eps, .. } = parameters;
    k.max_threads(MAX_THREADS);
    let split = SplitRow::new(k.ctaid_x(), terms, scales, [rows, width]);
    let (residual, y) = (Input::f32(residual), Output::f32(y));
    let (adds, start) = (residual.is_given(), k.ctaid_x().mul_wide(width));
    let (x, residual, sum) = (x.at(start), residual.at(start), sum.at(start));
    let (y, split, rstd) = (y.at(start), Some(split), rstd.at(k.ctaid_x()));
    Row { x, residual, sum, adds, gamma, y, split, rstd, width, eps }
}

/// A row of any width and alignment, read twice, or three times if it is split.
fn any_width<'k>(k: &Kernel<'k>, target: SmTarget, row: Row<'k>) {
    let Row { x, residual, sum, gamma, y, width, .. } = row;
    let [unscaled, rounded] = y.arrays();
    // Without a residual, the addresses of residual and sum do not matter.
    let [in_f32, in_bf16] = residual.arrays().map(Ptr::address);
    let residual_arrays = row.adds.select(in_f32 | in_bf16 | sum.address(), 0);
    let aligned = aligned(&[x, unscaled, rounded, gamma, Ptr::from_address(residual_arrays)]);
    let rstd = scaled_rstd(*k, width, row.eps, |scale| {
        let sum = k.var(0.0);
        for_each_vec4(k, width, aligned, |vec4| add_squares(sum, row.input(vec4), scale));
        k.block_sum(sum.get())
    });
    k.when(k.tid_x().eq(0), || row.rstd.store(0, rstd));
    let split = row.split.map(|split| {
        let largest = k.var(0);
        for_each_vec4(k, width, aligned, |vec4| {
            let y = normed(row.input(vec4), rstd, vec4.load(gamma));
            let column_scales = split.column_scales(vec4.first());
            largest.update(|largest| largest_exponent_sum(y, column_scales, largest));
        });
        (split, split.write_scale(k, largest.get()))
    });
    for_each_vec4(k, width, aligned, |vec4| {
        let (x, gamma) = (row.input(vec4), vec4.load(gamma));
        k.when(row.adds, || vec4.store(sum, x));
        let results = normed(x, rstd, gamma);
        vec4.write(target, y, results);
        if let Some((split, largest)) = split {
            let first = vec4.first();
            split.write(target, first, results, split.column_scales(first), largest);
        }
    });
}

/// A row in registers: aligned, and `vec4s` whole vec4s per thread.
fn in_registers<'k>(k: &Kernel<'k>, target: SmTarget, row: Row<'k>, vec4s: u32) {
    let row_vec4s = row_vec4s(k, row.width, vec4s);
    let in_registers: Vec<_> = row_vec4s.iter().map(|_| registers(k, 0.0)).collect();
    for (row_vec4, registers) in row_vec4s.iter().zip(&in_registers) {
        k.when(row_vec4.inside, || row_vec4.fetch(row.x, registers));
    }
    k.when(row.adds, || {
        let residuals: Vec<_> =
            row_vec4s.iter().map(|row_vec4| row_vec4.read(row.residual)).collect();
        let pairs = in_registers.iter().flatten().zip(residuals.into_iter().flatten());
        pairs.for_each(|(slot, residual)| slot.add_assign(residual));
    });
    // The loads of gamma overlap the sum of squares.
    let gammas: Vec<_> = row_vec4s.iter().map(|row_vec4| row_vec4.load(row.gamma)).collect();
    let rstd = scaled_rstd(*k, row.width, row.eps, |scale| {
        let sum = k.var(0.0);
        in_registers.iter().for_each(|registers| add_squares(sum, values(registers), scale));
        k.block_sum(sum.get())
    });
    k.when(k.tid_x().eq(0), || row.rstd.store(0, rstd));
    let results = row_vec4s.into_iter().zip(&in_registers).zip(gammas);
    let results = results.map(|((row_vec4, registers), gamma)| {
        let x = values(registers);
        k.when(row.adds, || row_vec4.store(row.sum, x));
        let y = normed(x, rstd, gamma);
        row_vec4.write(target, row.y, y);
        (row_vec4, y)
    });
    let results: Vec<_> = results.collect();
    if let Some(split) = row.split {
        let column_scales = vec![split.column_scales(k.constant(0)); results.len()];
        split.write_vec4s(k, target, &results, &column_scales);
    }
}

/// Adds `(x · scale)²` of a vec4, in order.
fn add_squares<'k>(sum: Var<'k, f32>, vec4: F32x4<'k>, scale: Value<'k, f32>) {
    for x in vec4 {
        let x = x * scale;
        sum.update(|sum| x.fma(x, sum));
    }
}

/// `x · rstd · gamma` of a vec4.
fn normed<'k>(x: F32x4<'k>, rstd: Value<'k, f32>, gamma: F32x4<'k>) -> F32x4<'k> {
    [0, 1, 2, 3].map(|i| x[i] * rstd * gamma[i])
}

/// `1 / sqrt(mean(x²) + eps)` of `width` elements, rescaled if their squares leave the range of
/// f32.
///
/// `squares(scale)` returns `Σ (x · scale)²`. All threads that share a reduction must get the same
/// sum.
pub(crate) fn scaled_rstd<'k>(
    k: Kernel<'k>,
    width: Value<'k, u32>,
    eps: Value<'k, f32>,
    squares: impl Fn(Value<'k, f32>) -> Value<'k, f32>,
) -> Value<'k, f32> {
    let unscaled = k.constant(1.0);
    let sum = squares(unscaled);
    let rstd = k.var(rstd(width, sum, unscaled, eps));
    let large = sum.gt(SCALE * 68_719_476_736.0);
    let small = sum.lt(1.0 / (SCALE * 65_536.0)) & eps.lt(16.0 / SCALE);
    k.when(large | small, || {
        let scale = large.select(1.0 / SCALE, SCALE);
        let sum = squares(scale);
        rstd.set(self::rstd(width, sum, scale, eps));
    });
    rstd.get()
}

/// `1 / sqrt(mean(x²) + eps)` from the sum of the squares of `x · scale`.
fn rstd<'k>(
    width: Value<'k, u32>,
    sum: Value<'k, f32>,
    scale: Value<'k, f32>,
    eps: Value<'k, f32>,
) -> Value<'k, f32> {
    let mean = sum / width.cast::<f32>();
    // `scale²` alone may overflow; `eps · scale · scale` does not.
    (mean + eps * scale * scale).sqrt().rcp() * scale
}
