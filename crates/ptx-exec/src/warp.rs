//! The control state of a warp: groups of diverged lanes and the running group.
//!
//! Lanes at the same instruction form a group and run together. The group with the lowest program
//! counter runs first and merges with the groups that it reaches, which reconverges lanes as early
//! as possible. Hardware guarantees less, so with a seed the group with the highest program counter
//! sometimes runs. It also runs from time to time without a seed, so spinning lanes cannot starve
//! the lanes that they wait for.

use std::hash::{Hash, Hasher};

use super::async_copy::AsyncCopies;
use super::block::scramble;
use super::call_stack::CallStacks;
use super::warpgroup::Products;

/// What a group waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Wait {
    /// It can run.
    Nothing,
    /// Lanes of other groups, at the same instruction.
    Lanes,
    /// The members of `bar.warp.sync`, also at other instructions.
    WarpBarrier { members: u32 },
    /// An mbarrier.
    Mbarrier,
}

/// Lanes at the same instruction.
#[derive(Clone, Copy, Debug, Hash)]
struct Group {
    pc: u32,
    lanes: u32,
    wait: Wait,
}

/// The control state of a warp.
#[derive(Debug)]
pub(super) struct Warp {
    /// The next instruction of the running group.
    pub(super) pc: u32,
    /// The lanes of the running group.
    pub(super) active: u32,
    /// The lanes that have not exited.
    pub(super) live: u32,
    /// The next instruction of another group, at which [`Warp::regroup`] must be called; `u32::MAX`
    /// if there is one group.
    pub(super) stop: u32,
    /// Copies in flight.
    pub(super) async_copies: AsyncCopies,
    /// `wgmma` products in flight.
    pub(super) products: Products,
    /// Calls that have not returned.
    pub(super) calls: CallStacks,
    /// Lanes whose next wait for an mbarrier gives up.
    pub(super) gives_up: u32,
    groups: Vec<Group>,
    turns: u32,
    /// Seed of the selection of groups; 0 selects the lowest program counter.
    order: u64,
}

/// All groups of a warp wait for each other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadlock;

/// Every `FAIRNESS`-th regrouping runs the last group instead of the first.
const FAIRNESS: u32 = 4096;

impl Warp {
    /// Creates a warp of `lanes`, all at the first instruction.
    pub(super) fn new(lanes: u32) -> Self {
        Self {
            pc: 0,
            active: lanes,
            live: lanes,
            stop: u32::MAX,
            async_copies: AsyncCopies::default(),
            products: Products::default(),
            calls: CallStacks::default(),
            gives_up: 0,
            groups: Vec::new(),
            turns: 0,
            order: 0,
        }
    }

    /// Resets the warp to the first instruction. `order` is the seed of the selection of groups.
    pub(super) fn restart(&mut self, lanes: u32, order: u64) {
        self.order = order;
        self.groups.clear();
        self.async_copies.clear();
        self.products.clear();
        self.calls.clear();
        (self.pc, self.active, self.live) = (0, lanes, lanes);
        (self.stop, self.turns, self.gives_up) = (u32::MAX, 0, 0);
    }

    /// Hashes the control state, except the random order of groups.
    pub(super) fn hash_state(&self, hasher: &mut impl Hasher) {
        (self.pc, self.active, self.live, self.gives_up, &self.groups).hash(hasher);
        (self.turns % FAIRNESS, &self.calls).hash(hasher);
    }

    /// Whether all live lanes run together.
    pub(super) fn is_converged(&self) -> bool {
        self.active == self.live
    }

    /// Moves the lanes of `taken` to `target`, and the other lanes of the group to the next
    /// instruction.
    pub(super) fn branch(&mut self, taken: u32, target: u32) {
        let rest = self.active & !taken;
        if rest == 0 {
            self.pc = target;
        } else if taken == 0 {
            self.pc += 1;
            return;
        } else {
            self.add(Group { pc: target, lanes: taken, wait: Wait::Nothing });
            self.active = rest;
            self.pc += 1;
        }
        if !self.groups.is_empty() {
            // The running group does not wait, so this cannot fail.
            let _ = self.regroup();
        }
    }

    /// Makes the other active lanes a group of their own, at the same instruction. It runs later.
    #[cold]
    pub(super) fn split(&mut self, part: u32) {
        self.add(Group { pc: self.pc, lanes: self.active & !part, wait: Wait::Nothing });
        self.active = part;
    }

    /// Moves the lanes of `mask`, which must be active, to their targets, and the other lanes of
    /// the group to the next instruction.
    pub(super) fn scatter(
        &mut self,
        mask: u32,
        targets: Vec<(usize, u32)>,
    ) -> Result<(), Deadlock> {
        for (lane, pc) in targets {
            self.add(Group { pc, lanes: 1 << lane, wait: Wait::Nothing });
        }
        self.active &= !mask;
        self.pc += 1;
        self.regroup()
    }

