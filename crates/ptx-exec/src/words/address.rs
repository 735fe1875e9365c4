//! Addresses of 32 and 64 bits.

use crate::program::Width;
use crate::registers::{Lanes, Offset, RegisterFile};

/// An address type: 32 bits for shared memory with 32-bit address registers, which halves the work,
/// and 64 bits otherwise.
pub(crate) trait Address:
    Copy + Ord + std::ops::BitOr<Output = Self> + std::ops::BitXor<Output = Self>
{
    /// Zero.
    const ZERO: Self;
    /// The address plus `offset`, wrapping around.
    fn plus(self, offset: u64) -> Self;
    /// The address in 64 bits.
    fn wide(self) -> u64;
    /// The address in a register of the width; 32-bit addresses wrap around.
    fn wrapped(self, width: Width) -> Self;
    /// Reads a register of addresses.
    ///
    /// # Safety
    ///
    /// The register must be as wide as `width` says.
    unsafe fn read(file: RegisterFile, register: Offset, width: Width) -> Lanes<Self>;
}

impl Address for u32 {
    const ZERO: Self = 0;
    #[inline(always)]
    fn plus(self, offset: u64) -> Self {
        self.wrapping_add(offset as u32)
    }
    #[inline(always)]
    fn wide(self) -> u64 {
        u64::from(self)
    }
    #[inline(always)]
    fn wrapped(self, _: Width) -> Self {
        self
    }
    #[inline(always)]
    unsafe fn read(file: RegisterFile, register: Offset, _: Width) -> Lanes<Self> {
        // SAFETY: by the contract; this is only called for 32-bit operands.
        unsafe { file.read::<Self>(register) }
    }
}

impl Address for u64 {
    const ZERO: Self = 0;
    #[inline(always)]
    fn plus(self, offset: u64) -> Self {
        self.wrapping_add(offset)
    }
    #[inline(always)]
    fn wide(self) -> u64 {
        self
    }
    #[inline(always)]
    fn wrapped(self, width: Width) -> Self {
        if width == Width::Word { self & 0xffff_ffff } else { self }
    }
    #[inline(always)]
    unsafe fn read(file: RegisterFile, register: Offset, width: Width) -> Lanes<Self> {
        // SAFETY: by the contract.
        unsafe {
            if width == Width::Word {
                file.read::<u32>(register).map(u64::from)
            } else {
                file.read::<Self>(register)
            }
        }
    }
}
