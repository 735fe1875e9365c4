//! Loads and stores of one, two or four words in global or shared memory: checks all lanes
//! together, then copies.

#![expect(clippy::needless_range_loop, reason = "a lane is an index into several arrays")]

mod address;

use self::address::Address;
use super::access::Memories;
use super::interpreter::Machine;
use super::program::{Access, LANES, Width};
use super::registers::{ActiveLanes, Lanes, Offset};

/// The addresses of an access. Inactive lanes get the address of the first active one.
///
/// # Safety
///
/// The register must be as wide as the access says, and `A` no narrower.
#[inline(always)]
pub(super) unsafe fn addresses<A: Address>(
    lanes: ActiveLanes,
    register: Offset,
    access: &Access,
) -> Lanes<A> {
    // SAFETY: by the contract.
    let mut all = unsafe { A::read(lanes.file, register, access.address) };
    for address in &mut all {
        *address = address.plus(access.offset as u64).wrapped(access.address);
    }
    if lanes.mask != u32::MAX {
        let (first, mask) = (all[lanes.first()], lanes.partial_mask());
        for lane in 0..LANES {
            all[lane] = if mask >> lane & 1 != 0 { all[lane] } else { first };
        }
    }
    all
}

/// The minimum and maximum address, and the bitwise or of all. A pairwise reduction becomes vector
/// instructions; a chain of comparisons would not.
#[inline(always)]
fn extent<A: Address>(all: &Lanes<A>) -> (u64, u64, u64) {
    let (mut low, mut high, mut bits) = (*all, *all, *all);
    let mut half = LANES / 2;
    while half > 0 {
        for lane in 0..half {
            low[lane] = low[lane].min(low[lane + half]);
            high[lane] = high[lane].max(high[lane + half]);
            bits[lane] = bits[lane] | bits[lane + half];
        }
        half /= 2;
    }
    (low[0].wide(), high[0].wide(), bits[0].wide())
}

/// Whether the address increases by `stride` from lane to lane.
#[inline(always)]
fn is_contiguous<A: Address>(all: &Lanes<A>, stride: u64) -> bool {
    let mut difference = A::ZERO;
    for lane in 0..LANES {
        difference = difference | (all[lane] ^ all[0].plus(lane as u64 * stride));
    }
    difference == A::ZERO
}

/// The addresses of an access, proved in bounds in all lanes.
struct Checked<A> {
    all: Lanes<A>,
    /// The host address of device address zero. Only its sum with a checked address is valid.
    origin: *mut u8,
}

impl<A: Address> Checked<A> {
    #[inline(always)]
    fn host(&self, lane: usize) -> *mut u8 {
        self.origin.wrapping_add(self.all[lane].wide() as usize)
    }

    /// Checks an access of `N` words in all lanes together.
    ///
    /// # Safety
    ///
    /// As for [`addresses`].
    #[inline(always)]
    unsafe fn new<const SHARED: bool, const N: usize>(
        memories: &mut Memories<'_>,
        lanes: ActiveLanes,
        register: Offset,
        index: usize,
        access: &Access,
    ) -> Option<Self> {
        let size = 4 * N as u64;
        // SAFETY: by the contract.
        let all = unsafe { addresses::<A>(lanes, register, access) };
        let (low, high, bits) = extent(&all);
        if bits & (size - 1) != 0 || high > u64::MAX - size {
            return None;
        }
        let span = memories.span::<SHARED>(index, low, high + size)?;
        Some(Self { all, origin: span.host.wrapping_sub(span.base as usize) })
    }

