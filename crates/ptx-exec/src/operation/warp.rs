//! Operations between the lanes of a warp: shuffles, votes, matches, reductions.
//!
//! All have a member mask in a register and wait until the members have arrived, except
//! `activemask`.

use super::operations;
use crate::access::LaneFault;
use crate::cross::{
    Arrival, ReduceOperation, arrive, common_members, match_all, match_any, reduce, shuffle,
    shuffle_in_range,
};
use crate::interpreter::Machine;
use crate::program::LANES;
use crate::registers::{ActiveLanes, Offset};
use crate::warp::{Deadlock, Warp};

/// How `shfl` finds the source lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShuffleMode {
    /// `.up`
    Up,
    /// `.down`
    Down,
    /// `.bfly`
    Butterfly,
    /// `.idx`
    Index,
}

/// The outcome of an operation that may have to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was executed.
    Executed,
    /// Some members have not arrived; the warp must wait at the instruction.
    MembersMissing,
    /// It was executed, and the turn of the warp ends.
    Yields,
}

operations! {
    /// Operations between the lanes of a warp.
    enum WarpWide {
        /// `bar.warp.sync`.
        Barrier() <- (members);
        /// `activemask`.
        ActiveMask(d) <- ();
        /// `shfl.sync`: the value of `a` in another lane.
        Shuffle(d) <- (a, b, c, members) { mode: ShuffleMode };
        /// The predicate of `shfl.sync`: whether the source lane is in range.
        ShuffleInRange(d) <- (b, c, members) { mode: ShuffleMode };
        /// `vote.sync.ballot`.
        Ballot(d) <- (predicate, members);
        /// `vote.sync.all`.
        All(d) <- (predicate, members);
        /// `vote.sync.any`.
        Any(d) <- (predicate, members);
        /// `vote.sync.uni`.
        Uniform(d) <- (predicate, members);
        /// `match.any.sync`: the members with the same value.
        MatchAny(d) <- (value, members) { wide: bool };
        /// `match.all.sync`: all members if they have the same value, or none.
        MatchAll(d, predicate) <- (value, members) { wide: bool };
        /// `redux.sync`.
        Reduce(d) <- (value, members) { operation: ReduceOperation };
        /// `elect.sync`: the first member.
        Elect(d, predicate) <- (members);
    }
}

impl<R: Copy> WarpWide<R> {
    /// The register of the member mask, if the operation has one.
    fn members(&self) -> Option<R> {
        match *self {
            Self::ActiveMask { .. } => None,
            Self::Barrier { members }
            | Self::Shuffle { members, .. }
            | Self::ShuffleInRange { members, .. }
            | Self::Ballot { members, .. }
            | Self::All { members, .. }
            | Self::Any { members, .. }
            | Self::Uniform { members, .. }
            | Self::MatchAny { members, .. }
            | Self::MatchAll { members, .. }
            | Self::Reduce { members, .. }
            | Self::Elect { members, .. } => Some(members),
        }
    }
}

impl WarpWide<Offset> {
    /// Makes the running group wait for the missing members.
    ///
    /// # Safety
    ///
    /// As for [`WarpWide::execute`].
    #[cold]
    #[inline(never)]
    pub(crate) unsafe fn wait(&self, warp: &mut Warp, lanes: ActiveLanes) -> Result<(), Deadlock> {
        match *self {
            Self::Barrier { members } => {
                // SAFETY: decoding ensures the width of the register.
                match unsafe { common_members(lanes, members) } {
                    Some(members) => warp.wait_at_barrier(members),
                    None => warp.wait(),
                }
            }
            _ => warp.wait(),
        }
    }

    /// Executes the operation in the active lanes if all members have arrived.
    ///
    /// # Safety
    ///
    /// The operation must come from decoding for the register file of `lanes`.
    #[inline(always)]
    pub(crate) unsafe fn execute(
        &self,
        machine: &mut Machine<'_>,
        warp: &Warp,
        lanes: ActiveLanes,
    ) -> Result<Arrival, LaneFault> {
        let mask = lanes.mask;
        // SAFETY: decoding ensures the register widths of each operation.
        unsafe {
            if let Some(members) = self.members() {
                let arrival = arrive(warp, lanes, members)?;
                if arrival != Arrival::Complete {
                    return Ok(arrival);
                }
            }
            let votes = |predicate| lanes.file.predicate(predicate) & mask;
            let all_if = |condition: bool| if condition { mask } else { 0 };
            match *self {
                Self::Barrier { .. } => {
                    if let Some(races) = &machine.memories.races {
                        races.warp_barrier(machine.memories.warp);
                    }
                }
                Self::ActiveMask { d } => lanes.write(d, &[mask; LANES]),
                Self::Shuffle { d, a, b, c, mode, .. } => shuffle(lanes, d, a, b, c, mode)?,
                Self::ShuffleInRange { d, b, c, mode, .. } => {
                    shuffle_in_range(lanes, d, b, c, mode);
                }
                Self::Ballot { d, predicate, .. } => lanes.write(d, &[votes(predicate); LANES]),
                Self::All { d, predicate, .. } => {
                    lanes.write_predicate(d, all_if(votes(predicate) == mask));
                }
                Self::Any { d, predicate, .. } => {
                    lanes.write_predicate(d, all_if(votes(predicate) != 0));
                }
                Self::Uniform { d, predicate, .. } => {
                    let votes = votes(predicate);
                    lanes.write_predicate(d, all_if(votes == 0 || votes == mask));
                }
                Self::MatchAny { d, value, wide, .. } => match_any(lanes, d, value, wide),
                Self::MatchAll { d, predicate, value, wide, .. } => {
                    match_all(lanes, d, predicate, value, wide);
                }
                Self::Reduce { d, value, operation, .. } => reduce(lanes, d, value, operation),
                Self::Elect { d, predicate, .. } => {
                    let leader = mask.trailing_zeros();
                    lanes.write(d, &[leader; LANES]);
                    lanes.write_predicate(predicate, 1 << leader);
                }
            }
        }
        Ok(Arrival::Complete)
    }
}
