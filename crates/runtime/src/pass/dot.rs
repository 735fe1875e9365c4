//! A pass as a Graphviz DOT graph.

use std::collections::HashSet;
use std::fmt::Write;

use super::{Edge, Edges, Hazard, OpId, Pass};

/// Draws `pass` with one longest path in red and filled collectives.
pub(super) fn draw(pass: &Pass, edges: &Edges) -> String {
    let path = edges.longest_path();
    let on_path: HashSet<OpId> = path.iter().copied().collect();
    let steps: HashSet<(OpId, OpId)> = path.windows(2).map(|pair| (pair[0], pair[1])).collect();
    let mut dot = format!("digraph \"{}\" {{\n  node [shape=box];\n", escaped(pass.name()));
    for (at, operation) in pass.operations().iter().enumerate() {
        let color = if on_path.contains(&edges.operation(at)) { ", color=red" } else { "" };
        let label = escaped(operation.name());
        let fill = match operation.collective_bytes() {
            Some(_) => ", style=filled, fillcolor=\"#d9c7f5\"",
            None => "",
        };
        let _ = writeln!(dot, "  n{at} [label=\"#{at} {label}\"{color}{fill}];");
    }
    for edge in edges.iter() {
        let red = steps.contains(&(edge.from, edge.to));
        let _ = writeln!(
            dot,
            "  n{} -> n{} [{}];",
            edge.from.index(),
            edge.to.index(),
            style(edge, red)
        );
    }
    dot.push_str("}\n");
    dot
}

/// Solid for data flow, dashed for memory reuse.
fn style(edge: &Edge, red: bool) -> String {
    let line = match edge.hazard {
        Hazard::ReadAfterWrite => "solid",
        Hazard::WriteAfterRead | Hazard::WriteAfterWrite => "dashed",
    };
    let color = if red { ", color=red, penwidth=2" } else { "" };
    format!("style={line}{color}")
}

fn escaped(name: &str) -> String {
    name.replace('\\', "\\\\").replace('"', "\\\"")
}