    /// Loads `N` words in each active lane.
    ///
    /// # Safety
    ///
    /// `d` must be the destination registers of a load of words.
    #[inline(always)]
    unsafe fn load<const N: usize>(&self, lanes: ActiveLanes, d: [Offset; N]) {
        // SAFETY: every address was proved; registers by the contract.
        unsafe {
            if N == 1 && lanes.mask == u32::MAX && is_contiguous(&self.all, 4) {
                let from = self.host(0).cast::<Lanes<u32>>();
                lanes.file.pointer::<u32>(d[0]).write(from.read_unaligned());
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
                    let mut rows = [[0; 4]; 4];
                    for row in 0..4 {
                        rows[row] = self.host(first + row).cast::<[u32; 4]>().read();
                    }
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
                lanes.write(d[part], &values[part]);
            }
        }
    }

    /// Stores `N` words from each active lane. The last of several lanes with the same address
    /// wins.
    ///
    /// # Safety
    ///
    /// `from` must be the source registers of a store of words.
    #[inline(always)]
    unsafe fn store<const N: usize>(&self, lanes: ActiveLanes, from: [Offset; N]) {
        // SAFETY: every address was proved; registers by the contract.
        unsafe {
            if N == 1 && lanes.mask == u32::MAX && is_contiguous(&self.all, 4) {
                let to = self.host(0).cast::<Lanes<u32>>();
                to.write_unaligned(lanes.file.read::<u32>(from[0]));
                return;
            }
            let mut values = [[0u32; LANES]; N];
            for part in 0..N {
                values[part] = lanes.file.read::<u32>(from[part]);
            }
            let mask = lanes.partial_mask();
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

/// Transposes rows and columns.
#[inline(always)]
fn transpose(rows: [[u32; 4]; 4]) -> [[u32; 4]; 4] {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{
            __m128i, _mm_unpackhi_epi32, _mm_unpackhi_epi64, _mm_unpacklo_epi32, _mm_unpacklo_epi64,
        };
        // SAFETY: both types are 16 bytes, valid for any bits, and every x86-64 has SSE2.
        unsafe {
            let [a, b, c, d] = std::mem::transmute::<[[u32; 4]; 4], [__m128i; 4]>(rows);
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

/// Loads `N` words in each lane. Returns false if the access needs the lane-by-lane path.
///
/// # Safety
///
/// Registers and access must come from decoding a load of `N` words of the machine's program.
#[inline(always)]
pub(super) unsafe fn load_words<const SHARED: bool, const N: usize>(
    machine: &mut Machine<'_>,
    lanes: ActiveLanes,
    d: [Offset; N],
    address: Offset,
    index: u32,
) -> bool {
    // SAFETY: the index and the registers come from decoding.
    unsafe {
        let access = machine.program.accesses.get_unchecked(index as usize);
        let (memories, index) = (&mut machine.memories, index as usize);
        if SHARED && access.address == Width::Word {
            let checked = Checked::<u32>::new::<SHARED, N>(memories, lanes, address, index, access);
            checked.map(|checked| checked.load(lanes, d)).is_some()
        } else {
            let checked = Checked::<u64>::new::<SHARED, N>(memories, lanes, address, index, access);
            checked.map(|checked| checked.load(lanes, d)).is_some()
        }
    }
}

/// Stores `N` words from each lane. Returns false if the access needs the lane-by-lane path.
///
/// # Safety
///
/// As for [`load_words`], for a store.
#[inline(always)]
pub(super) unsafe fn store_words<const SHARED: bool, const N: usize>(
    machine: &mut Machine<'_>,
    lanes: ActiveLanes,
    values: [Offset; N],
    address: Offset,
    index: u32,
) -> bool {
    // SAFETY: the index and the registers come from decoding.
    unsafe {
        let access = machine.program.accesses.get_unchecked(index as usize);
        let (memories, index) = (&mut machine.memories, index as usize);
        if SHARED && access.address == Width::Word {
            let checked = Checked::<u32>::new::<SHARED, N>(memories, lanes, address, index, access);
            checked.map(|checked| checked.store(lanes, values)).is_some()
        } else {
            let checked = Checked::<u64>::new::<SHARED, N>(memories, lanes, address, index, access);
            checked.map(|checked| checked.store(lanes, values)).is_some()
        }
    }
}
