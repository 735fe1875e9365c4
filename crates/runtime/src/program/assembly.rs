//! Builds a graph, command by command.

use retrograph_driver::{
    CapturedNodes, Capturing, Error, Graph, MemcpyParams, MemsetParams, Node, NodeKind, Result,
};

use super::command::Command;
use super::sequence::{Sequence, Step};

/// The high priority; the default is 0.
const HIGH_PRIORITY: i32 = -1;
/// The priority of collectives. Their few blocks do not wait for kernels that fill the device.
const COLLECTIVE_PRIORITY: i32 = -2;

/// How a node is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeOptions {
    /// The number of its operation.
    pub(super) operation: usize,
    /// Whether to use programmatic edges (PDL), if all preceding nodes allow them.
    pub(super) pdl: bool,
    /// Whether the node has a higher priority.
    pub(super) high_priority: bool,
}

/// The nodes of a graph under construction, by operation.
pub(super) struct Assembly {
    pub(super) groups: Vec<Vec<Node>>,
    /// The nodes of each operation that later operations wait for.
    ends: Vec<Vec<Node>>,
    pub(super) programmatic_edges: usize,
    pub(super) high_priority_nodes: usize,
}

impl Assembly {
    /// No nodes yet.
    pub(super) fn new(operations: usize) -> Self {
        Self { ends: vec![Vec::new(); operations], ..Self::of(vec![Vec::new(); operations]) }
    }

    /// Returns the nodes of a captured chain, which is complete.
    pub(super) fn of(groups: Vec<Vec<Node>>) -> Self {
        Self { groups, ends: Vec::new(), programmatic_edges: 0, high_priority_nodes: 0 }
    }

    /// An operation of `sequence`, and the nodes that it waits for.
    pub(super) fn next<'a>(
        &self,
        sequence: &'a Sequence,
        operation: usize,
    ) -> (&'a Step, Vec<Node>) {
        let edges = sequence.edges.into_operation(sequence.edges.operation(operation));
        let mut after: Vec<Node> = Vec::new();
        for node in edges.iter().flat_map(|edge| &self.ends[edge.from.index()]) {
            if !after.contains(node) {
                after.push(*node);
            }
        }
        (&sequence.steps[operation], after)
    }

    /// Adds the node of `step`, after `after`.
    pub(super) fn add(
        &mut self,
        graph: &mut Graph,
        step: &Step,
        after: &[Node],
        options: NodeOptions,
    ) -> Result<()> {
        let node = match after {
            [_, ..] if options.pdl && all_allow_pdl(graph, after)? => {
                let node = add_node(graph, step, &[])?;
                for &earlier in after {
                    // SAFETY: kernels of the workspace wait if `images::supports_pdl` is true, and
                    // the launch attributes of others promise it.
                    unsafe { graph.add_programmatic_edge(earlier, node) }?;
                }
                self.programmatic_edges += after.len();
                node
            }
            _ => add_node(graph, step, after)?,
        };
        if options.high_priority && matches!(step.command, Command::Launch(_)) {
            graph.set_priority(node, HIGH_PRIORITY)?;
            self.high_priority_nodes += 1;
        }
        self.groups[options.operation] = vec![node];
        self.ends[options.operation] = vec![node];
        Ok(())
    }

    /// Captures the library call of `step`, after `after`.
    pub(super) fn capture(
        &mut self,
        capturing: &mut Capturing<'_>,
        step: &Step,
        after: &[Node],
        options: NodeOptions,
    ) -> Result<()> {
        // SAFETY: the edges of the program order conflicting operations, and `after` has them.
        unsafe { capturing.set_dependencies(after) }?;
        let found = capture_step(capturing, step, options.pdl)?;
        // SAFETY: the graph is not replaced.
        let graph = unsafe { capturing.graph() }.ok_or(Error::WrongGraph)?;
        // SAFETY: the nodes were captured into this graph.
        let (nodes, ends) = unsafe { found.of_graph(graph) };
        for &node in nodes.iter().filter(|_| options.high_priority && step.is_collective()) {
            if graph.kind(node)? == NodeKind::Kernel {
                graph.set_priority(node, COLLECTIVE_PRIORITY)?;
                self.high_priority_nodes += 1;
            }
        }
        self.groups[options.operation] = nodes;
        self.ends[options.operation] = ends;
        Ok(())
    }
}

/// Whether programmatic edges can start at all of these nodes.
fn all_allow_pdl(graph: &Graph, after: &[Node]) -> Result<bool> {
    let mut able = after.iter().map(|&earlier| graph.allows_programmatic_edge(earlier));
    able.try_fold(true, |all, able| Ok(all && able?))
}

pub(super) fn capture_step(
    capturing: &mut Capturing<'_>,
    step: &Step,
    pdl: bool,
) -> Result<CapturedNodes> {
    capturing.at(step.name.as_str());
    let enqueue = |capturing: &mut Capturing<'_>| {
        // SAFETY: the graph keeps what the commands access alive, and the program orders its
        // launches.
        unsafe { step.command.enqueue(capturing.stream(), pdl) }
    };
    match step.is_library_call() {
        true => capturing.nodes_added(enqueue),
        false => capturing.node_added(enqueue),
    }
}

fn add_node(graph: &mut Graph, step: &Step, after: &[Node]) -> Result<Node> {
    match &step.command {
        // SAFETY: the launch's constructor (or the caller of `Pass::custom`) checked its lengths
        // and the pass its slices; the graph keeps the buffers alive, and edges order conflicting
        // operations.
        Command::Launch(launch) => unsafe { graph.add_kernel(&launch.kernel(), after) },
        &Command::Copy { target, source, bytes } => {
            // SAFETY: the pass checked that both ranges are in their buffers and do not overlap;
            // the rest as above.
            unsafe { graph.add_memcpy(&MemcpyParams { dst: target, src: source, bytes }, after) }
        }
        &Command::Fill { target, pattern, words } => {
            // SAFETY: as above.
            unsafe { graph.add_memset(&MemsetParams { dst: target, value: pattern, words }, after) }
        }
        Command::Library(_) => unreachable!("library calls are captured"),
    }
}
