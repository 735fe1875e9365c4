//! Floating-point arithmetic rounded to nearest, without `.sat` and, except for exponentials and
//! approximate reciprocals, without `.ftz`.
//!
//! NaN results of `f32` are the canonical NaN; NaN results of `f64` are a NaN operand. Approximate
//! instructions are more accurate than on hardware; see [`crate::float`]. Other modes are
//! per-lane functions there and in [`crate::double`].

use super::lane_operations;
use crate::float::{self, canonical, d as double, f, result64};
use crate::registers::{ActiveLanes, Offset};

lane_operations! {
    /// `f32` and `f64` arithmetic.
    enum Float {
        /// `add.f32`.
        Add32 = |a: u32, b: u32| canonical(f(a) + f(b));
        /// `sub.f32`.
        Sub32 = |a: u32, b: u32| canonical(f(a) - f(b));
        /// `mul.f32`.
        Mul32 = |a: u32, b: u32| canonical(f(a) * f(b));
        /// `fma.f32`.
        Fma32 = |a: u32, b: u32, c: u32| canonical(f(a).mul_add(f(b), f(c)));
        /// `div.f32`.
        Div32 = |a: u32, b: u32| canonical(f(a) / f(b));
        /// `min.f32`.
        Min32 = |a: u32, b: u32| float::min(a, b);
        /// `max.f32`.
        Max32 = |a: u32, b: u32| float::max(a, b);
        /// `neg.f32`.
        Neg32 = |a: u32| canonical(-f(a));
        /// `abs.f32`.
        Abs32 = |a: u32| canonical(f(a).abs());
        /// `sqrt.f32`.
        Sqrt32 = |a: u32| canonical(f(a).sqrt());
        /// `rcp.f32`.
        Rcp32 = |a: u32| canonical(1.0 / f(a));
        /// `rsqrt.approx.f32`.
        Rsqrt32 = |a: u32| float::rsqrt(a);
        /// `ex2.approx.f32`.
        Exp2 = |a: u32| float::exp2(a);
        /// `ex2.approx.ftz.f32`.
        Exp2Ftz = |a: u32| float::flush(float::exp2(float::flush(a)));
        /// `rcp.approx.ftz.f32`.
        RcpFtz = |a: u32| float::flush(canonical(1.0 / f(float::flush(a))));
        /// `lg2.approx.f32`.
        Log2 = |a: u32| float::log2(a);

        /// `add.f64`.
        Add64 = |a: u64, b: u64| result64(double(a) + double(b), &[a, b]);
        /// `sub.f64`.
        Sub64 = |a: u64, b: u64| result64(double(a) - double(b), &[a, b]);
        /// `mul.f64`.
        Mul64 = |a: u64, b: u64| result64(double(a) * double(b), &[a, b]);
        /// `fma.f64`. A NaN result is the first NaN of `b`, `c`, `a`.
        Fma64 = |a: u64, b: u64, c: u64| {
            result64(double(a).mul_add(double(b), double(c)), &[a, c, b])
        };
        /// `div.f64`. A NaN result is the first NaN of `a`, `b`.
        Div64 = |a: u64, b: u64| result64(double(a) / double(b), &[b, a]);
        /// `sqrt.f64`.
        Sqrt64 = |a: u64| result64(double(a).sqrt(), &[a]);
        /// `neg.f64`.
        Neg64 = |a: u64| float::neg64(a);
    }
}
