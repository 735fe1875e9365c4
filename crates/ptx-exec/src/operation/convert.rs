//! Moves and conversions between common types. [`crate::convert`] has the other conversions.

use super::lane_operations;
use crate::float;
use crate::registers::{ActiveLanes, Offset};

lane_operations! {
    /// Moves and conversions.
    enum Convert {
        /// `mov.b32`.
        Move32 = |a: u32| a;
        /// `mov.b64`.
        Move64 = |a: u64| a;
        /// `cvt.rn.f32.u32`.
        U32ToF32 = |a: u32| (a as f32).to_bits();
        /// `cvt.rn.f32.s32`.
        S32ToF32 = |a: i32| (a as f32).to_bits();
        /// `cvt.u64.u32`.
        U32To64 = |a: u32| u64::from(a);
        /// `cvt.s64.s32`.
        S32To64 = |a: i32| i64::from(a);
        /// `cvt.u32.u64`: the low 32 bits.
        Low32 = |a: u64| a as u32;
        /// `cvt.rn.bf16.f32`.
        F32ToBf16 = |a: u32| float::bf16(a);
        /// `cvt.rn.bf16x2.f32`: the first operand is in the upper half.
        F32ToBf16x2 = |a: u32, b: u32| float::bf16(a) << 16 | float::bf16(b);
        /// `cvt.f64.f32`.
        F32ToF64 = |a: u32| float::widen(a);
        /// `cvt.rn.f32.f64`.
        F64ToF32 = |a: u64| float::narrow(a);
    }
}
