//! Rare instructions, lane by lane.

use super::access::{lane_of, lanes_of, set_lane};
use super::program::{LaneOperation, Width};
use super::vector::Slots;

/// `div.u32`; see [`super::integer`] for division by zero.
#[inline(always)]
pub(super) fn div_u32(a: u32, b: u32) -> u32 {
    a.checked_div(b).unwrap_or(u32::MAX)
}

/// `rem.u32`.
#[inline(always)]
pub(super) fn rem_u32(a: u32, b: u32) -> u32 {
    if b == 0 { u32::MAX } else { a % b }
}

/// Applies a function to the lanes of `mask`.
///
/// # Safety
///
/// The slots must be as wide as the operation says.
#[inline(never)]
pub(super) unsafe fn apply(slots: Slots, mask: u32, operation: &LaneOperation) {
    for lane in lanes_of(mask) {
        let mut values = [0; 4];
        for (index, width) in operation.operands.iter().enumerate() {
            if let Some(width) = *width {
                // SAFETY: by the contract.
                values[index] = unsafe { lane_of(slots, 1 + index, (width, lane)) };
            }
        }
        let [a, b, c, upper] = values;
        let result = (operation.function)([a, b, c | upper << 32], operation.constant);
        // SAFETY: by the contract.
        unsafe { set_lane(slots, 0, (operation.result, lane), result) };
    }
}

/// What a vector move is made of: the width of the whole and of a part.
fn parts_of(extra: u32) -> (usize, u32, Width, Width) {
    let (count, bits) = ((extra & 0xff) as usize, extra >> 8);
    let width = |bits| if bits > 32 { Width::Double } else { Width::Word };
    (count, bits, width(bits * count as u32), width(bits))
}

/// Encodes a vector move of `count` parts of `bits` bits.
pub(super) fn encode_parts(count: usize, bits: u32) -> u32 {
    count as u32 | bits << 8
}

/// `mov.b64 d, {a, b}` and the like: operands d, part….
///
/// # Safety
///
/// The slots must be those of [`super::program::Op::Pack`].
#[inline(never)]
pub(super) unsafe fn pack(slots: Slots, mask: u32, extra: u32) {
    let (count, bits, whole, part) = parts_of(extra);
    for lane in lanes_of(mask) {
        let mut value = 0;
        for index in 0..count {
            // SAFETY: by the contract.
            let piece = unsafe { lane_of(slots, 1 + index, (part, lane)) };
            value |= (piece & u64::MAX >> (64 - bits)) << (bits * index as u32);
        }
        // SAFETY: by the contract.
        unsafe { set_lane(slots, 0, (whole, lane), value) };
    }
}

/// `mov.b64 {a, b}, d` and the like: operands part…, whole.
///
/// # Safety
///
/// The slots must be those of [`super::program::Op::Unpack`].
#[inline(never)]
pub(super) unsafe fn unpack(slots: Slots, mask: u32, extra: u32) {
    let (count, bits, whole, part) = parts_of(extra);
    for lane in lanes_of(mask) {
        // SAFETY: by the contract.
        let value = unsafe { lane_of(slots, count, (whole, lane)) };
        for index in 0..count {
            let piece = value >> (bits * index as u32) & u64::MAX >> (64 - bits);
            // SAFETY: by the contract.
            unsafe { set_lane(slots, index, (part, lane), piece) };
        }
    }
}
