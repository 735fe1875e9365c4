//! Reading back the nodes and edges of a graph.

use std::ffi::{CStr, CString};
use std::fmt;
use std::path::Path;

use retrograph_driver_sys::{
    CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE, CUDA_KERNEL_NODE_PARAMS, CUfunction, CUgraph,
    CUgraphEdgeData, CUgraphNode, CUgraphNodeType, CUlaunchAttributeID, CUlaunchAttributeValue,
};

use super::template::{Graph, Node};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::launch::LaunchGeometry;
use crate::module::parameter_sizes;

/// The kind of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum NodeKind {
    /// A kernel launch.
    Kernel,
    /// A copy.
    Memcpy,
    /// A fill.
    Memset,
    /// A call of a host function.
    Host,
    /// An event record.
    EventRecord,
    /// A wait for an event.
    EventWait,
    /// No work.
    Empty,
    /// A child graph.
    ChildGraph,
    /// A memory allocation or free.
    Memory,
    /// Another kind, by the driver's number.
    Other(u32),
}

impl From<CUgraphNodeType> for NodeKind {
    fn from(raw: CUgraphNodeType) -> Self {
        match raw {
            CUgraphNodeType::CU_GRAPH_NODE_TYPE_KERNEL => Self::Kernel,
            CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMCPY => Self::Memcpy,
            CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMSET => Self::Memset,
            CUgraphNodeType::CU_GRAPH_NODE_TYPE_HOST => Self::Host,
            CUgraphNodeType::CU_GRAPH_NODE_TYPE_EVENT_RECORD => Self::EventRecord,
            CUgraphNodeType::CU_GRAPH_NODE_TYPE_WAIT_EVENT => Self::EventWait,
            CUgraphNodeType::CU_GRAPH_NODE_TYPE_EMPTY => Self::Empty,
            CUgraphNodeType::CU_GRAPH_NODE_TYPE_GRAPH => Self::ChildGraph,
            CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEM_ALLOC
            | CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEM_FREE => Self::Memory,
            other => Self::Other(other.0),
        }
    }
}

impl fmt::Display for NodeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Kernel => "kernel",
            Self::Memcpy => "copy",
            Self::Memset => "fill",
            Self::Host => "host function",
            Self::EventRecord => "record",
            Self::EventWait => "wait",
            Self::Empty => "empty",
            Self::ChildGraph => "graph",
            Self::Memory => "memory",
            Self::Other(number) => return write!(f, "kind {number}"),
        })
    }
}

/// The parameters of a kernel node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelNodeParams {
    /// The function.
    pub function: CUfunction,
    /// Grid, block and shared memory.
    pub geometry: LaunchGeometry,
    /// The bytes of each argument, or `None` if the driver does not report their sizes.
    pub arguments: Option<Vec<Vec<u8>>>,
}

/// Returns the node handles of a graph, which may be a graph under capture.
pub(crate) fn node_handles(context: &Context, graph: CUgraph) -> Result<Vec<CUgraphNode>> {
    context.bind()?;
    let mut count = 0;
    let none = std::ptr::null_mut();
    // SAFETY: null asks for the count only, and the caller owns the graph.
    unsafe { call!(context, cuGraphGetNodes(graph, none, &mut count)) }?;
    let mut nodes = vec![CUgraphNode::NULL; count];
    if count > 0 {
        // SAFETY: `nodes` holds `count` handles, and the graph is not shared.
        unsafe { call!(context, cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count)) }?;
    }
    nodes.truncate(count);
    Ok(nodes)
}

impl Graph {
    /// The nodes, in the driver's order.
    ///
    /// # Errors
    /// If the driver fails.
    pub fn nodes(&self) -> Result<Vec<Node>> {
        let handles = node_handles(&self.context, self.raw)?;
        Ok(handles.into_iter().map(|raw| self.node(raw)).collect())
    }

    /// The edges as (earlier, later), in the driver's order.
    ///
    /// # Errors
    /// If the driver fails.
    pub fn edges(&self) -> Result<Vec<(Node, Node)>> {
        self.context.bind()?;
        let none = std::ptr::null_mut();
        let mut count = self.edge_handles(none, none, 0)?;
        let (mut from, mut to) = (vec![CUgraphNode::NULL; count], vec![CUgraphNode::NULL; count]);
        if count > 0 {
            count = self.edge_handles(from.as_mut_ptr(), to.as_mut_ptr(), count)?;
        }
        let pairs = from.into_iter().zip(to).take(count);
        Ok(pairs.map(|(from, to)| (self.node(from), self.node(to))).collect())
    }

    /// Writes up to `count` edges and returns their number; null pointers query only the number.
    /// The older driver call refuses graphs with edges that are not full dependencies.
    fn edge_handles(
        &self,
        from: *mut CUgraphNode,
        to: *mut CUgraphNode,
        mut count: usize,
    ) -> Result<usize> {
        let mut kinds = vec![CUgraphEdgeData::default(); count];
        let kinds = if count == 0 { std::ptr::null_mut() } else { kinds.as_mut_ptr() };
        match self.context.table().cuGraphGetEdges_v2 {
            // SAFETY: each pointer holds `count` edges, and null asks for their number only.
            Some(edges) => self.context.check("cuGraphGetEdges_v2", unsafe {
                edges(self.raw, from, to, kinds, &mut count)
            })?,
            None => {
                // SAFETY: as above.
                unsafe { call!(self.context, cuGraphGetEdges(self.raw, from, to, &mut count)) }?
            }
        }
        Ok(count)
    }

