//! How a program is to be built, beyond the policy.

use super::policy::Policy;
use crate::pass::Reuse;

/// Which edges a graph built by hand gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EdgeMode {
    /// Those of the pass.
    #[default]
    Inferred,
    /// Each operation waits for the one before it; for measuring what the edges are worth.
    Chain,
}

/// How a program is built. A [`Policy`] alone converts into options with everything else as it
/// is by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BuildOptions {
    /// Who chooses the strategy.
    pub policy: Policy,
    /// The edges of a graph that is built by hand.
    pub edges: EdgeMode,
    /// How transients share memory. `None` takes [`Reuse::WhenOrdered`] when the device has room
    /// for it, and [`Reuse::Full`] otherwise.
    pub reuse: Option<Reuse>,
    /// Fills all transients with NaN before each step, so that whatever reads what the step has
    /// not written shows at once.
    pub nan_transients: bool,
}

impl From<Policy> for BuildOptions {
    fn from(policy: Policy) -> Self {
        Self { policy, ..Self::default() }
    }
}
