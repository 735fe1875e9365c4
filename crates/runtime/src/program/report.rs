//! The report of a built program.

use std::fmt;
use std::time::Duration;

use super::memory::Memory;
use super::policy::Strategy;
use super::reason::{GraphFailure, Reason};
use super::replay::{Made, Replay, Template};
use super::sequence::{Collectives, Sequence};
use crate::pass::{Pass, Reuse};

/// Facts about a built program.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// The name of the pass.
    pub pass: String,
    /// How operations are submitted to the device.
    pub strategy: Strategy,
    /// Why this strategy.
    pub reason: Reason,
    /// Attempts at building the graph.
    pub attempts: usize,
    /// The last failure to build or launch a graph, kept when a later attempt succeeds.
    pub last_failure: Option<GraphFailure>,
    /// Operations of the pass.
    pub operations: usize,
    /// Operations that launch nothing because their problem is empty.
    pub skipped: usize,
    /// Nodes of the graph; 0 for an eager program.
    pub nodes: usize,
    /// Nodes added by library calls.
    pub library_nodes: usize,
    /// Programmatic edges (PDL) that were added by hand.
    pub programmatic_edges: usize,
    /// Nodes with a higher priority.
    pub high_priority_nodes: usize,
    /// The collectives.
    pub collectives: Collectives,
    /// Edges of the graph; for an eager program, the inferred edges.
    pub edges: usize,
    /// Nodes on the longest path; for an eager program, all operations.
    pub depth: usize,
    /// Device bytes of transients.
    pub peak_bytes: usize,
    /// How transients share bytes.
    pub reuse: Reuse,
    /// Device bytes of the control block and of argument tables.
    pub fixed_bytes: usize,
    /// Host time of planning, binding and graph construction.
    pub build_time: Duration,
    /// Host time of instantiating the graph.
    pub instantiate_time: Duration,
    /// Host time of uploading the graph.
    pub upload_time: Duration,
}

impl Report {
    /// The report before a graph exists.
    pub(super) fn eager(pass: &Pass, memory: &Memory, sequence: &Sequence) -> Self {
        Self {
            pass: pass.name().to_owned(),
            strategy: Strategy::Eager,
            reason: Reason::Requested,
            attempts: 0,
            last_failure: None,
            operations: pass.operations().len(),
            skipped: sequence.skipped,
            nodes: 0,
            library_nodes: 0,
            programmatic_edges: 0,
            high_priority_nodes: 0,
            collectives: sequence.collectives,
            edges: sequence.edges.len(),
            depth: sequence.steps.len(),
            peak_bytes: memory.plan().peak_bytes(),
            reuse: memory.plan().reuse(),
            fixed_bytes: memory.fixed_bytes(),
            build_time: Duration::ZERO,
            instantiate_time: Duration::ZERO,
            upload_time: Duration::ZERO,
        }
    }

    pub(super) fn graph(&mut self, replay: &Replay) {
        self.strategy = replay.strategy;
        let Made { template, instantiate_time, upload_time } = &*replay.made;
        let Template { shape, library_nodes, programmatic_edges, high_priority_nodes, .. } =
            template;
        (self.nodes, self.edges, self.depth) = (shape.nodes, shape.edges, shape.depth);
        (self.library_nodes, self.programmatic_edges) = (*library_nodes, *programmatic_edges);
        self.high_priority_nodes = *high_priority_nodes;
        (self.instantiate_time, self.upload_time) = (*instantiate_time, *upload_time);
    }

    /// Removes the facts about a graph that was given up.
    pub(super) fn graph_gone(&mut self, sequence: &Sequence) {
        self.strategy = Strategy::Eager;
        (self.nodes, self.library_nodes) = (0, 0);
        (self.programmatic_edges, self.high_priority_nodes) = (0, 0);
        (self.edges, self.depth) = (sequence.edges.len(), sequence.steps.len());
        (self.instantiate_time, self.upload_time) = (Duration::ZERO, Duration::ZERO);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "pass `{}`", self.pass)?;
        writeln!(f, "strategy    {}: {}", self.strategy, self.reason)?;
        if let Some(failure) = &self.last_failure {
            writeln!(f, "attempts    {}; the last failure: {failure}", self.attempts)?;
        }
        write!(f, "operations  {}", self.operations)?;
        if self.skipped > 0 {
            write!(f, " ({} of them empty)", self.skipped)?;
        }
        let (nodes, edges, depth) = (self.nodes, self.edges, self.depth);
        writeln!(f, ", {nodes} nodes, {edges} edges, depth {depth}")?;
        if self.library_nodes > 0 {
            writeln!(f, "libraries   {} of the nodes", self.library_nodes)?;
        }
        if self.collectives != Collectives::default() {
            let Collectives { operations, bytes, overlapping } = self.collectives;
            write!(f, "collectives {operations} of {bytes} bytes, during which {overlapping} ")?;
            writeln!(f, "other operations can run")?;
        }
        if self.programmatic_edges > 0 {
            writeln!(f, "pdl         {} of the edges are programmatic", self.programmatic_edges)?;
        }
        if self.high_priority_nodes > 0 {
            writeln!(f, "priority    {} nodes have a high priority", self.high_priority_nodes)?;
        }
        let (peak, fixed, reuse) = (self.peak_bytes, self.fixed_bytes, self.reuse);
        writeln!(f, "memory      {peak} bytes of transients, shared {reuse}, and {fixed} fixed")?;
        let times = [self.build_time, self.instantiate_time, self.upload_time];
        let [build, instantiate, upload] = times.map(|time| time.as_secs_f64() * 1e3);
        write!(f, "built in    {build:.2} ms, instantiated in {instantiate:.2} ms, ")?;
        write!(f, "uploaded in {upload:.2} ms")
    }
}
