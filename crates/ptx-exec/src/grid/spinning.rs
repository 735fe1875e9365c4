//! Detection of grids whose resident blocks only spin.
//!
//! A spinning block executes instructions forever, so it reaches the step limit. Blocks run in
//! turns, so a grid with many spinning blocks would take as many times as long. If no block changes
//! global memory, a cluster that returns to an earlier state repeats what it did since then.

use std::collections::HashSet;

use crate::cluster::ClusterRunner;

/// The instructions and states of clusters since global memory last changed.
#[derive(Debug, Default)]
pub(super) struct Spinning {
    /// Instructions of all clusters.
    executed: u64,
    /// Positions and states of clusters.
    states: HashSet<(u64, u64)>,
    /// The positions of clusters that have returned to a state.
    repeating: HashSet<u64>,
}

impl Spinning {
    /// Records a turn of the cluster at a position. It executed `executed` instructions and has not
    /// ended. Half of the step limit passes before states are recorded, because that takes time.
    pub(super) fn observe(
        &mut self,
        position: u64,
        runner: &ClusterRunner<'_>,
        executed: u64,
        step_limit: u64,
    ) {
        if runner.take_has_changed_global() {
            self.reset();
        }
        self.executed += executed;
        let is_due = self.executed > step_limit / 2 && !self.repeating.contains(&position);
        if is_due && !self.states.insert((position, runner.state())) {
            self.repeating.insert(position);
        }
    }

    /// Starts again, because memory or the set of resident clusters changed.
    pub(super) fn reset(&mut self) {
        self.executed = 0;
        self.states.clear();
        self.repeating.clear();
    }

    /// Whether all of `clusters` resident clusters repeat their states, and have executed more
    /// instructions than the step limit.
    pub(super) fn is_endless(&self, clusters: usize, step_limit: u64) -> bool {
        self.executed > step_limit && self.repeating.len() == clusters
    }
}
