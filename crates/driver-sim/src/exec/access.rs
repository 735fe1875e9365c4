//! Loads and stores.
//!
//! The common accesses of a warp - words, pairs and quadruples of words in global or shared memory
//! - are checked once for all lanes and then copied; everything else, and whatever the common path
//! refuses, goes lane by lane through [`Memories::resolve`], which finds the lane at fault.

use retrograph_ptx::ast::Space;

use super::fault::FaultKind;
use super::program::{Access, LANES, Program, Width};
use super::vector::{Lanes, Slots};
use crate::memory::{Snapshot, Span};

/// Where shared memory lies among generic addresses.
pub(super) const SHARED_WINDOW: u64 = 0x6f00_0000_0000;
/// Where local memory lies among generic addresses.
pub(super) const LOCAL_WINDOW: u64 = 0x6e00_0000_0000;
/// Size of both windows.
const WINDOW: u64 = 1 << 32;

/// A fault and the lane that it happened to.
pub(super) type Trouble = (FaultKind, u32);

/// The memories that the threads of a block reach.
pub(super) struct Memories<'a> {
    /// Global memory.
    pub(super) global: &'a Snapshot,
    /// For each access of the program the allocation that it hit last.
    pub(super) spans: Vec<Span>,
    /// The shared memory of the block that runs.
    pub(super) shared: Span,
    /// The local memory of the warp that runs, lane after lane.
    pub(super) local: *mut u8,
    /// Bytes of local memory of one lane.
    pub(super) local_bytes: u32,
    /// The parameter block.
    pub(super) parameters: &'a [u8],
}

impl Memories<'_> {
    /// The allocation that holds `[low, high)`.
    #[inline(always)]
    fn span<const SHARED: bool>(&mut self, access: usize, low: u64, high: u64) -> Option<Span> {
        if SHARED {
            return (high <= self.shared.end).then_some(self.shared);
        }
        debug_assert!(access < self.spans.len());
        // SAFETY: the index comes from decoding, and there is a span for every access.
        let span = unsafe { self.spans.get_unchecked_mut(access) };
        if low >= span.base && high <= span.end {
            return Some(*span);
        }
        let found = self.global.find(low)?;
        *span = found;
        (high <= found.end).then_some(found)
    }

    /// The host bytes behind `bytes` bytes at `address` of the lane.
    pub(super) fn resolve(
        &self,
        access: &Access,
        lane: usize,
        address: u64,
    ) -> Result<*mut u8, FaultKind> {
        let bytes = access.bytes * access.count;
        let (space, offset) = locate(access.space, address);
        if !address.is_multiple_of(u64::from(bytes)) {
            return Err(FaultKind::Misaligned { address, bytes, space });
        }
        let error = FaultKind::OutOfBounds { address, bytes, space };
        let local = || {
            // SAFETY: local memory holds `local_bytes` for each lane.
            unsafe { self.local.add(lane * self.local_bytes as usize) }
        };
        let (base, end, host) = match space {
            Space::Shared => (0, self.shared.end, self.shared.host),
            Space::Local => (0, u64::from(self.local_bytes), local()),
            // Parameters are only read, which decoding has checked.
            Space::Param => (0, self.parameters.len() as u64, self.parameters.as_ptr().cast_mut()),
            Space::Global | Space::Const => {
                let span = self.global.find(address).ok_or(error.clone())?;
                (span.base, span.end, span.host)
            }
        };
        if offset < base || offset >= end || end - offset < u64::from(bytes) {
            return Err(error);
        }
        // SAFETY: the offset lies in the memory.
        Ok(unsafe { host.add((offset - base) as usize) })
    }
}

/// The space of an address, and the address in that space.
fn locate(space: Option<Space>, address: u64) -> (Space, u64) {
    match space {
        Some(space) => (space, address),
        None if address.wrapping_sub(SHARED_WINDOW) < WINDOW => {
            (Space::Shared, address - SHARED_WINDOW)
        }
        None if address.wrapping_sub(LOCAL_WINDOW) < WINDOW => {
            (Space::Local, address - LOCAL_WINDOW)
        }
        None => (Space::Global, address),
    }
}

