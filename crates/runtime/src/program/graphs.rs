//! Builds the graph of a program: by hand, by capturing the eager launches, or both (hybrid). A
//! hybrid graph captures library calls after the nodes that they depend on.

use std::time::Instant;

use retrograph_driver::{CaptureMode, CapturedNodes, Error, Graph, Node, Stream};
use retrograph_driver_sys::CUgraphExec;

use super::Program;
use super::assembly::{Assembly, NodeOptions, capture_step};
use super::command::{Command, Pdl};
use super::control_ring::ControlRing;
use super::error::BuildError;
use super::options::PdlMode;
use super::policy::Strategy;
use super::replay::{Made, Replay, Template};
use super::sequence::Step;
use super::shape::Shape;
use crate::pass::OpId;

/// Operations that could run this many levels later have the default priority: in a training step,
/// mostly weight gradients. The exact number hardly matters
/// (docs/hardware/2026-11-22-decoding-between-products).
const SPARE_LEVELS: u32 = 6;

impl Program {
    /// Builds the program's graph again, to inspect it or to launch it by other means than
    /// [`Program::step`]. For an eager program, this is the graph built by hand.
    ///
    /// # Safety
    /// The nodes use the memory of the program and its bound buffers. No launch may overlap a step
    /// of the program or other work on this memory. A launch between steps sees the controls of the
    /// previous step: each set of controls is fetched once.
    ///
    /// # Errors
    /// If the graph cannot be built.
    pub unsafe fn graph(&self, stream: &Stream) -> Result<Graph, BuildError> {
        let mut graph = self.template(self.report.strategy, stream)?.graph;
        let ring = self.ring.as_ref().map(ControlRing::owner);
        self.memory.owners().chain(ring).for_each(|owner| graph.keep(owner));
        Ok(graph)
    }

    /// The driver's handle of the graph that a step launches; `None` for an eager program. It
    /// changes when the program is rebound or rebuilds its graph.
    pub fn raw_exec(&self) -> Option<CUgraphExec> {
        self.replay.as_ref().map(|replay| replay.exec.raw())
    }

    /// Builds, instantiates and uploads the graph of `strategy`. Nothing runs.
    pub(super) fn build_replay(
        &self,
        strategy: Strategy,
        stream: &Stream,
    ) -> Result<Replay, BuildError> {
        self.warm_libraries(stream)?;
        let template = self.template(strategy, stream)?;
        let started = Instant::now();
        let mut exec = template.graph.instantiate()?;
        let instantiate_time = started.elapsed();
        let started = Instant::now();
        exec.upload(stream)?;
        stream.synchronize()?;
        let upload_time = started.elapsed();
        let made = Box::new(Made { template, instantiate_time, upload_time });
        Ok(Replay { exec, strategy, made })
    }

    /// Builds the graph of `strategy`, and checks its number of nodes.
    pub(super) fn template(
        &self,
        strategy: Strategy,
        stream: &Stream,
    ) -> Result<Template, BuildError> {
        self.template_with(strategy, stream, self.options.pdl)
    }

    /// Like [`Self::template`], with another PDL mode.
    pub(super) fn template_with(
        &self,
        strategy: Strategy,
        stream: &Stream,
        mode: PdlMode,
    ) -> Result<Template, BuildError> {
        let (mut graph, made) = match strategy {
            Strategy::Capture => self.captured(stream, mode)?,
            Strategy::Manual | Strategy::Eager => {
                if let Some((name, _)) = self.sequence.library_calls().next() {
                    return Err(BuildError::NotManual { operation: name.to_owned() });
                }
                self.assembled(stream, mode)?
            }
            Strategy::Hybrid => self.assembled(stream, mode)?,
        };
        let Assembly { groups, programmatic_edges, high_priority_nodes, .. } = made;
        // The program, which outlives the graph and may be rebound, keeps the buffers.
        self.sequence.owners().into_iter().for_each(|owner| graph.keep(owner));
        let shape = Shape::of(&graph)?;
        let expected = groups.iter().map(Vec::len).sum();
        let by_hand = self.sequence.steps.iter().zip(&groups);
        let single =
            |(step, group): (&Step, &Vec<Node>)| step.is_library_call() || group.len() == 1;
        if shape.nodes != expected || !by_hand.into_iter().all(single) {
            return Err(BuildError::NodeCount { nodes: shape.nodes, expected });
        }
        let by_step = self.sequence.steps.iter().zip(&groups);
        let calls = by_step.filter(|(step, _)| step.is_library_call());
        let library_nodes = calls.map(|(_, group)| group.len()).sum();
        Ok(Template {
            graph,
            groups,
            shape,
            library_nodes,
            programmatic_edges,
            high_priority_nodes,
        })
    }

