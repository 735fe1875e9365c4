//! The graph template and its node handles.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

use retrograph_driver_sys::{CUgraph, CUgraphNode};

use super::owners::Owners;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::owner::Owner;

/// A node of one graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    pub(super) raw: CUgraphNode,
    pub(super) graph: GraphNumber,
}

/// A unique number of a graph. The driver may reuse the handle of a destroyed graph for a new one
/// with other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct GraphNumber(u64);

impl GraphNumber {
    fn fresh() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl Node {
    /// The driver's handle.
    pub fn raw(self) -> CUgraphNode {
        self.raw
    }
}

/// A template of nodes and edges. The driver does not guard it against concurrent use, so it is
/// `Send` but not `Sync`:
///
/// ```compile_fail,E0277
/// fn is_sync<T: Sync>() {}
/// is_sync::<retrograph_driver::Graph>();
/// ```
///
/// The caller who adds a node guarantees that its edges order it after its dependencies, so safe
/// code can only add edges. Removing edges is private, and adding an edge that lets the later node
/// start early is unsafe:
///
/// ```compile_fail,E0624
/// # use retrograph_driver::{Graph, Node};
/// fn unordered(graph: &mut Graph, earlier: Node, later: Node) {
///     let _ = graph.remove_edges(&[(earlier, later)]);
/// }
/// ```
///
/// ```compile_fail,E0133
/// # use retrograph_driver::{Graph, Node};
/// fn early(graph: &mut Graph, earlier: Node, later: Node) {
///     let _ = graph.add_programmatic_edge(earlier, later);
/// }
/// ```
pub struct Graph {
    pub(super) context: Context,
    pub(super) raw: CUgraph,
    pub(super) number: GraphNumber,
    pub(super) owners: Owners,
    pub(super) memory_nodes_allowed: bool,
    /// Whether nodes have priorities.
    pub(super) prioritized: bool,
    not_sync: PhantomData<Cell<()>>,
}

impl Graph {
    /// Creates a graph without nodes.
    ///
    /// # Errors
    /// If the driver fails.
    pub fn new(context: &Context) -> Result<Self> {
        context.bind()?;
        let mut raw = CUgraph::NULL;
        // SAFETY: the context is current, and the out pointer is valid.
        unsafe { call!(context, cuGraphCreate(&mut raw, 0)) }?;
        // SAFETY: the graph was just made and nobody else has it.
        Ok(unsafe { Self::from_raw(context, raw) })
    }

    /// Takes ownership of a graph that a capture or a library has created in `context`.
    ///
    /// # Safety
    /// The graph must be live, belong to this context, and not be destroyed by anybody else. Memory
    /// that its nodes access must be given to [`Graph::keep`], or outlive every launch.
    pub unsafe fn from_raw(context: &Context, raw: CUgraph) -> Self {
        let (context, owners) = (context.clone(), Owners::default());
        Self {
            context,
            raw,
            number: GraphNumber::fresh(),
            owners,
            memory_nodes_allowed: false,
            prioritized: false,
            not_sync: PhantomData,
        }
    }

    /// Keeps `owner` alive as long as the graph or an exec made from it lives.
    pub fn keep(&mut self, owner: Owner) {
        self.owners.keep(owner);
    }

    pub(crate) fn with(mut self, owners: Vec<Owner>) -> Self {
        owners.into_iter().for_each(|owner| self.owners.keep(owner));
        self
    }

    /// Allows nodes that allocate and free memory. They are refused by default: captured library
    /// calls may add them silently, and two execs would then share memory that neither owns.
    pub fn allow_memory_nodes(&mut self) {
        self.memory_nodes_allowed = true;
    }

    /// The context.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The driver's handle.
    pub fn raw(&self) -> CUgraph {
        self.raw
    }

    /// Checks that all `nodes` belong to this graph.
    pub(crate) fn check_nodes(&self, nodes: &[Node]) -> Result<()> {
        let own = nodes.iter().all(|node| node.graph == self.number);
        if own { Ok(()) } else { Err(Error::WrongGraph) }
    }

    pub(crate) fn node(&self, raw: CUgraphNode) -> Node {
        Node { raw, graph: self.number }
    }

    /// Drops the owners of a graph that the driver has already destroyed.
    pub(crate) fn destroyed_by_driver(mut self) {
        self.raw = CUgraph::NULL;
    }
}

impl std::fmt::Debug for Graph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Graph({:?}, {} owners)", self.raw, self.owners.len())
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let raw = self.raw;
        let mut owners = std::mem::take(&mut self.owners);
        self.context.release(move |driver| {
            if !raw.is_null() {
                // SAFETY: nobody else has the graph; execs do not need it.
                unsafe { call!(driver, cuGraphDestroy(raw)) }?;
            }
            owners.clear();
            Ok(())
        });
    }
}
