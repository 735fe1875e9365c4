//! RMSNorm: `y = x · rstd · gamma` with `rstd = 1 / sqrt(mean(x²) + eps)` for each row.
//!
//! Grid: one block for each row; quads of the row go round its threads.
//!
//! Deterministic: each thread adds its squares in order, and the block adds those sums in a fixed
//! order. Range: a sum of squares above 2^100 or, where eps is negligible, below 2^-80 is taken
//! again with x scaled by 2^∓64, so that |x| from 1e-30 to 1e30 gives full accuracy. The whole
//! block takes that branch or none of it does, since all of it knows the sum.

use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::{Kernel, ModuleBuilder, Pred, Ptr, Value};

use crate::quad::{Written, aligned, block_quads};

/// 2^64, by which rows are scaled whose squares leave the range.
const SCALE: f32 = 18_446_744_073_709_551_616.0;

/// The image for `target`.
pub(crate) fn module(target: SmTarget) -> Module {
    ModuleBuilder::new(target).entry(Kernel::build("rms_norm", |k| rms_norm(k, target))).build()
}

/// A row of the input.
#[derive(Clone, Copy)]
struct Row<'k> {
    x: Ptr<'k, f32>,
    width: Value<'k, u32>,
    aligned: Pred<'k>,
}

fn rms_norm(k: &Kernel<'_>, target: SmTarget) {
    let x = k.pointer::<f32>("x");
    let gamma = k.pointer::<f32>("gamma");
    let y = Written::declare(k, "y");
    let rstds = k.pointer::<f32>("rstd");
    let width = k.param::<u32>("width");
    let eps = k.param::<f32>("eps");

    let row = k.ctaid_x();
    let start = row.mul_wide(width);
    let (x, y) = (x.at(start), y.at(start));
    let [plain, rounded] = y.arrays();
    let input = Row { x, width, aligned: aligned(&[x, plain, rounded, gamma]) };
    let rstd = scaled_rstd(*k, (width, eps), |scale| sum_of_squares(k, input, scale));
    k.when(k.tid_x().eq(0), || rstds.store(row, rstd));
    block_quads(k, width, input.aligned, |quad| {
        let (x, gamma) = (quad.load(x), quad.load(gamma));
        quad.write(target, y, [0, 1, 2, 3].map(|i| x[i] * rstd * gamma[i]));
    });
}

/// `1 / sqrt(mean(x²) + eps)` of `width` elements, scaled where their squares leave the range.
/// `squares` gives `Σ (x · scale)²` to every thread that asks, the same to all who sum together.
pub(crate) fn scaled_rstd<'k>(
    k: Kernel<'k>,
    (width, eps): (Value<'k, u32>, Value<'k, f32>),
    squares: impl Fn(Value<'k, f32>) -> Value<'k, f32>,
) -> Value<'k, f32> {
    let plain = k.constant(1.0);
    let sum = squares(plain);
    let rstd = k.var(rstd(width, sum, (plain, eps)));
    let large = sum.gt(SCALE * 68_719_476_736.0);
    let small = sum.lt(1.0 / (SCALE * 65_536.0)) & eps.lt(16.0 / SCALE);
    k.when(large | small, || {
        let scale = large.select(1.0 / SCALE, SCALE);
        let sum = squares(scale);
        rstd.set(self::rstd(width, sum, (scale, eps)));
    });
    rstd.get()
}

/// `Σ (x · scale)²`, known to every thread of the block.
fn sum_of_squares<'k>(k: &Kernel<'k>, row: Row<'k>, scale: Value<'k, f32>) -> Value<'k, f32> {
    let sum = k.var(0.0);
    block_quads(k, row.width, row.aligned, |quad| {
        for x in quad.load(row.x) {
            let x = x * scale;
            sum.update(|sum| x.fma(x, sum));
        }
    });
    k.block_sum(sum.get())
}

/// `1 / sqrt(mean(x²) + eps)` from the sum of the squares of `x · scale`.
fn rstd<'k>(
    width: Value<'k, u32>,
    sum: Value<'k, f32>,
    (scale, eps): (Value<'k, f32>, Value<'k, f32>),
) -> Value<'k, f32> {
    let mean = sum / width.cast::<f32>();
    // The square of the scale may leave the range where its product with eps does not.
    (mean + eps * scale * scale).sqrt().rcp() * scale
}
