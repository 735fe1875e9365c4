//! DOT output (`cuGraphDebugDotPrint`).

use std::ffi::c_char;
use std::fmt::Write as _;

use retrograph_driver_sys::*;

use crate::argument::{Call, In};
use crate::refusal::{Rule, refuse};
use crate::state::{NodeKind, State};
use crate::work::Operation;

impl State {
    pub(crate) fn cuGraphDebugDotPrint(
        &mut self,
        graph: CUgraph,
        path: In<c_char>,
        flags: u32,
    ) -> Call {
        let graph = self.known_graph(graph)?;
        let parameters = CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE
            | CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_PARAMS
            | CU_GRAPH_DEBUG_DOT_FLAGS_MEMCPY_NODE_PARAMS
            | CU_GRAPH_DEBUG_DOT_FLAGS_MEMSET_NODE_PARAMS;
        let mut text = String::from("digraph simulated {\n");
        self.write_dot(graph, flags & parameters != 0, &mut text)?;
        text.push_str("}\n");
        let written = std::fs::write(path.text()?, text);
        written.map_err(|_| {
            refuse(CUresult::CUDA_ERROR_OPERATING_SYSTEM, Rule::DotCuGraphDebugDotPrint)
        })
    }

    fn write_dot(&self, graph: CUgraph, parameters: bool, text: &mut String) -> Call {
        let name = |node: CUgraphNode| format!("n{:x}", node.0.addr());
        for node in &self.graphs.get(graph)?.nodes {
            let kind = &self.nodes.get(*node)?.kind;
            let label = label(kind, parameters);
            // Writing to a string cannot fail.
            let _ = writeln!(text, "  {} [shape=box, label=\"{label}\"];", name(*node));
            for (index, graph) in kind.graphs().iter().enumerate() {
                let _ = writeln!(text, "  subgraph cluster_{}_{index} {{", name(*node));
                self.write_dot(*graph, parameters, text)?;
                text.push_str("  }\n");
            }
        }
        for (from, to, _) in self.edges(graph)? {
            let _ = writeln!(text, "  {} -> {};", name(from), name(to));
        }
        Ok(())
    }
}

/// The label of a node.
fn label(kind: &NodeKind, parameters: bool) -> String {
    match kind {
        NodeKind::Operation(Operation::Launch(launch)) if parameters => {
            let (grid, block) = (launch.grid, launch.block);
            format!("{} grid {grid:?} block {block:?}", launch.program.name())
        }
        NodeKind::Operation(Operation::Launch(launch)) => launch.program.name().to_owned(),
        NodeKind::Operation(Operation::Copy(copy)) if parameters => {
            format!("copy {} bytes", copy.given.WidthInBytes * copy.given.Height * copy.given.Depth)
        }
        NodeKind::Operation(Operation::Copy(_)) => "copy".to_owned(),
        NodeKind::Operation(Operation::Fill(fill)) if parameters => {
            let bytes = fill.extent().unwrap_or(0);
            format!("fill {bytes} bytes at {:#x} with {:#x}", fill.given.dst, fill.given.value)
        }
        NodeKind::Operation(Operation::Fill(_)) => "fill".to_owned(),
        NodeKind::Operation(Operation::Host(_)) => "host function".to_owned(),
        NodeKind::Child(_) => "child graph".to_owned(),
        NodeKind::Conditional(conditional) => {
            format!("conditional, handle {}", conditional.handle)
        }
        NodeKind::Empty => "empty".to_owned(),
        NodeKind::Record(_) => "record event".to_owned(),
        NodeKind::Wait(_) => "wait for event".to_owned(),
        NodeKind::Alloc(_) => "allocate".to_owned(),
        NodeKind::Free(_) => "free".to_owned(),
    }
}
