//! Detection of races between threads: two unordered accesses to the same byte, at least one of
//! them a write.
//!
//! This is the vector-clock algorithm. Every warp of a cluster has a clock that advances at
//! synchronization, and a vector of the clocks of other warps up to which all accesses happened
//! before. A barrier joins the clocks of its warps. `bar.warp.sync` advances the clock of one warp,
//! because its lanes are not ordered either. Atomics and other strong accesses do not race with
//! each other; a thread that reads a strong write acquires the clocks of the writer. The placement
//! of fences is not checked. Strong accesses to global memory and the grid barrier order blocks of
//! different clusters. Between clusters, the blocks of a cluster count as one, with one clock: the
//! number of strong writes.
//!
//! Detection costs a few hundred bytes and some hash look-ups per accessed byte and runs clusters
//! one after another. It is off by default.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use retrograph_ptx::ast::StateSpace;

use super::fault::{FaultKind, FaultSite, RacingAccess};
use super::grid::{Launch, coordinates};
use super::operation::Operation;
use super::program::{LANES, Program};
use super::site::site_of;

mod history;

use history::AccessStamp;
pub(super) use history::{AccessHistory, AccessKind};

/// The joined clocks of the warps that arrived at a barrier.
#[derive(Clone, Debug, Default)]
struct BarrierClock(Vec<u32>);

/// A barrier of a block, a phase of the cluster barrier, or the grid barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Barrier {
    Block(u32),
    Cluster(u64),
    Grid,
}

/// Detects races in a launch whose clusters run one after another.
pub(super) struct Races<'a> {
    program: &'a Program,
    launch: &'a Launch<'a>,
    /// The linear index of each block of the cluster, by rank.
    blocks: Vec<u64>,
    /// Warps of a block.
    warps: usize,
    /// The vector clock of each warp of the cluster, block after block.
    clocks: Vec<Vec<u32>>,
    /// Accesses to the shared memory of all blocks, whose addresses differ.
    shared: AccessHistory,
    global: Arc<Mutex<AccessHistory>>,
    /// The number of strong writes of the cluster.
    writes: u32,
    /// Blocks of other clusters whose strong writes the cluster has read, and the clock of the last
    /// one that it has read.
    known: HashMap<u64, u32>,
    /// Clocks of the warps that have arrived, by rank for barriers of a block.
    arrived: HashMap<(usize, Barrier), BarrierClock>,
    /// The joined clocks of the warps that arrived at each mbarrier.
    released: HashMap<u64, Vec<u32>>,
}

/// The detector of a cluster, as one of its blocks uses it.
#[derive(Clone)]
pub(super) struct BlockRaces<'a> {
    races: Rc<RefCell<Races<'a>>>,
    rank: usize,
}

/// One access of one lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct LaneAccess {
    /// Shared or global memory; other spaces cannot race.
    pub(super) space: StateSpace,
    /// The first byte, and the number of bytes.
    pub(super) bytes: (u64, u64),
    /// The warp.
    pub(super) warp: usize,
    /// The lane.
    pub(super) lane: usize,
    /// The instruction.
    pub(super) pc: u32,
    /// Whether the access is volatile, relaxed or stronger.
    pub(super) strong: bool,
}

fn join(into: &mut [u32], from: &[u32]) {
    for (mine, theirs) in into.iter_mut().zip(from) {
        *mine = (*mine).max(*theirs);
    }
}

fn join_blocks(into: &mut HashMap<u64, u32>, from: &HashMap<u64, u32>) {
    for (block, clock) in from {
        let mine = into.entry(*block).or_default();
        *mine = (*mine).max(*clock);
    }
}

impl<'a> BlockRaces<'a> {
    /// The detector for the block with index `rank` in its cluster.
    pub(super) fn new(races: &Rc<RefCell<Races<'a>>>, rank: u32) -> Self {
        Self { races: Rc::clone(races), rank: rank as usize }
    }

    /// Records a barrier of the lanes of a warp.
    pub(super) fn warp_barrier(&self, warp: usize) {
        let races = &mut *self.races.borrow_mut();
        races.advance(races.index(self.rank, warp));
    }

