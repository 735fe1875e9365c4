//! Operations that run lane by lane: per-lane functions, and moves between a register and its
//! parts.

use super::operations;
use crate::interpreter::Machine;
use crate::program::{LaneOperation, Width};
use crate::registers::{ActiveLanes, Offset};

operations! {
    /// Per-lane functions, and packing. `function` is an index into the lane operations of the
    /// program; `bits` is the width of a part.
    enum Function {
        /// A function of one operand.
        Apply1(d) <- (a) { function: u32 };
        /// A function of two operands.
        Apply2(d) <- (a, b) { function: u32 };
        /// A function of three operands.
        Apply3(d) <- (a, b, c) { function: u32 };
        /// A function of four 32-bit operands; the fourth is passed in the upper half of the third.
        Apply4(d) <- (a, b, c, e) { function: u32 };
        /// `mov.b32 d, {a, b}` and `mov.b64 d, {a, b}`.
        Pack2(d) <- (a, b) { bits: u32 };
        /// `mov.b64 d, {a, b, c, e}`.
        Pack4(d) <- (a, b, c, e) { bits: u32 };
        /// `mov.b32 {d0, d1}, a` and `mov.b64 {d0, d1}, a`.
        Unpack2(d0, d1) <- (a) { bits: u32 };
        /// `mov.b64 {d0, d1, d2, d3}, a`.
        Unpack4(d0, d1, d2, d3) <- (a) { bits: u32 };
    }
}

impl Function<Offset> {
    /// Executes the operation in the active lanes.
    ///
    /// # Safety
    ///
    /// The operation must come from decoding the program of `machine`.
    #[inline(always)]
    pub(crate) unsafe fn execute(&self, machine: &Machine<'_>, lanes: ActiveLanes) {
        // SAFETY: decoding created the indices and registers for this program.
        unsafe {
            let operation = |index: u32| machine.program.lanes.get_unchecked(index as usize);
            match *self {
                Self::Apply1 { d, a, function } => apply(lanes, d, &[a], operation(function)),
                Self::Apply2 { d, a, b, function } => apply(lanes, d, &[a, b], operation(function)),
                Self::Apply3 { d, a, b, c, function } => {
                    apply(lanes, d, &[a, b, c], operation(function));
                }
                Self::Apply4 { d, a, b, c, e, function } => {
                    apply(lanes, d, &[a, b, c, e], operation(function));
                }
                Self::Pack2 { d, a, b, bits } => pack(lanes, d, &[a, b], bits),
                Self::Pack4 { d, a, b, c, e, bits } => pack(lanes, d, &[a, b, c, e], bits),
                Self::Unpack2 { d0, d1, a, bits } => unpack(lanes, &[d0, d1], a, bits),
                Self::Unpack4 { d0, d1, d2, d3, a, bits } => {
                    unpack(lanes, &[d0, d1, d2, d3], a, bits);
                }
            }
        }
    }
}

/// # Safety
///
/// The registers must have the widths of the operation.
#[inline(never)]
unsafe fn apply(lanes: ActiveLanes, d: Offset, from: &[Offset], operation: &LaneOperation) {
    for lane in lanes.iter() {
        let mut values = [0; 4];
        for ((value, register), width) in values.iter_mut().zip(from).zip(operation.operands) {
            // SAFETY: by the contract.
            *value = unsafe { lanes.file.lane(*register, width, lane) };
        }
        let [a, b, c, upper] = values;
        let result = operation.function.apply([a, b, c | upper << 32]);
        // SAFETY: by the contract.
        unsafe { lanes.file.set_lane(d, operation.result, lane, result) };
    }
}

/// Width of a register of `bits` bits.
fn width(bits: u32) -> Width {
    if bits > 32 { Width::Double } else { Width::Word }
}

/// # Safety
///
/// The registers must have the widths of the parts and of the whole.
#[inline(never)]
unsafe fn pack(lanes: ActiveLanes, d: Offset, parts: &[Offset], bits: u32) {
    let whole = width(bits * parts.len() as u32);
    for lane in lanes.iter() {
        let mut value = 0;
        for (index, part) in parts.iter().enumerate() {
            // SAFETY: by the contract.
            let piece = unsafe { lanes.file.lane(*part, width(bits), lane) };
            value |= (piece & u64::MAX >> (64 - bits)) << (bits * index as u32);
        }
        // SAFETY: by the contract.
        unsafe { lanes.file.set_lane(d, whole, lane, value) };
    }
}

/// # Safety
///
/// As for [`pack`].
#[inline(never)]
unsafe fn unpack(lanes: ActiveLanes, parts: &[Offset], a: Offset, bits: u32) {
    let whole = width(bits * parts.len() as u32);
    for lane in lanes.iter() {
        // SAFETY: by the contract.
        let value = unsafe { lanes.file.lane(a, whole, lane) };
        for (index, part) in parts.iter().enumerate() {
            let piece = value >> (bits * index as u32) & u64::MAX >> (64 - bits);
            // SAFETY: by the contract.
            unsafe { lanes.file.set_lane(*part, width(bits), lane, piece) };
        }
    }
}
