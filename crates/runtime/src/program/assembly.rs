//! Assembling a graph, command by command.

use retrograph_driver::{
    CaptureMode, CapturedNodes, Capturing, DeviceCopy, DeviceFill, Error, Graph, KernelLaunch,
    Node, Result, Stream,
};

use super::command::Command;
use super::error::BuildError;
use super::sequence::Step;

/// The high priority; the default is 0.
const HIGH_PRIORITY: i32 = -1;

/// How a node is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeOptions {
    /// By programmatic edges (PDL), if all nodes before it allow them.
    pub(super) pdl: bool,
    /// With a higher priority.
    pub(super) high_priority: bool,
}

/// A graph under construction.
pub(super) struct Assembly {
    pub(super) graph: Graph,
    pub(super) groups: Vec<Vec<Node>>,
    /// The last nodes of each command, in the order of adding.
    pub(super) ends: Vec<Vec<Node>>,
    pub(super) programmatic_edges: usize,
    pub(super) high_priority_nodes: usize,
}

impl Assembly {
    pub(super) fn new(graph: Graph, groups: Vec<Vec<Node>>) -> Self {
        Self { graph, groups, ends: Vec::new(), programmatic_edges: 0, high_priority_nodes: 0 }
    }

    pub(super) fn add(
        mut self,
        step: &Step,
        after: &[Node],
        options: NodeOptions,
    ) -> Result<Self, BuildError> {
        let fail = |cause| BuildError::Operation { operation: step.name.clone(), cause };
        let node = match after {
            [_, ..] if options.pdl && self.all_allow_pdl(after)? => {
                let node = add_node(&mut self.graph, step, &[]).map_err(fail)?;
                for &earlier in after {
                    // SAFETY: kernels of the workspace wait if `images::supports_pdl` is true, and
                    // the caller of `Pass::enable_pdl` promised it for others.
                    unsafe { self.graph.add_programmatic_edge(earlier, node) }.map_err(fail)?;
                }
                self.programmatic_edges += after.len();
                node
            }
            _ => add_node(&mut self.graph, step, after).map_err(fail)?,
        };
        if options.high_priority && matches!(step.command, Command::Launch { .. }) {
            self.graph.set_priority(node, HIGH_PRIORITY).map_err(fail)?;
            self.high_priority_nodes += 1;
        }
        self.groups.push(vec![node]);
        self.ends.push(vec![node]);
        Ok(self)
    }

    /// Whether programmatic edges can start at all of these nodes.
    fn all_allow_pdl(&self, after: &[Node]) -> Result<bool> {
        let mut able = after.iter().map(|&earlier| self.graph.allows_programmatic_edge(earlier));
        able.try_fold(true, |all, able| Ok(all && able?))
    }

    /// Captures the work of `step` into the graph.
    pub(super) fn capture(
        mut self,
        step: &Step,
        stream: &Stream,
        after: &[Node],
    ) -> Result<Self, BuildError> {
        let mut found = CapturedNodes::default();
        let mode = CaptureMode::ThreadLocal;
        self.graph = stream.capture_into(self.graph, after, mode, |capturing| {
            found = capture_step(capturing, step)?;
            Ok::<(), Error>(())
        })?;
        // SAFETY: the nodes were captured into this graph.
        let (nodes, ends) = unsafe { found.of_graph(&self.graph) };
        self.groups.push(nodes);
        self.ends.push(ends);
        Ok(self)
    }
}

pub(super) fn capture_step(capturing: &mut Capturing<'_>, step: &Step) -> Result<CapturedNodes> {
    capturing.at(step.name.as_str());
    let enqueue = |capturing: &mut Capturing<'_>| {
        // SAFETY: the graph keeps what the commands access alive, and the program orders its
        // launches.
        unsafe { step.command.enqueue(capturing.stream()) }
    };
    match step.is_library_call() {
        true => capturing.nodes_added(enqueue),
        false => capturing.node_added(enqueue),
    }
}

fn add_node(graph: &mut Graph, step: &Step, after: &[Node]) -> Result<Node> {
    match &step.command {
        Command::Launch { function, geometry, arguments } => {
            let launch = KernelLaunch { function, geometry: *geometry, arguments };
            // SAFETY: the launch's constructor (or the caller of `Pass::custom`) checked its
            // lengths and the pass its slices; the graph keeps the buffers alive, and edges order
            // conflicting operations.
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
        Command::Library(_) => unreachable!("library calls are captured"),
    }
}
