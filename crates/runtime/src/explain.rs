//! A pass as a table.

use std::collections::BTreeMap;
use std::fmt;

use retrograph_driver::profile::printable;

use crate::pass::{BufferAccess, BufferKind, Edges, MemoryPlan, Operation, Pass};

/// Displays a pass: one line per operation and per buffer, and totals.
#[derive(Debug)]
pub struct Explanation<'a> {
    pass: &'a Pass,
    plan: MemoryPlan,
    edges: Edges,
}

impl Pass {
    /// Tabulates operations and buffers with sizes and edges.
    pub fn explain(&self) -> Explanation<'_> {
        Explanation::new(self)
    }
}

impl<'a> Explanation<'a> {
    fn new(pass: &'a Pass) -> Self {
        let plan = pass.plan();
        let edges = pass.edges_with(&plan);
        Self { pass, plan, edges }
    }

    fn operations(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.pass.operations().iter();
        let names = names.map(|operation| printable(operation.name()).chars().count());
        let width = names.max().unwrap_or(0).max("operation".len());
        writeln!(f, "{:>6}  {:width$}  {:<14}  accesses", "#", "operation", "waits for")?;
        for (at, operation) in self.pass.operations().iter().enumerate() {
            let edges = self.edges.into_operation(self.edges.operation(at));
            let waits: Vec<_> = edges.iter().map(|edge| edge.from.to_string()).collect();
            let (name, waits) = (printable(operation.name()), shortened(&waits));
            write!(f, "{at:>6}  {name:width$}  {waits:<14}  ")?;
            self.accesses(f, operation)?;
        }
        Ok(())
    }

    fn accesses(&self, f: &mut fmt::Formatter<'_>, operation: &Operation) -> fmt::Result {
        let (writes, reads): (Vec<&BufferAccess>, Vec<&BufferAccess>) =
            operation.accesses().iter().partition(|range| range.access.writes());
        let names = |accesses: &[&BufferAccess]| {
            let name = |range: &&BufferAccess| printable(&self.pass.name_of(range.buffer));
            shortened(&accesses.iter().map(name).collect::<Vec<_>>())
        };
        writeln!(f, "{} -> {}", names(&reads), names(&writes))
    }

    fn buffers(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.pass.buffers().map(|(_, buffer)| printable(buffer.name()).chars().count());
        let width = names.max().unwrap_or(0).max("buffer".len());
        writeln!(f, "{:width$}  {:9}  {:>14}  {:>12}", "buffer", "kind", "elements", "offset")?;
        for (id, buffer) in self.pass.buffers() {
            let elements = format!("{} {}", buffer.len(), buffer.element());
            let offset = self.plan.offset(id).or_else(|| {
                let control = buffer.kind() == BufferKind::Control;
                control.then(|| self.pass.control_layout().offset(id.index())).flatten()
            });
            let offset = offset.map_or_else(String::new, |offset| offset.to_string());
            let (name, kind) = (printable(buffer.name()), buffer.kind());
            writeln!(f, "{name:width$}  {kind:9}  {elements:>14}  {offset:>12}")?;
        }
        Ok(())
    }

    fn kernels(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for operation in self.pass.operations() {
            *counts.entry(operation.verb()).or_default() += 1;
        }
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
        for (verb, count) in counts {
            writeln!(f, "{count:>6} × {}", printable(verb))?;
        }
        Ok(())
    }

    fn sums(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes_of = |kind| {
            let held = self.pass.buffers().filter(|(_, buffer)| buffer.kind() == kind);
            held.map(|(_, buffer)| buffer.bytes()).sum::<usize>()
        };
        let (operations, edges) = (self.pass.operations().len(), self.edges.len());
        let depth = self.edges.depth();
        writeln!(f, "{operations} operations, {edges} edges, depth {depth}")?;
        let external = bytes_of(BufferKind::External);
        let controls = self.pass.control_layout().bytes();
        writeln!(f, "{external} bytes bound from outside, {controls} bytes of controls")?;
        let (peak, live) = (self.plan.peak_bytes(), self.plan.live_bytes());
        let (unshared, reuse) = (self.plan.unshared_bytes(), self.plan.reuse());
        write!(f, "{peak} bytes of transients, shared {reuse} ")?;
        writeln!(f, "({unshared} without sharing, {live} alive at once)")
    }
}

impl fmt::Display for Explanation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "pass `{}`", printable(self.pass.name()))?;
        self.sums(f)?;
        writeln!(f)?;
        self.kernels(f)?;
        writeln!(f)?;
        self.operations(f)?;
        writeln!(f)?;
        self.buffers(f)
    }
}

/// The first few names, for operations over many tensors.
fn shortened(names: &[String]) -> String {
    const SHOWN: usize = 4;
    let shown = names[..names.len().min(SHOWN)].join(", ");
    match names.len().checked_sub(SHOWN) {
        Some(more @ 1..) => format!("{shown} and {more} more"),
        _ => shown,
    }
}
