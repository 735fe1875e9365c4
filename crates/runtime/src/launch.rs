//! What a launch is at the driver's level: a function, a geometry and the bytes of its arguments.

use std::ffi::c_void;

use retrograph_kernels::Dispatch;

use crate::error::{Error, Result};
use crate::modules::Function;

/// Blocks and threads of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchGeometry {
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads per block in x, y, z.
    pub block: [u32; 3],
    /// Dynamic shared memory in bytes.
    pub shared_bytes: u32,
}

impl LaunchGeometry {
    /// `blocks` × `threads` along x.
    pub fn linear(blocks: u32, threads: u32) -> Self {
        Self { grid: [blocks, 1, 1], block: [threads, 1, 1], shared_bytes: 0 }
    }
}

impl From<Dispatch> for LaunchGeometry {
    fn from(dispatch: Dispatch) -> Self {
        let Dispatch { grid, block, shared_bytes, .. } = dispatch;
        Self { grid, block, shared_bytes }
    }
}

/// The values of kernel parameters, in order.
///
/// ```
/// use retrograph_runtime::KernelArguments;
///
/// let arguments = KernelArguments::new().address(0x7000_0000).u32(1024).f32(0.5);
/// assert_eq!(arguments.sizes(), [8, 4, 4]);
/// assert_eq!(arguments.bytes(1), 1024_u32.to_le_bytes());
/// ```
///
/// Absent on purpose: parameters by value that are larger than eight bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelArguments {
    /// One cell for each value, little-endian from its first byte.
    cells: Vec<[u8; 8]>,
    sizes: Vec<usize>,
}

impl KernelArguments {
    /// No arguments.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a device address.
    pub fn address(self, address: u64) -> Self {
        self.u64(address)
    }

    /// Adds a `.u64`.
    pub fn u64(mut self, value: u64) -> Self {
        self.cells.push(value.to_le_bytes());
        self.sizes.push(8);
        self
    }

    /// Adds a `.u32`.
    pub fn u32(mut self, value: u32) -> Self {
        self.cells.push(u64::from(value).to_le_bytes());
        self.sizes.push(4);
        self
    }

    /// Adds a `.f32`.
    pub fn f32(self, value: f32) -> Self {
        self.u32(value.to_bits())
    }

    /// Replaces an address.
    pub(crate) fn set_address(&mut self, index: usize, address: u64) {
        debug_assert_eq!(self.sizes[index], 8, "an address has eight bytes");
        self.cells[index] = address.to_le_bytes();
    }

    /// Number of arguments.
    pub fn len(&self) -> usize {
        self.sizes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.sizes.is_empty()
    }

    /// The size of each in bytes.
    pub fn sizes(&self) -> &[usize] {
        &self.sizes
    }

    /// The bytes of argument `index`.
    ///
    /// # Panics
    /// When there is no such argument, as slices do.
    pub fn bytes(&self, index: usize) -> &[u8] {
        &self.cells[index][..self.sizes[index]]
    }

    /// What the driver takes: a pointer to each value. It reads them during the call and writes
    /// none, hence the cast from a shared reference.
    pub(crate) fn pointers(&self) -> Vec<*mut c_void> {
        self.cells.iter().map(|cell| cell.as_ptr().cast_mut().cast()).collect()
    }
}

/// A launch, for a stream or as a node of a graph.
#[derive(Clone, Copy, Debug)]
pub struct KernelLaunch<'a> {
    /// The function.
    pub function: &'a Function,
    /// Blocks, threads and shared memory.
    pub geometry: LaunchGeometry,
    /// The arguments.
    pub arguments: &'a KernelArguments,
}

impl KernelLaunch<'_> {
    /// Compares the arguments with the parameters of the function, where the driver tells them.
    pub(crate) fn check(&self) -> Result<()> {
        let Some(expected) = self.function.parameter_sizes() else { return Ok(()) };
        let found = self.arguments.sizes();
        let different = |index: &usize| expected.get(*index) != found.get(*index);
        match (0..expected.len().max(found.len())).find(different) {
            None => Ok(()),
            Some(index) => Err(Error::ArgumentMismatch {
                function: self.function.name().to_owned(),
                index,
                expected: expected.get(index).copied(),
                found: found.get(index).copied(),
            }),
        }
    }
}
