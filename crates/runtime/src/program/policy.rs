//! The choice of a strategy, by tables of rules and driver quirks.

use std::fmt;

use retrograph_driver::DriverVersion;

use super::reason::Reason;

/// How the operations of a program are submitted to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Strategy {
    /// One launch after another on one stream, in every step.
    Eager,
    /// A graph whose nodes and edges are added by hand.
    Manual,
    /// As [`Strategy::Manual`], with library calls captured into the same graph, each after the
    /// nodes that it depends on.
    Hybrid,
    /// A graph captured from the eager launches: a chain, as on one stream.
    Capture,
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Eager => "eager",
            Self::Manual => "manual",
            Self::Hybrid => "hybrid",
            Self::Capture => "capture",
        })
    }
}

/// How the strategy is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Policy {
    /// Chosen by the rules of this module. If a graph cannot be built, the program is eager and its
    /// report says why.
    #[default]
    Auto,
    /// [`Strategy::Eager`].
    Eager,
    /// [`Strategy::Manual`], or the build fails, for example because the pass has library calls.
    Manual,
    /// [`Strategy::Hybrid`], or the build fails.
    Hybrid,
    /// [`Strategy::Capture`], or the build fails.
    Capture,
}

/// The facts that the choice depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Operations that reach the device, without empty launches.
    pub operations: usize,
    /// Library calls among them.
    pub library_operations: usize,
    /// The newest CUDA version that the driver supports.
    pub driver: DriverVersion,
    /// Whether the driver exports `cuStreamBeginCaptureToGraph`.
    pub captures_into_graphs: bool,
    /// Whether a profiler is attached, according to the options.
    pub profiled: bool,
}

/// A strategy with the reason for it.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The strategy.
    pub strategy: Strategy,
    /// Why.
    pub reason: Reason,
}

/// A limitation or bug of some drivers, with evidence.
#[derive(Clone, Copy, Debug)]
pub struct Quirk {
    /// The limitation.
    pub what: &'static str,
    /// The strategy that it forbids.
    pub forbids: Strategy,
    /// Where it was observed.
    pub evidence: &'static str,
    applies: fn(&Facts) -> bool,
}

/// Known quirks. Each row needs evidence: a record, a header, or a maintainer's statement.
pub const QUIRKS: &[Quirk] = &[
    Quirk {
        what: "the driver cannot capture into an existing graph",
        forbids: Strategy::Hybrid,
        evidence: "cuda.h of CUDA 12.3 is the first to declare cuStreamBeginCaptureToGraph",
        applies: |facts| facts.driver < DriverVersion::from_number(12030),
    },
    Quirk {
        what: "the driver is new enough, but does not export cuStreamBeginCaptureToGraph",
        forbids: Strategy::Hybrid,
        evidence: "the function was looked up by name when the driver was loaded",
        applies: |facts| !facts.captures_into_graphs,
    },
];

impl Quirk {
    /// Whether these facts have it.
    pub fn applies(&self, facts: &Facts) -> bool {
        (self.applies)(facts)
    }
}

impl Facts {
    /// The quirk that forbids `strategy`, if one does.
    pub fn quirk(&self, strategy: Strategy) -> Option<&'static Quirk> {
        QUIRKS.iter().find(|quirk| quirk.forbids == strategy && quirk.applies(self))
    }
}

struct Rule {
    applies: fn(&Facts) -> bool,
    choice: Choice,
}

const fn rule(applies: fn(&Facts) -> bool, strategy: Strategy, reason: Reason) -> Rule {
    Rule { applies, choice: Choice { strategy, reason } }
}

/// The first rule that applies, and whose strategy no quirk forbids, decides. The last one always
/// applies.
static RULES: [Rule; 6] = [
    rule(|facts| facts.operations == 0, Strategy::Eager, Reason::NothingToLaunch),
    rule(|facts| facts.profiled, Strategy::Eager, Reason::Profiled),
    rule(
        |facts| facts.operations == 1 && facts.library_operations == 0,
        Strategy::Eager,
        Reason::SingleOperation,
    ),
    rule(|facts| facts.library_operations == 0, Strategy::Manual, Reason::NoLibraryCalls),
    rule(|_| true, Strategy::Hybrid, Reason::LibraryCalls),
    rule(|_| true, Strategy::Capture, Reason::NoCaptureIntoGraph),
];