/// The addresses of an access; those of lanes outside of `mask` are that of the first lane inside.
///
/// # Safety
///
/// The operand must be as wide as the access says.
#[inline(always)]
unsafe fn addresses(slots: Slots, operand: usize, mask: u32, access: &Access) -> Lanes<u64> {
    // SAFETY: by the contract.
    let mut all = unsafe {
        if access.address == Width::Word {
            let narrow = slots.read::<u32>(operand);
            let mut wide = [0u64; LANES];
            for lane in 0..LANES {
                // Offsets wrap in 32 bits, as the address registers do.
                wide[lane] = u64::from(narrow[lane].wrapping_add(access.offset as u32));
            }
            wide
        } else {
            let mut wide = slots.read::<u64>(operand);
            for address in &mut wide {
                *address = address.wrapping_add(access.offset as u64);
            }
            wide
        }
    };
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
fn extent(all: &Lanes<u64>) -> (u64, u64, u64) {
    let (mut low, mut high, mut bits) = (u64::MAX, 0, 0);
    for &address in all {
        low = low.min(address);
        high = high.max(address);
        bits |= address;
    }
    (low, high, bits)
}

/// Whether lane after lane is `stride` further.
#[inline(always)]
fn is_contiguous(all: &Lanes<u64>, stride: u64) -> bool {
    let mut difference = 0;
    for lane in 0..LANES {
        difference |= all[lane] ^ all[0].wrapping_add(lane as u64 * stride);
    }
    difference == 0
}

/// Checks an access of `N` words in all lanes at once. On success every address is an offset from
/// the pointer that comes with them.
///
/// # Safety
///
/// As for [`addresses`].
#[inline(always)]
unsafe fn check<const SHARED: bool, const N: usize>(
    memories: &mut Memories<'_>,
    (slots, operand, mask): (Slots, usize, u32),
    (index, access): (usize, &Access),
) -> Option<(Lanes<u64>, *mut u8)> {
    let size = 4 * N as u64;
    // SAFETY: by the contract.
    let all = unsafe { addresses(slots, operand, mask, access) };
    let (low, high, bits) = extent(&all);
    if bits & (size - 1) != 0 || high > u64::MAX - size {
        return None;
    }
    let span = memories.span::<SHARED>(index, low, high + size)?;
    // Wrapping, because the pointer for address zero need not be in any allocation; every address
    // added to it is.
    Some((all, span.host.wrapping_sub(span.base as usize)))
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
    // SAFETY: the index and the slots come from decoding; `check` proved every address.
    unsafe {
        let access = program.accesses.get_unchecked(index as usize);
        let found = check::<SHARED, N>(memories, (slots, N, mask), (index as usize, access));
        let Some((all, host)) = found else { return false };
        if N == 1 && mask == u32::MAX && is_contiguous(&all, 4) {
            let from = host.wrapping_add(all[0] as usize).cast::<Lanes<u32>>();
            slots.pointer::<u32>(0).write(from.read_unaligned());
            return true;
        }
        let mut values = [[0u32; LANES]; N];
        if is_contiguous(&all, 0) {
            let from = host.wrapping_add(all[0] as usize).cast::<[u32; N]>().read();
            for part in 0..N {
                values[part] = [from[part]; LANES];
            }
        } else {
            for lane in 0..LANES {
                let from = host.wrapping_add(all[lane] as usize).cast::<[u32; N]>().read();
                for part in 0..N {
                    values[part][lane] = from[part];
                }
            }
        }
        for part in 0..N {
            slots.write(part, mask, &values[part]);
        }
    }
    true
}

/// Stores `N` words from each lane; false when the slow path has to look. Of lanes that store to
/// the same address the last one wins.
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
    // SAFETY: the index and the slots come from decoding; `check` proved every address.
    unsafe {
        let access = program.accesses.get_unchecked(index as usize);
        let found = check::<SHARED, N>(memories, (slots, 0, mask), (index as usize, access));
        let Some((all, host)) = found else { return false };
        if N == 1 && mask == u32::MAX && is_contiguous(&all, 4) {
            let to = host.wrapping_add(all[0] as usize).cast::<Lanes<u32>>();
            to.write_unaligned(slots.read::<u32>(1));
            return true;
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
                host.wrapping_add(all[lane] as usize).cast::<[u32; N]>().write(value);
            }
        }
    }
    true
}

