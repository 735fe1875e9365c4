//! Integer arithmetic and logic on registers of 32 and 64 bits.
//!
//! Arithmetic wraps. Other widths and modifiers are per-lane functions in [`crate::integer`].

use super::lane_operations;
use crate::registers::{ActiveLanes, Offset};

lane_operations! {
    /// Integer arithmetic and logic.
    enum Integer {
        /// `not.b32`.
        Not32 = |a: u32| !a;
        /// `neg.s32`.
        Neg32 = |a: u32| a.wrapping_neg();
        /// `add.u32`, `add.s32`.
        Add32 = |a: u32, b: u32| a.wrapping_add(b);
        /// `sub.u32`, `sub.s32`.
        Sub32 = |a: u32, b: u32| a.wrapping_sub(b);
        /// `mul.lo.u32`, `mul.lo.s32`.
        MulLow32 = |a: u32, b: u32| a.wrapping_mul(b);
        /// `mul.hi.u32`.
        MulHighU32 = |a: u32, b: u32| ((u64::from(a) * u64::from(b)) >> 32) as u32;
        /// `and.b32`.
        And32 = |a: u32, b: u32| a & b;
        /// `or.b32`.
        Or32 = |a: u32, b: u32| a | b;
        /// `xor.b32`.
        Xor32 = |a: u32, b: u32| a ^ b;
        /// `shl.b32`; amounts above 31 give zero.
        Shl32 = |a: u32, b: u32| if b > 31 { 0 } else { a << (b & 31) };
        /// `shr.u32`; amounts above 31 give zero.
        ShrU32 = |a: u32, b: u32| if b > 31 { 0 } else { a >> (b & 31) };
        /// `shr.s32`; amounts above 31 give the sign.
        ShrS32 = |a: i32, b: u32| a >> b.min(31);
        /// `min.u32`.
        MinU32 = |a: u32, b: u32| a.min(b);
        /// `max.u32`.
        MaxU32 = |a: u32, b: u32| a.max(b);
        /// `min.s32`.
        MinS32 = |a: i32, b: i32| a.min(b);
        /// `max.s32`.
        MaxS32 = |a: i32, b: i32| a.max(b);
        /// `div.u32`; division by zero returns all ones, as on hardware.
        DivU32 = |a: u32, b: u32| a.checked_div(b).unwrap_or(u32::MAX);
        /// `rem.u32`; division by zero returns all ones, as on hardware.
        RemU32 = |a: u32, b: u32| a.checked_rem(b).unwrap_or(u32::MAX);
        /// `mad.lo.u32`, `mad.lo.s32`.
        MadLow32 = |a: u32, b: u32, c: u32| a.wrapping_mul(b).wrapping_add(c);

        /// `add.u64`, `add.s64`.
        Add64 = |a: u64, b: u64| a.wrapping_add(b);
        /// `sub.u64`, `sub.s64`.
        Sub64 = |a: u64, b: u64| a.wrapping_sub(b);
        /// `mul.lo.u64`, `mul.lo.s64`.
        MulLow64 = |a: u64, b: u64| a.wrapping_mul(b);
        /// `and.b64`.
        And64 = |a: u64, b: u64| a & b;
        /// `or.b64`.
        Or64 = |a: u64, b: u64| a | b;
        /// `xor.b64`.
        Xor64 = |a: u64, b: u64| a ^ b;
        /// `shl.b64`; amounts above 63 give zero.
        Shl64 = |a: u64, b: u32| if b > 63 { 0 } else { a << (b & 63) };
        /// `shr.u64`; amounts above 63 give zero.
        ShrU64 = |a: u64, b: u32| if b > 63 { 0 } else { a >> (b & 63) };
        /// `shr.s64`; amounts above 63 give the sign.
        ShrS64 = |a: i64, b: u32| a >> b.min(63);
        /// `mad.lo.u64`, `mad.lo.s64`.
        MadLow64 = |a: u64, b: u64, c: u64| a.wrapping_mul(b).wrapping_add(c);

        /// `mul.wide.u32`.
        MulWideU32 = |a: u32, b: u32| u64::from(a) * u64::from(b);
        /// `mul.wide.s32`.
        MulWideS32 = |a: i32, b: i32| i64::from(a) * i64::from(b);
        /// `mad.wide.u32`.
        MadWideU32 = |a: u32, b: u32, c: u64| (u64::from(a) * u64::from(b)).wrapping_add(c);
        /// `mad.wide.s32`.
        MadWideS32 = |a: i32, b: i32, c: i64| (i64::from(a) * i64::from(b)).wrapping_add(c);
    }
}
