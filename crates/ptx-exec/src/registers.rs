//! The register file of a warp, and operations on its lanes.
//!
//! A register of 32 bits is an array of 32 lanes (128 bytes), a register of 64 bits one of 256
//! bytes, and a predicate four bytes with one bit per lane. Everything here is inlined into the
//! interpreter, which is compiled once per vector instruction set, so a loop over lanes becomes a
//! few vector instructions. Operands are copied before the result is written, because a register
//! may be both operand and result.

use super::program::{LANES, Width};

/// One value per lane.
pub(super) type Lanes<T> = [T; LANES];

/// Byte offset of a register in the register file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Offset(pub(super) u32);

/// The registers of one warp: a pointer to the first byte, aligned to 128.
#[derive(Clone, Copy)]
pub(super) struct RegisterFile(pub(super) *mut u8);

impl RegisterFile {
    /// Pointer to a register.
    ///
    /// # Safety
    ///
    /// The offset must come from decoding and belong to a register of `Lanes<T>` in this file.
    #[inline(always)]
    pub(super) unsafe fn pointer<T>(self, register: Offset) -> *mut Lanes<T> {
        // SAFETY: the offset is inside the file by the contract.
        unsafe { self.0.add(register.0 as usize).cast() }
    }

    /// Reads a register.
    ///
    /// # Safety
    ///
    /// As for [`RegisterFile::pointer`], with an integer or float `T`.
    #[inline(always)]
    pub(super) unsafe fn read<T: Copy>(self, register: Offset) -> Lanes<T> {
        // SAFETY: by the contract; all bits are valid for integers and floats.
        unsafe { self.pointer::<T>(register).read() }
    }

    /// Writes all lanes of a register.
    ///
    /// # Safety
    ///
    /// As for [`RegisterFile::pointer`].
    #[inline(always)]
    pub(super) unsafe fn write<T: Copy>(self, register: Offset, lanes: Lanes<T>) {
        // SAFETY: by the contract.
        unsafe { self.pointer::<T>(register).write(lanes) }
    }

    /// Reads a predicate, one bit per lane.
    ///
    /// # Safety
    ///
    /// The offset must be the offset of a predicate.
    #[inline(always)]
    pub(super) unsafe fn predicate(self, register: Offset) -> u32 {
        // SAFETY: a predicate is four bytes in the file.
        unsafe { self.0.add(register.0 as usize).cast::<u32>().read() }
    }

    /// Writes the bits of `mask` of a predicate.
    ///
    /// # Safety
    ///
    /// The offset must be the offset of a predicate.
    #[inline(always)]
    pub(super) unsafe fn set_predicate(self, register: Offset, mask: u32, bits: u32) {
        // SAFETY: a predicate is four bytes in the file.
        unsafe {
            let predicate = self.0.add(register.0 as usize).cast::<u32>();
            predicate.write(predicate.read() & !mask | bits & mask);
        }
    }

    /// Reads one lane of a register, extended with zeros.
    ///
    /// # Safety
    ///
    /// The register must be of the width, and the lane below 32.
    #[inline(always)]
    pub(super) unsafe fn lane(self, register: Offset, width: Width, lane: usize) -> u64 {
        // SAFETY: by the contract.
        unsafe {
            match width {
                Width::Predicate => u64::from(self.predicate(register) >> lane & 1),
                Width::Word => u64::from((*self.pointer::<u32>(register))[lane]),
                Width::Double => (*self.pointer::<u64>(register))[lane],
            }
        }
    }

    /// Writes one lane of a register.
    ///
    /// # Safety
    ///
    /// As for [`RegisterFile::lane`].
    #[inline(always)]
    pub(super) unsafe fn set_lane(self, register: Offset, width: Width, lane: usize, value: u64) {
        // SAFETY: by the contract.
        unsafe {
            match width {
                Width::Predicate => {
                    self.set_predicate(register, 1 << lane, (value as u32) << lane);
                }
                Width::Word => (*self.pointer::<u32>(register))[lane] = value as u32,
                Width::Double => (*self.pointer::<u64>(register))[lane] = value,
            }
        }
    }
}

/// The register file of a warp and the lanes that execute the current instruction.
#[derive(Clone, Copy)]
pub(super) struct ActiveLanes {
    /// The registers.
    pub(super) file: RegisterFile,
    /// One bit per executing lane; never zero.
    pub(super) mask: u32,
}

