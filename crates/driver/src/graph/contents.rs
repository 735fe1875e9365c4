//! The parameters of a node, read back from the driver in a comparable form.

use retrograph_driver_sys::{CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUmemorytype};

use super::inspect::{KernelNodeParams, NodeKind};
use super::nodes::DeviceCopy;
use super::template::{Graph, Node};
use crate::error::Result;

/// The parameters of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeContents {
    /// A kernel launch.
    Launch(KernelNodeParams),
    /// A copy within the device.
    Copy(DeviceCopy),
    /// A fill of device memory.
    Fill {
        /// The address.
        target: u64,
        /// The four bytes that are repeated.
        pattern: u32,
        /// Size in bytes.
        bytes: usize,
    },
    /// No work.
    Empty,
}

/// The reason why the parameters of a node cannot be read back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unread {
    /// The driver does not report parameter sizes (before 12.4).
    #[error("the driver does not report the arguments of a launch")]
    Arguments(KernelNodeParams),
    /// A copy from or to host memory, which may change between launches.
    #[error("a copy reads or writes host memory")]
    HostMemory,
    /// A copy or fill of several rows.
    #[error("a copy or fill has more than one row")]
    Rows,
    /// A node kind without comparable parameters.
    #[error("a node of kind {0:?}")]
    Kind(NodeKind),
}

/// The parameters of a node, or why they cannot be read back.
pub type Contents = Result<NodeContents, Unread>;

impl Graph {
    /// Reads back the parameters of `node`.
    ///
    /// # Errors
    /// If the node belongs to another graph, or the driver fails.
    pub fn contents(&self, node: Node) -> Result<Contents> {
        Ok(match self.kind(node)? {
            NodeKind::Kernel => {
                let held = self.kernel_params(node)?;
                match held.arguments {
                    Some(_) => Ok(NodeContents::Launch(held)),
                    None => Err(Unread::Arguments(held)),
                }
            }
            NodeKind::Copy => self.copy_contents(node)?,
            NodeKind::Fill => self.fill_contents(node)?,
            NodeKind::Empty => Ok(NodeContents::Empty),
            kind => Err(Unread::Kind(kind)),
        })
    }

    fn copy_contents(&self, node: Node) -> Result<Contents> {
        let mut held = CUDA_MEMCPY3D::device_to_device(0, 0, 0);
        // SAFETY: the node belongs to this live graph, and the out pointer is valid.
        unsafe { call!(self.context, cuGraphMemcpyNodeGetParams(node.raw(), &mut held)) }?;
        let on_device = |kind| {
            kind == CUmemorytype::CU_MEMORYTYPE_DEVICE
                || kind == CUmemorytype::CU_MEMORYTYPE_UNIFIED
        };
        if !on_device(held.srcMemoryType) || !on_device(held.dstMemoryType) {
            return Ok(Err(Unread::HostMemory));
        }
        if held.Height > 1 || held.Depth > 1 {
            return Ok(Err(Unread::Rows));
        }
        let (target, source, bytes) = (held.dstDevice, held.srcDevice, held.WidthInBytes);
        Ok(Ok(NodeContents::Copy(DeviceCopy { target, source, bytes })))
    }

    fn fill_contents(&self, node: Node) -> Result<Contents> {
        let mut held = CUDA_MEMSET_NODE_PARAMS::default();
        // SAFETY: as above.
        unsafe { call!(self.context, cuGraphMemsetNodeGetParams(node.raw(), &mut held)) }?;
        let pattern = match held.elementSize {
            4 => held.value,
            2 => (held.value & 0xffff) * 0x0001_0001,
            _ => (held.value & 0xff) * 0x0101_0101,
        };
        let (row, rows) = (held.width * held.elementSize as usize, held.height.max(1));
        if rows > 1 && held.pitch != row {
            return Ok(Err(Unread::Rows));
        }
        Ok(Ok(NodeContents::Fill { target: held.dst, pattern, bytes: row * rows }))
    }
}
