//! Graphs: work as a template of nodes and edges, instantiated once and replayed many times.
//!
//! ```
//! # #[cfg(feature = "sim")] {
//! use retrograph_runtime::{Context, DeviceBuffer, DeviceFill, DeviceIndex, Driver, Graph, Stream};
//!
//! let context = Context::new(&Driver::simulated(Default::default())?, DeviceIndex(0))?;
//! let stream = Stream::new(&context)?;
//! let buffer = DeviceBuffer::<u32>::zeroed(&context, 4)?;
//!
//! let mut graph = Graph::new(&context)?;
//! let fill = DeviceFill { target: buffer.address(), pattern: 7, words: 4 };
//! // SAFETY: the range is that of the buffer, which the graph keeps.
//! unsafe { graph.add_fill(&fill, &[]) }?;
//! graph.keep(buffer.owner());
//!
//! let mut exec = graph.instantiate()?;
//! exec.launch(&stream)?;
//! assert_eq!(buffer.download(&stream)?, [7; 4]);
//! # }
//! # Ok::<(), retrograph_runtime::Error>(())
//! ```
//!
//! A [`Graph`] keeps what its nodes touch, as far as it was given to [`Graph::keep`], and so does
//! each [`GraphExec`] made from it. Adding a node is where the promise is made that it may run, for
//! every launch of the graph; launching is then safe.

mod contents;
mod copy;
mod exec;
mod inspect;
mod nodes;
mod owners;
mod profile;
mod report;

use std::cell::Cell;
use std::marker::PhantomData;

use retrograph_driver_sys::{
    CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY, CUgraph, CUgraphExec, CUgraphNode,
};

pub use contents::Unread;
pub use exec::{GraphExec, UpdateOutcome};
pub use inspect::{KernelNodeParams, NodeKind};
pub use nodes::{DeviceCopy, DeviceFill};
pub use report::GraphReport;

pub(crate) use contents::{Contents, NodeContents};
pub(crate) use inspect::node_handles;

use crate::Owner;
use crate::context::Context;
use crate::error::{Error, Result};
use owners::Owners;

/// A node of one graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    raw: CUgraphNode,
    graph: CUgraph,
}

impl Node {
    /// The driver's handle.
    pub fn raw(self) -> CUgraphNode {
        self.raw
    }
}

/// A template of nodes and edges. The driver does not guard it against use from two threads at
/// once, so it can be sent but not shared.
pub struct Graph {
    context: Context,
    raw: CUgraph,
    owners: Owners,
    memory_nodes_allowed: bool,
    /// Whether nodes have priorities.
    prioritized: bool,
    not_sync: PhantomData<Cell<()>>,
}

impl Graph {
    /// A graph without nodes.
    ///
    /// # Errors
    /// When the driver fails.
    pub fn new(context: &Context) -> Result<Self> {
        context.bind()?;
        let mut raw = CUgraph::NULL;
        // SAFETY: the context is current, and the place is valid.
        unsafe { call!(context, cuGraphCreate(&mut raw, 0)) }?;
        // SAFETY: the graph was just made and nobody else has it.
        Ok(unsafe { Self::from_raw(context, raw) })
    }

    /// Takes over a graph that a capture or a library has made in `context`.
    ///
    /// # Safety
    /// The graph is live, of this context, and nobody else destroys it. What its nodes touch must
    /// be given to [`Graph::keep`], or outlive every launch.
    pub unsafe fn from_raw(context: &Context, raw: CUgraph) -> Self {
        let (context, owners) = (context.clone(), Owners::default());
        let (memory_nodes_allowed, prioritized) = (false, false);
        Self { context, raw, owners, memory_nodes_allowed, prioritized, not_sync: PhantomData }
    }

    /// Keeps `owner` alive for as long as the graph or an exec made from it lives.
    pub fn keep(&mut self, owner: Owner) {
        self.owners.keep(owner);
    }

    pub(crate) fn with(mut self, owners: Vec<Owner>) -> Self {
        owners.into_iter().for_each(|owner| self.owners.keep(owner));
        self
    }

    /// Lets the graph have nodes that allocate and free memory when it runs. They are refused
    /// otherwise, since captured library calls bring them in unseen, and then two execs share
    /// memory that neither owns.
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

    /// Makes an exec: the graph as the device launches it. When device memory runs out, memory that
    /// the driver keeps for graphs is given back and it is tried once more.
    ///
    /// # Errors
    /// [`Error::MemoryNodes`], [`Error::RefusedDuringCapture`], or a failed driver call.
    pub fn instantiate(&self) -> Result<GraphExec> {
        self.context.bind_outside_capture("instantiating a graph")?;
        let nodes = self.memory_nodes()?;
        if nodes > 0 && !self.memory_nodes_allowed {
            return Err(Error::MemoryNodes { nodes });
        }
        let raw = self.instantiate_raw().or_else(|error| match error.call() {
            Some(call) if call.is_out_of_memory() => {
                tracing::debug!(%error, "giving back graph memory before a second try");
                // SAFETY: the device is that of the context.
                unsafe { call!(self.context, cuDeviceGraphMemTrim(self.context.device())) }?;
                self.instantiate_raw()
            }
            _ => Err(error),
        })?;
        Ok(GraphExec::new(self, raw))
    }

    fn instantiate_raw(&self) -> Result<CUgraphExec> {
        self.context.bind()?;
        let mut exec = CUgraphExec::NULL;
        let by_node = CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
        let flags = if self.prioritized { by_node } else { 0 };
        // SAFETY: the graph lives, and the place is valid.
        unsafe { call!(self.context, cuGraphInstantiateWithFlags(&mut exec, self.raw, flags)) }?;
        Ok(exec)
    }

    /// Fails unless all `nodes` are of this graph.
    pub(crate) fn check_nodes(&self, nodes: &[Node]) -> Result<()> {
        let own = nodes.iter().all(|node| node.graph == self.raw);
        if own { Ok(()) } else { Err(Error::ForeignNode) }
    }

    pub(crate) fn node(&self, raw: CUgraphNode) -> Node {
        Node { raw, graph: self.raw }
    }

    /// Lets go of what the graph keeps, without destroying what the driver has destroyed already.
    pub(crate) fn taken_by_the_driver(mut self) {
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