/// Any load, lane by lane.
///
/// # Safety
///
/// The instruction must be a load that decoding made.
#[inline(never)]
pub(super) unsafe fn load_any(
    memories: &Memories<'_>,
    (slots, mask): (Slots, u32),
    access: &Access,
) -> Result<(), Trouble> {
    let count = access.count as usize;
    // SAFETY: the slots come from decoding; `resolve` proved the bytes.
    unsafe {
        let all = addresses(slots, count, mask, access);
        for lane in lanes_of(mask) {
            let from = memories.resolve(access, lane, all[lane]);
            let from = from.map_err(|kind| (kind, lane as u32))?;
            for part in 0..count {
                let bytes = access.bytes as usize;
                let value = read_element(from.add(part * bytes), bytes, access.signed);
                set_lane(slots, part, (access.value, lane), value);
            }
        }
    }
    Ok(())
}

/// Any store, lane by lane.
///
/// # Safety
///
/// The instruction must be a store that decoding made.
#[inline(never)]
pub(super) unsafe fn store_any(
    memories: &Memories<'_>,
    (slots, mask): (Slots, u32),
    access: &Access,
) -> Result<(), Trouble> {
    let bytes = access.bytes as usize;
    // SAFETY: the slots come from decoding; `resolve` proved the bytes.
    unsafe {
        let all = addresses(slots, 0, mask, access);
        for lane in lanes_of(mask) {
            let to = memories.resolve(access, lane, all[lane]);
            let to = to.map_err(|kind| (kind, lane as u32))?;
            for part in 0..access.count as usize {
                let value = lane_of(slots, 1 + part, (access.value, lane)).to_le_bytes();
                std::ptr::copy_nonoverlapping(value.as_ptr(), to.add(part * bytes), bytes);
            }
        }
    }
    Ok(())
}

/// The addresses of an atomic access.
///
/// # Safety
///
/// As for [`addresses`].
pub(super) unsafe fn atomic_addresses(slots: Slots, mask: u32, access: &Access) -> Lanes<u64> {
    // SAFETY: by the contract.
    unsafe { addresses(slots, 1, mask, access) }
}

/// The lanes of a mask, ascending.
pub(super) fn lanes_of(mask: u32) -> impl Iterator<Item = usize> {
    (0..LANES).filter(move |lane| mask >> lane & 1 != 0)
}

/// Reads an element of `bytes` bytes and extends it to 64 bits.
///
/// # Safety
///
/// `from` must be valid for reading `bytes` bytes, at most 8.
pub(super) unsafe fn read_element(from: *const u8, bytes: usize, signed: bool) -> u64 {
    let mut raw = [0; 8];
    // SAFETY: by the contract.
    unsafe { std::ptr::copy_nonoverlapping(from, raw.as_mut_ptr(), bytes) };
    let value = u64::from_le_bytes(raw);
    let unused = 64 - 8 * bytes as u32;
    if signed { ((value << unused) as i64 >> unused) as u64 } else { value }
}

/// One lane of a slot, extended with zeros.
///
/// # Safety
///
/// The operand must be of the width, and the lane below 32.
#[inline(always)]
pub(super) unsafe fn lane_of(slots: Slots, operand: usize, (width, lane): (Width, usize)) -> u64 {
    // SAFETY: by the contract.
    unsafe {
        match width {
            Width::Predicate => u64::from(slots.predicate(operand) >> lane & 1),
            Width::Word => u64::from((*slots.pointer::<u32>(operand))[lane]),
            Width::Double => (*slots.pointer::<u64>(operand))[lane],
        }
    }
}

/// Sets one lane of a slot.
///
/// # Safety
///
/// As for [`lane_of`].
#[inline(always)]
pub(super) unsafe fn set_lane(
    slots: Slots,
    operand: usize,
    (width, lane): (Width, usize),
    value: u64,
) {
    // SAFETY: by the contract.
    unsafe {
        match width {
            Width::Predicate => slots.set_predicate(operand, 1 << lane, (value as u32) << lane),
            Width::Word => (*slots.pointer::<u32>(operand))[lane] = value as u32,
            Width::Double => (*slots.pointer::<u64>(operand))[lane] = value,
        }
    }
}
