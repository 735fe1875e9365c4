//! Which rung of the update ladder changes a graph at least cost: a function of what is known, so
//! that the choice can be read and tested.

use std::fmt;

use super::policy::Strategy;

/// A way to make the steps from now on use other addresses, cheapest machinery first. A rung that
/// fails is followed by the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UpdateStrategy {
    /// The graph, if there is one, stays as it is. Values that change from step to step are
    /// controls and need no more than this; tables of addresses in device memory are rewritten in
    /// the order of the stream.
    KeepGraph,
    /// The parameters of the nodes that name a moved buffer are set one by one, in the exec.
    SetNodeParams,
    /// A template is made anew, and the exec takes over the parameters of all nodes at once.
    ExecUpdate,
    /// A template is made anew and instantiated.
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

/// Host time of the parts of the ladder, in microseconds for each node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UpdateCosts {
    /// Setting the parameters of a node in an exec.
    pub set: f64,
    /// Taking over the parameters of a template, for each of its nodes.
    pub update: f64,
    /// Adding a node to a template by hand.
    pub add: f64,
    /// Capturing a node into a template.
    pub capture: f64,
    /// Instantiating, for each node of a chain.
    pub instantiate: f64,
}

impl UpdateCosts {
    /// Of one H200 with driver 580: `docs/hardware/2026-11-21-graph-costs`, 1000 nodes.
    pub const RECORDED: Self =
        Self { set: 0.28, update: 0.05, add: 0.34, capture: 0.58, instantiate: 1.7 };

    /// The estimate for one rung in microseconds.
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

/// What is to change in a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// How templates of the graph are made.
    pub strategy: Strategy,
    /// Nodes of the graph.
    pub nodes: usize,
    /// Nodes that name a buffer which moved.
    pub changed: usize,
    /// Whether the parameters of each of these can be set in an exec.
    pub settable: bool,
}

/// The rung that costs least of those that can make the change.
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
    fn nothing_in_the_graph_changes_by_control() {
        for nodes in [0, 1, 1000] {
            let chosen =
                cheapest_update(&change(Strategy::Manual, nodes, 0), &UpdateCosts::RECORDED);
            assert_eq!(chosen, UpdateStrategy::KeepGraph);
        }
    }

    #[test]
    fn by_the_recorded_costs_a_template_is_never_worth_making_while_nodes_can_be_set() {
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
    fn where_setting_is_dear_the_share_of_changed_nodes_decides() {
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
    fn estimates_follow_from_the_record() {
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
