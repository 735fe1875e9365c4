//! The strategies under test.

use retrograph_runtime::{BuildOptions, PdlMode, Policy};

use crate::config::UnknownChoice;

/// A strategy under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BenchStrategy {
    /// Individual launches.
    Eager,
    /// A captured graph, a chain.
    Capture,
    /// A manual graph with the inferred edges.
    Manual,
    /// A manual graph without programmatic dependent launch.
    ManualWithoutPdl,
    /// A manual graph without node priorities.
    ManualWithoutPriorities,
}

impl BenchStrategy {
    /// Every strategy.
    pub const ALL: &[Self] = &[
        Self::Eager,
        Self::Capture,
        Self::Manual,
        Self::ManualWithoutPdl,
        Self::ManualWithoutPriorities,
    ];

    /// The name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Eager => "eager",
            Self::Capture => "capture",
            Self::Manual => "manual",
            Self::ManualWithoutPdl => "manual-no-pdl",
            Self::ManualWithoutPriorities => "manual-no-priorities",
        }
    }

    pub(super) fn build(self) -> BuildOptions {
        let mut build = BuildOptions::default();
        build.policy = match self {
            Self::Eager => Policy::Eager,
            Self::Capture => Policy::Capture,
            Self::Manual | Self::ManualWithoutPdl | Self::ManualWithoutPriorities => Policy::Manual,
        };
        build.pdl = match self {
            Self::ManualWithoutPdl => PdlMode::Never,
            _ => PdlMode::default(),
        };
        build.uniform_priority = self == Self::ManualWithoutPriorities;
        build
    }
}

impl std::str::FromStr for BenchStrategy {
    type Err = UnknownChoice;

    fn from_str(text: &str) -> Result<Self, UnknownChoice> {
        let found = Self::ALL.iter().copied().find(|strategy| strategy.name() == text);
        found.ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|strategy| strategy.name()).collect();
            let names = names.join(", ");
            UnknownChoice::new(text, "a strategy", format!("some of {names}"))
        })
    }
}