    /// Ends the lanes of `mask`, which must be active. Afterwards `active` is zero if no lane is
    /// left.
    pub(super) fn exit(&mut self, mask: u32) -> Result<(), Deadlock> {
        self.live &= !mask;
        self.active &= !mask;
        // Groups that waited for the ended lanes retry.
        for group in &mut self.groups {
            group.wait = Wait::Nothing;
        }
        if self.active != 0 {
            self.pc += 1;
            return Ok(());
        }
        if self.groups.is_empty() { Ok(()) } else { self.regroup() }
    }

    /// Makes the running group wait at its instruction for lanes of other groups.
    pub(super) fn wait(&mut self) -> Result<(), Deadlock> {
        self.wait_for(Wait::Lanes)
    }

    /// Makes the running group wait at `bar.warp.sync`.
    pub(super) fn wait_at_barrier(&mut self, members: u32) -> Result<(), Deadlock> {
        self.wait_for(Wait::WarpBarrier { members })
    }

    /// Makes the running group wait at its instruction for an mbarrier.
    pub(super) fn park(&mut self) -> Result<(), Deadlock> {
        self.wait_for(Wait::Mbarrier)
    }

    fn wait_for(&mut self, wait: Wait) -> Result<(), Deadlock> {
        self.add(Group { pc: self.pc, lanes: self.active, wait });
        self.active = 0;
        self.regroup()
    }

    /// Called after a [`Deadlock`]. Releases the groups that have reached a `bar.warp.sync` with
    /// the same members at different instructions, and selects the group to run. Returns whether a
    /// group was released.
    #[cold]
    pub(super) fn release_barrier(&mut self) -> bool {
        let mut released = false;
        for index in 0..self.groups.len() {
            let wait = self.groups[index].wait;
            let Wait::WarpBarrier { members } = wait else { continue };
            let waiting = self.groups.iter().filter(|group| group.wait == wait);
            let arrived = waiting.fold(0, |lanes, group| lanes | group.lanes);
            if members & self.live & !arrived != 0 {
                continue;
            }
            for group in self.groups.iter_mut().filter(|group| group.wait == wait) {
                (group.pc, group.wait) = (group.pc + 1, Wait::Nothing);
            }
            released = true;
        }
        released && self.regroup().is_ok()
    }

    /// Whether some lanes wait for an mbarrier.
    pub(super) fn is_parked(&self) -> bool {
        self.groups.iter().any(|group| group.wait == Wait::Mbarrier)
    }

    /// The instructions at which lanes wait for an mbarrier.
    pub(super) fn parked_at(&self) -> impl Iterator<Item = u32> {
        let parked = self.groups.iter().filter(|group| group.wait == Wait::Mbarrier);
        parked.map(|group| group.pc)
    }

    /// Makes lanes that wait for an mbarrier retry. With `gives_up`, their wait gives up once if
    /// the mbarrier has not changed.
    pub(super) fn unpark(&mut self, gives_up: bool) {
        for group in self.groups.iter_mut().filter(|group| group.wait == Wait::Mbarrier) {
            group.wait = Wait::Nothing;
            if gives_up {
                self.gives_up |= group.lanes;
            }
        }
        // At least one group was parked, so this cannot fail.
        let _ = self.regroup();
    }

    fn add(&mut self, group: Group) {
        self.groups.push(group);
    }

    /// Merges groups at the same instruction and selects the group to run.
    pub(super) fn regroup(&mut self) -> Result<(), Deadlock> {
        self.turns = self.turns.wrapping_add(1);
        let ahead = self.turns.is_multiple_of(FAIRNESS) || self.deviates();
        match self.groups[..] {
            // The common case: the only two groups meet.
            [Group { pc, lanes, .. }] if self.active != 0 && pc == self.pc => {
                self.groups.clear();
                self.active |= lanes;
                self.stop = u32::MAX;
                return Ok(());
            }
            _ if self.active == 0 => {}
            _ => self.add(Group { pc: self.pc, lanes: self.active, wait: Wait::Nothing }),
        }
        self.merge();
        let runnable =
            self.groups.iter().enumerate().filter(|(_, group)| group.wait == Wait::Nothing);
        let chosen = if ahead {
            runnable.max_by_key(|(_, group)| group.pc)
        } else {
            runnable.min_by_key(|(_, group)| group.pc)
        };
        let (index, _) = chosen.ok_or(Deadlock)?;
        let group = self.groups.swap_remove(index);
        (self.pc, self.active) = (group.pc, group.lanes);
        let ahead = self.groups.iter().map(|other| other.pc).filter(|&pc| pc > group.pc);
        self.stop = ahead.min().unwrap_or(u32::MAX);
        Ok(())
    }

    /// Whether the group with the highest program counter runs next: with a seed, one time in four.
    fn deviates(&mut self) -> bool {
        if self.order == 0 {
            return false;
        }
        self.order = scramble(self.order).max(1);
        self.order.is_multiple_of(4)
    }

    fn merge(&mut self) {
        self.groups.sort_unstable_by_key(|group| group.pc);
        self.groups.dedup_by(|next, kept| {
            let same = next.pc == kept.pc;
            if same {
                kept.lanes |= next.lanes;
                // The merged group may contain all lanes that a group waited for.
                kept.wait = Wait::Nothing;
            }
            same
        });
    }
}
