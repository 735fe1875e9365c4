//! Execution of a launch: all clusters of a grid, on one or several host threads. Without a cluster
//! size, each block is a cluster.
//!
//! Clusters do not communicate unless a program has atomics or ordered accesses to global memory,
//! so results do not depend on the number of host threads. Programs that do communicate run on one
//! host thread in a fixed order, in turns.

mod interleaved;
mod spinning;

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::block::{BlockFault, Progress, Surroundings, scramble};
use super::cluster::ClusterRunner;
use super::conditional::ConditionalValues;
use super::fault::Fault;
use super::interpreter::{HostIsa, Interpreter, interpreter_for};
use super::program::Program;
use super::races::{AccessHistory, Races};
use super::site::site_of;
use crate::memory::Memory;

/// Instructions that a launch executes on the calling thread before it starts other threads: about
/// the cost of starting them.
const INLINE: u64 = 20_000;

/// The configuration of a launch.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// Blocks of the grid.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Blocks of a cluster. Grid dimensions are rounded down to multiples of it.
    pub cluster: [u32; 3],
    /// Whether the launch is cooperative: all blocks are resident and may use the grid barrier.
    pub is_cooperative: bool,
    /// The number of blocks that the device can hold at once. Whole clusters are resident, at least
    /// one. Further blocks start when one ends, so a grid whose blocks wait for blocks that do not
    /// fit is a deadlock. Cooperative launches ignore it. `None` only limits host memory: 1024
    /// clusters are resident.
    pub resident_blocks: Option<u64>,
    /// Bytes of dynamic shared memory.
    pub shared_bytes: u32,
    /// The parameter block; [`Program::parameters`] gives its layout.
    pub parameters: &'a [u8],
    /// Maximum number of host threads.
    pub threads: usize,
    /// The seed of the order of blocks and warps. With 0 they run in the order of their indices.
    pub seed: u64,
    /// Whether to detect races between threads. Blocks then run one after another.
    pub races: bool,
    /// Maximum warp instructions of a block; a block that exceeds it counts as hanging. If all
    /// resident blocks only spin, the limit applies to the instructions of all of them.
    pub step_limit: u64,
    /// The buffer for `vprintf` output of kernels; `None` drops the output.
    pub output: Option<&'a Mutex<String>>,
    /// The values of the conditional handles of the graph, if the launch is part of one.
    pub conditions: Option<&'a ConditionalValues>,
    /// The instruction set of the host to use, to compare them. By default, or if the host lacks
    /// it, the fastest one.
    pub isa: Option<HostIsa>,
}

impl Launch<'_> {
    /// The default step limit: about ten seconds of one block.
    pub const STEP_LIMIT: u64 = 1 << 30;

    /// The numbers of clusters of the grid along x, y and z.
    pub(super) fn clusters(&self) -> [u32; 3] {
        std::array::from_fn(|axis| self.grid[axis] / self.cluster[axis].max(1))
    }

    /// The number of blocks of a cluster.
    pub(super) fn blocks_per_cluster(&self) -> u32 {
        self.cluster.iter().product()
    }
}

impl Default for Launch<'_> {
    fn default() -> Self {
        Self {
            grid: [1; 3],
            block: [1; 3],
            cluster: [1; 3],
            is_cooperative: false,
            resident_blocks: None,
            shared_bytes: 0,
            parameters: &[],
            threads: 1,
            seed: 0,
            races: false,
            step_limit: Self::STEP_LIMIT,
            output: None,
            conditions: None,
            isa: None,
        }
    }
}

/// Statistics of a launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LaunchStats {
    /// Blocks.
    pub blocks: u64,
    /// Instructions, counted once for all 32 lanes of a warp.
    pub warp_instructions: u64,
}

/// Runs a kernel to completion. Missing parameter bytes are zero, and a launch without threads does
/// nothing.
pub fn launch(
    program: &Program,
    launch: &Launch<'_>,
    memory: &Memory,
) -> Result<LaunchStats, Fault> {
    let clusters: u64 = launch.clusters().iter().map(|&n| u64::from(n)).product();
    let blocks = clusters * u64::from(launch.blocks_per_cluster());
    if blocks == 0 || launch.block.contains(&0) {
        return Ok(LaunchStats::default());
    }
    let mut parameters = launch.parameters.to_vec();
    parameters.resize(program.parameter_bytes() as usize, 0);
    let watched = launch.races.then(|| program.lane_by_lane());
    let program = watched.as_ref().unwrap_or(program);
    if program.uses_heap {
        // Without memory for it, `malloc` returns null.
        let _ = memory.make_heap();
    }
    let workspace = match program.uses_workspace && launch.is_cooperative {
        // It fails only if the host has no memory; then the kernel finds no grid to wait for.
        true => memory.fresh_workspace().unwrap_or(0),
        false => 0,
    };
    let snapshot = memory.snapshot();
    let seen = launch.races.then(|| Arc::new(Mutex::new(AccessHistory::default())));
    let grid = Grid {
        program,
        launch,
        order: Order::new(clusters, launch.seed),
        around: Surroundings { global: &snapshot, parameters: &parameters, workspace },
        seen,
        interpreter: interpreter_for(launch.isa),
        next: AtomicU64::new(0),
        executed: AtomicU64::new(0),
        first_fault: AtomicU64::new(u64::MAX),
        fault: Mutex::new(None),
    };
    grid.run();
    match grid.fault.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()) {
        Some((_, fault)) => Err(describe(program, launch, &fault)),
        None => {
            Ok(LaunchStats { blocks, warp_instructions: grid.executed.load(Ordering::Relaxed) })
        }
    }
}

