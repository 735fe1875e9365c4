//! Execution of a cluster: its blocks take turns on one host thread.
//!
//! Blocks of a cluster synchronize at its barrier and access each other's shared memory
//! (distributed shared memory). Loads, stores and atomics act at once. Arrivals at mbarriers and
//! bulk copies are messages, delivered at the end of the sender's turn, before any other block
//! runs.

use std::cell::RefCell;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use super::block::{BlockFault, BlockRunner, GivesUp, Progress, Surroundings, scramble};
use super::bulk::Message;
use super::fault::FaultKind;
use super::grid::{Launch, coordinates};
use super::interpreter::Interpreter;
use super::program::Program;
use super::races::{BlockRaces, Races};
use super::undefined::ProxyMisuse;

/// The maximum turn of a block, in instructions.
const MAX_TURN: u64 = 1 << 14;

/// Runs the clusters of one launch, one after another.
pub(super) struct ClusterRunner<'a> {
    launch: &'a Launch<'a>,
    /// The blocks, by rank.
    blocks: Vec<BlockRunner<'a>>,
    /// Whether each block has ended.
    ended: Vec<bool>,
    /// Whether threads communicate through global memory.
    communicates: bool,
    races: Option<Rc<RefCell<Races<'a>>>>,
    executed: u64,
    seed: u64,
}

impl<'a> ClusterRunner<'a> {
    /// Creates a runner for clusters of `launch`. The parameters must have the length that the
    /// program declares.
    pub(super) fn new(
        program: &'a Program,
        launch: &'a Launch<'a>,
        around: Surroundings<'a>,
        races: Option<Races<'a>>,
        interpreter: Interpreter,
    ) -> Self {
        let races = races.map(|races| Rc::new(RefCell::new(races)));
        let block = |rank| {
            let races = races.as_ref().map(|races| BlockRaces::new(races, rank));
            BlockRunner::new(program, launch, rank, around, races, interpreter)
        };
        let blocks: Vec<_> = (0..launch.blocks_per_cluster()).map(block).collect();
        let ended = vec![false; blocks.len()];
        let communicates = program.communicates;
        Self { launch, blocks, ended, communicates, races, executed: 0, seed: 0 }
    }

    /// Begins the cluster with this linear index. `order` varies the order of its warps.
    pub(super) fn start(&mut self, cluster: u64, order: u64) {
        let sizes = self.launch.cluster;
        let origin = coordinates(cluster, self.launch.clusters());
        for (rank, block) in (0..).zip(&mut self.blocks) {
            let position = coordinates(rank, sizes);
            let order = if order == 0 { 0 } else { order ^ rank };
            block.start(
                std::array::from_fn(|axis| origin[axis] * sizes[axis] + position[axis]),
                order,
            );
        }
        self.ended.fill(false);
        (self.executed, self.seed) = (0, order);
        self.share_memory();
        if let Some(races) = &self.races {
            let warps = self.blocks[0].warps();
            races.borrow_mut().start(self.blocks.iter().map(BlockRunner::ctaid), warps);
        }
    }

    /// Gives each block the shared memory of all blocks that have not ended.
    fn share_memory(&mut self) {
        if self.blocks.len() == 1 {
            return;
        }
        let blocks = self.blocks.iter().zip(&self.ended);
        let memory: Vec<_> =
            blocks.map(|(block, ended)| (!ended).then(|| block.shared_memory())).collect();
        self.blocks.iter_mut().for_each(|block| block.set_cluster_memory(&memory));
    }

    /// Resumes the cluster until it ends or has executed about `budget` more instructions.
    pub(super) fn run(&mut self, budget: u64) -> Result<Progress, BlockFault> {
        if let [block] = &mut self.blocks[..] {
            return match block.run(budget, GivesUp(true))? {
                Progress::Blocked if !block.barriers().has_grid_arrived() => self.blocked(),
                progress => Ok(progress),
            };
        }
        let mut left = budget;
        let mut gives_up = GivesUp(false);
        loop {
            let mut changes = false;
            for turn in 0..self.blocks.len() {
                let rank = self.rank_at(turn);
                if self.ended[rank] {
                    continue;
                }
                let before = self.blocks[rank].executed();
                let turn = self.turn(left);
                match self.blocks[rank].run(turn, gives_up)? {
                    Progress::Ended { executed } => {
                        (self.ended[rank], changes) = (true, true);
                        self.executed += executed;
                        self.share_memory();
                    }
                    Progress::Preempted | Progress::Polling => changes = true,
                    Progress::Blocked => {}
                }
                left = left.saturating_sub(self.blocks[rank].executed() - before);
                changes |= self.deliver(rank)?;
            }
            if self.ended.iter().all(|&ended| ended) {
                return Ok(Progress::Ended { executed: self.executed });
            }
            changes |= self.open_barrier();
            if !changes && gives_up.0 {
                if self.blocks.iter().all(|block| block.barriers().has_grid_arrived()) {
                    return Ok(Progress::Blocked);
                }
                return self.blocked();
            }
            gives_up = GivesUp(!changes);
            if left == 0 {
                return Ok(Progress::Preempted);
            }
            self.seed = if self.seed == 0 { 0 } else { scramble(self.seed).max(1) };
        }
    }

