//! Soft-capping: `cap · tanh(x ÷ cap)`.

use std::f32::consts::LOG2_E;

use retrograph_ptx::build::Value;

/// The largest |u| for the series: its error is 2⁻²⁶ there, and above it `1 − e` loses one bit.
const SERIES: f32 = 0.25;

/// `cap · tanh(u)` with `u = x ÷ cap`. A series in u if |u| is small, which does not underflow with
/// u, and otherwise `± cap · (1 − e) ÷ (1 + e)` with `e = exp(−2·|u|)`.
pub(crate) fn softcap<'k>(x: Value<'k, f32>, cap: Value<'k, f32>) -> Value<'k, f32> {
    let u = x / cap;
    let e = (u.abs() * -2.0).exp();
    let far = cap * ((-e + 1.0) / (e + 1.0));
    let near = series(x, u * u);
    u.abs().lt(SERIES).select(near, u.lt(0.0).select(-far, far))
}

/// The largest cap of [`Softcap`]. A larger one has the same results, and quotients that underflow.
const MAX_CAP: f32 = 1e30;

/// Soft-capping by the fast [`tanh`]: `scale · x` becomes `cap · t`, `t = tanh(scale · x ÷ cap)`.
#[derive(Clone, Copy)]
pub(crate) struct Softcap<'k> {
    pub(crate) cap: Value<'k, f32>,
    /// The scale ÷ the cap.
    ratio: Value<'k, f32>,
}

impl<'k> Softcap<'k> {
    pub(crate) fn new(scale: Value<'k, f32>, cap: Value<'k, f32>) -> Self {
        let cap = cap.min(MAX_CAP);
        // Finite, so that 0 stays 0.
        Self { cap, ratio: (scale / cap).min(f32::MAX) }
    }

    /// t of x.
    pub(crate) fn tanh(&self, x: Value<'k, f32>) -> Value<'k, f32> {
        tanh(x * self.ratio)
    }
}

/// Multiplies the gradient of `cap · t` by the derivative of the cap, `1 − t²`.
pub(crate) fn softcap_backward<'k>(grad: Value<'k, f32>, t: Value<'k, f32>) -> Value<'k, f32> {
    grad * (-t).fma(t, 1.0)
}

/// `tanh(u)`: a series in u if |u| is small, and otherwise `1 − 2 ÷ (1 + exp(2·u))`, which needs no
/// sign and no division. By the error bounds of `ex2.approx` and `rcp.approx`, the relative error
/// is at most about 2⁻²⁰.
fn tanh(u: Value<'_, f32>) -> Value<'_, f32> {
    let e = (u * (2.0 * LOG2_E)).exp2_ftz();
    let far = (e + 1.0).rcp_approx().fma(-2.0, 1.0);
    u.abs().lt(SERIES).select(series(u, u * u), far)
}

/// `x · tanh(u) ÷ u`, with the square of u.
fn series<'k>(x: Value<'k, f32>, square: Value<'k, f32>) -> Value<'k, f32> {
    let series =
        square.fma(62.0 / 2835.0, -17.0 / 315.0).fma(square, 2.0 / 15.0).fma(square, -1.0 / 3.0);
    (x * square).fma(series, x)
}