/// The order of the clusters: a stride that visits each index once.
#[derive(Clone, Copy, Debug)]
struct Order {
    clusters: u64,
    start: u64,
    stride: u64,
}

impl Order {
    fn new(clusters: u64, seed: u64) -> Self {
        if seed == 0 {
            return Self { clusters, start: 0, stride: 1 };
        }
        let mut stride = scramble(seed) % clusters;
        while greatest_common_divisor(stride, clusters) != 1 {
            stride = (stride + 1) % clusters.max(2);
        }
        Self { clusters, start: scramble(!seed) % clusters, stride }
    }

    /// The linear index of the cluster at a position in the order.
    fn cluster(self, position: u64) -> u64 {
        let far = u128::from(position) * u128::from(self.stride) + u128::from(self.start);
        (far % u128::from(self.clusters)) as u64
    }
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

struct Grid<'a> {
    program: &'a Program,
    launch: &'a Launch<'a>,
    order: Order,
    around: Surroundings<'a>,
    /// The accesses to global memory, if races are detected.
    seen: Option<Arc<Mutex<AccessHistory>>>,
    interpreter: Interpreter,
    /// The position of the next cluster that no thread has claimed.
    next: AtomicU64,
    executed: AtomicU64,
    /// The lowest position in the order at which a block faulted.
    first_fault: AtomicU64,
    fault: Mutex<Option<(u64, BlockFault)>>,
}

impl Grid<'_> {
    fn run(&self) {
        if self.program.communicates || self.launch.races {
            return self.run_interleaved();
        }
        let mut runner = self.runner();
        let alone = self.launch.threads <= 1;
        while self.claim(&mut runner).is_continue() {
            if !alone && self.executed.load(Ordering::Relaxed) >= INLINE {
                break;
            }
        }
        let left = self.order.clusters.saturating_sub(self.next.load(Ordering::Relaxed));
        if alone || left == 0 || self.first_fault.load(Ordering::Relaxed) != u64::MAX {
            return;
        }
        let helpers = left.min(self.launch.threads as u64) - 1;
        std::thread::scope(|scope| {
            for _ in 0..helpers {
                scope.spawn(|| {
                    let mut runner = self.runner();
                    while self.claim(&mut runner).is_continue() {}
                });
            }
            while self.claim(&mut runner).is_continue() {}
        });
    }

    fn runner(&self) -> ClusterRunner<'_> {
        let seen = self.seen.clone();
        let races = seen.map(|seen| Races::new(self.program, self.launch, seen));
        ClusterRunner::new(self.program, self.launch, self.around, races, self.interpreter)
    }

    /// Claims the position of the next block.
    fn next_position(&self) -> Option<u64> {
        let position = self.next.fetch_add(1, Ordering::Relaxed);
        let wanted =
            position < self.order.clusters && position <= self.first_fault.load(Ordering::Relaxed);
        wanted.then_some(position)
    }

    fn start(&self, runner: &mut ClusterRunner<'_>, position: u64) {
        let cluster = self.order.cluster(position);
        let order = if self.launch.seed == 0 { 0 } else { scramble(self.launch.seed ^ cluster) };
        runner.start(cluster, order);
    }

    /// Runs the next block. Blocks are claimed in order, so every block before a faulting one runs
    /// to completion, and the reported fault is reproducible.
    fn claim(&self, runner: &mut ClusterRunner<'_>) -> ControlFlow<()> {
        let Some(position) = self.next_position() else { return ControlFlow::Break(()) };
        self.start(runner, position);
        self.finish(position, runner.run(u64::MAX))
    }

    fn finish(&self, position: u64, result: Result<Progress, BlockFault>) -> ControlFlow<()> {
        match result {
            Ok(Progress::Ended { executed }) => {
                self.executed.fetch_add(executed, Ordering::Relaxed);
                ControlFlow::Continue(())
            }
            Ok(Progress::Preempted | Progress::Polling | Progress::Blocked) => {
                ControlFlow::Continue(())
            }
            Err(fault) => {
                self.first_fault.fetch_min(position, Ordering::Relaxed);
                let mut first = self.fault.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                if first.as_ref().is_none_or(|(other, _)| position < *other) {
                    *first = Some((position, fault));
                }
                ControlFlow::Break(())
            }
        }
    }
}

/// The coordinates of a linear index.
pub(super) fn coordinates(linear: u64, [x, y, _]: [u32; 3]) -> [u32; 3] {
    let (x, y) = (u64::from(x), u64::from(y));
    [(linear % x) as u32, (linear / x % y) as u32, (linear / x / y) as u32]
}

fn describe(program: &Program, launch: &Launch<'_>, fault: &BlockFault) -> Fault {
    let site = site_of(program, launch, fault.block, fault.thread, fault.pc);
    Fault { kind: fault.kind.clone(), site: Box::new(site) }
}
