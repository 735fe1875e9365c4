//! Analyses of a pass: requirements, memory plan, edges.

use retrograph_kernel_abi::Access;

use super::access::BufferAccess;
use super::buffer::BufferKind;
use super::edges::{Edges, infer};
use super::operation::Operation;
use super::plan::{MemoryPlan, Reuse};
use super::requirements::Requirements;
use super::{Pass, dot};

impl Pass {
    /// The kernels and custom images to prewarm before a program is built.
    pub fn requirements(&self) -> Requirements {
        Requirements::of(&self.operations)
    }

    /// The memory plan of the transients with [`Reuse::WhenOrdered`].
    pub fn plan(&self) -> MemoryPlan {
        self.plan_with(Reuse::WhenOrdered)
    }

    /// The memory plan of the transients with `reuse`.
    pub fn plan_with(&self, reuse: Reuse) -> MemoryPlan {
        MemoryPlan::new(self, reuse)
    }

    /// The dependencies between operations with the memory plan [`Pass::plan`].
    pub fn edges(&self) -> Edges {
        self.edges_with(&self.plan())
    }

    /// The dependencies between operations with this memory plan: transients that share bytes order
    /// operations like any other use of the same bytes.
    pub fn edges_with(&self, plan: &MemoryPlan) -> Edges {
        let accesses = self.operations.iter().map(Operation::accesses);
        infer(self.id, accesses, |range| plan.location(range)).0
    }

    /// The number of operations on the longest path of [`Pass::edges`].
    pub fn depth(&self) -> usize {
        self.edges().depth()
    }

    /// Whether no operation of a step writes the ranges that `operation` reads ahead
    /// ([`Access::ReadBeforeWait`]), which PDL requires. Controls are written in every step.
    pub(crate) fn never_writes_read_ahead(&self, operation: &Operation) -> bool {
        let ahead =
            operation.accesses().iter().filter(|range| range.access == Access::ReadBeforeWait);
        let written = |ahead: &BufferAccess| {
            let held = self.buffer(ahead.buffer);
            if held.is_none_or(|buffer| buffer.kind() == BufferKind::Control) {
                return true;
            }
            let accesses = self.operations.iter().flat_map(|operation| operation.accesses());
            accesses.filter(|range| range.access.writes()).any(|range| {
                range.buffer == ahead.buffer
                    && range.bytes.start < ahead.bytes.end
                    && ahead.bytes.start < range.bytes.end
            })
        };
        !ahead.into_iter().any(written)
    }

    /// Returns the edges as a Graphviz DOT graph with the longest path highlighted.
    pub fn to_dot(&self) -> String {
        dot::draw(self, &self.edges())
    }
}
