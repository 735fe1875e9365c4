//! The execution of an instantiated graph, node by node.

use std::sync::Arc;

use retrograph_driver_sys::CUresult;
use retrograph_ptx_exec::ConditionalValues;

use super::{HostRun, Operation, Plan, PlanConditional, PlanWork, TaskId};
use crate::state::State;
use crate::work::Failure;

/// Iterations after which a loop counts as endless.
const MAX_ROUNDS: u32 = 1 << 20;

/// A running launch of a graph.
pub(crate) struct GraphRun {
    plan: Arc<Plan>,
    /// The running graph and nested graphs, innermost last.
    levels: Vec<Level>,
    conditions: ConditionalValues,
}

/// A running graph.
struct Level {
    /// Its remaining nodes.
    nodes: std::vec::IntoIter<usize>,
    /// Its node in the enclosing graph.
    node: usize,
    /// Its index among the graphs of that node.
    index: usize,
    /// The iterations of a loop body in this launch, including the current one.
    rounds: u32,
    /// Whether it is in the body of a conditional node.
    is_in_body: bool,
}

impl GraphRun {
    pub(super) fn new(plan: Arc<Plan>) -> Self {
        let conditions = ConditionalValues::new(plan.defaults.clone());
        Self { plan, levels: Vec::new(), conditions }
    }

    /// The body that the handle of a conditional node selects, if any.
    fn chosen(&self, conditional: &PlanConditional) -> Result<Option<usize>, Failure> {
        let handle = conditional.handle;
        let value = self.conditions.get(handle).ok_or_else(|| {
            let message = format!(
                "no kernel set the conditional handle {handle} in this launch, and it has no \
                 default"
            );
            Failure::Undefined(message.into())
        })?;
        Ok(conditional.body_at(value))
    }
}

impl Plan {
    /// The innermost running graph.
    fn inner(&self, levels: &[Level]) -> &Self {
        levels.iter().skip(1).fold(self, |plan, level| {
            plan.nodes[level.node].work.plans().get(level.index).unwrap_or(plan)
        })
    }
}

impl State {
    /// The nodes of a graph in one of its topological orders.
    fn order_of(&mut self, plan: &Plan) -> std::vec::IntoIter<usize> {
        self.random.order(&plan.dependencies()).unwrap_or_default().into_iter()
    }

    /// Ends the innermost graph, and restarts it if it is the body of a loop that continues.
    fn leave(&mut self, run: &mut GraphRun, plan: &Plan) -> Result<(), Failure> {
        let ended = run.levels.pop().filter(|_| !run.levels.is_empty());
        let Some(Level { node, index, rounds, .. }) = ended else { return Ok(()) };
        let outer = plan.inner(&run.levels);
        let PlanWork::Conditional(conditional) = &outer.nodes[node].work else { return Ok(()) };
        if !conditional.is_loop() || run.chosen(conditional)?.is_none() {
            return Ok(());
        }
        if rounds == MAX_ROUNDS {
            let handle = conditional.handle;
            let message = format!(
                "the loop of the conditional handle {handle} ran {rounds} times and goes on"
            );
            return Err(Failure::Undefined(message.into()));
        }
        let nodes = self.order_of(&conditional.bodies[index]);
        run.levels.push(Level { nodes, node, index, rounds: rounds + 1, is_in_body: true });
        Ok(())
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
            let nodes = self.order_of(&plan);
            run.levels.push(Level { nodes, node: 0, index: 0, rounds: 1, is_in_body: false });
        }
        while let Some(level) = run.levels.last_mut() {
            let is_in_body = level.is_in_body;
            let Some(node) = level.nodes.next() else {
                self.leave(run, &plan)?;
                continue;
            };
            let found = &plan.inner(&run.levels).nodes[node];
            match &found.work {
                _ if !found.is_enabled => {}
                PlanWork::Operation(Operation::Copy(copy)) if is_in_body && copy.is_pageable() => {
                    return Err(pageable_in_body());
                }
                PlanWork::Operation(operation) => {
                    let conditions = Some(&run.conditions);
                    if let Some(host) = self.run_operation(device, operation, conditions)? {
                        return Ok(Some(host));
                    }
                }
                PlanWork::Child(child) => {
                    let nodes = self.order_of(child);
                    run.levels.push(Level { nodes, node, index: 0, rounds: 1, is_in_body });
                }
                PlanWork::Conditional(conditional) => {
                    if let Some(index) = run.chosen(conditional)? {
                        let nodes = self.order_of(&conditional.bodies[index]);
                        let is_in_body = true;
                        run.levels.push(Level { nodes, node, index, rounds: 1, is_in_body });
                    }
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

/// The failure of an H200 if parameters set after the instantiation use pageable memory.
fn pageable_in_body() -> Failure {
    let message = "a node in the body of a conditional node copies pageable memory of the host";
    Failure::Fault(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, message.into())
}