macro_rules! map {
    ($(#[$doc:meta])* $name:ident, $($operand:ident: $ty:ident),+) => {
        $(#[$doc])*
        ///
        /// # Safety
        ///
        /// The registers must be as wide as the types of the function, which decoding ensures.
        #[inline(always)]
        pub(super) unsafe fn $name<$($ty: Copy,)+ R: Copy + Default>(
            self,
            d: Offset,
            $($operand: Offset,)+
            function: impl Fn($($ty),+) -> R,
        ) {
            let file = self.file;
            // SAFETY: by the contract.
            unsafe {
                $(let $operand = file.read::<$ty>($operand);)+
                // Two copies of the loop: with all lanes active, the store needs no blend.
                if self.mask == u32::MAX {
                    let mut result = [R::default(); LANES];
                    for lane in 0..LANES {
                        result[lane] = function($($operand[lane]),+);
                    }
                    file.write(d, result);
                } else {
                    let old = file.read::<R>(d);
                    let mask = self.partial_mask();
                    let mut result = [R::default(); LANES];
                    for lane in 0..LANES {
                        let value = function($($operand[lane]),+);
                        result[lane] = if mask >> lane & 1 != 0 { value } else { old[lane] };
                    }
                    file.write(d, result);
                }
            }
        }
    };
}

impl ActiveLanes {
    map!(
        /// `d = function(a)` in the active lanes.
        map1, a: A
    );
    map!(
        /// `d = function(a, b)` in the active lanes.
        map2, a: A, b: B
    );
    map!(
        /// `d = function(a, b, c)` in the active lanes.
        map3, a: A, b: B, c: C
    );

    /// The active lanes, ascending.
    pub(super) fn iter(self) -> impl Iterator<Item = usize> {
        lanes_of(self.mask)
    }

    /// The mask, for a loop over partially active lanes. It is opaque to the optimizer, which would
    /// otherwise expand the mask to vectors before every instruction.
    #[inline(always)]
    pub(super) fn partial_mask(self) -> u32 {
        std::hint::black_box(self.mask)
    }

    /// The first active lane.
    #[inline(always)]
    pub(super) fn first(self) -> usize {
        self.mask.trailing_zeros() as usize & 31
    }

    /// Writes the active lanes of a register.
    ///
    /// # Safety
    ///
    /// As for [`RegisterFile::pointer`].
    #[inline(always)]
    pub(super) unsafe fn write<T: Copy>(self, d: Offset, values: &Lanes<T>) {
        // SAFETY: by the contract; `values` is a local array and does not overlap the file.
        let register = unsafe { &mut *self.file.pointer::<T>(d) };
        if self.mask == u32::MAX {
            *register = *values;
        } else {
            let mask = self.partial_mask();
            for lane in 0..LANES {
                let active = mask >> lane & 1 != 0;
                register[lane] = if active { values[lane] } else { register[lane] };
            }
        }
    }

    /// Writes the active lanes of a predicate.
    ///
    /// # Safety
    ///
    /// The offset must be the offset of a predicate.
    #[inline(always)]
    pub(super) unsafe fn write_predicate(self, d: Offset, bits: u32) {
        // SAFETY: by the contract.
        unsafe { self.file.set_predicate(d, self.mask, bits) }
    }

    /// The predicate `d = test(a, b) != inverted` in the active lanes.
    ///
    /// # Safety
    ///
    /// As for [`ActiveLanes::map2`], with a predicate `d`.
    #[inline(always)]
    pub(super) unsafe fn compare<T: Copy>(
        self,
        d: Offset,
        a: Offset,
        b: Offset,
        inverted: bool,
        test: impl Fn(T, T) -> bool,
    ) {
        // SAFETY: by the contract.
        unsafe {
            let (a, b) = (self.file.read::<T>(a), self.file.read::<T>(b));
            let mut bits = 0;
            for lane in 0..LANES {
                bits |= u32::from(test(a[lane], b[lane])) << lane;
            }
            self.write_predicate(d, bits ^ invert(inverted));
        }
    }

    /// `d = predicate ? a : b` in the active lanes.
    ///
    /// # Safety
    ///
    /// As for [`ActiveLanes::map2`], with a predicate as the third operand.
    #[inline(always)]
    pub(super) unsafe fn select<T: Copy + Default>(
        self,
        d: Offset,
        a: Offset,
        b: Offset,
        predicate: Offset,
    ) {
        // SAFETY: by the contract.
        unsafe {
            let (a, b) = (self.file.read::<T>(a), self.file.read::<T>(b));
            let predicate = self.file.predicate(predicate);
            let mut result = [T::default(); LANES];
            for lane in 0..LANES {
                result[lane] = if predicate >> lane & 1 != 0 { a[lane] } else { b[lane] };
            }
            self.write(d, &result);
        }
    }
}

/// All ones if `inverted`, else 0.
#[inline(always)]
pub(super) fn invert(inverted: bool) -> u32 {
    if inverted { u32::MAX } else { 0 }
}

/// The lanes of a mask, ascending.
pub(super) fn lanes_of(mask: u32) -> impl Iterator<Item = usize> {
    (0..LANES).filter(move |lane| mask >> lane & 1 != 0)
}
