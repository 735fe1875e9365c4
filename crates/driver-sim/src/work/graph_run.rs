//! The execution of an instantiated graph, node by node.

use std::sync::Arc;
use std::time::Duration;

use retrograph_driver_sys::CUresult;
use retrograph_ptx_exec::ConditionalValues;

use super::{Failure, Operation, Plan, PlanConditional, PlanNode, PlanWork, Progress, TaskId};
use crate::state::State;
use crate::timeline::Time;

/// Iterations after which a loop counts as endless.
const MAX_ROUNDS: u32 = 1 << 20;

/// A running launch of a graph.
pub(crate) struct GraphRun {
    plan: Arc<Plan>,
    /// The running graph and nested graphs, innermost last.
    levels: Vec<Level>,
    conditions: ConditionalValues,
    start: Time,
    /// The node of the innermost graph whose host function runs.
    hosting: Option<usize>,
}

/// The position of a running graph.
#[derive(Clone, Copy)]
struct Place {
    /// Its node in the enclosing graph.
    node: usize,
    /// Its index among the graphs of that node.
    index: usize,
    /// The iterations of a loop body in this launch, including the current one.
    rounds: u32,
    /// Whether it is in the body of a conditional node.
    is_in_body: bool,
}

/// A running graph.
struct Level {
    place: Place,
    /// Its remaining nodes.
    nodes: std::vec::IntoIter<usize>,
    start: Time,
    /// The ends of its nodes; the start of the graph for nodes that have not run.
    ends: Vec<Time>,
}

impl Level {
    /// The start of a node: the end of its last dependency.
    fn start_of(&self, node: &PlanNode) -> Time {
        let ends = node.dependencies.iter().map(|dependency| self.ends[*dependency]);
        ends.max().unwrap_or(self.start)
    }

    fn end(&self) -> Time {
        self.ends.iter().max().copied().unwrap_or(self.start)
    }
}

impl GraphRun {
    pub(super) fn new(plan: Arc<Plan>, start: Time) -> Self {
        let conditions = ConditionalValues::new(plan.defaults.clone());
        Self { plan, levels: Vec::new(), conditions, start, hosting: None }
    }

    /// Records the duration of the host function that has ended.
    pub(super) fn end_host_function(&mut self, duration: Duration) {
        if let Some(node) = self.hosting.take() {
            self.extend(node, duration);
        }
    }

    /// Moves the end of a node of the innermost graph.
    fn extend(&mut self, node: usize, duration: Duration) {
        if let Some(level) = self.levels.last_mut() {
            level.ends[node] += duration;
        }
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
            plan.nodes[level.place.node].work.plans().get(level.place.index).unwrap_or(plan)
        })
    }
}

impl State {
    /// Starts a graph. Its nodes run in one of their topological orders.
    fn enter(&mut self, plan: &Plan, place: Place, start: Time) -> Level {
        let nodes = self.random.order(&plan.dependencies()).unwrap_or_default().into_iter();
        Level { place, nodes, start, ends: vec![start; plan.nodes.len()] }
    }

    /// Ends the innermost graph, and restarts it if it is the body of a loop that continues.
    /// Returns the end of the outermost graph if that has ended.
    fn leave(&mut self, run: &mut GraphRun, plan: &Plan) -> Result<Option<Time>, Failure> {
        let Some(ended) = run.levels.pop() else { return Ok(None) };
        let (place, end) = (ended.place, ended.end());
        let Some(outer_level) = run.levels.last_mut() else { return Ok(Some(end)) };
        outer_level.ends[place.node] = end;
        let outer = plan.inner(&run.levels);
        let PlanWork::Conditional(conditional) = &outer.nodes[place.node].work else {
            return Ok(None);
        };
        if !conditional.is_loop() || run.chosen(conditional)?.is_none() {
            return Ok(None);
        }
        let rounds = place.rounds;
        if rounds == MAX_ROUNDS {
            let handle = conditional.handle;
            let message = format!(
                "the loop of the conditional handle {handle} ran {rounds} times and goes on"
            );
            return Err(Failure::Undefined(message.into()));
        }
        let place = Place { rounds: rounds + 1, ..place };
        let level = self.enter(&conditional.bodies[place.index], place, end);
        run.levels.push(level);
        Ok(None)
    }

    /// Runs nodes of a graph up to its end, or until a host function has started.
    pub(super) fn run_graph(
        &mut self,
        device: usize,
        run: &mut GraphRun,
        task: TaskId,
    ) -> Result<Progress, Failure> {
        let plan = Arc::clone(&run.plan);
        if run.levels.is_empty() {
            let place = Place { node: 0, index: 0, rounds: 1, is_in_body: false };
            let level = self.enter(&plan, place, run.start);
            run.levels.push(level);
        }
        let mut end = run.start;
        while let Some(level) = run.levels.last_mut() {
            let is_in_body = level.place.is_in_body;
            let Some(node) = level.nodes.next() else {
                end = self.leave(run, &plan)?.unwrap_or(end);
                continue;
            };
            let found = &plan.inner(&run.levels).nodes[node];
            let Some(level) = run.levels.last_mut() else { break };
            let start = level.start_of(found);
            level.ends[node] = start;
            match &found.work {
                _ if !found.is_enabled => {}
                PlanWork::Operation(Operation::Copy(copy)) if is_in_body && copy.is_pageable() => {
                    return Err(pageable_in_body());
                }
                PlanWork::Operation(operation) => {
                    let conditions = Some(&run.conditions);
                    match self.run_operation(device, operation, conditions)? {
                        Progress::Ended(duration) => run.extend(node, duration),
                        Progress::Hosting(host) => {
                            run.hosting = Some(node);
                            return Ok(Progress::Hosting(host));
                        }
                    }
                }
                PlanWork::Child(child) => {
                    let place = Place { node, index: 0, rounds: 1, is_in_body };
                    let level = self.enter(child, place, start);
                    run.levels.push(level);
                }
                PlanWork::Conditional(conditional) => {
                    if let Some(index) = run.chosen(conditional)? {
                        let place = Place { node, index, rounds: 1, is_in_body: true };
                        let level = self.enter(&conditional.bodies[index], place, start);
                        run.levels.push(level);
                    }
                }
                PlanWork::Record(event) => self.stamp(*event, task, start),
                PlanWork::Alloc(address) => self.run_alloc(device, *address)?,
                PlanWork::Free(address) => self.run_free(device, *address)?,
                // The launch as a whole waits for events.
                PlanWork::Wait(_) | PlanWork::Empty => {}
            }
        }
        Ok(Progress::Ended(end - run.start))
    }
}

/// The failure of an H200 if parameters set after the instantiation use pageable memory.
fn pageable_in_body() -> Failure {
    let message = "a node in the body of a conditional node copies pageable memory of the host";
    Failure::Fault(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, message.into())
}
