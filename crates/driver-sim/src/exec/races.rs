//! Detection of races between threads: two unordered accesses to the same byte, at least one of
//! them a write.
//!
//! This is the vector-clock algorithm. Every warp has a clock that advances at synchronization, and
//! a vector of the clocks of other warps up to which all accesses happened before. A barrier joins
//! the clocks of its warps. `bar.warp.sync` advances the clock of one warp, because its lanes are
//! not ordered either. Atomics and other strong accesses do not race with each other; a thread that
//! reads a strong write acquires the clocks of the writer. The placement of fences is not checked.
//! Strong accesses to global memory and the grid barrier order blocks; the cluster barrier does
//! not.
//!
//! Detection costs a few hundred bytes and some hash look-ups per accessed byte and runs blocks one
//! after another. It is off by default.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use retrograph_ptx::ast::Space;

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

/// Detects races in a launch whose blocks run one after another.
pub(super) struct Races<'a> {
    program: &'a Program,
    launch: &'a Launch<'a>,
    block: u64,
    /// The vector clock of each warp, its own clock last.
    clocks: Vec<Vec<u32>>,
    shared: AccessHistory,
    global: Arc<Mutex<AccessHistory>>,
    /// Blocks whose strong writes the block has read.
    known: HashSet<u64>,
    arrived: HashMap<u32, BarrierClock>,
    /// The joined clocks of the warps that arrived at each mbarrier.
    released: HashMap<u64, Vec<u32>>,
}

/// One access of one lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct LaneAccess {
    /// Shared or global memory; other spaces cannot race.
    pub(super) space: Space,
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
            block: 0,
            clocks: Vec::new(),
            shared: AccessHistory::default(),
            global,
            known: HashSet::new(),
            arrived: HashMap::new(),
            released: HashMap::new(),
        }
    }

    /// Begins a block.
    pub(super) fn start(&mut self, [x, y, z]: [u32; 3], warps: usize) {
        let [nx, ny, _] = self.launch.grid.map(u64::from);
        self.block = u64::from(x) + nx * (u64::from(y) + ny * u64::from(z));
        self.clocks = vec![vec![0; warps]; warps];
        self.shared = AccessHistory::default();
        self.known.clear();
        self.arrived.clear();
        self.released.clear();
    }

    /// Records a barrier of the lanes of a warp.
    pub(super) fn warp_barrier(&mut self, warp: usize) {
        self.clocks[warp][warp] += 1;
    }

    /// Records the arrival of a warp at a barrier.
    pub(super) fn arrive(&mut self, id: u32, warp: usize) {
        self.clocks[warp][warp] += 1;
        let arrived = &mut self.arrived.entry(id).or_default().0;
        arrived.resize(self.clocks.len(), 0);
        join(arrived, &self.clocks[warp]);
    }

    /// Records that a barrier releases a warp.
    pub(super) fn release(&mut self, id: u32, warp: usize) {
        if let Some(BarrierClock(clocks)) = self.arrived.get(&id) {
            join(&mut self.clocks[warp], clocks);
        }
    }

    /// Records that a barrier has released all waiting warps.
    pub(super) fn open(&mut self, id: u32) {
        self.arrived.remove(&id);
    }

    /// Records a grid barrier: earlier accesses do not race with later ones.
    pub(super) fn forget_blocks(&mut self) {
        self.known.clear();
        let mut seen = self.global.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        *seen = AccessHistory::default();
    }

    /// Records that a warp arrives at the mbarrier at `address`, or that a copy of the warp
    /// completes there.
    pub(super) fn release_at(&mut self, address: u64, warp: usize) {
        self.clocks[warp][warp] += 1;
        let released = self.released.entry(address).or_default();
        released.resize(self.clocks.len(), 0);
        join(released, &self.clocks[warp]);
    }

    /// Records that a warp has observed the completion of a phase of the mbarrier at `address`.
    pub(super) fn acquire_at(&mut self, address: u64, warp: usize) {
        if let Some(clocks) = self.released.get(&address) {
            join(&mut self.clocks[warp], clocks);
        }
    }

    /// Records an access and reports a race.
    pub(super) fn record(
        &mut self,
        access: &LaneAccess,
        kind: AccessKind,
    ) -> Result<(), FaultKind> {
        let found = match access.space {
            Space::Shared => {
                let mut seen = std::mem::take(&mut self.shared);
                let found = self.record_in(&mut seen, access, kind);
                self.shared = seen;
                found
            }
            Space::Global => {
                let global = Arc::clone(&self.global);
                let mut seen = global.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                self.record_in(&mut seen, access, kind)
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
        access: &LaneAccess,
        kind: AccessKind,
    ) -> Option<(u64, AccessStamp, RacingAccess)> {
        let (first, count) = access.bytes;
        let strong = access.strong || kind == AccessKind::Atomic;
        if strong && !matches!(kind, AccessKind::Write { .. }) {
            self.acquire(seen, first, access.warp);
        }
        let stamp = AccessStamp {
            block: self.block,
            thread: (access.warp * LANES + access.lane) as u32,
            clock: self.clocks[access.warp][access.warp],
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
            self.publish(seen, first, access.warp);
        }
        None
    }

    /// Whether two accesses are unordered.
    fn races(&self, stamp: &AccessStamp, other: &AccessStamp) -> bool {
        if other.is_by_same_thread(stamp) || other.strong && stamp.strong {
            return false;
        }
        if other.block != stamp.block {
            return !self.known.contains(&other.block);
        }
        let (mine, theirs) = (stamp.thread as usize / LANES, other.thread as usize / LANES);
        other.clock >= self.clocks[mine][theirs]
    }

    fn acquire(&mut self, seen: &AccessHistory, address: u64, warp: usize) {
        let Some(release) = seen.releases.get(&address) else { return };
        if release.block == self.block {
            join(&mut self.clocks[warp], &release.clocks);
        }
        self.known.extend(&release.blocks);
    }

    fn publish(&mut self, seen: &mut AccessHistory, address: u64, warp: usize) {
        let count = self.clocks.len();
        self.clocks[warp][warp] += 1;
        let release = seen.releases.entry(address).or_default();
        if release.block != self.block {
            release.clocks.clear();
        }
        release.block = self.block;
        release.clocks.resize(count, 0);
        join(&mut release.clocks, &self.clocks[warp]);
        release.blocks.insert(self.block);
        release.blocks.extend(&self.known);
    }

    fn site(&self, stamp: &AccessStamp) -> FaultSite {
        let block = coordinates(stamp.block, self.launch.grid);
        site_of(self.program, self.launch, (block, stamp.thread, stamp.pc))
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
