//! Elements of the matrices of `wgmma`: bf16, f16 or tf32.

use retrograph_ptx::ast::Type;

use crate::exec::rounding::Format;

/// The k of one product.
pub(super) fn steps(dtype: Type) -> usize {
    32 / dtype.size() as usize
}

/// The value of a 16-bit element.
pub(super) fn of_half(dtype: Type, bits: u16) -> f32 {
    match dtype {
        Type::F16 => Format::F16.widen(bits.into()) as f32,
        _ => f32::from_bits(u32::from(bits) << 16),
    }
}

/// The elements of a that a register of a lane holds: the row among 16, the step, the value.
pub(super) fn elements_of(
    dtype: Type,
    (index, lane): (usize, usize),
    bits: u32,
) -> Vec<(usize, usize, f32)> {
    let (row, member) = (lane / 4 + index % 2 * 8, lane % 4);
    if dtype == Type::Tf32 {
        return vec![(row, member + index / 2 * 4, of_tf32(bits))];
    }
    let step = 2 * member + index / 2 * 8;
    let [low, high] = [bits as u16, (bits >> 16) as u16].map(|half| of_half(dtype, half));
    vec![(row, step, low), (row, step + 1, high)]
}

/// A tf32 value; its low bits are ignored.
pub(super) fn of_tf32(bits: u32) -> f32 {
    f32::from_bits(bits & 0xffff_e000)
}