    /// Called when no block can make progress: a deadlock, unless a block of another cluster may
    /// write what the blocks poll.
    fn blocked(&mut self) -> Result<Progress, BlockFault> {
        if !self.communicates || !self.blocks.iter().any(BlockRunner::is_stalled) {
            return Err(self.deadlock());
        }
        self.blocks.iter_mut().for_each(BlockRunner::poll_again);
        Ok(Progress::Polling)
    }

    fn rank_at(&self, turn: usize) -> usize {
        (turn + (self.seed >> 1) as usize % self.blocks.len()) % self.blocks.len()
    }

    /// The instructions of a turn: [`MAX_TURN`], or with a seed a random number up to it.
    fn turn(&self, left: u64) -> u64 {
        let turn = if self.seed == 0 { MAX_TURN } else { scramble(!self.seed) % MAX_TURN };
        left.min(turn)
    }

    /// Delivers the messages of a block. Returns whether there were any.
    fn deliver(&mut self, from: usize) -> Result<bool, BlockFault> {
        let messages = self.blocks[from].take_messages();
        let any = !messages.is_empty();
        for message in messages {
            let rank = message.rank;
            let delivered = match self.ended[rank as usize] {
                true => {
                    Err(FaultKind::AsyncProxy(Box::new(ProxyMisuse::ClusterBlockEnded { rank })))
                }
                false => self.blocks[rank as usize].receive(&message),
            };
            delivered.map_err(|kind| self.fault_at(from, kind, &message))?;
        }
        Ok(any)
    }

    fn fault_at(&self, from: usize, kind: FaultKind, message: &Message) -> BlockFault {
        let (thread, pc) = message.issuer.position();
        BlockFault { kind, block: self.blocks[from].ctaid(), thread, pc }
    }

    /// Opens the cluster barrier if all warps have arrived.
    fn open_barrier(&mut self) -> bool {
        let opens = self.blocks.iter().all(|block| block.barriers().has_cluster_arrived())
            && self.blocks.iter().any(|block| block.barriers().awaits_cluster());
        if opens {
            self.blocks.iter_mut().for_each(BlockRunner::open_cluster_barrier);
        }
        opens
    }

    /// The number of blocks of a cluster.
    pub(super) fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// The number of blocks that have ended.
    pub(super) fn ended(&self) -> usize {
        self.ended.iter().filter(|&&ended| ended).count()
    }

    /// Opens the grid barrier, at which all blocks of the grid wait.
    pub(super) fn open_grid_barrier(&mut self) {
        self.blocks.iter_mut().for_each(BlockRunner::open_grid_barrier);
        if let Some(races) = &self.races {
            races.borrow_mut().open_grid_barrier();
        }
    }

    /// Warp instructions that the blocks have executed.
    pub(super) fn executed(&self) -> u64 {
        self.blocks.iter().map(BlockRunner::executed).sum()
    }

    /// Whether the blocks have changed global memory since the last call.
    pub(super) fn take_has_changed_global(&self) -> bool {
        self.blocks.iter().fold(false, |any, block| block.take_has_changed_global() | any)
    }

    /// A hash of the state that determines what the blocks do next, if global memory does not
    /// change.
    pub(super) fn state(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.ended.hash(&mut hasher);
        let running = self.blocks.iter().zip(&self.ended).filter(|(_, ended)| !**ended);
        running.for_each(|(block, _)| block.hash_state(&mut hasher));
        hasher.finish()
    }

    /// Creates the fault of a deadlock, reported for the first block that has not ended.
    pub(super) fn deadlock(&self) -> BlockFault {
        let first = self.ended.iter().position(|ended| !ended).unwrap_or(0);
        self.blocks[first].deadlock()
    }
}
