//! Instantiated graphs.

use retrograph_driver_sys::{
    CUgraphExec, CUgraphExecUpdateResult, CUgraphExecUpdateResultInfo, CUresult,
};

use super::nodes::{copy_params, fill_params, kernel_params};
use super::owners::Owners;
use super::{DeviceCopy, DeviceFill, Graph, Node};
use crate::Owner;
use crate::context::Context;
use crate::error::Result;
use crate::launch::KernelLaunch;
use crate::stream::Stream;

/// How an update of an exec went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateOutcome {
    /// The exec now does what the given graph says.
    Updated,
    /// The driver cannot change the exec that way; it is as it was, and a new one is needed.
    Refused {
        /// Why.
        reason: CUgraphExecUpdateResult,
    },
}

/// A graph as the device launches it. One exec runs one launch at a time; for several in flight,
/// instantiate several.
pub struct GraphExec {
    context: Context,
    raw: CUgraphExec,
    /// The template that node handles refer to.
    graph: retrograph_driver_sys::CUgraph,
    owners: Owners,
    /// Where it was launched last. Launches are ordered one behind the other.
    launched_on: Option<Stream>,
}

impl GraphExec {
    pub(super) fn new(graph: &Graph, raw: CUgraphExec) -> Self {
        let (context, owners) = (graph.context.clone(), graph.owners.clone());
        Self { context, raw, graph: graph.raw, owners, launched_on: None }
    }

    /// Keeps `owner` alive until the last launch has run.
    pub fn keep(&mut self, owner: Owner) {
        self.owners.keep(owner);
    }

    /// The context.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The driver's handle.
    pub fn raw(&self) -> CUgraphExec {
        self.raw
    }

    /// Does what the first launch would otherwise do: a millisecond or two of setting up.
    ///
    /// # Errors
    /// When the stream is of another context, or the driver fails.
    pub fn upload(&mut self, stream: &Stream) -> Result<()> {
        self.context.same(stream.context(), "the stream")?;
        stream.bind_outside_capture("uploading a graph")?;
        // SAFETY: exec and stream live.
        unsafe { call!(self.context, cuGraphUpload(self.raw, stream.raw())) }
    }

    /// Enqueues one run of the whole graph, behind an earlier one that has not ended.
    ///
    /// # Errors
    /// When the stream is of another context or captures, or the driver fails. Nothing was enqueued
    /// then, unless the context is lost.
    pub fn launch(&mut self, stream: &Stream) -> Result<()> {
        self.context.same(stream.context(), "the stream")?;
        stream.bind_outside_capture("launching a graph; add it as a child instead")?;
        self.launch_bound(stream)
    }

    /// As [`Self::launch`], for a stream of the same context that was bound just now, outside of a
    /// capture: making a context current once more costs a step as much as all else that is not
    /// the driver's work.
    pub(crate) fn launch_bound(&mut self, stream: &Stream) -> Result<()> {
        // SAFETY: exec and stream live, and `&mut self` means that no other thread launches it.
        // Whoever added the nodes promised that they may run.
        let code = unsafe { (self.context.frequent().launch_graph)(self.raw, stream.raw()) };
        self.context.check("cuGraphLaunch", code)?;
        if self.launched_on.as_ref().is_none_or(|last| last.raw() != stream.raw()) {
            self.launched_on = Some(stream.clone());
        }
        Ok(())
    }

    /// Gives a kernel node other arguments or another geometry, for launches from now on; those
    /// that are enqueued keep their own. The function is kept in addition to what was kept before.
    ///
    /// # Safety
    /// As [`Graph::add_kernel`]. The graph that this was made from must still live, since the node
    /// belongs to it.
    ///
    /// # Errors
    /// When the node is not of the graph that this was made from, the arguments do not fit, or the
    /// driver fails.
    pub unsafe fn set_kernel_params(
        &mut self,
        node: Node,
        launch: &KernelLaunch<'_>,
    ) -> Result<()> {
        self.context.same(launch.function.context(), "the function")?;
        launch.check()?;
        self.check_node(node)?;
        let mut arguments = launch.arguments.pointers();
        let params = kernel_params(launch, &mut arguments);
        // SAFETY: the driver copies the arguments, which were checked; the caller promises the
        // rest.
        unsafe {
            call!(self.context, cuGraphExecKernelNodeSetParams_v2(self.raw, node.raw, &params))
        }?;
        self.keep(launch.function.owner());
        Ok(())
    }

