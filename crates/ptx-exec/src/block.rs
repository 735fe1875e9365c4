//! Execution of a block: its warps take turns until all have ended.
//!
//! A warp runs until it ends, waits at a barrier or has executed [`TURN`] instructions. To expose
//! kernels that rely on an order, the seed of the launch reorders the warps in every round, and
//! sometimes delays one warp until the others cannot continue without it.

mod cluster;
mod special;
mod stall;
mod state;

use std::cell::Cell;

use super::access::Memories;
use super::barrier::{BARRIERS, Barriers};
use super::bulk::{AsyncProxy, shared_base};
use super::fault::FaultKind;
use super::grid::Launch;
use super::interpreter::{Contributions, Interpreter, Machine, Pause};
use super::program::{CLUSTER_BARRIER, GRID_BARRIER, GRID_HANDLE, LANES, Preset, Program};
use super::races::{self, BlockRaces};
use super::registers::{Lanes, Offset, RegisterFile};
use super::undefined::{ProxyMisuse, Undefined};
use super::unfenced::Unfenced;
use super::warp::Warp;
use crate::memory::{POISON, Snapshot, Span, fill_host};

/// Maximum instructions of a warp per turn.
const TURN: u64 = 1 << 13;
/// Maximum rounds for which a warp is delayed, because the others may spin until it runs.
const MAX_DELAY: u32 = 32;

/// A warp that does not run while others can.
#[derive(Clone, Copy)]
struct Delayed {
    warp: usize,
    /// Remaining rounds.
    rounds: u32,
}

/// A fault and its thread.
#[derive(Clone, Debug)]
pub(super) struct BlockFault {
    pub(super) kind: FaultKind,
    /// The block, `%ctaid`.
    pub(super) block: [u32; 3],
    /// The linear index of the thread in the block.
    pub(super) thread: u32,
    /// The index of the decoded instruction.
    pub(super) pc: u32,
}

/// The progress of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// It ended after `executed` warp instructions.
    Ended { executed: u64 },
    /// Its budget is used up.
    Preempted,
    /// None of its warps can continue without other blocks of the cluster or the grid.
    Blocked,
    /// Its warps only poll mbarriers, but may also poll memory that blocks of other clusters write.
    Polling,
}

/// Whether waits for mbarriers give up when no warp can continue, as `try_wait` may.
#[derive(Clone, Copy, Debug)]
pub(super) struct GivesUp(pub(super) bool);

/// Host memory with the alignment of the register file.
#[derive(Clone, Copy)]
#[repr(align(128))]
struct Line {
    bytes: [u8; 128],
}

fn lines(bytes: usize) -> Vec<Line> {
    vec![Line { bytes: [0; 128] }; bytes.div_ceil(128)]
}

/// Global memory, the parameters, and the workspace of the grid.
#[derive(Clone, Copy)]
pub(super) struct Surroundings<'a> {
    pub(super) global: &'a Snapshot,
    pub(super) parameters: &'a [u8],
    /// The address of the workspace, or 0.
    pub(super) workspace: u64,
}

/// Runs blocks of one launch, one after another.
pub(super) struct BlockRunner<'a> {
    machine: Machine<'a>,
    launch: &'a Launch<'a>,
    interpreter: Interpreter,
    files: Vec<Line>,
    shared: Vec<Line>,
    local: Vec<Line>,
    warps: Vec<Warp>,
    barriers: Barriers,
    /// The version of the mbarriers that stalled warps have seen.
    seen_version: u64,
    /// The number of times that waits have given up since the mbarriers changed.
    given_up: u32,
    /// Seed of the warp order of the next round; 0 for ascending order.
    round: u64,
    delayed: Option<Delayed>,
    /// The index of the block in its cluster.
    rank: u32,
    /// The address of the workspace of the grid, or 0.
    workspace: u64,
    /// The block, `%ctaid`.
    ctaid: [u32; 3],
}

