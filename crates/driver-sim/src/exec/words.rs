//! Loads and stores of words, pairs and quadruples of words in global or shared memory: all lanes
//! are checked at once and then copied.
#![expect(clippy::needless_range_loop, reason = "a lane is an index into several arrays")]

use super::access::Memories;
use super::program::{Access, LANES, Program, Width};
use super::vector::{Lanes, Slots};

/// An address as a register holds it: of 32 bits in shared memory where registers of 32 bits are
/// used, which are half the work, and of 64 bits elsewhere.
pub(super) trait Place:
    Copy + Ord + std::ops::BitOr<Output = Self> + std::ops::BitXor<Output = Self>
{
    /// The greatest address.
    const GREATEST: Self;
    /// Zero.
    const ZERO: Self;
    /// The address `offset` further, wrapping around.
    fn plus(self, offset: u64) -> Self;
    /// The address in 64 bits.
    fn wide(self) -> u64;
    /// The address in a register of the width: those of 32 bits wrap around.
    fn wrapped(self, width: Width) -> Self;
    /// Reads the operand that holds addresses.
    ///
    /// # Safety
    ///
    /// The operand must be as wide as `width` says.
    unsafe fn read(slots: Slots, operand: usize, width: Width) -> Lanes<Self>;
}

impl Place for u32 {
    const GREATEST: Self = Self::MAX;
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
    unsafe fn read(slots: Slots, operand: usize, _: Width) -> Lanes<Self> {
        // SAFETY: by the contract; this is called for operands of 32 bits.
        unsafe { slots.read::<Self>(operand) }
    }
}

impl Place for u64 {
    const GREATEST: Self = Self::MAX;
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
    unsafe fn read(slots: Slots, operand: usize, width: Width) -> Lanes<Self> {
        // SAFETY: by the contract.
        unsafe {
            if width == Width::Word {
                slots.read::<u32>(operand).map(u64::from)
            } else {
                slots.read::<Self>(operand)
            }
        }
    }
}

/// The addresses of an access; those of lanes outside of `mask` are that of the first lane inside.
///
/// # Safety
///
/// The operand must be as wide as the access says, and `P` no narrower.
#[inline(always)]
pub(super) unsafe fn addresses<P: Place>(
    slots: Slots,
    operand: usize,
    mask: u32,
    access: &Access,
) -> Lanes<P> {
    // SAFETY: by the contract.
    let mut all = unsafe { P::read(slots, operand, access.address) };
    for address in &mut all {
        *address = address.plus(access.offset as u64).wrapped(access.address);
    }
    if mask != u32::MAX {
        let first = all[mask.trailing_zeros() as usize & 31];
        for lane in 0..LANES {
            all[lane] = if mask >> lane & 1 != 0 { all[lane] } else { first };
        }
    }
    all
}

/// The least and greatest address, and all bits that are set in any.
#[inline(always)]
fn extent<P: Place>(all: &Lanes<P>) -> (u64, u64, u64) {
    let (mut low, mut high, mut bits) = (P::GREATEST, P::ZERO, P::ZERO);
    for &address in all {
        low = low.min(address);
        high = high.max(address);
        bits = bits | address;
    }
    (low.wide(), high.wide(), bits.wide())
}

/// Whether lane after lane is `stride` further.
#[inline(always)]
fn is_contiguous<P: Place>(all: &Lanes<P>, stride: u64) -> bool {
    let mut difference = P::ZERO;
    for lane in 0..LANES {
        difference = difference | (all[lane] ^ all[0].plus(lane as u64 * stride));
    }
    difference == P::ZERO
}

/// The addresses of an access of which all lanes are proved to be in bounds.
struct Checked<P> {
    all: Lanes<P>,
    /// Where address zero would be. It need not be in any allocation; with an address it is.
    origin: *mut u8,
}

impl<P: Place> Checked<P> {
    #[inline(always)]
    fn host(&self, lane: usize) -> *mut u8 {
        self.origin.wrapping_add(self.all[lane].wide() as usize)
    }

    /// Checks an access of `N` words in all lanes at once.
    ///
    /// # Safety
    ///
    /// As for [`addresses`].
    #[inline(always)]
    unsafe fn new<const SHARED: bool, const N: usize>(
        memories: &mut Memories<'_>,
        (slots, operand, mask): (Slots, usize, u32),
        (index, access): (usize, &Access),
    ) -> Option<Self> {
        let size = 4 * N as u64;
        // SAFETY: by the contract.
        let all = unsafe { addresses::<P>(slots, operand, mask, access) };
        let (low, high, bits) = extent(&all);
        if bits & (size - 1) != 0 || high > u64::MAX - size {
            return None;
        }
        let span = memories.span::<SHARED>(index, low, high + size)?;
        Some(Self { all, origin: span.host.wrapping_sub(span.base as usize) })
    }

