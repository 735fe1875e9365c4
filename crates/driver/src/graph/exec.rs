//! Instantiated graphs.

use retrograph_driver_sys::{
    CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY, CUgraphExec, CUgraphExecUpdateResult,
    CUgraphExecUpdateResultInfo, CUresult,
};

use super::attributes::attributes_of;
use super::nodes::{MemcpyParams, MemsetParams, copy_params, fill_params, kernel_params};
use super::owners::Owners;
use super::template::{Graph, GraphNumber, Node};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::launch::KernelLaunch;
use crate::owner::Owner;
use crate::stream::{OutsideCapture, Stream};

/// The result of updating an exec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UpdateOutcome {
    /// The exec has the parameters of the given graph.
    Updated,
    /// The driver cannot update the exec to the graph. The exec is unchanged; instantiate the graph
    /// instead.
    Refused {
        /// The reason.
        reason: CUgraphExecUpdateResult,
    },
}

/// An instantiated graph. Launches of one exec run one after another; instantiate the graph several
/// times to run launches concurrently.
pub struct GraphExec {
    context: Context,
    raw: CUgraphExec,
    /// The template that node handles refer to.
    graph: GraphNumber,
    owners: Owners,
    /// The stream of the last launch.
    launched_on: Option<Stream>,
}

impl Graph {
    /// Instantiates the graph. If device memory runs out, frees the driver's cached graph memory
    /// and tries once more.
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
                tracing::debug!(%error, "freeing cached graph memory before a second try");
                // SAFETY: the device belongs to the context.
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
        // SAFETY: the graph lives, and the out pointer is valid.
        unsafe { call!(self.context, cuGraphInstantiateWithFlags(&mut exec, self.raw, flags)) }?;
        Ok(exec)
    }
}

