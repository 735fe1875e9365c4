//! Instructions between the lanes of a warp.

use super::access::LaneFault;
use super::fault::FaultKind;
use super::operation::ShuffleMode;
use super::program::LANES;
use super::registers::{ActiveLanes, Lanes, Offset, lanes_of};
use super::undefined::Undefined;
use super::warp::Warp;

/// Whether the members of a warp-wide operation have arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// All lanes of the member mask are active.
    Complete,
    /// Some members are at another instruction.
    Incomplete,
    /// The active lanes have disjoint member masks, and all members of one mask have arrived: these
    /// lanes.
    Part(u32),
}

/// Whether the lanes of the member mask have arrived, not counting exited lanes.
///
/// # Safety
///
/// `members` must be a register of 32 bits.
#[inline(always)]
pub(super) unsafe fn arrive(
    warp: &Warp,
    lanes: ActiveLanes,
    members: Offset,
) -> Result<Arrival, LaneFault> {
    // SAFETY: by the contract.
    let members = unsafe { lanes.file.read::<u32>(members) };
    let named = members[lanes.first()];
    let different = members.iter().fold(0, |bits, member| bits | (member ^ named));
    let missing = named & warp.live & !lanes.mask;
    if different == 0 && missing == 0 && lanes.mask & !named == 0 {
        return Ok(Arrival::Complete);
    }
    arrive_slowly(warp, &members, lanes.mask)
}

#[inline(never)]
fn arrive_slowly(warp: &Warp, members: &Lanes<u32>, mask: u32) -> Result<Arrival, LaneFault> {
    let undefined = |what, lane| Err((FaultKind::Undefined(what), lane));
    if let Some(lane) = lanes_of(mask).find(|&lane| members[lane] & 1 << lane == 0) {
        return undefined(Undefined::NotAMember, lane as u32);
    }
    let (mut rest, mut complete) = (mask, 0);
    while rest != 0 {
        let named = members[rest.trailing_zeros() as usize];
        let part = lanes_with(members, mask, named);
        let stranger = named & mask & !part;
        if stranger != 0 {
            return undefined(Undefined::MembermasksDiffer, stranger.trailing_zeros());
        }
        let missing = named & warp.live & !part;
        if missing & warp.active != 0 {
            return undefined(Undefined::MemberSkips, missing.trailing_zeros());
        }
        if missing == 0 && complete == 0 {
            complete = part;
        }
        rest &= !part;
    }
    Ok(match complete {
        0 => Arrival::Incomplete,
        part if part == mask => Arrival::Complete,
        part => Arrival::Part(part),
    })
}

/// The lanes of `mask` whose member mask is `named`.
fn lanes_with(members: &Lanes<u32>, mask: u32, named: u32) -> u32 {
    lanes_of(mask).filter(|&lane| members[lane] == named).fold(0, |lanes, lane| lanes | 1 << lane)
}

/// The member mask of the active lanes, if all have the same one.
///
/// # Safety
///
/// As for [`arrive`].
pub(super) unsafe fn common_members(lanes: ActiveLanes, members: Offset) -> Option<u32> {
    // SAFETY: by the contract.
    let members = unsafe { lanes.file.read::<u32>(members) };
    let named = members[lanes.first()];
    (lanes_with(&members, lanes.mask, named) == lanes.mask).then_some(named)
}

/// The source lane of each lane of a shuffle, and a mask of the lanes whose source is in range.
///
/// # Safety
///
/// The operands must be registers of 32 bits: the lane or distance, and the clamp.
#[inline(always)]
unsafe fn sources(
    lanes: ActiveLanes,
    b: Offset,
    c: Offset,
    mode: ShuffleMode,
) -> (Lanes<u32>, u32) {
    // SAFETY: by the contract.
    let (b, c) = unsafe { (lanes.file.read::<u32>(b), lanes.file.read::<u32>(c)) };
    // One copy of the loop per mode, so that each is vectorized.
    match mode {
        ShuffleMode::Up => sources_of(b, c, ShuffleMode::Up),
        ShuffleMode::Down => sources_of(b, c, ShuffleMode::Down),
        ShuffleMode::Butterfly => sources_of(b, c, ShuffleMode::Butterfly),
        ShuffleMode::Index => sources_of(b, c, ShuffleMode::Index),
    }
}

#[inline(always)]
fn sources_of(b: Lanes<u32>, c: Lanes<u32>, mode: ShuffleMode) -> (Lanes<u32>, u32) {
    let (mut from, mut valid) = ([0; LANES], [0; LANES]);
    for lane in 0..LANES {
        let (index, b) = (lane as u32, b[lane] & 31);
        let (clamp, segment) = (c[lane] & 31, c[lane] >> 8 & 31);
        let bound = index & segment | clamp & !segment;
        let source = match mode {
            ShuffleMode::Up => index.wrapping_sub(b),
            ShuffleMode::Down => index + b,
            ShuffleMode::Butterfly => index ^ b,
            ShuffleMode::Index => index & segment | b & !segment,
        };
        // For `.up`, the bound is the lowest source lane, and a source below zero is negative.
        let inside = match mode {
            ShuffleMode::Up => source as i32 >= bound as i32,
            _ => source <= bound,
        };
        from[lane] = if inside { source } else { index };
        valid[lane] = u32::from(inside) << lane;
    }
    (from, valid.iter().fold(0, |bits, bit| bits | bit))
}

