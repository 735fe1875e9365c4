//! Loads, stores, atomics, and asynchronous copies.
//!
//! Loads and stores of 32-bit words in global and shared memory check all lanes at once
//! ([`crate::words`]); all other accesses run lane by lane ([`crate::access`]).

use super::operations;
use crate::access::{LaneFault, load_any, store_any};
use crate::interpreter::Machine;
use crate::program::LANES;
use crate::registers::{ActiveLanes, Offset};
use crate::warp::Warp;
use crate::words::{load_words, store_words};
use crate::{async_copy, atomics};

operations! {
    /// Loads, stores, atomics and asynchronous copies. `access`, `atomic` and `copy` are indices
    /// into tables of the program.
    enum Memory {
        /// A 32-bit kernel parameter at a byte offset.
        Parameter32(d) <- () { offset: u32 };
        /// A 64-bit kernel parameter at a byte offset.
        Parameter64(d) <- () { offset: u32 };

        /// `ld.global.b32`.
        LoadGlobal1(d) <- (address) { access: u32 };
        /// `ld.global.v2.b32`.
        LoadGlobal2(d0, d1) <- (address) { access: u32 };
        /// `ld.global.v4.b32`.
        LoadGlobal4(d0, d1, d2, d3) <- (address) { access: u32 };
        /// `st.global.b32`.
        StoreGlobal1() <- (address, a) { access: u32 };
        /// `st.global.v2.b32`.
        StoreGlobal2() <- (address, a0, a1) { access: u32 };
        /// `st.global.v4.b32`.
        StoreGlobal4() <- (address, a0, a1, a2, a3) { access: u32 };
        /// `ld.shared.b32`.
        LoadShared1(d) <- (address) { access: u32 };
        /// `ld.shared.v2.b32`.
        LoadShared2(d0, d1) <- (address) { access: u32 };
        /// `ld.shared.v4.b32`.
        LoadShared4(d0, d1, d2, d3) <- (address) { access: u32 };
        /// `st.shared.b32`.
        StoreShared1() <- (address, a) { access: u32 };
        /// `st.shared.v2.b32`.
        StoreShared2() <- (address, a0, a1) { access: u32 };
        /// `st.shared.v4.b32`.
        StoreShared4() <- (address, a0, a1, a2, a3) { access: u32 };

        /// Any load of one value.
        Load1(d) <- (address) { access: u32 };
        /// Any load of two values.
        Load2(d0, d1) <- (address) { access: u32 };
        /// Any load of four values.
        Load4(d0, d1, d2, d3) <- (address) { access: u32 };
        /// Any store of one value.
        Store1() <- (address, a) { access: u32 };
        /// Any store of two values.
        Store2() <- (address, a0, a1) { access: u32 };
        /// Any store of four values.
        Store4() <- (address, a0, a1, a2, a3) { access: u32 };

        /// `atom` and `red`: `c` is read by compare-and-swap.
        Atomic(d) <- (address, b, c) { atomic: u32 };

        /// `cp.async`. `size` is a number of bytes or, depending on the copy, a predicate.
        CpAsync() <- (target, source, size) { copy: u32 };
        /// `cp.async.commit_group`.
        CommitGroup() <- ();
        /// `cp.async.wait_group`: at most `pending` groups may stay incomplete.
        WaitGroup() <- () { pending: u32 };
        /// `cp.async.wait_all`.
        WaitAll() <- ();
    }
}

impl<R: Copy> Memory<R> {
    /// Returns the lane-by-lane form of the access.
    pub(crate) fn lane_by_lane(self) -> Self {
        use Memory as M;
        match self {
            M::LoadGlobal1 { d, address, access } | M::LoadShared1 { d, address, access } => {
                M::Load1 { d, address, access }
            }
            M::LoadGlobal2 { d0, d1, address, access }
            | M::LoadShared2 { d0, d1, address, access } => M::Load2 { d0, d1, address, access },
            M::LoadGlobal4 { d0, d1, d2, d3, address, access }
            | M::LoadShared4 { d0, d1, d2, d3, address, access } => {
                M::Load4 { d0, d1, d2, d3, address, access }
            }
            M::StoreGlobal1 { address, a, access } | M::StoreShared1 { address, a, access } => {
                M::Store1 { address, a, access }
            }
            M::StoreGlobal2 { address, a0, a1, access }
            | M::StoreShared2 { address, a0, a1, access } => M::Store2 { address, a0, a1, access },
            M::StoreGlobal4 { address, a0, a1, a2, a3, access }
            | M::StoreShared4 { address, a0, a1, a2, a3, access } => {
                M::Store4 { address, a0, a1, a2, a3, access }
            }
            other => other,
        }
    }

