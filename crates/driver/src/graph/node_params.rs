//! The parameters of a node, read back from the driver in a comparable form.

use retrograph_driver_sys::{CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUmemorytype};

use super::inspect::{KernelNodeParams, NodeKind};
use super::nodes::MemcpyParams;
use super::template::{Graph, Node};
use crate::error::Result;

/// The parameters of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeParams {
    /// A kernel launch.
    Kernel(KernelNodeParams),
    /// A copy within the device.
    Memcpy(MemcpyParams),
    /// A fill of device memory.
    Memset {
        /// The address.
        dst: u64,
        /// The four bytes that are repeated.
        value: u32,
        /// Size in bytes.
        bytes: usize,
    },
    /// No work.
    Empty,
}

/// The reason why the parameters of a node cannot be read back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnreadableParams {
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

impl Graph {
    /// Reads back the parameters of `node`.
    ///
    /// # Errors
    /// If the node belongs to another graph, or the driver fails.
    pub fn node_params(&self, node: Node) -> Result<Result<NodeParams, UnreadableParams>> {
        Ok(match self.kind(node)? {
            NodeKind::Kernel => {
                let held = self.kernel_params(node)?;
                match held.arguments {
                    Some(_) => Ok(NodeParams::Kernel(held)),
                    None => Err(UnreadableParams::Arguments(held)),
                }
            }
            NodeKind::Memcpy => self.memcpy_params(node)?,
            NodeKind::Memset => self.memset_params(node)?,
            NodeKind::Empty => Ok(NodeParams::Empty),
            kind => Err(UnreadableParams::Kind(kind)),
        })
    }

    fn memcpy_params(&self, node: Node) -> Result<Result<NodeParams, UnreadableParams>> {
        let mut held = CUDA_MEMCPY3D::device_to_device(0, 0, 0);
        // SAFETY: the node belongs to this live graph, and the out pointer is valid.
        unsafe { call!(self.context, cuGraphMemcpyNodeGetParams(node.raw(), &mut held)) }?;
        let on_device = |kind| {
            kind == CUmemorytype::CU_MEMORYTYPE_DEVICE
                || kind == CUmemorytype::CU_MEMORYTYPE_UNIFIED
        };
        if !on_device(held.srcMemoryType) || !on_device(held.dstMemoryType) {
            return Ok(Err(UnreadableParams::HostMemory));
        }
        if held.Height > 1 || held.Depth > 1 {
            return Ok(Err(UnreadableParams::Rows));
        }
        // The first byte, of a side at an offset in bytes, rows and slices.
        let start = |base: u64, [x, y, z]: [usize; 3], pitch: usize, rows: usize| {
            let row = z.wrapping_mul(rows).wrapping_add(y);
            base.wrapping_add(row.wrapping_mul(pitch).wrapping_add(x) as u64)
        };
        let from = [held.srcXInBytes, held.srcY, held.srcZ];
        let to = [held.dstXInBytes, held.dstY, held.dstZ];
        Ok(Ok(NodeParams::Memcpy(MemcpyParams {
            dst: start(held.dstDevice, to, held.dstPitch, held.dstHeight),
            src: start(held.srcDevice, from, held.srcPitch, held.srcHeight),
            bytes: held.WidthInBytes,
        })))
    }

    fn memset_params(&self, node: Node) -> Result<Result<NodeParams, UnreadableParams>> {
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
            return Ok(Err(UnreadableParams::Rows));
        }
        Ok(Ok(NodeParams::Memset { dst: held.dst, value: pattern, bytes: row * rows }))
    }
}
