//! Waits of warps: for the phase of an mbarrier, and for registers.

use super::instruction::{BulkInstruction, Kind};
use super::{AsyncProxy, misuse_fault, undefined};
use crate::access::{LaneFault, Memories};
use crate::fault::FaultKind;
use crate::operation::Outcome;
use crate::program::LANES;
use crate::registers::ActiveLanes;
use crate::undefined::ProxyMisuse;
use crate::warp::Warp;

impl AsyncProxy {
    /// `mbarrier.try_wait` and `mbarrier.test_wait`. Parks the lanes if none of them can continue.
    ///
    /// # Safety
    ///
    /// As for [`AsyncProxy::execute`].
    pub(super) unsafe fn wait(
        &mut self,
        memories: &mut Memories<'_>,
        warp: &mut Warp,
        lanes: ActiveLanes,
        instruction: &BulkInstruction,
    ) -> Result<Outcome, LaneFault> {
        let mut complete = 0u32;
        let mut missing = String::new();
        for lane in lanes.iter() {
            let fault = |kind| (kind, lane as u32);
            // SAFETY: by the contract.
            let input = |index: usize| unsafe { instruction.inputs[index].value(lanes.file, lane) };
            let address = instruction.inputs[0].shared(input(0)).map_err(fault)?;
            let phase = self.barriers.phase(memories, address).map_err(fault)?;
            let is_complete = match instruction.kind {
                Kind::Wait { parity: true } => {
                    let parity = input(1) & 0xffff_ffff;
                    if parity > 1 {
                        let misuse = ProxyMisuse::Parity { address, parity };
                        return Err(fault(misuse_fault(misuse)));
                    }
                    phase & 1 != parity
                }
                _ => phase > input(1),
            };
            if is_complete {
                complete |= 1 << lane;
                if let Some(races) = &memories.races {
                    races.acquire_at(address, memories.warp);
                }
            } else if missing.is_empty() {
                let what = match instruction.kind {
                    Kind::Wait { parity: true } => format!("the phase of parity {}", input(1) & 1),
                    _ => format!("phase {}", input(1)),
                };
                missing = format!("{what} of {}", self.barriers.describe(address));
            }
        }
        if complete == 0 && lanes.mask & !warp.gives_up != 0 {
            self.waits.insert((memories.warp, warp.pc), missing);
            return Ok(Outcome::MembersMissing);
        }
        warp.gives_up &= !lanes.mask;
        self.waits.remove(&(memories.warp, warp.pc));
        if let Some((register, _)) = instruction.output {
            // SAFETY: by the contract.
            unsafe { lanes.write_predicate(register, complete) };
        }
        Ok(Outcome::Executed)
    }

    /// `setmaxnreg`. Waits until enough registers are available.
    pub(super) fn set_registers(
        &mut self,
        warp: usize,
        pc: u32,
        count: u32,
        increases: bool,
    ) -> Result<Outcome, FaultKind> {
        let before = self.registers[warp];
        if if increases { count < before } else { count > before } {
            return undefined(ProxyMisuse::RegisterCount { increases, before, count });
        }
        let others: u32 = self.registers.iter().sum::<u32>() - before;
        if (others + count) * LANES as u32 > self.pool {
            let wait = format!(
                "{count} registers per thread; the block has {} free",
                self.pool.saturating_sub((others + before) * LANES as u32)
            );
            self.waits.insert((warp, pc), wait);
            return Ok(Outcome::MembersMissing);
        }
        self.waits.remove(&(warp, pc));
        self.registers[warp] = count;
        self.barriers.version += 1;
        Ok(Outcome::Executed)
    }
}
