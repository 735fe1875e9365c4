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
pub(super) unsafe fn gather(
    warp: &Warp,
    (slots, operand): (Slots, usize),
    mask: u32,
) -> Result<Gathering, Trouble> {
    let first = mask.trailing_zeros();
    // SAFETY: by the contract.
    let members = unsafe { slots.read::<u32>(operand) };
    let named = members[first as usize & 31];
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

/// For each lane the source lane of a shuffle, and whether it is in range.
///
/// # Safety
///
/// The operands must be 32-bit slots: the lane or distance, and the clamp.
unsafe fn sources(slots: Slots, operand: usize, mode: ShuffleMode) -> [(usize, bool); LANES] {
    // SAFETY: by the contract.
    let (b, c) = unsafe { (slots.read::<u32>(operand), slots.read::<u32>(operand + 1)) };
    std::array::from_fn(|lane| {
        let (b, c, index) = (b[lane] as usize & 31, c[lane] as usize, lane);
        let (clamp, segment) = (c & 31, c >> 8 & 31);
        let greatest = index & segment | clamp & !segment;
        let least = index & segment;
        let (source, valid) = match mode {
            ShuffleMode::Up => (index.wrapping_sub(b), index >= greatest + b),
            ShuffleMode::Down => (index + b, index + b <= greatest),
            ShuffleMode::Butterfly => (index ^ b, index ^ b <= greatest),
            ShuffleMode::Index => {
                let source = least | b & !segment;
                (source, source <= greatest)
            }
        };
        (if valid { source } else { index }, valid)
    })
}

/// `shfl.sync`: operands d, a, b, c, members.
///
/// # Safety
///
/// The slots must be those of [`super::program::Op::Shuffle`].
pub(super) unsafe fn shuffle(slots: Slots, mask: u32, mode: ShuffleMode) -> Result<(), Trouble> {
    // SAFETY: by the contract.
    unsafe {
        let from = slots.read::<u32>(1);
        let mut result: Lanes<u32> = from;
        for (lane, (source, _)) in sources(slots, 2, mode).into_iter().enumerate() {
            if mask >> lane & 1 != 0 && mask >> source & 1 == 0 {
                let what = "a shuffle reads a lane that does not take part";
                return Err((FaultKind::Undefined { what }, lane as u32));
            }
            result[lane] = from[source];
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
pub(super) unsafe fn shuffle_in_range(slots: Slots, mask: u32, mode: ShuffleMode) {
    // SAFETY: by the contract.
    unsafe {
        let bits = sources(slots, 1, mode).into_iter().enumerate();
        let bits = bits.fold(0, |bits, (lane, (_, valid))| bits | u32::from(valid) << lane);
        slots.set_predicate(0, mask, bits);
    }
}
