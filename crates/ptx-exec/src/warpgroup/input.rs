//! Elements of the matrices of `wgmma`: bf16, f16 or tf32.

use retrograph_ptx::ast::Type;

use crate::matrix::of_half;

/// The k of a product.
pub(super) fn steps(dtype: Type) -> usize {
    32 / dtype.size() as usize
}

/// The values of 16-bit elements.
#[inline(always)]
pub(super) fn of_halves<const N: usize>(dtype: Type, halves: [u16; N]) -> [f32; N] {
    // Loops become vector instructions, unlike `map`.
    let mut values = [0.0; N];
    if dtype == Type::F16 {
        for element in 0..N {
            values[element] = of_half(halves[element].into());
        }
    } else {
        for element in 0..N {
            values[element] = f32::from_bits(u32::from(halves[element]) << 16);
        }
    }
    values
}

/// Calls `visit` with each element of a that a register of a lane holds: the row among 16, the
/// step, the value.
#[inline(always)]
pub(super) fn for_each_element(
    dtype: Type,
    index: usize,
    lane: usize,
    bits: u32,
    mut visit: impl FnMut(usize, usize, f32),
) {
    let (row, member) = (lane / 4 + index % 2 * 8, lane % 4);
    if dtype == Type::Tf32 {
        return visit(row, member + index / 2 * 4, of_tf32(bits));
    }
    let step = 2 * member + index / 2 * 8;
    let [low, high] = of_halves(dtype, [bits as u16, (bits >> 16) as u16]);
    visit(row, step, low);
    visit(row, step + 1, high);
}

/// A tf32 value; its low bits are ignored.
pub(super) fn of_tf32(bits: u32) -> f32 {
    f32::from_bits(bits & 0xffff_e000)
}
