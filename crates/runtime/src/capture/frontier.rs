//! What a capture has made so far: its nodes, and those that the next captured work waits for.

use std::collections::HashSet;

use retrograph_driver_sys::{CUgraph, CUgraphNode, CUstreamCaptureStatus};

use super::{Capturing, window};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::graph::node_handles;

/// The nodes of one piece of captured work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CapturedNodes {
    /// All of them.
    pub(crate) nodes: Vec<CUgraphNode>,
    /// Those that whatever comes next has to wait for. Work that adds no node leaves those from
    /// before it.
    pub(crate) ends: Vec<CUgraphNode>,
}

/// Where a capture stands.
struct Frontier {
    graph: CUgraph,
    nodes: Vec<CUgraphNode>,
}

impl Capturing<'_> {
    /// Does `work`, which enqueues any number of nodes, on one stream or several that are joined
    /// again, and says which.
    ///
    /// # Errors
    /// Those of `work`, a lost capture, or a failed driver call.
    pub(crate) fn noting_nodes(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<CapturedNodes> {
        let context = self.stream.context();
        let before: HashSet<_> =
            node_handles(context, self.frontier()?.graph)?.into_iter().collect();
        work(self)?;
        let after = self.frontier()?;
        let mut nodes = node_handles(context, after.graph)?;
        nodes.retain(|node| !before.contains(node));
        Ok(CapturedNodes { nodes, ends: after.nodes })
    }

    /// Does `work`, which enqueues one node on the stream, and says which.
    ///
    /// # Errors
    /// As [`Capturing::noting_nodes`].
    pub(crate) fn noting_node(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<CapturedNodes> {
        work(self)?;
        let ends = self.frontier()?.nodes;
        Ok(CapturedNodes { nodes: ends.clone(), ends })
    }

    /// What the next work on the captured stream will wait for.
    fn frontier(&self) -> Result<Frontier> {
        let context = self.stream.context();
        context.bind()?;
        let asked = ask(context, self.stream.raw())?;
        if let Some(frontier) = asked {
            return Ok(frontier);
        }
        window::require_active(context)?;
        let place = "the nodes captured so far".to_owned();
        Err(Error::CaptureLost { loss: Box::new(super::Loss::NotActive { place }) })
    }
}

/// Asks with the kinds of edges where the driver can: the older call refuses to answer when one of
/// them is more than a full dependency, as library kernels that start early make them.
fn ask(context: &Context, stream: retrograph_driver_sys::CUstream) -> Result<Option<Frontier>> {
    let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    let (mut id, mut graph, mut count) = (0, CUgraph::NULL, 0);
    let (mut nodes, mut edges) = (std::ptr::null(), std::ptr::null());
    match context.table().cuStreamGetCaptureInfo_v3 {
        // SAFETY: the stream lives, and all places are valid.
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
