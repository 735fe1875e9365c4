//! Barriers in shared memory (`mbarrier`), bulk copies (`cp.async.bulk`) and redistribution of
//! registers (`setmaxnreg`).
//!
//! A wait parks its lanes until an event that may complete its phase. Loads land as late as
//! possible: when no warp of the block can make progress. If no load is in flight, waits give up
//! for a while, as `try_wait` may; if still no warp makes progress, the block is deadlocked. An
//! arrival without `expect_tx` ends the turn of its warp.
//!
//! [`ProxyMisuse`] lists the detected undefined behaviour.

mod addition;
mod cluster;
mod copies;
mod extent;
mod host;
mod instruction;
mod mbarrier;
mod tensor;
mod wait;

use std::collections::BTreeMap;
use std::ops::Range;

use self::addition::can_add;
use self::cluster::{ClusterPosition, Effect};
pub(super) use self::cluster::{Message, rank_of, shared_base};
use self::copies::{Copies, Issuer, Load};
use self::extent::Extent;
use self::host::{box_of, first_of};
pub(super) use self::instruction::{BulkInstruction, Input, Kind};
use self::mbarrier::{Arrival, Mbarriers};
use super::access::{LaneFault, Memories};
use super::block::scramble;
use super::fault::FaultKind;
use super::interpreter::Machine;
use super::operation::Outcome;
use super::program::LANES;
use super::registers::{ActiveLanes, RegisterFile};
use super::undefined::ProxyMisuse;
use super::warp::Warp;

/// Registers of an SM, and the maximum per thread.
const REGISTERS: u32 = 65536;
const MAX_REGISTERS: u32 = 255;

/// The barriers and bulk copies of a block.
#[derive(Clone, Debug, Default)]
pub(super) struct AsyncProxy {
    barriers: Mbarriers,
    copies: Copies,
    /// Descriptions of the waits of parked lanes, by warp and instruction.
    waits: BTreeMap<(usize, u32), String>,
    /// Registers per thread of each warp.
    registers: Vec<u32>,
    /// Total registers of the block at its start.
    pool: u32,
    seed: u64,
    position: ClusterPosition,
    /// Effects on other blocks of the cluster that have not been delivered.
    messages: Vec<Message>,
}

pub(super) fn undefined<T>(misuse: ProxyMisuse) -> Result<T, FaultKind> {
    Err(misuse_fault(misuse))
}

fn misuse_fault(misuse: ProxyMisuse) -> FaultKind {
    FaultKind::AsyncProxy(Box::new(misuse))
}

impl AsyncProxy {
    /// Creates the state of the block with index `rank` in a cluster of `blocks` blocks.
    pub(super) fn of_block(rank: u32, blocks: u32) -> Self {
        Self { position: ClusterPosition { rank, blocks }, ..Self::default() }
    }

    /// Begins a block of `warps` warps with `registers` registers per thread, or as many as fit.
    pub(super) fn start(&mut self, warps: usize, registers: Option<u32>, seed: u64) {
        let threads = (warps * LANES) as u32;
        let fitting = (REGISTERS / threads / 8 * 8).min(MAX_REGISTERS);
        let registers = registers.unwrap_or(fitting);
        let position = self.position;
        *self = Self { seed, pool: registers * threads, position, ..Self::default() };
        self.registers.resize(warps, registers);
        self.copies.clear(warps * LANES);
    }

    /// The number of events that may end a wait.
    pub(super) fn version(&self) -> u64 {
        self.barriers.version
    }

    /// The thread and the instruction of a load in flight, if there is one.
    pub(super) fn load_in_flight(&self) -> Option<(u32, u32)> {
        let issuer = self.copies.first_load()?;
        Some(issuer.position())
    }

    /// Describes the wait of a warp at an instruction.
    pub(super) fn wait_of(&self, warp: usize, pc: u32) -> Option<&str> {
        self.waits.get(&(warp, pc)).map(String::as_str)
    }

    /// Whether threads may access `bytes` of shared memory.
    pub(super) fn check(&self, bytes: &Range<u64>, writes: bool) -> Result<(), FaultKind> {
        self.copies.check(bytes, writes)
    }

