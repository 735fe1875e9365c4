//! Functions of one lane, applied to the 32 lanes of slots.
//!
//! Every function here is inlined into the interpreter, which is compiled once for each set of
//! vector instructions, and its loop over an array of fixed size becomes a few of them. Operands
//! are copied out before the result is written, because a register may be both.

use super::program::LANES;

/// The value of a slot: all lanes.
pub(super) type Lanes<T> = [T; LANES];

/// The file of a warp, and one instruction's slots in it.
#[derive(Clone, Copy)]
pub(super) struct Slots {
    /// The first byte of the file, aligned to 64.
    pub(super) file: *mut u8,
    /// The offsets.
    pub(super) offsets: [u32; 5],
}

impl Slots {
    /// The slot of an operand.
    ///
    /// # Safety
    ///
    /// The offset must be that of a slot of `Lanes<T>` in the file, as decoding makes it.
    #[inline(always)]
    pub(super) unsafe fn pointer<T>(&self, operand: usize) -> *mut Lanes<T> {
        // SAFETY: the offset lies in the file by the contract.
        unsafe { self.file.add(self.offsets[operand] as usize).cast() }
    }

    /// Reads an operand.
    ///
    /// # Safety
    ///
    /// As for [`Slots::pointer`].
    #[inline(always)]
    pub(super) unsafe fn read<T: Copy>(&self, operand: usize) -> Lanes<T> {
        // SAFETY: by the contract; `T` is an integer, for which all bits are valid.
        unsafe { self.pointer::<T>(operand).read() }
    }

    /// Reads a predicate.
    ///
    /// # Safety
    ///
    /// The operand must be a predicate.
    #[inline(always)]
    pub(super) unsafe fn predicate(&self, operand: usize) -> u32 {
        // SAFETY: a predicate is four bytes in the file.
        unsafe { self.file.add(self.offsets[operand] as usize).cast::<u32>().read() }
    }

    /// Writes the bits of `mask` of a predicate.
    ///
    /// # Safety
    ///
    /// The operand must be a predicate.
    #[inline(always)]
    pub(super) unsafe fn set_predicate(&self, operand: usize, mask: u32, bits: u32) {
        // SAFETY: a predicate is four bytes in the file.
        unsafe {
            let slot = self.file.add(self.offsets[operand] as usize).cast::<u32>();
            slot.write(slot.read() & !mask | bits & mask);
        }
    }

    /// Writes the lanes of `mask`.
    ///
    /// # Safety
    ///
    /// As for [`Slots::pointer`].
    #[inline(always)]
    pub(super) unsafe fn write<T: Copy>(&self, operand: usize, mask: u32, values: &Lanes<T>) {
        // SAFETY: by the contract; `values` is a local array, so apart from the file.
        let slot = unsafe { &mut *self.pointer::<T>(operand) };
        if mask == u32::MAX {
            *slot = *values;
        } else {
            for lane in 0..LANES {
                slot[lane] = if mask >> lane & 1 != 0 { values[lane] } else { slot[lane] };
            }
        }
    }
}

macro_rules! map {
    ($(#[$doc:meta])* $name:ident, $($operand:ident: $ty:ident = $index:literal),+) => {
        $(#[$doc])*
        ///
        /// # Safety
        ///
        /// The slots must be as wide as the types of the function, as decoding makes them.
        #[inline(always)]
        pub(super) unsafe fn $name<$($ty: Copy,)+ R: Copy + Default>(
            slots: Slots,
            mask: u32,
            function: impl Fn($($ty),+) -> R,
        ) {
            // SAFETY: by the contract.
            unsafe {
                $(let $operand = slots.read::<$ty>($index);)+
                // Two copies of the loop, so that the common one stores without blending.
                if mask == u32::MAX {
                    let mut result = [R::default(); LANES];
                    for lane in 0..LANES {
                        result[lane] = function($($operand[lane]),+);
                    }
                    slots.pointer::<R>(0).write(result);
                } else {
                    let old = slots.read::<R>(0);
                    let mut result = [R::default(); LANES];
                    for lane in 0..LANES {
                        let value = function($($operand[lane]),+);
                        result[lane] = if mask >> lane & 1 != 0 { value } else { old[lane] };
                    }
                    slots.pointer::<R>(0).write(result);
                }
            }
        }
    };
}

map!(
    /// `d = function(a)` in the lanes of `mask`.
    map1, a: A = 1
);
map!(
    /// `d = function(a, b)` in the lanes of `mask`.
    map2, a: A = 1, b: B = 2
);
map!(
    /// `d = function(a, b, c)` in the lanes of `mask`.
    map3, a: A = 1, b: B = 2, c: C = 3
);

/// The predicate `d = test(a, b) ^ invert` in the lanes of `mask`.
///
/// # Safety
///
/// As for [`map2`].
#[inline(always)]
pub(super) unsafe fn compare<T: Copy>(
    slots: Slots,
    mask: u32,
    invert: u32,
    test: impl Fn(T, T) -> bool,
) {
    // SAFETY: by the contract.
    unsafe {
        let (a, b) = (slots.read::<T>(1), slots.read::<T>(2));
        let mut bits = 0;
        for lane in 0..LANES {
            bits |= u32::from(test(a[lane], b[lane])) << lane;
        }
        slots.set_predicate(0, mask, bits ^ invert);
    }
}

/// `d = predicate ? a : b` in the lanes of `mask`.
///
/// # Safety
///
/// As for [`map2`], with a predicate as the third operand.
#[inline(always)]
pub(super) unsafe fn select<T: Copy + Default>(slots: Slots, mask: u32) {
    // SAFETY: by the contract.
    unsafe {
        let (a, b) = (slots.read::<T>(1), slots.read::<T>(2));
        let predicate = slots.predicate(3);
        let mut result = [T::default(); LANES];
        for lane in 0..LANES {
            result[lane] = if predicate >> lane & 1 != 0 { a[lane] } else { b[lane] };
        }
        slots.write(0, mask, &result);
    }
}