    /// Gives a copy node other ranges, for launches from now on. Nothing is kept that was not kept
    /// before: see [`GraphExec::keep`].
    ///
    /// # Safety
    /// As [`Graph::add_copy`], and the graph that this was made from must still live.
    ///
    /// # Errors
    /// When the node is not of the graph that this was made from, or the driver fails.
    pub unsafe fn set_copy_params(&mut self, node: Node, copy: &DeviceCopy) -> Result<()> {
        self.check_node(node)?;
        let (params, context) = (copy_params(copy), self.context.raw());
        // SAFETY: the parameters outlive the call; the caller promises the ranges.
        unsafe {
            call!(
                self.context,
                cuGraphExecMemcpyNodeSetParams(self.raw, node.raw, &params, context)
            )
        }
    }

    /// Gives a fill node another range or pattern, for launches from now on. Nothing is kept that
    /// was not kept before: see [`GraphExec::keep`].
    ///
    /// # Safety
    /// As [`Graph::add_fill`], and the graph that this was made from must still live.
    ///
    /// # Errors
    /// When the node is not of the graph that this was made from, or the driver fails.
    pub unsafe fn set_fill_params(&mut self, node: Node, fill: &DeviceFill) -> Result<()> {
        self.check_node(node)?;
        let (params, context) = (fill_params(fill), self.context.raw());
        // SAFETY: the parameters outlive the call; the caller promises the range.
        unsafe {
            call!(
                self.context,
                cuGraphExecMemsetNodeSetParams(self.raw, node.raw, &params, context)
            )
        }
    }

    /// The context becomes current, and the node is one of the template.
    fn check_node(&self, node: Node) -> Result<()> {
        if node.graph != self.graph {
            return Err(crate::Error::ForeignNode);
        }
        self.context.bind()
    }

    /// Takes over the parameters of `graph`, which must have the same nodes and edges. What it
    /// keeps is kept in addition, since launches in flight use the old parameters.
    ///
    /// # Errors
    /// When the graph is of another context, or the driver fails for another reason than that it
    /// cannot change the exec that way.
    pub fn update(&mut self, graph: &Graph) -> Result<UpdateOutcome> {
        self.context.same(graph.context(), "the graph")?;
        self.context.bind()?;
        let mut info = CUgraphExecUpdateResultInfo::default();
        // SAFETY: exec and graph live, and the place is valid.
        let code =
            unsafe { (self.context.table().cuGraphExecUpdate_v2)(self.raw, graph.raw, &mut info) };
        if code == CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE {
            return Ok(UpdateOutcome::Refused { reason: info.result });
        }
        self.context.check("cuGraphExecUpdate_v2", code)?;
        self.owners.extend(&graph.owners);
        Ok(UpdateOutcome::Updated)
    }
}

impl std::fmt::Debug for GraphExec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "GraphExec({:?}, {} owners)", self.raw, self.owners.len())
    }
}

impl Drop for GraphExec {
    /// Waits for the last launch, and only then lets go of what the nodes touch.
    fn drop(&mut self) {
        let (raw, mut launched_on) = (self.raw, self.launched_on.take());
        let mut owners = std::mem::take(&mut self.owners);
        self.context.release(move |driver| {
            // SAFETY: nobody else has the exec, and it does not run any more after the wait.
            unsafe {
                if let Some(stream) = &launched_on {
                    stream.wait_to_release(driver)?;
                }
                call!(driver, cuGraphExecDestroy(raw))?;
            }
            launched_on = None;
            owners.clear();
            Ok(())
        });
    }
}