    /// Executes a fence of a warp, which makes its mbarriers visible to the async proxy.
    pub(super) fn fence(&mut self, warp: usize) {
        self.barriers.fence(warp);
    }

    /// Lands a load in flight, if there is one.
    pub(super) fn land(&mut self, memories: &mut Memories<'_>) -> Result<bool, (FaultKind, u32)> {
        if self.seed != 0 {
            self.seed = scramble(self.seed).max(1);
        }
        let thread = self.load_in_flight().map_or(0, |(thread, _)| thread);
        let landed = self.copies.land(memories, self.seed >> 8).map_err(|kind| (kind, thread))?;
        let Some(landed) = landed else { return Ok(false) };
        let thread = (landed.issuer.warp * LANES) as u32 + landed.issuer.lane;
        if let Some(races) = &memories.races
            && !landed.issuer.is_peer
        {
            races.release_at(landed.mbarrier, landed.issuer.warp);
        }
        let bytes = -(landed.bytes as i64);
        let counted = self.barriers.count_bytes(memories, landed.mbarrier, bytes);
        counted.map_err(|kind| (kind, thread))?;
        Ok(true)
    }

    /// Ends the lanes of `mask`: their stores complete.
    pub(super) fn exit(&mut self, memories: &Memories<'_>, mask: u32) -> Result<(), LaneFault> {
        for lane in (0..LANES as u32).filter(|lane| mask >> lane & 1 != 0) {
            let thread = memories.warp * LANES + lane as usize;
            let waited = self.copies.wait(memories, thread, memories.warp, lane, None, false);
            waited.map_err(|kind| (kind, lane))?;
        }
        Ok(())
    }

    /// # Safety
    ///
    /// The instruction must come from decoding the program whose register file `lanes` has.
    unsafe fn execute(
        &mut self,
        memories: &mut Memories<'_>,
        warp: &mut Warp,
        lanes: ActiveLanes,
        instruction: &BulkInstruction,
    ) -> Result<Outcome, LaneFault> {
        match instruction.kind {
            // SAFETY: by the contract.
            Kind::Wait { .. } => return unsafe { self.wait(memories, warp, lanes, instruction) },
            Kind::Registers { count, increases } => {
                let first = lanes.mask.trailing_zeros();
                if lanes.mask != u32::MAX {
                    return Err((misuse_fault(ProxyMisuse::PartialWarp), first));
                }
                return self
                    .set_registers(memories.warp, warp.pc, count, increases)
                    .map_err(|kind| (kind, first));
            }
            Kind::Fence => self.fence(memories.warp),
            _ => {}
        }
        for lane in lanes.iter() {
            // SAFETY: by the contract.
            let done = unsafe { self.lane(memories, lanes.file, lane, instruction, warp.pc) };
            done.map_err(|kind| (kind, lane as u32))?;
        }
        // Lanes that waited for the arrival run next.
        let arrives = matches!(instruction.kind, Kind::Arrive { expects: false, .. });
        Ok(if arrives { Outcome::Yields } else { Outcome::Executed })
    }

