//! The nodes of a capture in progress, and the dependencies of the next captured work.

use std::collections::HashSet;

use retrograph_driver_sys::{CUgraph, CUgraphNode, CUstreamCaptureStatus};

use super::capturing::Capturing;
use super::invalidation::CaptureInvalidation;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::graph::{Graph, Node, node_handles};

/// The nodes that a piece of captured work added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CapturedNodes {
    nodes: Vec<CUgraphNode>,
    /// The nodes that later work waits for. If the work added no node, they are older nodes.
    ends: Vec<CUgraphNode>,
}

impl CapturedNodes {
    /// Returns the added nodes, and the nodes that later work waits for, as nodes of `graph`.
    ///
    /// # Safety
    /// `graph` is the result of the capture that added the nodes.
    pub unsafe fn of_graph(&self, graph: &Graph) -> (Vec<Node>, Vec<Node>) {
        let nodes = |raw: &[CUgraphNode]| raw.iter().map(|&raw| graph.node(raw)).collect();
        (nodes(&self.nodes), nodes(&self.ends))
    }
}

/// The state of a capture.
struct Frontier {
    graph: CUgraph,
    nodes: Vec<CUgraphNode>,
}

impl Capturing<'_> {
    /// Runs `work`, which enqueues any number of nodes on one stream or on several that are joined
    /// again, and returns those nodes.
    ///
    /// # Errors
    /// The errors of `work`, a lost capture, or a failed driver call.
    pub fn nodes_added(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<CapturedNodes> {
        let stream = self.stream().clone();
        let before: HashSet<_> =
            node_handles(stream.context(), self.frontier()?.graph)?.into_iter().collect();
        work(self)?;
        let after = self.frontier()?;
        let mut nodes = node_handles(stream.context(), after.graph)?;
        nodes.retain(|node| !before.contains(node));
        Ok(CapturedNodes { nodes, ends: after.nodes })
    }

    /// Runs `work`, which enqueues exactly one node on the stream, and returns that node. Cheaper
    /// than [`Capturing::nodes_added`].
    ///
    /// # Errors
    /// As [`Capturing::nodes_added`].
    pub fn node_added(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<CapturedNodes> {
        work(self)?;
        let ends = self.frontier()?.nodes;
        Ok(CapturedNodes { nodes: ends.clone(), ends })
    }

    /// Returns the captured graph, and the nodes that the next work on the stream will wait for.
    fn frontier(&self) -> Result<Frontier> {
        let context = self.stream().context();
        context.bind()?;
        if let Some(frontier) = query_capture(context, self.stream().raw())? {
            return Ok(frontier);
        }
        context.require_active_capture()?;
        let place = "the nodes captured so far".to_owned();
        Err(Error::CaptureLost { loss: Box::new(CaptureInvalidation::NotActive { place }) })
    }
}

/// Queries the capture state of `stream`; `None` if it does not capture. Prefers the call that
/// reports edge data: the older one fails if an edge is not a full dependency, such as the
/// programmatic edges of library kernels.
fn query_capture(
    context: &Context,
    stream: retrograph_driver_sys::CUstream,
) -> Result<Option<Frontier>> {
    let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    let (mut id, mut graph, mut count) = (0, CUgraph::NULL, 0);
    let (mut nodes, mut edges) = (std::ptr::null(), std::ptr::null());
    match context.table().cuStreamGetCaptureInfo_v3 {
        // SAFETY: the stream lives, and all out pointers are valid.
        Some(info) => context.check("cuStreamGetCaptureInfo_v3", unsafe {
            info(stream, &mut status, &mut id, &mut graph, &mut nodes, &mut edges, &mut count)
        })?,
        // SAFETY: as above.
        None => unsafe {
            call!(
                context,
                cuStreamGetCaptureInfo_v2(
                    stream,
                    &mut status,
                    &mut id,
                    &mut graph,
                    &mut nodes,
                    &mut count
                )
            )
        }?,
    }
    if status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE {
        return Ok(None);
    }
    let nodes = match nodes.is_null() {
        true => Vec::new(),
        // SAFETY: the driver points to `count` nodes, valid until the next call on the stream.
        false => unsafe { std::slice::from_raw_parts(nodes, count) }.to_vec(),
    };
    Ok(Some(Frontier { graph, nodes }))
}