impl<'a> BlockRunner<'a> {
    /// Creates a runner for blocks of `launch` with index `rank` in their clusters, and with a race
    /// detector if races are detected. The parameters must have the length that the program
    /// declares.
    pub(super) fn new(
        program: &'a Program,
        launch: &'a Launch<'a>,
        rank: u32,
        around: Surroundings<'a>,
        races: Option<BlockRaces<'a>>,
        interpreter: Interpreter,
    ) -> Self {
        let threads = launch.block.iter().product::<u32>() as usize;
        let count = threads.div_ceil(LANES);
        let shared_bytes = u64::from(program.shared_bytes) + u64::from(launch.shared_bytes);
        let memories = Memories {
            global: around.global,
            spans: vec![Span::NONE; program.accesses.len()],
            found: Cell::new(Span::NONE),
            has_changed_global: Cell::new(false),
            shared: Span {
                base: shared_base(rank),
                end: shared_base(rank) + shared_bytes,
                host: std::ptr::null_mut(),
            },
            cluster: Vec::new(),
            local: std::ptr::null_mut(),
            local_bytes: program.all_local_bytes(),
            parameters: around.parameters,
            races,
            warp: 0,
            pc: 0,
            unfenced: (!program.warpgroups.is_empty() || !program.bulk.is_empty())
                .then(Unfenced::default),
            proxy: (!program.bulk.is_empty())
                .then(|| Box::new(AsyncProxy::of_block(rank, launch.blocks_per_cluster()))),
        };
        let mut runner = Self {
            machine: Machine {
                program,
                grid_handle: if launch.is_cooperative { GRID_HANDLE } else { 0 },
                memories,
                executed: 0,
                contributions: Contributions::default(),
                output: launch.output,
                conditions: launch.conditions,
            },
            launch,
            interpreter,
            files: lines(count * program.file_bytes as usize),
            shared: lines(shared_bytes as usize),
            local: lines(count * LANES * program.all_local_bytes() as usize),
            warps: (0..count).map(|_| Warp::new(0)).collect(),
            barriers: Barriers::default(),
            seen_version: 0,
            given_up: 0,
            round: 0,
            delayed: None,
            rank,
            workspace: around.workspace,
            ctaid: [0; 3],
        };
        for warp in 0..count {
            runner.fill_presets(warp);
        }
        runner
    }

    fn file(&mut self, warp: usize) -> RegisterFile {
        let start = warp * self.machine.program.file_bytes as usize;
        // SAFETY: there is a file for every warp.
        RegisterFile(unsafe { self.files.as_mut_ptr().cast::<u8>().add(start) })
    }

    fn set(&mut self, warp: usize, offset: Offset, lanes: Lanes<u32>) {
        // SAFETY: the offset belongs to a 32-bit slot of the program.
        unsafe { self.file(warp).write(offset, lanes) }
    }

    /// Begins a block. `order` varies the order of the warps and of the lanes in them.
    pub(super) fn start(&mut self, block: [u32; 3], order: u64) {
        self.machine.executed = 0;
        self.machine.contributions = Contributions::default();
        self.machine.memories.unfenced.iter_mut().for_each(Unfenced::clear);
        (self.round, self.delayed, self.ctaid) = (order, None, block);
        self.barriers.start(self.warps.len());
        (self.seen_version, self.given_up) = (0, 0);
        let program = self.machine.program;
        if let Some(proxy) = &mut self.machine.memories.proxy {
            proxy.start(self.warps.len(), program.entry.limits.max_registers, order);
        }
        for warp in 0..self.warps.len() {
            let lanes = self.lanes_of_warp(warp);
            let order = if order == 0 { 0 } else { scramble(order ^ warp as u64).max(1) };
            self.warps[warp].restart(lanes, order);
            for &(preset, offset) in &program.presets {
                let Preset::Special(special) = preset else { continue };
                if let Some(value) = self.special_of_block(special) {
                    self.set(warp, offset, [value; LANES]);
                }
            }
            let file = self.file(warp);
            for &(offset, bytes) in &program.exposed {
                // SAFETY: the register is inside the file.
                unsafe { poison(file.0.add(offset.0 as usize), bytes as usize) };
            }
        }
        let shared = self.shared.as_mut_ptr().cast();
        self.machine.memories.shared.host = shared;
        // SAFETY: both ranges cover a whole vector.
        unsafe {
            poison(shared, self.shared.len() * 128);
            poison(self.local.as_mut_ptr().cast(), self.local.len() * 128);
        }
    }

    /// Resumes the block until it ends, waits for other blocks or has executed about `budget` more
    /// instructions.
    pub(super) fn run(&mut self, budget: u64, gives_up: GivesUp) -> Result<Progress, BlockFault> {
        let limit = self.machine.executed.saturating_add(budget);
        while !self.barriers.all_done() {
            if self.machine.executed > limit {
                return Ok(Progress::Preempted);
            }
            self.wake()?;
            let mut progress = false;
            self.delay();
            let delayed = self.delayed.map(|it| it.warp);
            for turn in 0..self.warps.len() {
                let warp = self.warp_at(turn, self.round);
                if delayed == Some(warp) {
                    continue;
                }
                while self.barriers.is_ready(warp) {
                    progress = true;
                    if !self.step(warp)? {
                        break;
                    }
                }
            }
            let races = self.machine.memories.races.as_ref();
            let contributions = &mut self.machine.contributions;
            let mut released = self.barriers.release(races, contributions);
            released |= self.is_alone() && self.release_cluster();
            if !released && !progress {
                if delayed.is_some() {
                    if !self.land()? {
                        self.delayed = None;
                    }
                } else if !self.unblock(gives_up)? {
                    return Ok(Progress::Blocked);
                }
            }
            self.round = if self.round == 0 { 0 } else { scramble(self.round).max(1) };
        }
        match self.machine.memories.proxy.as_ref().and_then(|proxy| proxy.load_in_flight()) {
            None => Ok(Progress::Ended { executed: self.machine.executed }),
            Some((thread, pc)) => {
                let kind = FaultKind::AsyncProxy(Box::new(ProxyMisuse::BlockEnded));
                Err(BlockFault { kind, block: self.ctaid, thread, pc })
            }
        }
    }

