//! Kernel launches: function, geometry and arguments.

use std::ffi::c_void;

use crate::error::{Error, Result};
use crate::module::Function;
use crate::tensor_map::TensorMap;

/// Grid, block and shared memory of a launch.
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
    /// A one-dimensional geometry without dynamic shared memory.
    pub fn linear(blocks: u32, threads: u32) -> Self {
        Self { grid: [blocks, 1, 1], block: [threads, 1, 1], shared_bytes: 0 }
    }
}

/// An argument value.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Cell {
    /// A little-endian number of at most eight bytes.
    Number([u8; 8]),
    TensorMap(Box<TensorMap>),
}

impl Cell {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Number(bytes) => bytes,
            Self::TensorMap(map) => map.bytes(),
        }
    }
}

/// The argument values of a launch, in parameter order: numbers of at most eight bytes, and tensor
/// maps.
///
/// ```
/// use retrograph_driver::KernelArguments;
///
/// let arguments = KernelArguments::new().address(0x7000_0000).u32(1024).f32(0.5);
/// assert_eq!(arguments.sizes(), [8, 4, 4]);
/// assert_eq!(arguments.bytes(1), 1024_u32.to_le_bytes());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelArguments {
    cells: Vec<Cell>,
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
        self.cells.push(Cell::Number(value.to_le_bytes()));
        self.sizes.push(8);
        self
    }

    /// Adds a `.u32`.
    pub fn u32(mut self, value: u32) -> Self {
        self.cells.push(Cell::Number(u64::from(value).to_le_bytes()));
        self.sizes.push(4);
        self
    }

    /// Adds a `.f32`.
    pub fn f32(self, value: f32) -> Self {
        self.u32(value.to_bits())
    }

    /// Adds a tensor map.
    pub fn tensor_map(mut self, map: TensorMap) -> Self {
        self.cells.push(Cell::TensorMap(Box::new(map)));
        self.sizes.push(map.bytes().len());
        self
    }

    /// The tensor map at `index`, for replacement; `None` if that argument is a number.
    ///
    /// # Panics
    /// If there is no such argument.
    pub fn tensor_map_mut(&mut self, index: usize) -> Option<&mut TensorMap> {
        match &mut self.cells[index] {
            Cell::TensorMap(map) => Some(map),
            Cell::Number(_) => None,
        }
    }

    /// Replaces the address at `index`.
    ///
    /// # Panics
    /// If there is no such argument, or if it does not have eight bytes.
    pub fn set_address(&mut self, index: usize, address: u64) {
        assert_eq!(self.sizes[index], 8, "an address has eight bytes");
        self.cells[index] = Cell::Number(address.to_le_bytes());
    }

    /// Number of arguments.
    pub fn len(&self) -> usize {
        self.sizes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.sizes.is_empty()
    }

    /// The size of each argument in bytes.
    pub fn sizes(&self) -> &[usize] {
        &self.sizes
    }

    /// The bytes of argument `index`.
    ///
    /// # Panics
    /// If there is no such argument.
    pub fn bytes(&self, index: usize) -> &[u8] {
        &self.cells[index].bytes()[..self.sizes[index]]
    }

    /// A pointer to each value, as the driver expects. It only reads them during the call, which
    /// allows the cast from a shared reference.
    pub(crate) fn pointers(&self) -> Vec<*mut c_void> {
        self.cells.iter().map(|cell| cell.bytes().as_ptr().cast_mut().cast()).collect()
    }
}

/// A launch, to be enqueued on a stream or added to a graph.
#[derive(Clone, Copy, Debug)]
pub struct KernelLaunch<'a> {
    /// The function.
    pub function: &'a Function,
    /// Grid, block and shared memory.
    pub geometry: LaunchGeometry,
    /// The arguments.
    pub arguments: &'a KernelArguments,
}

impl KernelLaunch<'_> {
    /// Checks the argument sizes against the function's parameters, if known.
    pub(crate) fn check(&self) -> Result<()> {
        let Some(expected) = self.function.parameter_sizes() else { return Ok(()) };
        let found = self.arguments.sizes();
        let different = |index: &usize| expected.get(*index) != found.get(*index);
        let Some(index) = (0..expected.len().max(found.len())).find(different) else {
            return Ok(());
        };
        let (function, parameters) = (self.function.name().to_owned(), expected.len());
        Err(match (expected.get(index), found.get(index)) {
            (Some(&expected), Some(&found)) => {
                Error::ArgumentMismatch { function, index, expected, found }
            }
            (Some(&expected), None) => Error::MissingArgument { function, index, expected },
            (None, _) => Error::ExtraArgument { function, parameters },
        })
    }
}
