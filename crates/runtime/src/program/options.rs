//! Options for building a program.

use super::policy::Policy;
use crate::pass::Reuse;

/// Which kernels of the workspace use programmatic dependent launch (PDL) in graphs built by hand:
/// they may start before the kernels they depend on have finished. Requires sm_90 or newer.
/// Launches of custom images opt in by their
/// [`attributes`](crate::CustomLaunch::attributes), with every strategy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PdlMode {
    /// Kernels for SM targets on which PDL was measured to be faster: sm_90 (`docs/graphs.md`).
    #[default]
    Measured,
    /// All kernels that support it.
    Always,
    /// None, not even custom images.
    Never,
}

/// How a program is built. A [`Policy`] converts into options with defaults otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BuildOptions {
    /// The strategy, or the automatic choice.
    pub policy: Policy,
    /// Which kernels use programmatic dependent launch.
    pub pdl: PdlMode,
    /// Gives all nodes of a graph built by hand the same priority. By default, operations on or
    /// near the longest path have a higher priority (`docs/graphs.md`, "Node priorities").
    pub uniform_priority: bool,
    /// How transients share memory. `None` means [`Reuse::WhenOrdered`] if that fits in device
    /// memory, otherwise [`Reuse::Full`].
    pub reuse: Option<Reuse>,
    /// Fills all transients with NaN before each step, to expose reads of unwritten memory.
    pub nan_transients: bool,
    /// Whether a profiler is attached. [`Policy::Auto`] then launches operations one by one.
    pub profiled: bool,
}

impl From<Policy> for BuildOptions {
    fn from(policy: Policy) -> Self {
        Self { policy, ..Self::default() }
    }
}