    /// Records the arrival of a warp at a barrier.
    pub(super) fn arrive(&self, barrier: Barrier, warp: usize) {
        let races = &mut *self.races.borrow_mut();
        let warp = races.index(self.rank, warp);
        races.advance(warp);
        let arrived = &mut races.arrived.entry(self.key(barrier)).or_default().0;
        arrived.resize(races.clocks.len(), 0);
        join(arrived, &races.clocks[warp]);
    }

    /// Records that a barrier releases a warp.
    pub(super) fn release(&self, barrier: Barrier, warp: usize) {
        let races = &mut *self.races.borrow_mut();
        let warp = races.index(self.rank, warp);
        if let Some(BarrierClock(clocks)) = races.arrived.get(&self.key(barrier)) {
            join(&mut races.clocks[warp], clocks);
        }
    }

    /// Records that a barrier has released all waiting warps.
    pub(super) fn open(&self, barrier: Barrier) {
        self.races.borrow_mut().arrived.remove(&self.key(barrier));
    }

    fn key(&self, barrier: Barrier) -> (usize, Barrier) {
        let of_block = matches!(barrier, Barrier::Block(_));
        (if of_block { self.rank } else { 0 }, barrier)
    }

    /// Records that a warp arrives at the mbarrier at `address`, or that a copy of the warp
    /// completes there.
    pub(super) fn release_at(&self, address: u64, warp: usize) {
        let races = &mut *self.races.borrow_mut();
        let warp = races.index(self.rank, warp);
        races.advance(warp);
        let released = races.released.entry(address).or_default();
        released.resize(races.clocks.len(), 0);
        join(released, &races.clocks[warp]);
    }

    /// Records that a warp has observed the completion of a phase of the mbarrier at `address`.
    pub(super) fn acquire_at(&self, address: u64, warp: usize) {
        let races = &mut *self.races.borrow_mut();
        let warp = races.index(self.rank, warp);
        if let Some(clocks) = races.released.get(&address) {
            join(&mut races.clocks[warp], clocks);
        }
    }

    /// Records an access and reports a race.
    pub(super) fn record(&self, access: &LaneAccess, kind: AccessKind) -> Result<(), FaultKind> {
        self.races.borrow_mut().record(self.rank, access, kind)
    }
}

impl<'a> Races<'a> {
    /// Creates a detector without recorded accesses.
    pub(super) fn new(
        program: &'a Program,
        launch: &'a Launch<'a>,
        global: Arc<Mutex<AccessHistory>>,
    ) -> Self {
        Self {
            program,
            launch,
            blocks: Vec::new(),
            warps: 0,
            clocks: Vec::new(),
            shared: AccessHistory::default(),
            global,
            writes: 0,
            known: HashMap::new(),
            arrived: HashMap::new(),
            released: HashMap::new(),
        }
    }

    /// Begins a cluster of `blocks`, which have `warps` warps each.
    pub(super) fn start(&mut self, blocks: impl Iterator<Item = [u32; 3]>, warps: usize) {
        let [nx, ny, _] = self.launch.grid.map(u64::from);
        let index = |[x, y, z]: [u64; 3]| x + nx * (y + ny * z);
        self.blocks = blocks.map(|block| index(block.map(u64::from))).collect();
        let count = self.blocks.len() * warps;
        (self.warps, self.clocks) = (warps, vec![vec![0; count]; count]);
        self.shared = AccessHistory::default();
        self.writes = 0;
        self.known.clear();
        self.arrived.clear();
        self.released.clear();
    }

    /// The index of a warp in the cluster.
    fn index(&self, rank: usize, warp: usize) -> usize {
        rank * self.warps + warp
    }

    /// Advances the clock of a warp.
    fn advance(&mut self, warp: usize) {
        self.clocks[warp][warp] += 1;
    }

    /// Records that the grid barrier opens: earlier accesses do not race with later ones.
    pub(super) fn open_grid_barrier(&mut self) {
        self.arrived.remove(&(0, Barrier::Grid));
        self.known.clear();
        let mut seen = self.global.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        *seen = AccessHistory::default();
    }

