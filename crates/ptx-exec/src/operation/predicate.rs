//! Comparisons, logic on predicates, and selection by a predicate.

use super::operations;
use crate::float::{d as double, f};
use crate::registers::{ActiveLanes, Offset, invert};

/// A comparison. Float comparisons are false if an operand is NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal32,
    LessU32,
    LessS32,
    EqualF32,
    LessF32,
    LessEqualF32,
    Equal64,
    LessU64,
    LessS64,
    EqualF64,
    LessF64,
    LessEqualF64,
}

operations! {
    /// Comparisons, logic on predicates, and selection by them.
    enum Predicate {
        /// `d = (a test b) != inverted`.
        Compare(d) <- (a, b) { test: Comparison, inverted: bool };
        /// `d = (a & b) != inverted`.
        And(d) <- (a, b) { inverted: bool };
        /// `d = (a | b) != inverted`.
        Or(d) <- (a, b) { inverted: bool };
        /// `d = (a ^ b) != inverted`.
        Xor(d) <- (a, b) { inverted: bool };
        /// `selp.b32`: `d = predicate ? a : b`.
        Select32(d) <- (a, b, predicate);
        /// `selp.b64`.
        Select64(d) <- (a, b, predicate);
    }
}

impl Predicate<Offset> {
    /// Executes the operation in the active lanes.
    ///
    /// # Safety
    ///
    /// The operation must come from decoding for the register file of `lanes`.
    #[inline(always)]
    pub(crate) unsafe fn execute(&self, lanes: ActiveLanes) {
        // SAFETY: decoding ensures the register widths of each operation.
        unsafe {
            let bits = |register| lanes.file.predicate(register);
            match *self {
                Self::Compare { d, a, b, test, inverted } => {
                    test.execute(lanes, d, a, b, inverted);
                }
                Self::And { d, a, b, inverted } => {
                    lanes.write_predicate(d, bits(a) & bits(b) ^ invert(inverted));
                }
                Self::Or { d, a, b, inverted } => {
                    lanes.write_predicate(d, (bits(a) | bits(b)) ^ invert(inverted));
                }
                Self::Xor { d, a, b, inverted } => {
                    lanes.write_predicate(d, bits(a) ^ bits(b) ^ invert(inverted));
                }
                Self::Select32 { d, a, b, predicate } => lanes.select::<u32>(d, a, b, predicate),
                Self::Select64 { d, a, b, predicate } => lanes.select::<u64>(d, a, b, predicate),
            }
        }
    }
}

impl Comparison {
    /// # Safety
    ///
    /// As for [`Predicate::execute`].
    #[inline(always)]
    unsafe fn execute(self, lanes: ActiveLanes, d: Offset, a: Offset, b: Offset, inverted: bool) {
        // SAFETY: by the contract.
        unsafe {
            match self {
                Self::Equal32 => lanes.compare(d, a, b, inverted, |x: u32, y: u32| x == y),
                Self::LessU32 => lanes.compare(d, a, b, inverted, |x: u32, y: u32| x < y),
                Self::LessS32 => lanes.compare(d, a, b, inverted, |x: i32, y: i32| x < y),
                Self::EqualF32 => lanes.compare(d, a, b, inverted, |x: u32, y: u32| f(x) == f(y)),
                Self::LessF32 => lanes.compare(d, a, b, inverted, |x: u32, y: u32| f(x) < f(y)),
                Self::LessEqualF32 => {
                    lanes.compare(d, a, b, inverted, |x: u32, y: u32| f(x) <= f(y))
                }
                Self::Equal64 => lanes.compare(d, a, b, inverted, |x: u64, y: u64| x == y),
                Self::LessU64 => lanes.compare(d, a, b, inverted, |x: u64, y: u64| x < y),
                Self::LessS64 => lanes.compare(d, a, b, inverted, |x: i64, y: i64| x < y),
                Self::EqualF64 => {
                    lanes.compare(d, a, b, inverted, |x: u64, y: u64| double(x) == double(y));
                }
                Self::LessF64 => {
                    lanes.compare(d, a, b, inverted, |x: u64, y: u64| double(x) < double(y));
                }
                Self::LessEqualF64 => {
                    lanes.compare(d, a, b, inverted, |x: u64, y: u64| double(x) <= double(y));
                }
            }
        }
    }
}