    /// The kind of a node.
    ///
    /// # Errors
    /// If the node belongs to another graph, or the driver fails.
    pub fn kind(&self, node: Node) -> Result<NodeKind> {
        self.check_nodes(&[node])?;
        self.context.bind()?;
        let mut kind = CUgraphNodeType::CU_GRAPH_NODE_TYPE_EMPTY;
        // SAFETY: the node belongs to this graph, and the out pointer is valid.
        unsafe { call!(self.context, cuGraphNodeGetType(node.raw, &mut kind)) }?;
        Ok(kind.into())
    }

    /// Number of nodes that allocate or free memory.
    ///
    /// # Errors
    /// If the driver fails.
    pub fn memory_nodes(&self) -> Result<usize> {
        let mut count = 0;
        for node in self.nodes()? {
            count += usize::from(self.kind(node)? == NodeKind::Memory);
        }
        Ok(count)
    }

    /// The priority of a kernel node; see [`Graph::set_priority`].
    ///
    /// # Errors
    /// If the node belongs to another graph or is not a kernel node, or the driver fails.
    pub fn priority(&self, node: Node) -> Result<i32> {
        self.check_nodes(&[node])?;
        self.context.bind()?;
        let attribute = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PRIORITY;
        let mut value = CUlaunchAttributeValue { priority: 0 };
        // SAFETY: the node belongs to this graph, and the out pointer is valid.
        unsafe {
            call!(self.context, cuGraphKernelNodeGetAttribute(node.raw, attribute, &mut value))
        }?;
        // SAFETY: the driver wrote this field.
        Ok(unsafe { value.priority })
    }

    /// The parameters of a kernel node, to compare graphs byte by byte.
    ///
    /// # Errors
    /// If the node belongs to another graph or is not a kernel node, or the driver fails.
    pub fn kernel_params(&self, node: Node) -> Result<KernelNodeParams> {
        self.check_nodes(&[node])?;
        self.context.bind()?;
        let mut params = CUDA_KERNEL_NODE_PARAMS::default();
        // SAFETY: the node belongs to this graph, and the out pointer is valid.
        unsafe { call!(self.context, cuGraphKernelNodeGetParams_v2(node.raw, &mut params)) }?;
        let geometry = LaunchGeometry {
            grid: [params.gridDimX, params.gridDimY, params.gridDimZ],
            block: [params.blockDimX, params.blockDimY, params.blockDimZ],
            shared_bytes: params.sharedMemBytes,
        };
        let sizes = match params.func.is_null() {
            true => None,
            false => parameter_sizes(&self.context, params.func)?,
        };
        // The list is null for a kernel without parameters.
        let sizes = sizes.filter(|sizes| sizes.is_empty() || !params.kernelParams.is_null());
        let arguments = sizes.map(|sizes| {
            let read = |(index, size): (usize, usize)| {
                // SAFETY: the driver points to its copies of the parameters in the node, which does
                // not change meanwhile.
                let bytes = unsafe {
                    let parameter = params.kernelParams.add(index).read();
                    std::slice::from_raw_parts(parameter.cast::<u8>(), size)
                };
                bytes.to_vec()
            };
            sizes.into_iter().enumerate().map(read).collect()
        });
        Ok(KernelNodeParams { function: params.func, geometry, arguments })
    }

    /// A short label for a node: the function name of a kernel node if the driver reports it (CUDA
    /// 12.3 or newer), otherwise the kind.
    ///
    /// # Errors
    /// If the node belongs to another graph, or the driver fails.
    pub fn label(&self, node: Node) -> Result<String> {
        let kind = self.kind(node)?;
        let ask = self.context.table().cuFuncGetName;
        let (NodeKind::Kernel, Some(ask)) = (kind, ask) else { return Ok(kind.to_string()) };
        let function = self.kernel_params(node)?.function;
        let mut name = std::ptr::null();
        // Library kernels may have no function in this context and thus no name.
        // SAFETY: the driver refuses unknown functions, and the out pointer is valid.
        if function.is_null() || !unsafe { ask(&mut name, function) }.is_success() {
            return Ok(kind.to_string());
        }
        // SAFETY: the driver returns a zero-terminated string that lives as long as the function,
        // whose module the graph keeps.
        Ok(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
    }

    /// Writes the graph as a DOT file, with all details of the driver.
    ///
    /// # Errors
    /// [`Error::File`], or if the driver fails, for example because it cannot write the file.
    pub fn write_dot(&self, path: &Path) -> Result<()> {
        let unusable =
            |reason: &str| Error::File { path: path.to_owned(), reason: reason.to_owned() };
        let text = path.to_str().ok_or_else(|| unusable("the path is not UTF-8"))?;
        let text = CString::new(text).map_err(|_| unusable("the path has a zero byte"))?;
        self.context.bind()?;
        let flags = CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE;
        // SAFETY: the graph lives, and the path is zero-terminated.
        unsafe { call!(self.context, cuGraphDebugDotPrint(self.raw, text.as_ptr(), flags)) }
    }

    /// Nodes and edges in the DOT language, labeled by [`Graph::label`]. [`Graph::write_dot`]
    /// writes all parameters.
    ///
    /// # Errors
    /// If the driver fails.
    pub fn to_dot(&self) -> Result<String> {
        use std::fmt::Write as _;
        let nodes = self.nodes()?;
        let mut text = String::from("digraph {\n");
        for (index, node) in nodes.iter().enumerate() {
            let label = self.label(*node)?;
            let _ = writeln!(text, "  n{index} [label=\"{index}: {label}\"];");
        }
        let position = |node| nodes.iter().position(|held| *held == node).unwrap_or(usize::MAX);
        for (from, to) in self.edges()? {
            let _ = writeln!(text, "  n{} -> n{};", position(from), position(to));
        }
        text.push_str("}\n");
        Ok(text)
    }
}
