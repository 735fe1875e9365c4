//! Launches: a kernel, its problem and its arguments, before any device is known.
//!
//! [`Launch::dispatch`] derives entry point, grid, block and shared memory from the SM target. A
//! pass can be described, counted and planned without a device.

use retrograph_kernel_abi::{Parameter, Signature, View};
use retrograph_ptx::SmTarget;

pub use retrograph_kernel_abi::{Access, Argument, BufferArgument, Cell, TensorMapArgument};
pub(crate) use retrograph_kernel_abi::{ArgumentTypes, Pointer};

use crate::KernelError;
use crate::checks::Check;
use crate::problem::Problem;

/// SMs of the H100 SXM and H200. Every device has the grids that are chosen for them, so that the
/// order of sums does not depend on the number of SMs; only the number of persistent blocks does.
pub(crate) const SMS: u32 = 132;

/// Entry point and geometry of a launch on an SM target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dispatch {
    /// The entry point in the kernel's image.
    pub entry: &'static str,
    /// Blocks in x, y, z. If any is zero, there is nothing to launch.
    pub grid: [u32; 3],
    /// Threads per block in x, y, z.
    pub block: [u32; 3],
    /// Dynamic shared memory in bytes.
    pub shared_bytes: u32,
    /// If blocks are persistent: how many are resident.
    pub persistent: Option<PersistentBlocks>,
}

/// Persistent blocks loop over tiles: with n blocks in x, each computes every n-th tile. Their
/// number affects the time of a launch, but not its results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PersistentBlocks {
    /// Blocks in x that are resident at the same time on the 132 SMs of an H100 SXM or H200.
    pub resident: u32,
    /// Blocks of a cluster, of which blocks in x are a multiple.
    pub cluster: u32,
}

impl Dispatch {
    /// The dispatch for a context with `multiprocessors` SMs. With fewer SMs than an H200 has,
    /// fewer persistent blocks are resident, and the others would run after them, alone.
    pub fn for_multiprocessors(mut self, multiprocessors: u32) -> Self {
        if let Some(PersistentBlocks { resident, cluster }) = self.persistent {
            let share = u64::from(resident) * u64::from(multiprocessors) / u64::from(SMS);
            let clusters = u32::try_from(share / u64::from(cluster)).unwrap_or(u32::MAX);
            self.grid[0] = self.grid[0].min(clusters.max(1).saturating_mul(cluster));
        }
        self
    }

    /// Whether the problem is empty, so that there is nothing to launch.
    pub fn is_empty(&self) -> bool {
        self.grid.contains(&0)
    }
}

/// A kernel: its image and entry points, its parameters, and its launch geometry.
pub struct Kernel {
    /// The name, unique among kernels.
    pub name: &'static str,
    /// The image with its entry points; see [`crate::images`].
    pub image: &'static str,
    /// The parameters, the same for every entry point of the kernel.
    pub parameters: &'static [Parameter],
    /// Every entry point that `dispatch` can choose, on any target.
    pub entries: &'static [&'static str],
    /// Chooses entry point, grid, block and shared memory. `None` if the kernel does not support
    /// this kind of problem.
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
///
/// The operations in [`ops`](crate::ops) create and check launches: the kernel accesses nothing
/// outside of its operands, and its arguments declare every access.
///
/// ```
/// # use retrograph_kernels::ops::Silu;
/// # use retrograph_kernels::View;
/// let (x, y) = (View::<u32, f32>::new(0, 100), View::<u32, f32>::new(1, 100));
/// let launch = Silu { x, y }.launch().unwrap();
/// assert_eq!(launch.arguments().len(), launch.kernel().parameters.len());
/// ```
///
/// A launch cannot be changed after it was checked:
///
/// ```compile_fail,E0616
/// # use retrograph_kernels::ops::Silu;
/// # use retrograph_kernels::{Problem, View};
/// let (x, y) = (View::<u32, f32>::new(0, 100), View::<u32, f32>::new(1, 100));
/// let mut launch = Silu { x, y }.launch().unwrap();
/// launch.problem = Problem::Items(1 << 20);
/// ```
///
/// ```compile_fail,E0616
/// # use retrograph_kernels::ops::Silu;
/// # use retrograph_kernels::View;
/// let (x, y) = (View::<u32, f32>::new(0, 100), View::<u32, f32>::new(1, 100));
/// let mut launch = Silu { x, y }.launch().unwrap();
/// launch.arguments.pop();
/// ```
///
/// ```compile_fail,E0451
/// # use retrograph_kernels::{Kernel, Launch, Problem};
/// fn any(kernel: &'static Kernel) -> Launch<u32> {
///     Launch { kernel, problem: Problem::Items(1), arguments: Vec::new() }
/// }
/// ```
///
/// ```compile_fail,E0133
/// # use retrograph_kernels::{Kernel, Launch, Problem};
/// fn any(kernel: &'static Kernel) -> Launch<u32> {
///     Launch::new_unchecked(kernel, Problem::Items(1), Vec::new())
/// }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Launch<B> {
    pub(crate) kernel: &'static Kernel,
    pub(crate) problem: Problem,
    /// One for each of the kernel's parameters.
    pub(crate) arguments: Vec<Argument<B>>,
}

