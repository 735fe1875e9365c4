//! Warps that wait: resuming them, landing loads, and deadlocks.

use super::{BlockFault, BlockRunner, GivesUp, scramble};
use crate::fault::FaultKind;
use crate::program::LANES;

/// The number of times that waits for mbarriers give up before a block counts as deadlocked.
const PATIENCE: u32 = 64;

impl BlockRunner<'_> {
    /// Resumes stalled warps if an mbarrier has changed. With a seed, a load lands at random.
    pub(super) fn wake(&mut self) -> Result<(), BlockFault> {
        if self.machine.memories.proxy.is_none() {
            return Ok(());
        }
        if self.round != 0 && scramble(!self.round).is_multiple_of(8) {
            self.land()?;
        }
        let version = self.machine.memories.proxy.as_ref().map_or(0, |proxy| proxy.version());
        if version != self.seen_version {
            (self.seen_version, self.given_up) = (version, 0);
            self.resume_stalled(false);
        }
        Ok(())
    }

    fn resume_stalled(&mut self, gives_up: bool) -> bool {
        let mut any = false;
        for warp in 0..self.warps.len() {
            if self.barriers.is_stalled(warp) {
                any = true;
                self.barriers.resume(warp);
                self.warps[warp].unpark(gives_up);
            }
        }
        any
    }

    /// Called when no warp can make progress: lands a load or, if there is none, makes waits give
    /// up if allowed. Returns whether a warp can continue.
    pub(super) fn unblock(&mut self, gives_up: GivesUp) -> Result<bool, BlockFault> {
        if self.land()? {
            return Ok(true);
        }
        if !gives_up.0 {
            return Ok(false);
        }
        self.given_up += 1;
        Ok(self.given_up <= PATIENCE && self.resume_stalled(true))
    }

    /// Whether a warp waits for an mbarrier.
    pub(crate) fn is_stalled(&self) -> bool {
        (0..self.warps.len()).any(|warp| self.barriers.is_stalled(warp))
    }

    /// Makes waits for mbarriers give up once more in the next run.
    pub(crate) fn poll_again(&mut self) {
        self.given_up = PATIENCE - 1;
    }

    /// Lands a load in flight. Returns whether there was one.
    pub(super) fn land(&mut self) -> Result<bool, BlockFault> {
        let memories = &mut self.machine.memories;
        let Some(mut proxy) = memories.proxy.take() else { return Ok(false) };
        let pc = proxy.load_in_flight().map_or(0, |(_, pc)| pc);
        let landed = proxy.land(memories);
        memories.proxy = Some(proxy);
        landed.map_err(|(kind, thread)| BlockFault { kind, block: self.ctaid, thread, pc })
    }

    /// Describes the wait of each warp. Returns the first waiting warp and its instruction.
    fn describe_waits(&self) -> (usize, u32, String) {
        let mut first = None;
        let mut list = Vec::new();
        for (index, warp) in self.warps.iter().enumerate() {
            if let Some((id, count)) = self.barriers.wait_of(index) {
                let threads = if count == 0 { "all".to_owned() } else { count.to_string() };
                list.push(format!("warp {index} waits at barrier {id} for {threads} threads"));
            }
            if self.barriers.waits_for_cluster(index) {
                first = first.or(Some((index, warp.pc.saturating_sub(1))));
                list.push(format!("warp {index} waits at the barrier of the cluster"));
            }
            if self.barriers.waits_for_grid(index) {
                first = first.or(Some((index, warp.pc.saturating_sub(1))));
                list.push(format!("warp {index} waits at the barrier of the grid"));
            }
            if self.barriers.is_ready(index) {
                first = first.or(Some((index, warp.pc)));
                list.push(format!("warp {index} spins, and no block changes global memory"));
            }
            for pc in warp.parked_at().filter(|_| self.barriers.is_stalled(index)) {
                first = first.or(Some((index, pc)));
                let proxy = self.machine.memories.proxy.as_ref();
                let what = proxy.and_then(|proxy| proxy.wait_of(index, pc)).unwrap_or("a barrier");
                list.push(format!("warp {index} waits for {what}"));
            }
        }
        let (warp, pc) = first.unwrap_or((0, 0));
        (warp, pc, list.join("; "))
    }

    /// Creates the fault of a deadlock, reported for the first waiting warp.
    pub(crate) fn deadlock(&self) -> BlockFault {
        let waits = |warp| {
            let barriers = &self.barriers;
            barriers.is_ready(warp)
                || barriers.is_stalled(warp)
                || barriers.waits_for_cluster(warp)
                || barriers.waits_for_grid(warp)
        };
        if (0..self.warps.len()).any(waits) {
            let (warp, pc, waiting) = self.describe_waits();
            let lane = self.warps[warp].live.trailing_zeros() & 31;
            let kind = FaultKind::Deadlock { waiting };
            let thread = (warp * LANES) as u32 + lane;
            return BlockFault { kind, block: self.ctaid, thread, pc };
        }
        let warp = self.barriers.first_waiting().unwrap_or(0);
        let (_, _, waiting) = self.describe_waits();
        self.fault_before(FaultKind::Deadlock { waiting }, warp)
    }
}