    /// Whether this is a store of words to shared memory that checks all lanes at once.
    pub(crate) fn stores_shared_words(&self) -> bool {
        matches!(
            self,
            Self::StoreShared1 { .. } | Self::StoreShared2 { .. } | Self::StoreShared4 { .. }
        )
    }

    /// Whether this is a load of words from shared memory that checks all lanes at once.
    pub(crate) fn loads_shared_words(&self) -> bool {
        matches!(
            self,
            Self::LoadShared1 { .. } | Self::LoadShared2 { .. } | Self::LoadShared4 { .. }
        )
    }
}

// The state space of a load or store of words.
const GLOBAL: bool = false;
const SHARED: bool = true;

impl Memory<Offset> {
    /// Executes the operation in the active lanes of `warp`.
    ///
    /// # Safety
    ///
    /// The operation must come from decoding the program of `machine`.
    #[inline(always)]
    pub(crate) unsafe fn execute(
        &self,
        machine: &mut Machine<'_>,
        warp: &mut Warp,
        lanes: ActiveLanes,
    ) -> Result<(), LaneFault> {
        // SAFETY: decoding created registers, indices and offsets for this program.
        unsafe {
            match *self {
                Self::Parameter32 { d, offset } => {
                    let from = machine.memories.parameters.as_ptr().add(offset as usize);
                    lanes.write(d, &[from.cast::<u32>().read_unaligned(); LANES]);
                }
                Self::Parameter64 { d, offset } => {
                    let from = machine.memories.parameters.as_ptr().add(offset as usize);
                    lanes.write(d, &[from.cast::<u64>().read_unaligned(); LANES]);
                }
                Self::LoadGlobal1 { d, address, access } => {
                    load::<GLOBAL, 1>(machine, warp, lanes, [d], address, access)?;
                }
                Self::LoadGlobal2 { d0, d1, address, access } => {
                    load::<GLOBAL, 2>(machine, warp, lanes, [d0, d1], address, access)?;
                }
                Self::LoadGlobal4 { d0, d1, d2, d3, address, access } => {
                    load::<GLOBAL, 4>(machine, warp, lanes, [d0, d1, d2, d3], address, access)?;
                }
                Self::StoreGlobal1 { address, a, access } => {
                    store::<GLOBAL, 1>(machine, warp, lanes, [a], address, access)?;
                }
                Self::StoreGlobal2 { address, a0, a1, access } => {
                    store::<GLOBAL, 2>(machine, warp, lanes, [a0, a1], address, access)?;
                }
                Self::StoreGlobal4 { address, a0, a1, a2, a3, access } => {
                    store::<GLOBAL, 4>(machine, warp, lanes, [a0, a1, a2, a3], address, access)?;
                }
                Self::LoadShared1 { d, address, access } => {
                    load::<SHARED, 1>(machine, warp, lanes, [d], address, access)?;
                }
                Self::LoadShared2 { d0, d1, address, access } => {
                    load::<SHARED, 2>(machine, warp, lanes, [d0, d1], address, access)?;
                }
                Self::LoadShared4 { d0, d1, d2, d3, address, access } => {
                    load::<SHARED, 4>(machine, warp, lanes, [d0, d1, d2, d3], address, access)?;
                }
                Self::StoreShared1 { address, a, access } => {
                    store::<SHARED, 1>(machine, warp, lanes, [a], address, access)?;
                }
                Self::StoreShared2 { address, a0, a1, access } => {
                    store::<SHARED, 2>(machine, warp, lanes, [a0, a1], address, access)?;
                }
                Self::StoreShared4 { address, a0, a1, a2, a3, access } => {
                    store::<SHARED, 4>(machine, warp, lanes, [a0, a1, a2, a3], address, access)?;
                }
                Self::Load1 { d, address, access } => {
                    load_lanes(machine, warp, lanes, &[d], address, access)?;
                }
                Self::Load2 { d0, d1, address, access } => {
                    load_lanes(machine, warp, lanes, &[d0, d1], address, access)?;
                }
                Self::Load4 { d0, d1, d2, d3, address, access } => {
                    load_lanes(machine, warp, lanes, &[d0, d1, d2, d3], address, access)?;
                }
                Self::Store1 { address, a, access } => {
                    store_lanes(machine, warp, lanes, &[a], address, access)?;
                }
                Self::Store2 { address, a0, a1, access } => {
                    store_lanes(machine, warp, lanes, &[a0, a1], address, access)?;
                }
                Self::Store4 { address, a0, a1, a2, a3, access } => {
                    store_lanes(machine, warp, lanes, &[a0, a1, a2, a3], address, access)?;
                }
                Self::Atomic { d, address, b, c, atomic } => {
                    machine.memories.pc = warp.pc;
                    let atomic = machine.program.atomics.get_unchecked(atomic as usize);
                    let operands = atomics::Operands { d, address, b, c };
                    atomics::execute(&mut machine.memories, lanes, operands, atomic)?;
                }
                Self::CpAsync { target, source, size, copy: index } => {
                    machine.memories.pc = warp.pc;
                    let copy = machine.program.copies.get_unchecked(index as usize);
                    let operands = async_copy::Operands { target, source, size };
                    let memories = &mut machine.memories;
                    warp.async_copies.issue(memories, lanes, operands, index, copy)?;
                }
                Self::CommitGroup {} => warp.async_copies.commit(lanes.mask),
                Self::WaitGroup { pending } => {
                    machine.memories.pc = warp.pc;
                    let (copies, memories) = (&machine.program.copies, &mut machine.memories);
                    warp.async_copies.wait(memories, copies, lanes.mask, Some(pending))?;
                }
                Self::WaitAll {} => {
                    machine.memories.pc = warp.pc;
                    let (copies, memories) = (&machine.program.copies, &mut machine.memories);
                    warp.async_copies.wait(memories, copies, lanes.mask, None)?;
                }
            }
        }
        Ok(())
    }
}

