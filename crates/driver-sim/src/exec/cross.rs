//! Instructions between the lanes of a warp.

use super::access::{Trouble, lanes_of};
use super::fault::FaultKind;
use super::program::{LANES, ShuffleMode};
use super::vector::{Lanes, Slots};
use super::warp::Warp;

/// What a synchronizing instruction does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Gathering {
    /// All lanes of the member mask are here.
    Complete,
    /// Some are still elsewhere; wait for them.
    Incomplete,
}

/// Whether the lanes that the member mask names are here. Lanes that have exited are not expected.
///
/// # Safety
///
/// The operand must be a 32-bit slot.
#[inline(always)]
pub(super) unsafe fn gather(
    warp: &Warp,
    (slots, operand): (Slots, usize),
    mask: u32,
) -> Result<Gathering, Trouble> {
    // SAFETY: by the contract.
    let members = unsafe { slots.read::<u32>(operand) };
    let named = members[mask.trailing_zeros() as usize & 31];
    let different = members.iter().fold(0, |bits, member| bits | (member ^ named));
    let missing = named & warp.live & !mask;
    if different == 0 && missing == 0 && mask & !named == 0 {
        return Ok(Gathering::Complete);
    }
    gather_slowly(warp, (&members, named), mask)
}

#[inline(never)]
fn gather_slowly(
    warp: &Warp,
    (members, named): (&Lanes<u32>, u32),
    mask: u32,
) -> Result<Gathering, Trouble> {
    let undefined = |what, lane| Err((FaultKind::Undefined { what }, lane));
    if let Some(lane) = lanes_of(mask).find(|&lane| members[lane] != named) {
        return undefined("lanes name different members of a warp operation", lane as u32);
    }
    if mask & !named != 0 {
        let outsider = (mask & !named).trailing_zeros();
        return undefined("a lane takes part in a warp operation that does not name it", outsider);
    }
    let missing = named & warp.live & !mask;
    if missing & warp.active != 0 {
        return undefined("a lane that a warp operation names skips it", missing.trailing_zeros());
    }
    Ok(if missing == 0 { Gathering::Complete } else { Gathering::Incomplete })
}

/// For each lane the source lane of a shuffle, and a bit for whether it is in range.
///
/// # Safety
///
/// The operands must be 32-bit slots: the lane or distance, and the clamp.
#[inline(always)]
unsafe fn sources(slots: Slots, operand: usize, mode: ShuffleMode) -> (Lanes<u32>, u32) {
    // SAFETY: by the contract.
    let (b, c) = unsafe { (slots.read::<u32>(operand), slots.read::<u32>(operand + 1)) };
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
        // Going up, the bound is the least source, and a source below zero is negative.
        let inside = match mode {
            ShuffleMode::Up => source as i32 >= bound as i32,
            _ => source <= bound,
        };
        from[lane] = if inside { source } else { index };
        valid[lane] = u32::from(inside) << lane;
    }
    (from, valid.iter().fold(0, |bits, bit| bits | bit))
}

/// `shfl.sync`: operands d, a, b, c, members.
///
/// # Safety
///
/// The slots must be those of [`super::program::Op::Shuffle`].
#[inline(always)]
pub(super) unsafe fn shuffle(slots: Slots, mask: u32, mode: ShuffleMode) -> Result<(), Trouble> {
    // SAFETY: by the contract.
    unsafe {
        let values = slots.read::<u32>(1);
        let (from, _) = sources(slots, 2, mode);
        let mut result = [0; LANES];
        let mut absent = 0;
        for lane in 0..LANES {
            // Sources are below 32, as the mask here says again.
            let source = from[lane] & 31;
            result[lane] = values[source as usize];
            absent |= (!mask >> source & 1) << lane;
        }
        if absent & mask != 0 {
            let what = "a shuffle reads a lane that does not take part";
            return Err((FaultKind::Undefined { what }, (absent & mask).trailing_zeros()));
        }
        slots.write(0, mask, &result);
    }
    Ok(())
}

/// The predicate of `shfl.sync`: operands d, b, c, members.
///
/// # Safety
///
/// The slots must be those of [`super::program::Op::ShuffleInRange`].
#[inline(always)]
pub(super) unsafe fn shuffle_in_range(slots: Slots, mask: u32, mode: ShuffleMode) {
    // SAFETY: by the contract.
    unsafe {
        let (_, valid) = sources(slots, 1, mode);
        slots.set_predicate(0, mask, valid);
    }
}

/// What `redux.sync` combines by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
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
    /// The operation that an instruction holds.
    fn of(extra: u32) -> Self {
        use ReduceOperation as R;
        let all = [R::Add, R::MinU32, R::MaxU32, R::MinS32, R::MaxS32, R::And, R::Or, R::Xor];
        all[extra as usize % all.len()]
    }

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

/// `redux.sync`: operands d, value, members.
///
/// # Safety
///
/// The slots must be those of [`super::program::Op::Reduce`].
#[inline(never)]
pub(super) unsafe fn reduce(slots: Slots, mask: u32, extra: u32) {
    let operation = ReduceOperation::of(extra);
    // SAFETY: by the contract.
    unsafe {
        let values = slots.read::<u32>(1);
        let all = lanes_of(mask).map(|lane| values[lane]);
        let result = all.reduce(|a, b| operation.apply(a, b)).unwrap_or(0);
        slots.write(0, mask, &[result; LANES]);
    }
}

/// For each lane the lanes of `mask` that have the same value; `wide` for values of 64 bits.
///
/// # Safety
///
/// The operand must be a slot of values as wide as `wide` says.
unsafe fn equal_lanes(slots: Slots, operand: usize, (mask, wide): (u32, u32)) -> Lanes<u32> {
    // SAFETY: by the contract.
    let values: Lanes<u64> = unsafe {
        match wide {
            0 => slots.read::<u32>(operand).map(u64::from),
            _ => slots.read::<u64>(operand),
        }
    };
    let mut equal = [0; LANES];
    for lane in lanes_of(mask) {
        let same = lanes_of(mask).filter(|&other| values[other] == values[lane]);
        equal[lane] = same.fold(0, |bits, other| bits | 1 << other);
    }
    equal
}

/// `match.any.sync`: operands d, value, members.
///
/// # Safety
///
/// The slots must be those of [`super::program::Op::MatchAny`].
#[inline(never)]
pub(super) unsafe fn match_any(slots: Slots, mask: u32, wide: u32) {
    // SAFETY: by the contract.
    unsafe {
        let equal = equal_lanes(slots, 1, (mask, wide));
        slots.write(0, mask, &equal);
    }
}

/// `match.all.sync`: operands d, predicate, value, members.
///
/// # Safety
///
/// The slots must be those of [`super::program::Op::MatchAll`].
#[inline(never)]
pub(super) unsafe fn match_all(slots: Slots, mask: u32, wide: u32) {
    // SAFETY: by the contract.
    unsafe {
        let equal = equal_lanes(slots, 2, (mask, wide));
        let all = lanes_of(mask).all(|lane| equal[lane] == mask);
        slots.write(0, mask, &[if all { mask } else { 0 }; LANES]);
        slots.set_predicate(1, mask, if all { mask } else { 0 });
    }
}
