//! The execution of an instantiated graph, node by node.

use std::sync::Arc;

use super::{HostRun, Plan, PlanWork, TaskId};
use crate::state::State;
use crate::work::Failure;

/// A launch of a graph that has begun.
pub(crate) struct GraphRun {
    plan: Arc<Plan>,
    /// The nodes to come of the graph and of the child graphs that it is inside of, innermost last.
    levels: Vec<std::vec::IntoIter<usize>>,
    /// The child node of each level except the innermost.
    children: Vec<usize>,
}

impl GraphRun {
    pub(super) fn new(plan: Arc<Plan>) -> Self {
        Self { plan, levels: Vec::new(), children: Vec::new() }
    }
}

impl Plan {
    /// The child graph of a child graph and so on, by the indices of their nodes.
    fn inner(&self, children: &[usize]) -> &Self {
        children.iter().fold(self, |plan, &index| match &plan.nodes[index].work {
            PlanWork::Child(child) => child,
            _ => plan,
        })
    }
}

impl State {
    /// The nodes of a graph in an order chosen among those that its edges allow.
    fn order_of(&mut self, plan: &Plan) -> std::vec::IntoIter<usize> {
        self.random.order(&plan.dependencies()).unwrap_or_default().into_iter()
    }

    /// Runs nodes of a graph up to its end, or until a host function has started.
    pub(super) fn run_graph(
        &mut self,
        device: usize,
        run: &mut GraphRun,
        task: TaskId,
    ) -> Result<Option<Arc<HostRun>>, Failure> {
        let plan = Arc::clone(&run.plan);
        if run.levels.is_empty() {
            run.levels.push(self.order_of(&plan));
        }
        while let Some(level) = run.levels.last_mut() {
            let Some(index) = level.next() else {
                run.levels.pop();
                run.children.pop();
                continue;
            };
            let node = &plan.inner(&run.children).nodes[index];
            match &node.work {
                _ if !node.is_enabled => {}
                PlanWork::Operation(operation) => {
                    if let Some(host) = self.run_operation(device, operation)? {
                        return Ok(Some(host));
                    }
                }
                PlanWork::Child(child) => {
                    run.levels.push(self.order_of(child));
                    run.children.push(index);
                }
                PlanWork::Record(event) => self.stamp(*event, task),
                PlanWork::Alloc(address) => self.run_alloc(device, *address)?,
                PlanWork::Free(address) => self.run_free(device, *address)?,
                // The launch as a whole waits for events.
                PlanWork::Wait(_) | PlanWork::Empty => {}
            }
        }
        Ok(None)
    }
}
