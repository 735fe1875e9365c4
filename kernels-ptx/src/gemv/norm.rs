//! The scale factor of a fused RMSNorm.

use retrograph_ptx::build::{Kernel, Ptr, Value};

use super::matrices::Matrices;

/// 2^64.
const LARGE: f32 = 18_446_744_073_709_551_616.0;

/// The inputs of the factor.
#[derive(Clone, Copy)]
pub(super) struct Norm<'k> {
    k: Kernel<'k>,
    x: Ptr<'k, f32>,
    inputs: Value<'k, u32>,
    eps: Value<'k, f32>,
}

impl<'k> Norm<'k> {
    pub(super) fn of(matrices: &Matrices<'k>) -> Self {
        let Matrices { k, x, inputs, eps, .. } = *matrices;
        Self { k, x, inputs, eps }
    }

    /// `1 / sqrt(mean(x²) + eps)` from the sum of squares. If that sum is outside the accurate
    /// range (above 2^100, or below 2^-80 with negligible eps), each calling thread recomputes it
    /// in f64, which is rare.
    pub(super) fn rstd(self, squares: Value<'k, f32>) -> Value<'k, f32> {
        let Self { k, x, inputs, eps } = self;
        let rstd = k.var((squares / inputs.cast::<f32>() + eps).sqrt().rcp());
        let large = squares.gt(LARGE * 68_719_476_736.0);
        let small = squares.lt(1.0 / (LARGE * 65_536.0)) & eps.lt(16.0 / LARGE);
        k.when(large | small, || {
            let sum = k.var(0.0f64);
            k.range(0u32, inputs, 1, |i| {
                let x = x.load(i).cast::<f64>();
                sum.update(|sum| x.fma(x, sum));
            });
            let mean = sum.get() / inputs.cast::<f64>();
            rstd.set((mean + eps.cast::<f64>()).sqrt().rcp().cast::<f32>());
        });
        rstd.get()
    }
}
