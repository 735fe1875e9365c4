//! Additions of `cp.reduce.async.bulk`.

use crate::exec::float::canonical;
use crate::exec::rounding::{Format, Rounding};
use crate::tensor_map::ElementType;

/// Whether a store can add elements of the type.
pub(super) fn can_add(element: ElementType) -> bool {
    matches!(element, ElementType::F32 | ElementType::F16 | ElementType::Bf16)
}

/// Adds elements to those at `to`.
///
/// # Safety
///
/// `to` must be valid for as many bytes as there are in `from`.
pub(super) unsafe fn add(element: ElementType, to: *mut u8, from: &[u8]) {
    let size = element.bytes() as usize;
    for (index, one) in from.chunks_exact(size).enumerate() {
        let mut old = [0; 4];
        // SAFETY: by the contract.
        unsafe {
            let at = to.add(index * size);
            std::ptr::copy_nonoverlapping(at, old.as_mut_ptr(), size);
            let mut new = [0; 4];
            new[..size].copy_from_slice(one);
            let sum = sum(element, u32::from_le_bytes(old), u32::from_le_bytes(new));
            std::ptr::copy_nonoverlapping(sum.to_le_bytes().as_ptr(), at, size);
        }
    }
}

fn sum(element: ElementType, a: u32, b: u32) -> u32 {
    let half = |format: Format| format.narrow(format.widen(a) + format.widen(b), Rounding::Nearest);
    match element {
        ElementType::F16 => half(Format::F16),
        ElementType::Bf16 => half(Format::BF16),
        _ => canonical(f32::from_bits(a) + f32::from_bits(b)),
    }
}
