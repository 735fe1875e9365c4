//! How a program is to be built, beyond the policy.

use std::fmt;

use super::policy::Policy;
use crate::pass::Reuse;

/// Which edges a graph built by hand gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EdgeMode {
    /// Whichever of the others is predicted to be fastest, by a model whose constants were measured
    /// (`docs/graphs.md`, "What edges cost").
    #[default]
    Auto,
    /// Those of the pass: whatever is independent may run side by side.
    Inferred,
    /// Those of the pass, and more, so that at most this many operations run side by side.
    Width(usize),
    /// Each operation waits for the one before it.
    Chain,
}

impl fmt::Display for EdgeMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("chosen"),
            Self::Inferred => f.write_str("inferred"),
            Self::Width(width) => write!(f, "width {width}"),
            Self::Chain => f.write_str("chain"),
        }
    }
}

/// Which kernels of the workspace may be placed on the device while the one kernel that they wait
/// for drains, in graphs that are built by hand: they wait by themselves, from sm_90 on. Launches
/// of custom images are let by [`Pass::start_early`](crate::Pass::start_early).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PdlMode {
    /// Those for SM targets on which it was measured to be faster: sm_90 (`docs/graphs.md`, "Edges
    /// that let a kernel start early").
    #[default]
    Measured,
    /// All that can.
    Always,
    /// None, nor any of a custom image.
    Never,
}

/// How a program is built. A [`Policy`] alone converts into options with everything else as it
/// is by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BuildOptions {
    /// Who chooses the strategy.
    pub policy: Policy,
    /// The edges of a graph that is built by hand.
    pub edges: EdgeMode,
    /// Whether kernels may start before the one in front has ended.
    pub pdl: PdlMode,
    /// Whether all operations of a graph that is built by hand are equally urgent. Otherwise those
    /// that the longest path leaves no time go first where they compete with others for room on
    /// the device (`docs/graphs.md`, "What goes first").
    pub equally_urgent: bool,
    /// How transients share memory. `None` takes [`Reuse::WhenOrdered`] when the device has room
    /// for it, and [`Reuse::Full`] otherwise.
    pub reuse: Option<Reuse>,
    /// Fills all transients with NaN before each step, so that whatever reads what the step has
    /// not written shows at once.
    pub nan_transients: bool,
    /// Whether a profiler watches. [`Policy::Auto`] then launches operations one by one.
    pub profiled: bool,
}

impl From<Policy> for BuildOptions {
    fn from(policy: Policy) -> Self {
        Self { policy, ..Self::default() }
    }
}