/// `shfl.sync d, a, b, c`.
///
/// # Safety
///
/// The operands must be registers of 32 bits.
#[inline(always)]
pub(super) unsafe fn shuffle(
    lanes: ActiveLanes,
    d: Offset,
    a: Offset,
    b: Offset,
    c: Offset,
    mode: ShuffleMode,
) -> Result<(), LaneFault> {
    // SAFETY: by the contract.
    unsafe {
        let values = lanes.file.read::<u32>(a);
        let (from, _) = sources(lanes, b, c, mode);
        let mut result = [0; LANES];
        let mut absent = 0;
        for lane in 0..LANES {
            // Sources are below 32; the mask proves it to the compiler.
            let source = from[lane] & 31;
            result[lane] = values[source as usize];
            absent |= (!lanes.mask >> source & 1) << lane;
        }
        if absent & lanes.mask != 0 {
            let kind = FaultKind::Undefined(Undefined::ShuffleSource);
            return Err((kind, (absent & lanes.mask).trailing_zeros()));
        }
        lanes.write(d, &result);
    }
    Ok(())
}

/// The predicate of `shfl.sync d|p, a, b, c`: whether the source lane is in range.
///
/// # Safety
///
/// The operands must be registers of 32 bits, and `p` a predicate.
#[inline(always)]
pub(super) unsafe fn shuffle_in_range(
    lanes: ActiveLanes,
    p: Offset,
    b: Offset,
    c: Offset,
    mode: ShuffleMode,
) {
    // SAFETY: by the contract.
    unsafe {
        let (_, valid) = sources(lanes, b, c, mode);
        lanes.write_predicate(p, valid);
    }
}

/// The operation of `redux.sync`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReduceOperation {
    Add,
    MinU32,
    MaxU32,
    MinS32,
    MaxS32,
    And,
    Or,
    Xor,
}

impl ReduceOperation {
    fn apply(self, a: u32, b: u32) -> u32 {
        match self {
            Self::Add => a.wrapping_add(b),
            Self::MinU32 => a.min(b),
            Self::MaxU32 => a.max(b),
            Self::MinS32 => (a as i32).min(b as i32) as u32,
            Self::MaxS32 => (a as i32).max(b as i32) as u32,
            Self::And => a & b,
            Self::Or => a | b,
            Self::Xor => a ^ b,
        }
    }
}

/// `redux.sync d, value`.
///
/// # Safety
///
/// The operands must be registers of 32 bits.
#[inline(never)]
pub(super) unsafe fn reduce(
    lanes: ActiveLanes,
    d: Offset,
    value: Offset,
    operation: ReduceOperation,
) {
    // SAFETY: by the contract.
    unsafe {
        let values = lanes.file.read::<u32>(value);
        let all = lanes.iter().map(|lane| values[lane]);
        let result = all.reduce(|a, b| operation.apply(a, b)).unwrap_or(0);
        lanes.write(d, &[result; LANES]);
    }
}

/// For each active lane, a mask of the active lanes with the same value.
///
/// # Safety
///
/// The register must have 64 bits if `wide`, and 32 otherwise.
unsafe fn equal_lanes(lanes: ActiveLanes, value: Offset, wide: bool) -> Lanes<u32> {
    // SAFETY: by the contract.
    let values: Lanes<u64> = unsafe {
        if wide {
            lanes.file.read::<u64>(value)
        } else {
            lanes.file.read::<u32>(value).map(u64::from)
        }
    };
    let mut equal = [0; LANES];
    for lane in lanes.iter() {
        let same = lanes.iter().filter(|&other| values[other] == values[lane]);
        equal[lane] = same.fold(0, |bits, other| bits | 1 << other);
    }
    equal
}

/// `match.any.sync d, value`.
///
/// # Safety
///
/// As for [`equal_lanes`], and `d` must have 32 bits.
#[inline(never)]
pub(super) unsafe fn match_any(lanes: ActiveLanes, d: Offset, value: Offset, wide: bool) {
    // SAFETY: by the contract.
    unsafe {
        let equal = equal_lanes(lanes, value, wide);
        lanes.write(d, &equal);
    }
}

/// `match.all.sync d|p, value`.
///
/// # Safety
///
/// As for [`match_any`], and `p` must be a predicate.
#[inline(never)]
pub(super) unsafe fn match_all(
    lanes: ActiveLanes,
    d: Offset,
    p: Offset,
    value: Offset,
    wide: bool,
) {
    // SAFETY: by the contract.
    unsafe {
        let equal = equal_lanes(lanes, value, wide);
        let all = lanes.iter().all(|lane| equal[lane] == lanes.mask);
        let result = if all { lanes.mask } else { 0 };
        lanes.write(d, &[result; LANES]);
        lanes.write_predicate(p, result);
    }
}