// A pass is described on one thread and built on another.
const _: () = {
    const fn is_send_and_sync<T: Send + Sync>() {}
    is_send_and_sync::<Launch<u32>>();
    is_send_and_sync::<Kernel>();
    is_send_and_sync::<Dispatch>();
};

impl<B> Launch<B> {
    /// Creates a launch that no operation has checked.
    ///
    /// # Safety
    /// On every SM target, the entry point and geometry that the kernel chooses for `problem` must
    /// access memory only through the buffers that `arguments` name, within their lengths, and as
    /// their [`Access`] declares. Every read and write must be declared, because a pass infers its
    /// edges and the lifetimes of buffers from the arguments.
    pub unsafe fn new_unchecked(
        kernel: &'static Kernel,
        problem: Problem,
        arguments: Vec<Argument<B>>,
    ) -> Self {
        Self { kernel, problem, arguments }
    }

    /// The kernel.
    pub fn kernel(&self) -> &'static Kernel {
        self.kernel
    }

    /// The sizes of the problem.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// The arguments, one for each of the kernel's parameters.
    pub fn arguments(&self) -> &[Argument<B>] {
        &self.arguments
    }

    /// Entry point and geometry on `target`.
    ///
    /// # Panics
    /// If the kernel does not support this kind of problem. Launches that this crate returns never
    /// panic.
    pub fn dispatch(&self, target: SmTarget) -> Dispatch {
        let dispatch = (self.kernel.dispatch)(&self.problem, target);
        dispatch.unwrap_or_else(|| panic!("{:?} does not take {:?}", self.kernel, self.problem))
    }

    /// Declares that `count` launches of the same sizes may run concurrently with this one, as in
    /// parallel branches of a graph. A GEMM then uses the tile that minimizes the time of all of
    /// them, which may add in another order ([`gemm`](crate::gemm)). Other launches do not change.
    pub fn concurrent(mut self, count: u32) -> Self {
        if let Problem::Gemm(problem) = &mut self.problem {
            problem.concurrent = count;
        }
        self
    }
}

impl<B: Copy> Launch<B> {
    /// Declares that only the first n rows of the result matter; the kernel reads n from `limit`.
    /// Other rows are unspecified afterwards.
    ///
    /// Products of bf16 or split operands skip tiles of other rows, except products with gated
    /// linear units, products with RoPE and weight gradients. [`CrossEntropy`]
    /// skips the gradients of other rows, whose losses are 0. Other kernels compute all rows.
    ///
    /// # Errors
    /// If `limit` does not have one element.
    ///
    /// [`CrossEntropy`]: crate::ops::CrossEntropy
    pub fn row_limit(mut self, limit: View<B, u32>) -> Result<Self, KernelError> {
        Check(self.kernel.name).length("row_limit", limit, 1)?;
        let mut parameters = self.kernel.parameters.iter();
        if let Some(at) = parameters.position(|parameter| parameter.name == "row_limit") {
            self.arguments[at] = Argument::read(limit);
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(persistent: Option<PersistentBlocks>, x: u32, multiprocessors: u32) -> u32 {
        let (grid, block) = ([x, 2, 3], [32, 1, 1]);
        let dispatch = Dispatch { entry: "any", grid, block, shared_bytes: 0, persistent };
        let Dispatch { grid: [x, 2, 3], .. } = dispatch.for_multiprocessors(multiprocessors) else {
            panic!("only blocks in x can be persistent")
        };
        x
    }

    #[test]
    fn only_persistent_blocks_depend_on_the_number_of_sms() {
        let on = |multiprocessors| move |persistent, x| blocks(persistent, x, multiprocessors);
        let of = |resident, cluster| Some(PersistentBlocks { resident, cluster });
        // An H200, an H100 PCIe, an H20 and a small green context.
        let [full, pcie, h20, part] = [132, 114, 78, 8].map(on);
        assert_eq!([full, pcie, h20, part].map(|on| on(None, 1000)), [1000; 4]);
        assert_eq!([full, pcie, h20, part].map(|on| on(of(132, 1), 132)), [132, 114, 78, 8]);
        assert_eq!([full, pcie, h20, part].map(|on| on(of(132, 1), 90)), [90, 90, 78, 8]);
        assert_eq!([full, pcie, h20, part].map(|on| on(of(66, 2), 66)), [66, 56, 38, 4]);
        assert_eq!([full, pcie, h20, part].map(|on| on(of(112, 4), 112)), [112, 96, 64, 4]);
        assert_eq!([full, pcie, h20, part].map(|on| on(of(264, 1), 240)), [240, 228, 156, 16]);
        // Empty launches stay empty, and others keep a cluster.
        assert_eq!([blocks(of(132, 1), 0, 114), blocks(of(112, 4), 8, 1)], [0, 4]);
        // More SMs have no more blocks, and no number overflows.
        assert_eq!([blocks(of(132, 1), 132, 148), blocks(of(132, 1), 5, u32::MAX)], [132, 5]);
    }
}