    /// Ends the delay of a warp after its rounds. With a seed, delays another one in one round of
    /// eight.
    fn delay(&mut self) {
        self.delayed = self.delayed.filter(|it| it.rounds > 0);
        let random = scramble(self.round ^ u64::from(MAX_DELAY));
        match &mut self.delayed {
            Some(delayed) => delayed.rounds -= 1,
            None if self.round != 0 && random.is_multiple_of(8) => {
                let warp = (random >> 8) as usize % self.warps.len();
                self.delayed = Some(Delayed { warp, rounds: MAX_DELAY });
            }
            None => {}
        }
    }

    fn warp_at(&self, turn: usize, round: u64) -> usize {
        let count = self.warps.len();
        let turn = if round & 1 == 1 { count - 1 - turn } else { turn };
        (turn + (round >> 1) as usize % count) % count
    }

    /// Runs a warp for one turn. Returns whether it can continue immediately.
    fn step(&mut self, index: usize) -> Result<bool, BlockFault> {
        let file = self.file(index);
        let local = index * LANES * self.machine.program.all_local_bytes() as usize;
        self.machine.memories.local = self.local.as_mut_ptr().cast::<u8>().wrapping_add(local);
        self.machine.memories.warp = index;
        let warp = &mut self.warps[index];
        // SAFETY: the file belongs to this warp, and the interpreter suits the host.
        let pause = unsafe { (self.interpreter)(&mut self.machine, warp, file, TURN) };
        let limit = self.launch.step_limit;
        if self.machine.executed > limit {
            let lane = self.warps[index].live.trailing_zeros() & 31;
            return Err(self.fault(FaultKind::StepLimit { limit, not_started: None }, index, lane));
        }
        match pause {
            Pause::Done => {
                // SAFETY: the file belongs to this warp.
                let held = unsafe { self.warps[index].products.check_held(file) };
                held.map_err(|(kind, lane)| self.fault(kind, index, lane))?;
                self.barriers.end(index);
            }
            Pause::Turn => return Ok(false),
            Pause::Stalled => self.barriers.stall(index),
            Pause::Fault(kind, lane) => return Err(self.fault(kind, index, lane)),
            Pause::Barrier { id, count, arrives } => {
                if id == CLUSTER_BARRIER {
                    return self.cluster_barrier(index, arrives);
                }
                if id == GRID_BARRIER {
                    self.wait_for_grid(index);
                    return Ok(false);
                }
                if id >= BARRIERS || !count.is_multiple_of(LANES as u32) {
                    let kind = FaultKind::Undefined(Undefined::Barrier);
                    return Err(self.fault_before(kind, index));
                }
                if let Some(races) = &self.machine.memories.races {
                    races.arrive(races::Barrier::Block(id), index);
                }
                if arrives {
                    self.barriers.arrive(id);
                    return Ok(true);
                }
                self.barriers.wait(index, id, count);
            }
        }
        Ok(false)
    }

    fn fault(&self, kind: FaultKind, warp: usize, lane: u32) -> BlockFault {
        let (thread, pc) = ((warp * LANES) as u32 + lane, self.warps[warp].pc);
        BlockFault { kind, block: self.ctaid, thread, pc }
    }

    /// The fault of the instruction that the warp has just executed.
    fn fault_before(&self, kind: FaultKind, warp: usize) -> BlockFault {
        let lane = self.warps[warp].live.trailing_zeros() & 31;
        let fault = self.fault(kind, warp, lane);
        BlockFault { pc: fault.pc.saturating_sub(1), ..fault }
    }
}

/// # Safety
///
/// `to` must be valid for writing `bytes` bytes.
unsafe fn poison(to: *mut u8, bytes: usize) {
    // SAFETY: by the contract.
    unsafe { fill_host(to, &POISON.to_le_bytes(), bytes) }
}

/// A hash of the seed (the finalizer of SplitMix64).
pub(super) fn scramble(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}