    /// Loads `N` words in each lane of `mask`.
    ///
    /// # Safety
    ///
    /// The slots must be those of a load of `N` words.
    #[inline(always)]
    unsafe fn load<const N: usize>(&self, slots: Slots, mask: u32) {
        // SAFETY: every address was proved; slots by the contract.
        unsafe {
            if N == 1 && mask == u32::MAX && is_contiguous(&self.all, 4) {
                let from = self.host(0).cast::<Lanes<u32>>();
                slots.pointer::<u32>(0).write(from.read_unaligned());
                return;
            }
            let mut values = [[0u32; LANES]; N];
            if is_contiguous(&self.all, 0) {
                let from = self.host(0).cast::<[u32; N]>().read();
                for part in 0..N {
                    values[part] = [from[part]; LANES];
                }
            } else if N == 4 {
                for first in (0..LANES).step_by(4) {
                    let rows = [0, 1, 2, 3].map(|i| self.host(first + i).cast::<[u32; 4]>().read());
                    let columns = transpose(rows);
                    for part in 0..N {
                        values[part][first..first + 4].copy_from_slice(&columns[part]);
                    }
                }
            } else {
                for lane in 0..LANES {
                    let from = self.host(lane).cast::<[u32; N]>().read();
                    for part in 0..N {
                        values[part][lane] = from[part];
                    }
                }
            }
            for part in 0..N {
                slots.write(part, mask, &values[part]);
            }
        }
    }

    /// Stores `N` words from each lane of `mask`; of lanes with the same address the last one wins.
    ///
    /// # Safety
    ///
    /// The slots must be those of a store of `N` words.
    #[inline(always)]
    unsafe fn store<const N: usize>(&self, slots: Slots, mask: u32) {
        // SAFETY: every address was proved; slots by the contract.
        unsafe {
            if N == 1 && mask == u32::MAX && is_contiguous(&self.all, 4) {
                let to = self.host(0).cast::<Lanes<u32>>();
                to.write_unaligned(slots.read::<u32>(1));
                return;
            }
            let mut values = [[0u32; LANES]; N];
            for part in 0..N {
                values[part] = slots.read::<u32>(1 + part);
            }
            for lane in 0..LANES {
                if mask >> lane & 1 != 0 {
                    let mut value = [0u32; N];
                    for part in 0..N {
                        value[part] = values[part][lane];
                    }
                    self.host(lane).cast::<[u32; N]>().write(value);
                }
            }
        }
    }
}

/// Rows to columns.
#[inline(always)]
fn transpose(rows: [[u32; 4]; 4]) -> [[u32; 4]; 4] {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{
            __m128i, _mm_unpackhi_epi32, _mm_unpackhi_epi64, _mm_unpacklo_epi32, _mm_unpacklo_epi64,
        };
        // SAFETY: both types are 16 bytes of which all are valid, and every x86-64 has SSE2.
        unsafe {
            let [a, b, c, d] = rows.map(|row| std::mem::transmute::<[u32; 4], __m128i>(row));
            let (low, high) = (_mm_unpacklo_epi32(a, b), _mm_unpackhi_epi32(a, b));
            let (low_next, high_next) = (_mm_unpacklo_epi32(c, d), _mm_unpackhi_epi32(c, d));
            let columns = [
                _mm_unpacklo_epi64(low, low_next),
                _mm_unpackhi_epi64(low, low_next),
                _mm_unpacklo_epi64(high, high_next),
                _mm_unpackhi_epi64(high, high_next),
            ];
            std::mem::transmute::<[__m128i; 4], [[u32; 4]; 4]>(columns)
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::array::from_fn(|column| std::array::from_fn(|row| rows[row][column]))
}

/// Loads `N` words in each lane; false when the slow path has to look.
///
/// # Safety
///
/// The instruction must be a load of `N` words that decoding made, and the program that of the
/// memories.
#[inline(always)]
pub(super) unsafe fn load_words<const SHARED: bool, const N: usize>(
    memories: &mut Memories<'_>,
    (slots, mask): (Slots, u32),
    (program, index): (&Program, u32),
) -> bool {
    // SAFETY: the index and the slots come from decoding.
    unsafe {
        let access = program.accesses.get_unchecked(index as usize);
        let (operand, access) = ((slots, N, mask), (index as usize, access));
        if SHARED && access.1.address == Width::Word {
            let checked = Checked::<u32>::new::<SHARED, N>(memories, operand, access);
            checked.is_some_and(|checked| {
                checked.load::<N>(slots, mask);
                true
            })
        } else {
            let checked = Checked::<u64>::new::<SHARED, N>(memories, operand, access);
            checked.is_some_and(|checked| {
                checked.load::<N>(slots, mask);
                true
            })
        }
    }
}

/// Stores `N` words from each lane; false when the slow path has to look.
///
/// # Safety
///
/// As for [`load_words`], for a store.
#[inline(always)]
pub(super) unsafe fn store_words<const SHARED: bool, const N: usize>(
    memories: &mut Memories<'_>,
    (slots, mask): (Slots, u32),
    (program, index): (&Program, u32),
) -> bool {
    // SAFETY: the index and the slots come from decoding.
    unsafe {
        let access = program.accesses.get_unchecked(index as usize);
        let (operand, access) = ((slots, 0, mask), (index as usize, access));
        if SHARED && access.1.address == Width::Word {
            let checked = Checked::<u32>::new::<SHARED, N>(memories, operand, access);
            checked.is_some_and(|checked| {
                checked.store::<N>(slots, mask);
                true
            })
        } else {
            let checked = Checked::<u64>::new::<SHARED, N>(memories, operand, access);
            checked.is_some_and(|checked| {
                checked.store::<N>(slots, mask);
                true
            })
        }
    }
}