    /// The graph with nodes added by hand. Library calls are captured into it, all in one capture:
    /// a library may keep state per capture ([`Stream::capture_into`]).
    fn assembled(&self, stream: &Stream, mode: PdlMode) -> Result<(Graph, Assembly), BuildError> {
        let (sequence, order) = (&self.sequence, self.order_of_adding(mode));
        let mut made = Assembly::new(order.len());
        let mut graph = Graph::new(&self.context)?;
        if sequence.library_calls().next().is_none() {
            for node in order {
                let (step, after) = made.next(sequence, node.operation);
                made.add(&mut graph, step, &after, node).map_err(|cause| {
                    BuildError::Operation { operation: step.name.clone(), cause }
                })?;
            }
            return Ok((graph, made));
        }
        let graph = stream.capture_into(graph, &[], self.capture_mode(), |capturing| {
            for node in order {
                let (step, after) = made.next(sequence, node.operation);
                capturing.at(step.name.as_str());
                if step.is_library_call() {
                    made.capture(capturing, step, &after, node)?;
                    continue;
                }
                // SAFETY: the graph is not replaced.
                let graph = unsafe { capturing.graph() }.ok_or(Error::WrongGraph)?;
                made.add(graph, step, &after, node)?;
            }
            Ok::<(), Error>(())
        })?;
        Ok((graph, made))
    }

    /// Returns the operations level by level; within a level, operations with the longest path
    /// after them come first. The driver schedules nodes in the order in which they are added.
    /// Steps are faster in this order than in pass order
    /// (docs/hardware/2026-11-21-graph-runtime).
    fn order_of_adding(&self, mode: PdlMode) -> Vec<NodeOptions> {
        let high_priority = self.high_priority();
        let options = |operation: OpId| {
            let operation = operation.index();
            let pdl = self.uses_pdl(&self.sequence.steps[operation], mode);
            NodeOptions { operation, pdl, high_priority: high_priority[operation] }
        };
        self.sequence.edges.by_level().into_iter().map(options).collect()
    }

    /// Returns the capture mode, which determines which calls are refused during a capture. NCCL
    /// makes some unsafe calls when it first connects two GPUs of a process.
    fn capture_mode(&self) -> CaptureMode {
        match self.sequence.collectives.operations {
            0 => CaptureMode::ThreadLocal,
            _ => CaptureMode::Relaxed,
        }
    }

    /// Returns whether each operation has a high priority; none has if all would. Collectives do:
    /// they take few multiprocessors, and links are idle until they start.
    fn high_priority(&self) -> Vec<bool> {
        let (slack, steps) = (self.sequence.edges.slack(), &self.sequence.steps);
        let some_wait = slack.iter().any(|&levels| levels >= SPARE_LEVELS);
        let high = |(levels, step): (u32, &Step)| {
            step.is_collective() || some_wait && levels < SPARE_LEVELS
        };
        let differ = !self.options.uniform_priority;
        slack.into_iter().zip(steps).map(|of| differ && high(of)).collect()
    }

    /// Whether `step` uses PDL: as programmatic edges in a graph built by hand. On a stream, its
    /// attributes must request it, too.
    pub(super) fn uses_pdl(&self, step: &Step, mode: PdlMode) -> bool {
        match (step.pdl, mode) {
            (Pdl::Unsupported, _) | (_, PdlMode::Never) => false,
            (Pdl::Requested, _) | (Pdl::Supported, PdlMode::Always) => true,
            (Pdl::Supported, PdlMode::Measured) => {
                self.context.device_target().features().faster_with_pdl
            }
        }
    }

    /// Captures the eager launches on one stream.
    fn captured(&self, stream: &Stream, mode: PdlMode) -> Result<(Graph, Assembly), BuildError> {
        let mut groups = Vec::with_capacity(self.sequence.steps.len());
        let graph = stream.capture(self.capture_mode(), |capturing| {
            for step in &self.sequence.steps {
                groups.push(capture_step(capturing, step, self.uses_pdl(step, mode))?);
            }
            Ok::<(), Error>(())
        })?;
        // SAFETY: the nodes were captured into this graph.
        let nodes = |group: CapturedNodes| unsafe { group.of_graph(&graph) }.0;
        let groups = groups.into_iter().map(nodes).collect();
        Ok((graph, Assembly::of(groups)))
    }

    /// Makes cuBLAS load the kernels of each product, which could break a later capture, by a
    /// relaxed capture that is discarded.
    pub(super) fn warm_libraries(&self, stream: &Stream) -> Result<(), BuildError> {
        let mut warm = Vec::new();
        for step in &self.sequence.steps {
            let Command::Library(call) = &step.command else { continue };
            let Some(product) = call.product().filter(|product| !warm.contains(product)) else {
                continue;
            };
            stream.capture(CaptureMode::Relaxed, |capturing| {
                capturing.at(format!("{}, to load its kernels", step.name));
                // SAFETY: the graph is never launched.
                unsafe { call.enqueue(capturing.stream()) }
            })?;
            warm.push(product);
        }
        Ok(())
    }
}
