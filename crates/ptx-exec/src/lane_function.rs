//! Per-lane functions: instructions and modifiers too rare for an operation on whole registers.

use retrograph_ptx::ast::StateSpace;

use super::access::locate;
use super::bulk::rank_of;
use super::bytes::{BitField, DotProduct, PackedIntegers, PermuteMode};
use super::bytes::{bit_mask, dp2a, dp4a, packed_integers, permute, sign_extend};
use super::compare::{FloatClass, HalfComparison, Outcomes};
use super::convert::Conversion;
use super::float::{Extremum, FloatMode};
use super::half::HalfInstruction;
use super::integer::{funnel_shift, lop3};
use super::narrow::Narrowing;
use super::rounding::Rounding;

/// A function of up to three operands, passed as the low bits of `u64`, and its modifiers.
#[derive(Clone, Copy, Debug)]
pub(super) enum LaneFunction {
    /// A function without modifiers.
    Plain(fn([u64; 3]) -> u64),
    /// `lop3` with a truth table.
    Lop3 {
        /// The truth table: bit `i` is the result for the operand bits that form the index `i`.
        table: u8,
    },
    /// `shf`.
    FunnelShift {
        /// `.r` instead of `.l`.
        right: bool,
        /// `.clamp` instead of `.wrap`.
        clamp: bool,
    },
    /// `dp4a`.
    Dp4a(DotProduct),
    /// `dp2a`.
    Dp2a(DotProduct),
    /// `prmt` in a mode other than the default.
    Permute(PermuteMode),
    /// `bmsk`.
    BitMask {
        /// `.wrap` instead of `.clamp`.
        wrap: bool,
    },
    /// `szext`.
    SignExtend(BitField),
    /// `add`, `min` and `max` of two 16-bit integers in a register.
    PackedIntegers(PackedIntegers),
    /// A comparison of integers or floats.
    Compare {
        /// The comparison, which returns whether the outcome is among `outcomes`.
        function: fn([u64; 3], Outcomes) -> u64,
        /// The outcomes for which the relation is true.
        outcomes: Outcomes,
    },
    /// A comparison of f16 or bf16.
    CompareHalf(HalfComparison),
    /// `testp`.
    Class {
        /// The test for a type.
        function: fn([u64; 3], FloatClass) -> u64,
        /// The property.
        class: FloatClass,
    },
    /// `f32` arithmetic with rounding, flushing and saturation.
    Float {
        /// The arithmetic.
        function: fn([u64; 3], FloatMode) -> u64,
        /// Its modifiers.
        mode: FloatMode,
    },
    /// `min` and `max` of `f32` with modifiers or three operands.
    Extremum(Extremum),
    /// `f64` arithmetic with rounding.
    Double {
        /// The arithmetic.
        function: fn([u64; 3], Rounding) -> u64,
        /// The rounding.
        rounding: Rounding,
    },
    /// Arithmetic of f16 and bf16.
    Half(HalfInstruction),
    /// A conversion to or from a narrow format.
    Narrow {
        /// The conversion of one or two values.
        function: fn([u64; 3], Narrowing) -> u64,
        /// The format and modifiers.
        narrowing: Narrowing,
    },
    /// Any other conversion.
    Convert(Conversion),
    /// `isspacep`.
    IsInSpace(StateSpace),
    /// `isspacep.shared::cta` of an address, and the rank of the block in its cluster.
    IsInBlock,
}

impl LaneFunction {
    /// The result for one lane.
    pub(super) fn apply(&self, values: [u64; 3]) -> u64 {
        match *self {
            Self::Plain(function) => function(values),
            Self::Lop3 { table } => lop3(values, table),
            Self::FunnelShift { right, clamp } => funnel_shift(values, right, clamp),
            Self::Dp4a(mode) => dp4a(values, mode),
            Self::Dp2a(mode) => dp2a(values, mode),
            Self::Permute(mode) => permute(values, mode),
            Self::BitMask { wrap } => bit_mask(values, wrap),
            Self::SignExtend(field) => sign_extend(values, field),
            Self::PackedIntegers(mode) => packed_integers(values, mode),
            Self::Compare { function, outcomes } => function(values, outcomes),
            Self::CompareHalf(comparison) => comparison.apply(values),
            Self::Class { function, class } => function(values, class),
            Self::Float { function, mode } => function(values, mode),
            Self::Extremum(extremum) => extremum.apply(values),
            Self::Double { function, rounding } => function(values, rounding),
            Self::Half(instruction) => instruction.execute(values),
            Self::Narrow { function, narrowing } => function(values, narrowing),
            Self::Convert(conversion) => conversion.execute(values),
            // Constant memory is part of global memory here, without its own window.
            Self::IsInSpace(space) => u64::from(locate(None, values[0]).0 == space),
            Self::IsInBlock => match locate(None, values[0]) {
                (StateSpace::Shared, address) => {
                    u64::from(u64::from(rank_of(address)) == values[1])
                }
                _ => 0,
            },
        }
    }
}
