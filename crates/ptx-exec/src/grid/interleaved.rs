//! Execution of clusters that may wait for each other, in turns on one host thread.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use super::Grid;
use super::spinning::Spinning;
use crate::block::{BlockFault, Progress, scramble};
use crate::cluster::ClusterRunner;
use crate::fault::{FaultKind, NotStarted};

/// Warp instructions after which a block yields.
const QUANTUM: u64 = 1 << 16;
/// The number of times that all clusters only poll before the grid counts as deadlocked.
const POLLS: usize = 64;
/// Maximum resident clusters of a launch without a limit, to bound host memory.
const MAX_RESIDENT: usize = 1024;

/// A resident cluster and its position in the order.
type Resident<'a> = (u64, ClusterRunner<'a>);

impl Grid<'_> {
    /// Runs blocks that may wait for each other, on this thread and in a fixed order. A block
    /// yields after a quantum, so a spinning block cannot starve the block that it waits for. The
    /// grid barrier opens when all blocks wait there.
    pub(super) fn run_interleaved(&self) {
        let mut resting: VecDeque<Resident<'_>> = VecDeque::new();
        let mut waiting: Vec<Resident<'_>> = Vec::new();
        let mut free: Vec<ClusterRunner<'_>> = Vec::new();
        let mut spinning = Spinning::default();
        let (mut ended, mut polls) = (0, 0);
        let (capacity, step_limit) = (self.resident_clusters(), self.launch.step_limit);
        loop {
            let fresh = if resting.len() < capacity { self.next_position() } else { None };
            let (position, mut runner) = match fresh {
                Some(position) => {
                    let mut runner = free.pop().unwrap_or_else(|| self.runner());
                    self.start(&mut runner, position);
                    spinning.reset();
                    (position, runner)
                }
                None => match resting.pop_front() {
                    Some(rested) => rested,
                    None if waiting.is_empty() => return,
                    None => {
                        if let Err((position, fault)) = self.check_all_wait(&waiting, ended) {
                            let _ = self.finish(position, Err(fault));
                            return;
                        }
                        resting.extend(self.open_grid_barrier(std::mem::take(&mut waiting)));
                        spinning.reset();
                        continue;
                    }
                },
            };
            let before = runner.executed();
            let result = runner.run(QUANTUM);
            polls = if matches!(result, Ok(Progress::Polling)) { polls + 1 } else { 0 };
            match result {
                Ok(Progress::Polling | Progress::Preempted) => {
                    let executed = runner.executed() - before;
                    spinning.observe(position, &runner, executed, step_limit);
                    resting.push_back((position, runner));
                    let clusters = resting.len();
                    if polls > POLLS * clusters || spinning.is_endless(clusters, step_limit) {
                        self.fail_first(&resting);
                        return;
                    }
                }
                Ok(Progress::Blocked) => {
                    spinning.reset();
                    waiting.push((position, runner));
                }
                result => {
                    let fault = |fault| self.with_not_started(fault, resting.len() + 1);
                    if self.finish(position, result.map_err(fault)).is_break() {
                        return;
                    }
                    spinning.reset();
                    ended += runner.blocks();
                    free.push(runner);
                }
            }
        }
    }

    /// Maximum resident clusters. Clusters at the grid barrier do not count, because only
    /// cooperative launches have that barrier.
    fn resident_clusters(&self) -> usize {
        let limit = self.launch.resident_blocks.filter(|_| !self.launch.is_cooperative);
        let Some(blocks) = limit else { return MAX_RESIDENT };
        let clusters = blocks / u64::from(self.launch.blocks_per_cluster());
        usize::try_from(clusters).unwrap_or(usize::MAX).max(1)
    }

    /// Reports a deadlock of the first of the resident clusters, which all wait.
    fn fail_first(&self, resting: &VecDeque<Resident<'_>>) {
        let first = resting.iter().min_by_key(|(position, _)| *position);
        let Some((position, runner)) = first else { return };
        let fault = self.with_not_started(runner.deadlock(), resting.len());
        let _ = self.finish(*position, Err(fault));
    }

    /// Adds to a fault of one of `clusters` resident clusters how many blocks wait for a place,
    /// because their absence may be the cause.
    fn with_not_started(&self, mut fault: BlockFault, clusters: usize) -> BlockFault {
        let started = self.next.load(Ordering::Relaxed).min(self.order.clusters);
        let per_cluster = u64::from(self.launch.blocks_per_cluster());
        let blocks = NotStarted {
            resident: clusters as u64 * per_cluster,
            waiting: (self.order.clusters - started) * per_cluster,
            blocks: self.order.clusters * per_cluster,
        };
        match &mut fault.kind {
            _ if clusters < self.resident_clusters() || blocks.waiting == 0 => {}
            FaultKind::Deadlock { waiting } => waiting.push_str(&format!("; {blocks}")),
            FaultKind::StepLimit { not_started, .. } => *not_started = Some(blocks),
            _ => {}
        }
        fault
    }

    /// Fails if some blocks never arrive at the grid barrier.
    fn check_all_wait(
        &self,
        waiting: &[Resident<'_>],
        ended: usize,
    ) -> Result<(), (u64, BlockFault)> {
        let ended = ended + waiting.iter().map(|(_, runner)| runner.ended()).sum::<usize>();
        let first = waiting.iter().min_by_key(|(position, _)| *position);
        let Some((position, runner)) = first.filter(|_| ended > 0) else { return Ok(()) };
        let mut fault = runner.deadlock();
        if let FaultKind::Deadlock { waiting } = &mut fault.kind {
            waiting.push_str(&format!("; {ended} block(s) of the grid ended without it"));
        }
        Err((*position, fault))
    }

    /// Opens the grid barrier. Returns the waiting clusters in the order in which they continue,
    /// which depends on the seed.
    fn open_grid_barrier<'r>(&self, mut waiting: Vec<Resident<'r>>) -> Vec<Resident<'r>> {
        waiting.iter_mut().for_each(|(_, runner)| runner.open_grid_barrier());
        if self.launch.seed != 0 {
            let seen = self.executed.load(Ordering::Relaxed) ^ waiting[0].0;
            let first = scramble(self.launch.seed ^ seen) as usize % waiting.len();
            waiting.rotate_left(first);
        }
        waiting
    }
}
