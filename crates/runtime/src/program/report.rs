//! What was built, why, and what it cost.

use std::fmt;
use std::time::Duration;

use super::policy::Strategy;
use crate::pass::Reuse;

/// The facts of a built program.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The name of the pass.
    pub pass: String,
    /// How operations reach the device.
    pub strategy: Strategy,
    /// Why this strategy; after a fallback, the first cause with its call and code.
    pub reason: String,
    /// Operations of the pass.
    pub operations: usize,
    /// Operations that launch nothing, since their problem is empty.
    pub skipped: usize,
    /// Nodes of the graph; 0 for an eager program.
    pub nodes: usize,
    /// Edges of the graph; for an eager program, those that the pass would have.
    pub edges: usize,
    /// Nodes on the longest path; for an eager program, all operations.
    pub depth: usize,
    /// Device bytes that transients take.
    pub peak_bytes: usize,
    /// How transients share bytes.
    pub reuse: Reuse,
    /// Device bytes of the control block and of argument tables.
    pub fixed_bytes: usize,
    /// Planning, binding and graph construction.
    pub build_time: Duration,
    /// Instantiation of the graph.
    pub instantiate_time: Duration,
    /// Upload of the graph to the device.
    pub upload_time: Duration,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "pass `{}`", self.pass)?;
        writeln!(f, "strategy    {}: {}", self.strategy, self.reason)?;
        write!(f, "operations  {}", self.operations)?;
        if self.skipped > 0 {
            write!(f, " ({} of them empty)", self.skipped)?;
        }
        let (nodes, edges, depth) = (self.nodes, self.edges, self.depth);
        writeln!(f, ", {nodes} nodes, {edges} edges, depth {depth}")?;
        let (peak, fixed, reuse) = (self.peak_bytes, self.fixed_bytes, self.reuse);
        writeln!(f, "memory      {peak} bytes of transients, shared {reuse}, and {fixed} fixed")?;
        let times = [self.build_time, self.instantiate_time, self.upload_time];
        let [build, instantiate, upload] = times.map(|time| time.as_secs_f64() * 1e3);
        write!(f, "built in    {build:.2} ms, instantiated in {instantiate:.2} ms, ")?;
        write!(f, "uploaded in {upload:.2} ms")
    }
}
