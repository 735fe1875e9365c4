//! From a sequence to a graph that replays it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::Program;
use super::error::BuildError;
use super::options::EdgeMode;
use super::policy::Strategy;
use super::sequence::{Command, Step};
use crate::capture::CaptureMode;
use crate::error::Result;
use crate::graph::{DeviceCopy, DeviceFill, Graph, GraphExec, Node};
use crate::launch::KernelLaunch;
use crate::pass::OpId;
use crate::stream::Stream;

/// A graph that is ready to be launched, and what it took.
pub(super) struct Replay {
    pub(super) exec: GraphExec,
    /// Kept because the exec knows its nodes by those of the graph that it was made from.
    pub(super) template: Template,
    pub(super) instantiate_time: Duration,
    pub(super) upload_time: Duration,
}

/// What the driver says about a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) nodes: usize,
    pub(super) edges: usize,
    pub(super) depth: usize,
}

/// A graph with one node for each command, in the order of the commands.
pub(super) struct Template {
    pub(super) graph: Graph,
    pub(super) nodes: Vec<Node>,
    pub(super) shape: Shape,
}

impl Program {
    /// The graph of the program, made anew: to look at, or to launch by other means than
    /// [`Program::step`]. An eager program gives the graph that it would have if built by hand.
    ///
    /// # Safety
    /// The nodes work on the memory of the program and on what is bound to it. No launch may
    /// overlap a step of the program, or anything else that uses this memory.
    ///
    /// # Errors
    /// When the graph cannot be built.
    pub unsafe fn graph(&self, stream: &Stream) -> Result<Graph, BuildError> {
        Ok(self.template(self.report.strategy, stream)?.graph)
    }

    /// Builds, instantiates and uploads the graph of `strategy`. Nothing runs.
    pub(super) fn build_replay(
        &self,
        strategy: Strategy,
        stream: &Stream,
    ) -> Result<Replay, BuildError> {
        let template = self.template(strategy, stream)?;
        let started = Instant::now();
        let mut exec = template.graph.instantiate()?;
        let instantiate_time = started.elapsed();
        let started = Instant::now();
        exec.upload(stream)?;
        stream.synchronize()?;
        let upload_time = started.elapsed();
        Ok(Replay { exec, template, instantiate_time, upload_time })
    }

    /// The graph of `strategy`, with as many nodes as there are commands.
    pub(super) fn template(
        &self,
        strategy: Strategy,
        stream: &Stream,
    ) -> Result<Template, BuildError> {
        let (mut graph, added) = match strategy {
            Strategy::Capture => (self.captured(stream)?, None),
            Strategy::Manual | Strategy::Eager => {
                let (graph, nodes) = self.added()?;
                (graph, Some(nodes))
            }
        };
        // Buffers are kept by the program, which outlives the graph and may be bound to others.
        self.sequence.owners().into_iter().for_each(|owner| graph.keep(owner));
        let (shape, by_level) = read_back(&graph)?;
        let operations = self.sequence.steps.len();
        if shape.nodes != operations {
            return Err(BuildError::NodeCount { nodes: shape.nodes, operations });
        }
        Ok(Template { graph, nodes: added.unwrap_or(by_level), shape })
    }

    /// One node after the other, with the edges that the options ask for.
    fn added(&self) -> Result<(Graph, Vec<Node>), BuildError> {
        let mut graph = Graph::new(&self.context)?;
        let mut nodes: Vec<Node> = Vec::with_capacity(self.sequence.steps.len());
        for (at, step) in self.sequence.steps.iter().enumerate() {
            let after: Vec<Node> = match self.options.edges {
                EdgeMode::Chain => nodes.last().copied().into_iter().collect(),
                EdgeMode::Inferred => {
                    let edges = self.sequence.edges.into_operation(OpId(at as u32));
                    edges.iter().map(|edge| nodes[edge.from.index()]).collect()
                }
            };
            let fail = |cause| BuildError::Operation { operation: step.name.clone(), cause };
            nodes.push(add_node(&mut graph, step, &after).map_err(fail)?);
        }
        Ok((graph, nodes))
    }

    /// The eager launches, captured from one stream.
    fn captured(&self, stream: &Stream) -> Result<Graph, BuildError> {
        let graph = stream.capture(CaptureMode::ThreadLocal, |capturing| {
            for step in &self.sequence.steps {
                capturing.at(step.name.as_str());
                // SAFETY: the graph keeps what the commands name, and the program orders its
                // launches one behind the other.
                unsafe { step.command.enqueue(capturing.stream()) }?;
            }
            Ok::<(), crate::error::Error>(())
        })?;
        Ok(graph)
    }
}

fn add_node(graph: &mut Graph, step: &Step, after: &[Node]) -> Result<Node> {
    match &step.command {
        Command::Launch { function, geometry, arguments } => {
            let launch = KernelLaunch { function, geometry: *geometry, arguments };
            // SAFETY: the constructors of the launch checked its lengths (or the caller of
            // `Pass::custom` did) and the pass its slices; the graph keeps what the addresses
            // name, and the edges order all that conflict.
            unsafe { graph.add_kernel(&launch, after) }
        }
        &Command::Copy { target, source, bytes } => {
            // SAFETY: the pass checked that both ranges lie in their buffers and do not overlap;
            // the rest as above.
            unsafe { graph.add_copy(&DeviceCopy { target, source, bytes }, after) }
        }
        &Command::Fill { target, pattern, words } => {
            // SAFETY: as above.
            unsafe { graph.add_fill(&DeviceFill { target, pattern, words }, after) }
        }
    }
}

/// What the driver holds, rather than what was asked for: the shape, and the nodes by level. In a
/// captured chain the latter is the order of the commands.
fn read_back(graph: &Graph) -> Result<(Shape, Vec<Node>)> {
    let (mut nodes, edges) = (graph.nodes()?, graph.edges()?);
    let positions: HashMap<Node, usize> =
        nodes.iter().enumerate().map(|(at, node)| (*node, at)).collect();
    let mut later = vec![Vec::new(); nodes.len()];
    let mut waits = vec![0usize; nodes.len()];
    for (from, to) in &edges {
        later[positions[from]].push(positions[to]);
        waits[positions[to]] += 1;
    }
    let mut levels = vec![1usize; nodes.len()];
    let mut ready: Vec<usize> = (0..nodes.len()).filter(|&at| waits[at] == 0).collect();
    while let Some(at) = ready.pop() {
        for &next in &later[at] {
            levels[next] = levels[next].max(levels[at] + 1);
            waits[next] -= 1;
            if waits[next] == 0 {
                ready.push(next);
            }
        }
    }
    let depth = levels.iter().max().copied().unwrap_or(0);
    let shape = Shape { nodes: nodes.len(), edges: edges.len(), depth };
    nodes.sort_by_key(|node| levels[positions[node]]);
    Ok((shape, nodes))
}