impl GraphExec {
    fn new(graph: &Graph, raw: CUgraphExec) -> Self {
        let (context, owners) = (graph.context.clone(), graph.owners.clone());
        Self { context, raw, graph: graph.number, owners, launched_on: None }
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

    /// Uploads the exec to the device, which the first launch would otherwise do in a millisecond
    /// or two.
    ///
    /// # Errors
    /// If the stream belongs to another context, or the driver fails.
    pub fn upload(&mut self, stream: &Stream) -> Result<()> {
        self.context.same(stream.context(), "the stream")?;
        let _outside = stream.outside_capture("uploading a graph")?;
        // SAFETY: exec and stream live.
        unsafe { call!(self.context, cuGraphUpload(self.raw, stream.raw())) }
    }

    /// Enqueues one run of the whole graph, after its earlier launches.
    ///
    /// # Errors
    /// If the stream belongs to another context or captures, or the driver fails. Then nothing was
    /// enqueued, unless the context is lost.
    pub fn launch(&mut self, stream: &Stream) -> Result<()> {
        self.context.same(stream.context(), "the stream")?;
        let outside = stream.outside_capture("launching a graph; add it as a child instead")?;
        // SAFETY: checked above.
        unsafe { self.launch_prepared(&outside) }
    }

    /// [`GraphExec::launch`] without its checks, for the hot path: making the context current again
    /// costs as much host time as everything else outside the driver.
    ///
    /// # Safety
    /// `stream` must belong to the context of this exec, which must still be current:
    /// [`Stream::outside_capture`] has just succeeded.
    ///
    /// # Errors
    /// If the driver fails. Then nothing was enqueued, unless the context is lost.
    pub unsafe fn launch_prepared(&mut self, stream: &OutsideCapture<'_>) -> Result<()> {
        // SAFETY: exec and stream live, and `&mut self` excludes other threads. The callers that
        // added the nodes promised that they may run.
        let code = unsafe { (self.context.hot_path().launch_graph)(self.raw, stream.raw()) };
        self.context.check("cuGraphLaunch", code)?;
        if self.launched_on.as_ref().is_none_or(|last| last.raw() != stream.raw()) {
            self.launched_on = Some(Stream::clone(stream));
        }
        Ok(())
    }

    /// Sets the launch of a kernel node for later launches of the exec; enqueued ones keep theirs.
    /// The exec keeps the owners of the launch in addition to earlier ones, which enqueued launches
    /// may use. To set new memory often, pass it as an address and keep it alive yourself. The
    /// launch attributes of a node cannot change; a launch without attributes keeps them.
    ///
    /// # Safety
    /// As [`Graph::add_kernel`]. The graph of this exec must still live, since the node belongs to
    /// it.
    ///
    /// # Errors
    /// [`Error::AttributesFixed`] if the launch has attributes, and the node has others. If the
    /// node belongs to another graph, the arguments do not match the function's parameters, or the
    /// driver fails.
    pub unsafe fn set_kernel_params(
        &mut self,
        node: Node,
        launch: &KernelLaunch<'_>,
    ) -> Result<()> {
        self.context.same(launch.function.context(), "the function")?;
        launch.check()?;
        self.check_node(node)?;
        if !launch.attributes.full_stream_serialization().is_empty() {
            // SAFETY: the caller promises that the graph lives, and the context was made current.
            let held = unsafe { attributes_of(&self.context, node) }?;
            if held != launch.attributes.of_nodes() {
                let function = launch.function.name().to_owned();
                return Err(Error::AttributesFixed { function });
            }
        }
        let mut arguments = launch.arguments.pointers();
        let params = kernel_params(launch, &mut arguments);
        // SAFETY: the driver copies the arguments, which were checked; the caller upholds the rest.
        unsafe {
            call!(self.context, cuGraphExecKernelNodeSetParams_v2(self.raw, node.raw, &params))
        }?;
        launch.owners().for_each(|owner| self.keep(owner));
        Ok(())
    }

    /// Sets the ranges of a copy node for later launches of the exec. Owners are not added: see
    /// [`GraphExec::keep`].
    ///
    /// # Safety
    /// As [`Graph::add_memcpy`]. The graph of this exec must still live.
    ///
    /// # Errors
    /// If the node belongs to another graph, or the driver fails.
    pub unsafe fn set_memcpy_params(&mut self, node: Node, copy: &MemcpyParams) -> Result<()> {
        self.check_node(node)?;
        let (params, context) = (copy_params(copy), self.context.raw());
        // SAFETY: the parameters outlive the call; the caller vouches for the ranges.
        unsafe {
            call!(
                self.context,
                cuGraphExecMemcpyNodeSetParams(self.raw, node.raw, &params, context)
            )
        }
    }

    /// Sets the range and pattern of a fill node for later launches of the exec. Owners are not
    /// added: see [`GraphExec::keep`].
    ///
    /// # Safety
    /// As [`Graph::add_memset`]. The graph of this exec must still live.
    ///
    /// # Errors
    /// If the node belongs to another graph, or the driver fails.
    pub unsafe fn set_memset_params(&mut self, node: Node, fill: &MemsetParams) -> Result<()> {
        self.check_node(node)?;
        let (params, context) = (fill_params(fill), self.context.raw());
        // SAFETY: the parameters outlive the call; the caller vouches for the range.
        unsafe {
            call!(
                self.context,
                cuGraphExecMemsetNodeSetParams(self.raw, node.raw, &params, context)
            )
        }
    }

    /// Checks that the node belongs to the template, and makes the context current.
    fn check_node(&self, node: Node) -> Result<()> {
        if node.graph != self.graph {
            return Err(Error::WrongGraph);
        }
        self.context.bind()
    }

    /// Updates the exec to the parameters of `graph`, which must have the same nodes and edges. Its
    /// owners are kept in addition to earlier ones, which launches in flight still use.
    ///
    /// # Errors
    /// If the graph belongs to another context, or the driver fails other than by refusing the
    /// update.
    pub fn update(&mut self, graph: &Graph) -> Result<UpdateOutcome> {
        self.context.same(graph.context(), "the graph")?;
        self.context.bind()?;
        let mut info = CUgraphExecUpdateResultInfo::default();
        // SAFETY: exec and graph live, and the out pointer is valid.
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
    /// Waits for the last launch before dropping the owners.
    fn drop(&mut self) {
        let (raw, mut launched_on) = (self.raw, self.launched_on.take());
        let mut owners = std::mem::take(&mut self.owners);
        self.context.release(move |driver| {
            // SAFETY: nobody else has the exec, and no launch is in flight after the wait.
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