    /// Executes an instruction in one lane.
    ///
    /// # Safety
    ///
    /// As for [`AsyncProxy::execute`].
    unsafe fn lane(
        &mut self,
        memories: &mut Memories<'_>,
        file: RegisterFile,
        lane: usize,
        instruction: &BulkInstruction,
        pc: u32,
    ) -> Result<(), FaultKind> {
        let warp = memories.warp;
        // SAFETY: by the contract.
        let input = |index: usize| unsafe { instruction.inputs[index].value(file, lane) };
        let shared = |index: usize| instruction.inputs[index].shared(input(index));
        let issuer = Issuer { warp, lane: lane as u32, pc, is_peer: false };
        let thread = warp * LANES + lane;
        match instruction.kind {
            Kind::Init => self.barriers.init(memories, shared(0)?, input(1) as u32)?,
            Kind::Invalidate => self.barriers.invalidate(memories, shared(0)?)?,
            Kind::Arrive { completes, .. } => {
                let address = shared(0)?;
                let rank = self.position.block_of(address)?;
                let (count, bytes) = (input(1) as u32, input(2) as u32);
                let arrival = Arrival { count, bytes, completes };
                if let Some(races) = &memories.races {
                    races.release_at(address, warp);
                }
                if rank != self.position.rank {
                    let effect = Effect::Arrive { address, arrival };
                    self.messages.push(Message { rank, issuer, effect });
                    return Ok(());
                }
                let phase = self.barriers.arrive(memories, address, arrival)?;
                // SAFETY: by the contract.
                unsafe { instruction.put(file, lane, phase) };
            }
            Kind::CountBytes { expected } => {
                let bytes = i64::from(input(1) as u32);
                let bytes = if expected { bytes } else { -bytes };
                let address = shared(0)?;
                let rank = self.position.block_of(address)?;
                if rank != self.position.rank {
                    let effect = Effect::CountBytes { address, bytes };
                    self.messages.push(Message { rank, issuer, effect });
                    return Ok(());
                }
                self.barriers.count_bytes(memories, address, bytes)?;
            }
            Kind::LoadRun { multicast } => {
                let extent = Extent::Run { global: input(1), bytes: input(2) & 0xffff_ffff };
                let load = Load { issuer, shared: shared(0)?, extent, mbarrier: shared(3)? };
                self.load_to_blocks(memories, load, multicast.then(|| input(4)))?;
            }
            Kind::StoreRun { adds } => {
                let extent = Extent::Run { global: input(0), bytes: input(2) & 0xffff_ffff };
                self.copies.store(memories, shared(1)?, extent, adds, thread, issuer)?;
            }
            Kind::LoadBox { multicast } => {
                let coordinates = instruction.inputs.len() - 3 - usize::from(multicast);
                let first = first_of((0..coordinates).map(|index| input(3 + index)));
                let extent = box_of(memories, input(1), coordinates, first)?;
                let mask = multicast.then(|| input(3 + coordinates));
                let load = Load { issuer, shared: shared(0)?, extent, mbarrier: shared(2)? };
                self.load_to_blocks(memories, load, mask)?;
            }
            Kind::StoreBox { adds } => {
                let coordinates = instruction.inputs.len() - 2;
                let first = first_of((0..coordinates).map(|index| input(2 + index)));
                let extent = box_of(memories, input(1), coordinates, first)?;
                let adds = match &extent {
                    Extent::Tensor { map, .. } if adds => Some(map.element),
                    _ => None,
                };
                if let Some(element) = adds.filter(|element| !can_add(*element)) {
                    return undefined(ProxyMisuse::NoAddition { element });
                }
                self.copies.store(memories, shared(0)?, extent, adds, thread, issuer)?;
            }
            Kind::Commit => self.copies.commit(thread),
            Kind::WaitGroup { open, read } => {
                self.copies.wait(memories, thread, warp, lane as u32, Some(open), read)?;
            }
            Kind::MapAddress => {
                let mapped = self.position.map(input(0), input(1) as u32)?;
                // SAFETY: by the contract.
                unsafe { instruction.put(file, lane, mapped) };
            }
            Kind::RankOfAddress => {
                let rank = self.position.block_of(shared(0)?)?;
                // SAFETY: by the contract.
                unsafe { instruction.put(file, lane, u64::from(rank)) };
            }
            Kind::Fence | Kind::Wait { .. } | Kind::Registers { .. } => {}
        }
        Ok(())
    }

    fn load(&mut self, memories: &mut Memories<'_>, load: Load) -> Result<(), FaultKind> {
        self.barriers.check_for_copy(memories, load.mbarrier)?;
        self.copies.load(memories, load)
    }
}

/// Executes an instruction of the program of `machine`.
///
/// # Safety
///
/// The instruction must come from decoding the program of `machine`.
#[inline(never)]
pub(super) unsafe fn execute(
    machine: &mut Machine<'_>,
    warp: &mut Warp,
    lanes: ActiveLanes,
    instruction: u32,
) -> Result<Outcome, LaneFault> {
    let instruction = &machine.program.bulk[instruction as usize];
    machine.memories.pc = warp.pc;
    // The proxy needs the memories mutably, so it is taken out of them.
    let Some(mut proxy) = machine.memories.proxy.take() else { return Ok(Outcome::Executed) };
    // SAFETY: by the contract.
    let done = unsafe { proxy.execute(&mut machine.memories, warp, lanes, instruction) };
    machine.memories.proxy = Some(proxy);
    done
}
