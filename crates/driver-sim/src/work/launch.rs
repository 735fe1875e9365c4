//! A launch with its parameter values.

use std::ffi::c_void;
use std::sync::Arc;

use retrograph_driver_sys::{CUDA_KERNEL_NODE_PARAMS, CUfunction};
use retrograph_ptx_exec::Program;

/// The parameter values of a launch in the layout of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parameters {
    pub(crate) block: Arc<[u8]>,
    /// Offset of each parameter.
    pub(crate) offsets: Arc<[usize]>,
}

impl Parameters {
    /// A pointer to each value. They are valid while the block lives.
    pub(crate) fn pointers(&self) -> Box<[*mut c_void]> {
        let pointer = |offset: &usize| self.block[*offset..].as_ptr().cast_mut().cast();
        self.offsets.iter().map(pointer).collect()
    }
}

/// A launch.
#[derive(Clone)]
pub(crate) struct Launch {
    pub(crate) function: CUfunction,
    pub(crate) program: Arc<Program>,
    /// Blocks along x, y and z.
    pub(crate) grid: [u32; 3],
    /// Threads of a block along x, y and z.
    pub(crate) block: [u32; 3],
    /// Blocks of a cluster along x, y and z.
    pub(crate) cluster: [u32; 3],
    /// Whether the launch is cooperative: all blocks are resident and may use the grid barrier.
    pub(crate) is_cooperative: bool,
    /// Dynamic shared memory in bytes.
    pub(crate) shared_bytes: u32,
    pub(crate) parameters: Parameters,
}

impl Launch {
    /// Whether the grid consists of whole clusters.
    pub(crate) fn has_whole_clusters(&self) -> bool {
        let mut sizes = self.grid.iter().zip(self.cluster);
        sizes.all(|(blocks, cluster)| cluster > 0 && blocks.is_multiple_of(cluster))
    }

    /// The node parameters, with `kernelParams` as given.
    pub(crate) fn node_parameters(&self, pointers: *mut *mut c_void) -> CUDA_KERNEL_NODE_PARAMS {
        CUDA_KERNEL_NODE_PARAMS {
            func: self.function,
            gridDimX: self.grid[0],
            gridDimY: self.grid[1],
            gridDimZ: self.grid[2],
            blockDimX: self.block[0],
            blockDimY: self.block[1],
            blockDimZ: self.block[2],
            sharedMemBytes: self.shared_bytes,
            kernelParams: pointers,
            ..CUDA_KERNEL_NODE_PARAMS::default()
        }
    }
}
