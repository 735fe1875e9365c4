//! Pictures of passes and graphs as SVG: what can run side by side, and what holds the rest up.
//!
//! Operations lie from left to right by when they can start, in lanes of operations that do not
//! overlap. With times of a [`Profile`] the width of an operation is its time, and the picture
//! is the fastest schedule that the edges allow if operations took no longer beside each other than
//! alone; without, every operation is as wide as every other. The longest path is framed in red:
//! nothing that leaves it as it is makes the graph faster. Colours are scopes. Whoever points at an
//! operation is told its name, its kernel, the bytes that it touches and its time.
//!
//! A picture is text alone: no scripts, and fonts of whoever shows it. It has a view box and a size
//! in pixels, so that viewers can both fit and enlarge it.

mod draw;
mod layout;
mod xml;

use retrograph_driver::profile::scope_of;
use retrograph_driver::{Graph, Profile, Result};

use crate::pass::{Edges, Hazard, Operation, Pass};

/// What is drawn, whatever it is made from.
struct Picture {
    title: String,
    remarks: Vec<String>,
    nodes: Vec<Shown>,
    /// Each leads from a node to a later one.
    edges: Vec<Arrow>,
    /// Whether times are known.
    timed: bool,
}

/// A node as it is shown.
struct Shown {
    name: String,
    scope: String,
    kernel: String,
    bytes: Option<[usize; 2]>,
    ms: Option<f32>,
}

struct Arrow {
    from: usize,
    to: usize,
    /// Whether data flows along it; otherwise memory is used again.
    data: bool,
}

impl Pass {
    /// The pass as an SVG picture, with the times of `profile` where one is given, which must be
    /// of a program of this pass.
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
        nodes.push(Shown { name, scope, kernel, bytes: None, ms: None });
    }
    let arrow = |(from, to)| Arrow { from, to, data: true };
    let edges = ordered.edges.into_iter().map(arrow).collect();
    let (title, timed) = ("graph".to_owned(), profile.is_some());
    let mut picture = Picture { title, remarks, nodes, edges, timed };
    picture.set_times(profile);
    Ok(picture.to_svg())
}

impl Picture {
    /// Operations that do not reach the device take no time.
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
    Shown { name, scope, kernel, bytes: Some([sum(false), sum(true)]), ms: None }
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

/// What must be known of the times.
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
