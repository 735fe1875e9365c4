//! The strategies under test.

use retrograph_runtime::{BuildOptions, PdlMode, Policy};

use crate::config::UnknownChoice;
use crate::model::StepOptions;

/// A strategy under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    /// Individual launches.
    Eager,
    /// A captured graph, a chain.
    Capture,
    /// A manual graph with the inferred edges.
    Manual,
    /// A manual graph without programmatic dependent launch.
    ManualLate,
    /// A manual graph without node priorities.
    ManualEqual,
    /// Individual launches without micro-batches.
    EagerWhole,
    /// A manual graph without micro-batches.
    ManualWhole,
}

impl Contender {
    /// Every strategy.
    pub const ALL: [Self; 7] = [
        Self::Eager,
        Self::Capture,
        Self::Manual,
        Self::ManualLate,
        Self::ManualEqual,
        Self::EagerWhole,
        Self::ManualWhole,
    ];

    /// The name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Eager => "eager",
            Self::Capture => "capture",
            Self::Manual => "manual",
            Self::ManualLate => "manual-late",
            Self::ManualEqual => "manual-equal",
            Self::EagerWhole => "eager-whole",
            Self::ManualWhole => "manual-whole",
        }
    }

    pub(super) fn build(self) -> BuildOptions {
        let policy = match self {
            Self::Eager | Self::EagerWhole => Policy::Eager,
            Self::Capture => Policy::Capture,
            Self::Manual | Self::ManualLate | Self::ManualEqual | Self::ManualWhole => {
                Policy::Manual
            }
        };
        let pdl = match self {
            Self::ManualLate => PdlMode::Never,
            _ => PdlMode::default(),
        };
        let equally_urgent = self == Self::ManualEqual;
        BuildOptions { policy, pdl, equally_urgent, ..BuildOptions::default() }
    }

    /// Returns the options of its step.
    pub(super) fn step(self) -> StepOptions {
        let whole = matches!(self, Self::EagerWhole | Self::ManualWhole);
        StepOptions { interleave: whole.then_some(1), ..StepOptions::default() }
    }
}

impl std::str::FromStr for Contender {
    type Err = UnknownChoice;

    fn from_str(text: &str) -> Result<Self, UnknownChoice> {
        let found = Self::ALL.into_iter().find(|contender| contender.name() == text);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            UnknownChoice::new(text, "a strategy", format!("some of {names}"))
        })
    }
}
