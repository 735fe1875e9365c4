//! Kernel launches: function, geometry, arguments and attributes.

mod arguments;
mod attributes;

use crate::error::{Error, Result};
use crate::module::Function;
use crate::owner::Owner;

pub use arguments::KernelArguments;
pub use attributes::LaunchAttributes;

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

/// A launch, to be enqueued on a stream or added to a graph.
#[derive(Clone, Copy, Debug)]
pub struct KernelLaunch<'a> {
    /// The function.
    pub function: &'a Function,
    /// Grid, block and shared memory.
    pub geometry: LaunchGeometry,
    /// The arguments.
    pub arguments: &'a KernelArguments,
    /// Clusters, cooperation, the preferred carve-out and PDL.
    pub attributes: LaunchAttributes,
}

impl<'a> KernelLaunch<'a> {
    /// A launch without attributes.
    pub fn new(
        function: &'a Function,
        geometry: LaunchGeometry,
        arguments: &'a KernelArguments,
    ) -> Self {
        Self { function, geometry, arguments, attributes: LaunchAttributes::new() }
    }

    /// The launch with `attributes`.
    pub fn with(self, attributes: LaunchAttributes) -> Self {
        Self { attributes, ..self }
    }
}

impl KernelLaunch<'_> {
    /// The objects that a graph with this launch keeps alive: the function's module, and the
    /// memory of the arguments.
    pub(crate) fn owners(&self) -> impl Iterator<Item = Owner> {
        std::iter::once(self.function.owner()).chain(self.arguments.owners().iter().cloned())
    }

    /// Checks the attributes against the device, and the argument sizes against the function's
    /// parameters, if known. Every use of a launch begins with this check.
    ///
    /// # Errors
    /// [`Error::AttributeNotOnDevice`], or an error that names an argument.
    pub fn check(&self) -> Result<()> {
        let context = self.function.context();
        if let Some((attribute, required)) = self.attributes.missing_on(context) {
            let found = context.compute_capability();
            let function = self.function.name().to_owned();
            return Err(Error::AttributeNotOnDevice { function, attribute, required, found });
        }
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