/// # Safety
///
/// As for [`Memory::execute`], for a load of `N` words.
#[inline(always)]
unsafe fn load<const SHARED: bool, const N: usize>(
    machine: &mut Machine<'_>,
    warp: &Warp,
    lanes: ActiveLanes,
    values: [Offset; N],
    address: Offset,
    access: u32,
) -> Result<(), LaneFault> {
    // SAFETY: by the contract.
    unsafe {
        if load_words::<SHARED, N>(machine, lanes, values, address, access) {
            return Ok(());
        }
        load_lanes(machine, warp, lanes, &values, address, access)
    }
}

/// # Safety
///
/// As for [`Memory::execute`], for a store of `N` words.
#[inline(always)]
unsafe fn store<const SHARED: bool, const N: usize>(
    machine: &mut Machine<'_>,
    warp: &Warp,
    lanes: ActiveLanes,
    values: [Offset; N],
    address: Offset,
    access: u32,
) -> Result<(), LaneFault> {
    // SAFETY: by the contract.
    unsafe {
        if store_words::<SHARED, N>(machine, lanes, values, address, access) {
            if !SHARED {
                machine.memories.has_changed_global.set(true);
            }
            return Ok(());
        }
        store_lanes(machine, warp, lanes, &values, address, access)
    }
}

/// # Safety
///
/// As for [`Memory::execute`], for a load.
#[inline(never)]
unsafe fn load_lanes(
    machine: &mut Machine<'_>,
    warp: &Warp,
    lanes: ActiveLanes,
    values: &[Offset],
    address: Offset,
    access: u32,
) -> Result<(), LaneFault> {
    machine.memories.pc = warp.pc;
    // SAFETY: by the contract.
    unsafe {
        let access = machine.program.accesses.get_unchecked(access as usize);
        load_any(&mut machine.memories, lanes, values, address, access)
    }
}

/// # Safety
///
/// As for [`Memory::execute`], for a store.
#[inline(never)]
unsafe fn store_lanes(
    machine: &mut Machine<'_>,
    warp: &Warp,
    lanes: ActiveLanes,
    values: &[Offset],
    address: Offset,
    access: u32,
) -> Result<(), LaneFault> {
    machine.memories.pc = warp.pc;
    // SAFETY: by the contract.
    unsafe {
        let access = machine.program.accesses.get_unchecked(access as usize);
        store_any(&mut machine.memories, lanes, values, address, access)
    }
}
