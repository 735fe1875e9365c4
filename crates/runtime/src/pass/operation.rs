//! The operations of a pass.

use std::fmt;

use retrograph_kernel_abi::Argument;
use retrograph_kernel_abi::pdl;
use retrograph_kernel_abi::step_parameters::FETCH_STEP_PARAMETERS;
#[cfg(feature = "kernels")]
use retrograph_kernels::Launch;
use retrograph_ptx::SmTarget;

use super::access::BufferAccess;
use super::buffer::{BufferId, PassId};
use super::custom::CustomLaunch;
use super::library::LibraryCall;

/// An operation of one pass: its position in the order of execution.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpId {
    pub(crate) pass: PassId,
    index: u32,
}

impl OpId {
    /// The operation of `pass` at a position.
    pub(crate) fn new(pass: PassId, index: usize) -> Self {
        Self { pass, index: index as u32 }
    }

    /// Position in the order of execution.
    pub fn index(self) -> usize {
        self.index as usize
    }
}

impl fmt::Debug for OpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "operation {}", self.index)
    }
}

impl fmt::Display for OpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.index)
    }
}

/// The kind of an operation.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum OperationKind {
    /// Launches a kernel of `retrograph-kernels`. With the feature `kernels`.
    #[cfg(feature = "kernels")]
    Launch(Launch<BufferId>),
    /// Launches an entry point of a custom image.
    Custom(CustomLaunch),
    /// Copies a device range to another of the same size.
    Copy {
        /// The source.
        source: BufferAccess,
        /// The destination.
        target: BufferAccess,
    },
    /// Fills a range with a 32-bit pattern.
    Fill {
        /// The destination.
        target: BufferAccess,
        /// The four bytes that are repeated, little-endian.
        pattern: u32,
    },
    /// Calls a library that enqueues work.
    Library(LibraryCall),
    /// Fetches all controls, which the host has written for this step.
    FetchStepParameters,
}

/// An operation: its name, kind and accesses.
#[derive(Clone, Debug)]
pub struct Operation {
    pub(crate) name: String,
    pub(crate) kind: OperationKind,
    pub(crate) accesses: Vec<BufferAccess>,
}

impl Operation {
    /// The scope and the kernel, for example `layer 3/softmax`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The kind.
    pub fn kind(&self) -> &OperationKind {
        &self.kind
    }

    /// The byte ranges that it accesses; adjacent ranges of the same access are merged.
    pub fn accesses(&self) -> &[BufferAccess] {
        &self.accesses
    }

    /// A short label: the kernel, `copy`, `fill`, the entry point of a custom image, or the name of
    /// a library call.
    pub fn verb(&self) -> &str {
        match &self.kind {
            #[cfg(feature = "kernels")]
            OperationKind::Launch(launch) => launch.kernel().name,
            OperationKind::Custom(custom) => &custom.entry,
            OperationKind::Copy { .. } => "copy",
            OperationKind::Fill { .. } => "fill",
            OperationKind::Library(call) => call.name(),
            OperationKind::FetchStepParameters => FETCH_STEP_PARAMETERS.entry(),
        }
    }

    /// The bytes that it exchanges with other devices; `None` if it is not a collective.
    pub fn collective_bytes(&self) -> Option<usize> {
        match &self.kind {
            OperationKind::Library(call) => call.collective_bytes(),
            _ => None,
        }
    }

    /// The arguments of a launch; empty for other kinds.
    pub(crate) fn arguments(&self) -> &[Argument<BufferId>] {
        match &self.kind {
            #[cfg(feature = "kernels")]
            OperationKind::Launch(launch) => launch.arguments(),
            OperationKind::Custom(custom) => &custom.arguments,
            _ => &[],
        }
    }

    /// Whether it launches a kernel of the workspace that supports programmatic dependent launch.
    pub(crate) fn supports_pdl(&self, target: SmTarget) -> bool {
        let is_ours = match &self.kind {
            #[cfg(feature = "kernels")]
            OperationKind::Launch(_) => true,
            OperationKind::FetchStepParameters => true,
            _ => false,
        };
        is_ours && pdl::is_supported(target)
    }

    /// Whether it does nothing on `target`: an empty grid, or an empty range.
    #[cfg_attr(not(feature = "kernels"), expect(unused_variables, reason = "grids are given"))]
    pub(crate) fn is_empty(&self, target: SmTarget) -> bool {
        match &self.kind {
            OperationKind::Copy { target, .. } | OperationKind::Fill { target, .. } => {
                target.bytes.is_empty()
            }
            #[cfg(feature = "kernels")]
            OperationKind::Launch(launch) => launch.dispatch(target).is_empty(),
            OperationKind::Custom(launch) => launch.geometry.grid.contains(&0),
            OperationKind::Library(_) => false,
            OperationKind::FetchStepParameters => self.accesses.is_empty(),
        }
    }
}

/// The declared accesses of `kind`, without empty ones.
pub(crate) fn declared_accesses(kind: &OperationKind) -> Vec<BufferAccess> {
    let of_arguments = |arguments: &[Argument<BufferId>]| {
        arguments.iter().flat_map(Argument::buffers).cloned().collect::<Vec<_>>()
    };
    let mut accesses = match kind {
        #[cfg(feature = "kernels")]
        OperationKind::Launch(launch) => of_arguments(launch.arguments()),
        OperationKind::Custom(custom) => of_arguments(&custom.arguments),
        OperationKind::Copy { source, target } => vec![source.clone(), target.clone()],
        OperationKind::Fill { target, .. } => vec![target.clone()],
        OperationKind::Library(call) => call.declared().to_vec(),
        // The pass adds them, one control after another.
        OperationKind::FetchStepParameters => Vec::new(),
    };
    accesses.retain(|range| !range.bytes.is_empty());
    accesses
}
