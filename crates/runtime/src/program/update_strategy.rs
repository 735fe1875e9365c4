//! Update strategies: how a graph changes to other addresses, and which way is cheapest.

use std::fmt;

use super::policy::Strategy;

/// A way to change the addresses of a graph, cheapest first. One that fails is followed by the
/// next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UpdateStrategy {
    /// Leaves the graph unchanged. Address tables in device memory are rewritten in stream order.
    KeepGraph,
    /// Sets the parameters of the nodes that use a moved buffer, one by one, in the exec.
    SetNodeParams,
    /// Builds a new template and updates the exec from it (`cuGraphExecUpdate`).
    ExecUpdate,
    /// Builds and instantiates a new template.
    Rebuild,
}

impl fmt::Display for UpdateStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::KeepGraph => "keep graph",
            Self::SetNodeParams => "set node params",
            Self::ExecUpdate => "exec update",
            Self::Rebuild => "rebuild",
        })
    }
}

/// Host costs of update strategies, in microseconds per node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UpdateCosts {
    /// Setting the parameters of a node in an exec.
    pub set: f64,
    /// Updating an exec from a template.
    pub update: f64,
    /// Adding a node to a template by hand.
    pub add: f64,
    /// Capturing a node into a template.
    pub capture: f64,
    /// Instantiating a chain.
    pub instantiate: f64,
}

impl UpdateCosts {
    /// Measured on an H200 with driver 580: `docs/hardware/2026-11-21-graph-costs`, 1000 nodes.
    pub const RECORDED: Self =
        Self { set: 0.28, update: 0.05, add: 0.34, capture: 0.58, instantiate: 1.7 };

    /// Estimated host time in microseconds.
    pub fn estimate(&self, update: UpdateStrategy, change: &Change) -> f64 {
        let template = match change.strategy {
            Strategy::Capture => self.capture,
            _ => self.add,
        };
        let nodes = change.nodes as f64;
        match update {
            UpdateStrategy::KeepGraph => 0.0,
            UpdateStrategy::SetNodeParams => self.set * change.changed as f64,
            UpdateStrategy::ExecUpdate => (template + self.update) * nodes,
            UpdateStrategy::Rebuild => (template + self.instantiate) * nodes,
        }
    }
}

/// A change of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// How the template is made.
    pub strategy: Strategy,
    /// Nodes of the graph.
    pub nodes: usize,
    /// Nodes that use a moved buffer.
    pub changed: usize,
    /// Whether the parameters of all these nodes can be set in the exec.
    pub settable: bool,
}

/// The cheapest update strategy that can make the change.
pub fn cheapest_update(change: &Change, costs: &UpdateCosts) -> UpdateStrategy {
    if change.changed == 0 {
        return UpdateStrategy::KeepGraph;
    }
    let updates =
        [UpdateStrategy::SetNodeParams, UpdateStrategy::ExecUpdate, UpdateStrategy::Rebuild];
    let possible = updates
        .into_iter()
        .filter(|update| change.settable || *update > UpdateStrategy::SetNodeParams);
    let cost = |update: &UpdateStrategy| costs.estimate(*update, change);
    possible
        .min_by(|one, other| cost(one).total_cmp(&cost(other)))
        .unwrap_or(UpdateStrategy::Rebuild)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(strategy: Strategy, nodes: usize, changed: usize) -> Change {
        Change { strategy, nodes, changed, settable: true }
    }

    #[test]
    fn an_unchanged_graph_is_kept() {
        for nodes in [0, 1, 1000] {
            let chosen =
                cheapest_update(&change(Strategy::Manual, nodes, 0), &UpdateCosts::RECORDED);
            assert_eq!(chosen, UpdateStrategy::KeepGraph);
        }
    }

    #[test]
    fn setting_nodes_is_always_cheapest_by_the_recorded_costs() {
        for strategy in [Strategy::Manual, Strategy::Capture] {
            for (nodes, changed) in [(1, 1), (1000, 1), (1000, 500), (1000, 1000)] {
                let change = change(strategy, nodes, changed);
                assert_eq!(
                    cheapest_update(&change, &UpdateCosts::RECORDED),
                    UpdateStrategy::SetNodeParams
                );
                let unset = Change { settable: false, ..change };
                assert_eq!(
                    cheapest_update(&unset, &UpdateCosts::RECORDED),
                    UpdateStrategy::ExecUpdate
                );
            }
        }
    }

    #[test]
    fn the_share_of_changed_nodes_decides_if_setting_is_expensive() {
        let costs = UpdateCosts { set: 1.0, ..UpdateCosts::RECORDED };
        let chosen = |changed| cheapest_update(&change(Strategy::Manual, 1000, changed), &costs);
        assert_eq!(
            (chosen(389), chosen(391)),
            (UpdateStrategy::SetNodeParams, UpdateStrategy::ExecUpdate)
        );
        let costs = UpdateCosts { set: 9.0, update: 9.0, ..UpdateCosts::RECORDED };
        assert_eq!(
            cheapest_update(&change(Strategy::Manual, 10, 10), &costs),
            UpdateStrategy::Rebuild
        );
    }

    #[test]
    fn estimates_follow_the_record() {
        let manual = change(Strategy::Manual, 1000, 100);
        let costs = UpdateCosts::RECORDED;
        let estimate = |update| costs.estimate(update, &manual).round();
        assert_eq!(estimate(UpdateStrategy::SetNodeParams), 28.0);
        assert_eq!(estimate(UpdateStrategy::ExecUpdate), 390.0);
        assert_eq!(estimate(UpdateStrategy::Rebuild), 2040.0);
        let captured = Change { strategy: Strategy::Capture, ..manual };
        assert_eq!(costs.estimate(UpdateStrategy::ExecUpdate, &captured).round(), 630.0);
    }
}