/// Chooses the strategy of a program.
pub fn choose(policy: Policy, facts: &Facts) -> Choice {
    let requested = |strategy| Choice { strategy, reason: Reason::Requested };
    match policy {
        Policy::Eager => requested(Strategy::Eager),
        Policy::Manual => requested(Strategy::Manual),
        Policy::Hybrid => requested(Strategy::Hybrid),
        Policy::Capture => requested(Strategy::Capture),
        Policy::Auto => {
            let allowed = |rule: &&Rule| facts.quirk(rule.choice.strategy).is_none();
            let found = RULES.iter().filter(allowed).find(|rule| (rule.applies)(facts));
            found.expect("the last rule always applies").choice.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::mem::discriminant;

    use super::*;

    const FACTS: Facts = Facts {
        operations: 3000,
        library_operations: 0,
        driver: DriverVersion::from_number(13000),
        captures_into_graphs: true,
        profiled: false,
    };

    #[test]
    fn the_first_rule_that_applies_decides() {
        use Strategy::{Capture, Eager, Hybrid, Manual};
        let old = DriverVersion::from_number(12020);
        let rows = [
            (Facts { operations: 0, ..FACTS }, Eager, Reason::NothingToLaunch),
            (Facts { operations: 1, ..FACTS }, Eager, Reason::SingleOperation),
            (Facts { operations: 2, ..FACTS }, Manual, Reason::NoLibraryCalls),
            (FACTS, Manual, Reason::NoLibraryCalls),
            (Facts { profiled: true, ..FACTS }, Eager, Reason::Profiled),
            (Facts { library_operations: 9, ..FACTS }, Hybrid, Reason::LibraryCalls),
            (Facts { operations: 1, library_operations: 1, ..FACTS }, Hybrid, Reason::LibraryCalls),
            (
                Facts { library_operations: 9, driver: old, ..FACTS },
                Capture,
                Reason::NoCaptureIntoGraph,
            ),
            (
                Facts { library_operations: 1, captures_into_graphs: false, ..FACTS },
                Capture,
                Reason::NoCaptureIntoGraph,
            ),
        ];
        for (facts, strategy, reason) in rows {
            let choice = choose(Policy::Auto, &facts);
            assert_eq!(choice.strategy, strategy, "{facts:?}");
            assert_eq!(discriminant(&choice.reason), discriminant(&reason), "{facts:?}");
        }
    }

    #[test]
    fn every_rule_decides_for_some_facts_and_every_quirk_has_evidence() {
        let mut reasons = HashSet::new();
        for bits in 0..32_u32 {
            let bit = |at: u32| bits >> at & 1 == 1;
            let operations = [0, 1, 7][bits as usize % 3];
            let facts = Facts {
                operations,
                library_operations: if bit(1) { operations } else { 0 },
                driver: DriverVersion::from_number(if bit(2) { 12000 } else { 12080 }),
                captures_into_graphs: bit(3),
                profiled: bit(4),
            };
            let choice = choose(Policy::Auto, &facts);
            assert!(facts.quirk(choice.strategy).is_none(), "{facts:?}");
            let library = facts.library_operations > 0;
            assert!(choice.strategy != Strategy::Manual || !library, "{facts:?}");
            reasons.insert(discriminant(&choice.reason));
        }
        assert_eq!(reasons.len(), RULES.len());
        assert!(QUIRKS.iter().all(|quirk| !quirk.what.is_empty() && !quirk.evidence.is_empty()));
    }

    #[test]
    fn a_requested_strategy_is_chosen_whatever_the_facts() {
        for operations in [0, 1, 2] {
            let facts = Facts { operations, profiled: true, ..FACTS };
            for (policy, strategy) in [
                (Policy::Eager, Strategy::Eager),
                (Policy::Manual, Strategy::Manual),
                (Policy::Hybrid, Strategy::Hybrid),
                (Policy::Capture, Strategy::Capture),
            ] {
                let choice = choose(policy, &facts);
                assert_eq!(choice.strategy, strategy);
                assert!(matches!(choice.reason, Reason::Requested), "{}", choice.reason);
            }
        }
    }
}
