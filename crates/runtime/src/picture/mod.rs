//! SVG pictures of passes and graphs: concurrency and the critical path.
//!
//! Operations are drawn from left to right by their earliest start, in lanes without overlap. With
//! a [`Profile`], the width of an operation is its time, and the picture is the fastest schedule
//! that the edges allow, without contention; otherwise all operations are equally wide. The longest
//! path is framed in red. The colour shows the scope; collectives have their own colour. A tooltip
//! shows the name, kernel, bytes and time of an operation.
//!
//! The SVG has no scripts and embeds no fonts. It has a view box and a size in pixels.

mod draw;
mod layout;
mod trace;
mod xml;

use retrograph_driver::profile::scope_of;
use retrograph_driver::{Graph, Profile, Result};

use crate::pass::{Edges, Hazard, Operation, Pass};

/// The content of a picture.
struct Picture {
    title: String,
    remarks: Vec<String>,
    nodes: Vec<Shown>,
    /// Edges from a node to a later one.
    edges: Vec<Arrow>,
    /// Whether times are known.
    timed: bool,
}

/// A drawn node.
struct Shown {
    name: String,
    scope: String,
    kernel: String,
    bytes: Option<[usize; 2]>,
    /// Whether it exchanges data with other devices.
    is_collective: bool,
    ms: Option<f32>,
}

struct Arrow {
    from: usize,
    to: usize,
    /// Whether data flows along it; otherwise memory is reused.
    data: bool,
}

impl Pass {
    /// Draws the pass as an SVG picture, with the times of `profile` if given, which must come from
    /// a program of this pass.
    ///
    /// ```
    /// use retrograph_runtime::Pass;
    ///
    /// let mut pass = Pass::new("shift");
    /// let (input, output) = (pass.external::<f32>("input", 8), pass.external::<f32>("output", 8));
    /// pass.copy(input, output)?;
    /// assert!(pass.to_svg(None).starts_with("<svg"));
    /// # Ok::<(), retrograph_runtime::PassError>(())
    /// ```
    pub fn to_svg(&self, profile: Option<&Profile>) -> String {
        let edges = self.edges();
        let operations = self.operations();
        let mut remarks = remarks(profile);
        remarks.insert(0, sums(operations.len(), edges.len(), edges.depth()));
        let nodes = operations.iter().map(shown);
        let mut picture = Picture {
            title: format!("pass `{}`", self.name()),
            remarks,
            nodes: nodes.collect(),
            edges: arrows(&edges),
            timed: profile.is_some(),
        };
        picture.set_times(profile);
        picture.to_svg()
    }
}

/// Draws `graph` as an SVG picture, with the times of `profile` if given, which must come from
/// [`Graph::profile`]. Nodes are named by [`Graph::label`].
///
/// # Errors
/// If the driver fails.
pub fn graph_to_svg(graph: &Graph, profile: Option<&Profile>) -> Result<String> {
    let ordered = graph.ordered()?;
    let mut remarks = remarks(profile);
    remarks.insert(0, graph.report()?.to_string());
    let mut nodes = Vec::with_capacity(ordered.nodes.len());
    for node in &ordered.nodes {
        let kernel = graph.label(*node)?;
        let (name, scope) = (kernel.clone(), String::new());
        nodes.push(Shown { name, scope, kernel, bytes: None, is_collective: false, ms: None });
    }
    let arrow = |(from, to)| Arrow { from, to, data: true };
    let edges = ordered.edges.into_iter().map(arrow).collect();
    let (title, timed) = ("graph".to_owned(), profile.is_some());
    let mut picture = Picture { title, remarks, nodes, edges, timed };
    picture.set_times(profile);
    Ok(picture.to_svg())
}

impl Picture {
    /// Sets the times; operations that do not reach the device take none.
    fn set_times(&mut self, profile: Option<&Profile>) {
        let Some(profile) = profile else { return };
        let times = profile.times(self.nodes.len());
        for (node, ms) in self.nodes.iter_mut().zip(times) {
            node.ms = Some(ms.unwrap_or(0.0));
        }
    }
}

fn shown(operation: &Operation) -> Shown {
    let sum = |writes: bool| {
        let accesses = operation.accesses().iter();
        let accesses = accesses.filter(|range| match writes {
            true => range.access.writes(),
            false => range.access.reads(),
        });
        accesses.map(|range| range.bytes.len()).sum()
    };
    let (name, kernel) = (operation.name().to_owned(), operation.verb().to_owned());
    let scope = scope_of(&name).to_owned();
    let (bytes, is_collective) =
        (Some([sum(false), sum(true)]), operation.collective_bytes().is_some());
    Shown { name, scope, kernel, bytes, is_collective, ms: None }
}

fn arrows(edges: &Edges) -> Vec<Arrow> {
    let arrow = |edge: &crate::pass::Edge| Arrow {
        from: edge.from.index(),
        to: edge.to.index(),
        data: edge.hazard == Hazard::ReadAfterWrite,
    };
    edges.iter().map(arrow).collect()
}

fn sums(operations: usize, edges: usize, depth: usize) -> String {
    format!("{operations} operations, {edges} edges, depth {depth}")
}

/// Returns notes on the measured times.
fn remarks(profile: Option<&Profile>) -> Vec<String> {
    let Some(profile) = profile else {
        return vec!["planned: without times, every operation has the same width".to_owned()];
    };
    let Profile { device, replays, step_ms, .. } = profile;
    let mut remarks = vec![format!(
        "operations measured alone on {device}, medians of {replays} replays; the step as it runs \
         takes {step_ms:.3} ms"
    )];
    if profile.simulated {
        remarks.push("SIMULATED: times are of the CPU and say nothing about a GPU".to_owned());
    }
    remarks
}
