//! The commands of a program: operations with addresses and functions.

use retrograph_driver::{
    Function, KernelArguments, KernelLaunch, LaunchAttributes, LaunchGeometry, Result, Stream,
};

use super::library_call::BoundLibraryCall;

/// An operation in the form that the driver accepts.
pub(super) enum Command {
    Launch(BoundLaunch),
    Copy { target: u64, source: u64, bytes: usize },
    Fill { target: u64, pattern: u32, words: usize },
    Library(BoundLibraryCall),
}

/// A launch with addresses.
pub(super) struct BoundLaunch {
    pub(super) function: Function,
    pub(super) geometry: LaunchGeometry,
    pub(super) arguments: KernelArguments,
    pub(super) attributes: LaunchAttributes,
}

impl BoundLaunch {
    /// The launch in the form of the driver.
    pub(super) fn kernel(&self) -> KernelLaunch<'_> {
        KernelLaunch::new(&self.function, self.geometry, &self.arguments).with(self.attributes)
    }
}

/// Whether a command may use programmatic dependent launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pdl {
    /// No: it does not execute `griddepcontrol.wait`, or prefetches a buffer that the pass writes.
    Unsupported,
    /// Yes, as for kernels of the workspace.
    Supported,
    /// Yes, and its author requested it.
    Requested,
}

impl Command {
    /// Enqueues the command on `stream`. Only with `pdl`, it may start before the kernel before it
    /// has ended, if its attributes say so.
    ///
    /// # Safety
    /// The memory at the addresses must stay alive until the command has finished (in a capture,
    /// the last replay), and no other work may conflict with it meanwhile.
    pub(super) unsafe fn enqueue(&self, stream: &Stream, pdl: bool) -> Result<()> {
        match self {
            Self::Launch(launch) => {
                let mut kernel = launch.kernel();
                if !pdl {
                    kernel.attributes = kernel.attributes.full_stream_serialization();
                }
                // SAFETY: the launch's constructor (or the caller of `Pass::custom`) checked its
                // lengths, the pass its slices, and the caller upholds the rest.
                unsafe { stream.launch(&kernel) }
            }
            Self::Copy { target, source, bytes } => {
                // SAFETY: the pass checked that both ranges are in their buffers and do not
                // overlap, and the caller upholds the rest.
                unsafe { stream.memcpy_dtod(*target, *source, *bytes) }
            }
            Self::Fill { target, pattern, words } => {
                // SAFETY: as above.
                unsafe { stream.memset_d32(*target, *pattern, *words) }
            }
            // SAFETY: the caller of `Pass::library` promised what the call accesses, or the
            // description of a product checked its lengths; the caller upholds the rest.
            Self::Library(call) => unsafe { call.enqueue(stream) },
        }
    }
}
