//! Launches: a kernel, its problem and its arguments, before any device is known.
//!
//! [`Launch::dispatch`] derives entry point, grid, block and shared memory once the SM target is
//! known. Until then a pass can be described, counted and planned without a device.

mod argument;
mod pointer;

use retrograph_kernel_abi::{Parameter, Signature};
use retrograph_ptx::SmTarget;

pub use self::argument::{Access, Argument, BufferArgument, Cell, TensorMapArgument};
pub(crate) use self::pointer::{ArgumentTypes, Pointer};
use crate::problem::Problem;

/// Entry point and geometry of a launch on an SM target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dispatch {
    /// The entry point in the kernel's image.
    pub entry: &'static str,
    /// Blocks in x, y, z. A zero in any of them means that there is nothing to launch.
    pub grid: [u32; 3],
    /// Threads per block in x, y, z.
    pub block: [u32; 3],
    /// Dynamic shared memory in bytes.
    pub shared_bytes: u32,
}

impl Dispatch {
    /// Whether the problem is empty, so that nothing must be launched.
    pub fn is_empty(&self) -> bool {
        self.grid.contains(&0)
    }
}

/// A kernel: the image with its entry points, its parameters, and its launch geometry.
pub struct Kernel {
    /// The name, unique among kernels.
    pub name: &'static str,
    /// The image with its entry points; see [`crate::images`].
    pub image: &'static str,
    /// The parameters, the same for every entry point of the kernel.
    pub parameters: &'static [Parameter],
    /// Every entry point that `dispatch` can choose, on any target.
    pub entries: &'static [&'static str],
    /// Chooses entry point, grid, block and shared memory. `None` for a problem of a kind that the
    /// kernel does not take.
    pub dispatch: fn(&Problem, SmTarget) -> Option<Dispatch>,
}

impl Kernel {
    /// The kernel `name` with the given signature.
    pub(crate) const fn new(
        name: &'static str,
        signature: &Signature,
        dispatch: fn(&Problem, SmTarget) -> Option<Dispatch>,
    ) -> Self {
        let Signature { image, parameters, entries } = *signature;
        Self { name, image, parameters, entries, dispatch }
    }
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Kernel({})", self.name)
    }
}

impl PartialEq for Kernel {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// One launch: a kernel, its problem and its arguments.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch<B> {
    /// The kernel.
    pub kernel: &'static Kernel,
    /// The sizes of the problem.
    pub problem: Problem,
    /// The arguments, one for each of the kernel's parameters.
    pub arguments: Vec<Argument<B>>,
}

impl<B> Launch<B> {
    /// Entry point and geometry on `target`.
    ///
    /// # Panics
    /// If the kernel does not take problems of this kind. Launches that this crate returns never
    /// panic.
    pub fn dispatch(&self, target: SmTarget) -> Dispatch {
        let dispatch = (self.kernel.dispatch)(&self.problem, target);
        dispatch.unwrap_or_else(|| panic!("{:?} does not take {:?}", self.kernel, self.problem))
    }

    /// Declares that `count` launches of the same sizes may run concurrently with this one, as
    /// parallel branches of a graph do. A matrix product then uses the tile with the least time for
    /// all of them. Other launches, and the bits of every result, do not change.
    pub fn concurrent(mut self, count: u32) -> Self {
        if let Problem::Gemm(problem) = &mut self.problem {
            problem.concurrent = count;
        }
        self
    }
}
