//! What follows from the operations of a pass alone.

use retrograph_kernels::Access;

use super::access::BufferAccess;
use super::buffer::BufferKind;
use super::edges::{Edges, infer};
use super::operation::Operation;
use super::plan::{MemoryPlan, Reuse};
use super::requirements::Requirements;
use super::{Pass, dot};

impl Pass {
    /// The kernels and custom images that must be warm before a program is built.
    pub fn requirements(&self) -> Requirements {
        Requirements::of(&self.operations)
    }

    /// Where transients lie when memory is shared as [`Reuse::WhenOrdered`] allows.
    pub fn plan(&self) -> MemoryPlan {
        self.plan_with(Reuse::WhenOrdered)
    }

    /// Where transients lie when memory is shared as `reuse` allows.
    pub fn plan_with(&self, reuse: Reuse) -> MemoryPlan {
        MemoryPlan::new(self, reuse)
    }

    /// Which operations must wait for which, with the memory of [`Pass::plan`].
    pub fn edges(&self) -> Edges {
        self.edges_with(&self.plan())
    }

    /// Which operations must wait for which when transients lie as `plan` says: sharing bytes
    /// orders operations like any other use of the same bytes.
    pub fn edges_with(&self, plan: &MemoryPlan) -> Edges {
        infer(self.operations.iter().map(Operation::accesses), |range| plan.place(range)).0
    }

    /// The number of operations on the longest path of [`Pass::edges`].
    pub fn depth(&self) -> usize {
        self.edges().depth()
    }

    /// Whether nothing of a step writes what `operation` declares as read ahead
    /// ([`Access::ReadBeforeWait`]), so that it can be let start before what is in front has ended.
    /// Controls are written in front of all operations.
    pub(crate) fn never_writes_read_ahead(&self, operation: &Operation) -> bool {
        let ahead = operation.accesses().iter().filter(|range| range.access == Access::ReadBeforeWait);
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

    /// The edges as a Graphviz drawing in which the longest path stands out.
    pub fn to_dot(&self) -> String {
        dot::draw(self, &self.edges())
    }
}