    fn record(
        &mut self,
        rank: usize,
        access: &LaneAccess,
        kind: AccessKind,
    ) -> Result<(), FaultKind> {
        let found = match access.space {
            StateSpace::Shared => {
                let mut seen = std::mem::take(&mut self.shared);
                let found = self.record_in(&mut seen, rank, access, kind);
                self.shared = seen;
                found
            }
            StateSpace::Global => {
                let global = Arc::clone(&self.global);
                let mut seen = global.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                self.record_in(&mut seen, rank, access, kind)
            }
            _ => return Ok(()),
        };
        let Some((address, other, that)) = found else { return Ok(()) };
        let this = if kind == AccessKind::Read { RacingAccess::Read } else { RacingAccess::Write };
        let other = Box::new(self.site(&other));
        Err(FaultKind::Race { address, space: access.space, this, that, other })
    }

    /// Records an access. Returns the first byte of a race, and the other access.
    fn record_in(
        &mut self,
        seen: &mut AccessHistory,
        rank: usize,
        access: &LaneAccess,
        kind: AccessKind,
    ) -> Option<(u64, AccessStamp, RacingAccess)> {
        let (first, count) = access.bytes;
        let strong = access.strong || kind == AccessKind::Atomic;
        let warp = self.index(rank, access.warp);
        if strong && !matches!(kind, AccessKind::Write { .. }) {
            self.acquire(seen, first, warp);
        }
        let stamp = AccessStamp {
            block: self.blocks[rank],
            thread: (access.warp * LANES + access.lane) as u32,
            clock: self.clocks[warp][warp],
            writes: self.writes,
            pc: access.pc,
            strong,
        };
        for address in first..first + count {
            let cell = seen.cell(address);
            if let Some((other, that)) = cell.conflict(kind, |other| self.races(&stamp, other)) {
                return Some((address, other, that));
            }
            cell.note(kind, stamp);
        }
        if strong && kind != AccessKind::Read {
            self.publish(seen, first, warp);
        }
        None
    }

    /// Whether two accesses are unordered.
    fn races(&self, stamp: &AccessStamp, other: &AccessStamp) -> bool {
        if other.is_by_same_thread(stamp) || other.strong && stamp.strong {
            return false;
        }
        let (Some(mine), Some(theirs)) = (self.warp_of(stamp), self.warp_of(other)) else {
            return self.known.get(&other.block).is_none_or(|clock| other.writes > *clock);
        };
        other.clock >= self.clocks[mine][theirs]
    }

    /// The index of the warp in the cluster; `None` for a warp of another cluster.
    fn warp_of(&self, stamp: &AccessStamp) -> Option<usize> {
        let rank = self.blocks.iter().position(|&block| block == stamp.block)?;
        Some(self.index(rank, stamp.thread as usize / LANES))
    }

    fn acquire(&mut self, seen: &AccessHistory, address: u64, warp: usize) {
        let Some(release) = seen.releases.get(&address) else { return };
        if let Some(clocks) = release.clocks.get(&self.blocks[0]) {
            join(&mut self.clocks[warp], clocks);
        }
        join_blocks(&mut self.known, &release.blocks);
    }

    fn publish(&mut self, seen: &mut AccessHistory, address: u64, warp: usize) {
        self.advance(warp);
        let release = seen.releases.entry(address).or_default();
        let clocks = release.clocks.entry(self.blocks[0]).or_default();
        clocks.resize(self.clocks.len(), 0);
        join(clocks, &self.clocks[warp]);
        release.blocks.extend(self.blocks.iter().map(|block| (*block, self.writes)));
        join_blocks(&mut release.blocks, &self.known);
        self.writes = self.writes.saturating_add(1);
    }

    fn site(&self, stamp: &AccessStamp) -> FaultSite {
        let block = coordinates(stamp.block, self.launch.grid);
        site_of(self.program, self.launch, block, stamp.thread, stamp.pc)
    }
}

impl Program {
    /// The program with all accesses lane by lane, so the detector observes each.
    pub(super) fn lane_by_lane(&self) -> Self {
        let mut program = self.clone();
        for instruction in &mut program.code {
            if let Operation::Memory(access) = &mut instruction.operation {
                *access = access.lane_by_lane();
            }
        }
        program
    }
}
