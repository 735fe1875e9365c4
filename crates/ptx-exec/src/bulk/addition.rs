//! Element-wise addition of `cp.reduce.async.bulk`.

use retrograph_ptx::ast::Type;

use crate::float::canonical;
use crate::rounding::{Format, Rounding};

/// Whether a store can add elements of the type.
pub(super) fn can_add(element: Type) -> bool {
    matches!(element, Type::F32 | Type::F16 | Type::Bf16)
}

/// Adds elements to those at `to`.
///
/// # Safety
///
/// `to` must be valid for writing `from.len()` bytes.
pub(super) unsafe fn add(element: Type, to: *mut u8, from: &[u8]) {
    let size = element.size() as usize;
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

fn sum(element: Type, a: u32, b: u32) -> u32 {
    let half = |format: Format| format.narrow(format.widen(a) + format.widen(b), Rounding::Nearest);
    match element {
        Type::F16 => half(Format::F16),
        Type::Bf16 => half(Format::BF16),
        _ => canonical(f32::from_bits(a) + f32::from_bits(b)),
    }
}
