//! Which strategy runs a program, and why: tables, so that the choice can be read and tested.

use std::fmt;

use retrograph_driver::DriverVersion;

/// How the operations of a program reach the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// One launch after the other on one stream, every step.
    Eager,
    /// A graph whose nodes and edges are added by hand; edges are those of the pass.
    Manual,
    /// As [`Strategy::Manual`], but for work of libraries, which is captured into the same graph
    /// one call at a time, behind the nodes that it has to wait for.
    Hybrid,
    /// A graph that is captured from the eager launches; it is a chain, as one stream is.
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

/// Who chooses the strategy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// The table of this module chooses; when a graph cannot be built, the program is eager and
    /// its report says why.
    #[default]
    Auto,
    /// [`Strategy::Eager`].
    Eager,
    /// [`Strategy::Manual`], or the build fails, as it does when a library has work in the pass.
    Manual,
    /// [`Strategy::Hybrid`], or the build fails.
    Hybrid,
    /// [`Strategy::Capture`], or the build fails.
    Capture,
}

/// What the choice depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Operations that reach the device; empty launches do not.
    pub operations: usize,
    /// How many of them are work of a library.
    pub library_operations: usize,
    /// The newest CUDA version that the driver supports.
    pub driver: DriverVersion,
    /// Whether the driver exports `cuStreamBeginCaptureToGraph`.
    pub captures_into_graphs: bool,
    /// Whether an eager step is predicted to keep the host busy for longer than the device.
    pub host_bound: bool,
    /// Whether a profiler watches the program, as its options say.
    pub profiled: bool,
}

/// A strategy with the sentence that explains it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The strategy.
    pub strategy: Strategy,
    /// Why.
    pub reason: &'static str,
}

/// What some drivers cannot do, or do wrong, and how that is known.
#[derive(Clone, Copy, Debug)]
pub struct Quirk {
    /// What is wrong.
    pub what: &'static str,
    /// The strategy that it forbids.
    pub forbids: Strategy,
    /// Where that was seen.
    pub evidence: &'static str,
    applies: fn(&Facts) -> bool,
}

/// Known quirks. A row needs evidence: a record, a header, or a maintainer's word.
pub const QUIRKS: [Quirk; 2] = [
    Quirk {
        what: "nothing can be captured into a graph that exists",
        forbids: Strategy::Hybrid,
        evidence: "cuda.h of CUDA 12.3 is the first to declare cuStreamBeginCaptureToGraph",
        applies: |facts| facts.driver < DriverVersion::from_number(12030),
    },
    Quirk {
        what: "the driver is new enough, and does not export the call",
        forbids: Strategy::Hybrid,
        evidence: "the driver was asked for cuStreamBeginCaptureToGraph by name when it was loaded",
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

const fn rule(applies: fn(&Facts) -> bool, strategy: Strategy, reason: &'static str) -> Rule {
    Rule { applies, choice: Choice { strategy, reason } }
}

/// The first rule that applies and whose strategy no quirk forbids decides; the last one always
/// does, since no quirk forbids to capture.
const RULES: [Rule; 7] = [
    rule(|facts| facts.operations == 0, Strategy::Eager, "there is nothing to launch"),
    rule(
        |facts| facts.profiled,
        Strategy::Eager,
        "a profiler tells operations apart when they are launched one by one; ask for a strategy \
         to see its graph",
    ),
    rule(
        |facts| facts.operations == 1 && facts.library_operations == 0,
        Strategy::Eager,
        "a graph of a single operation saves no launch",
    ),
    rule(
        |facts| facts.library_operations == 0 && facts.host_bound,
        Strategy::Manual,
        "every operation is known, so that one graph launch replaces all others, whose submission \
         would take longer than the device, and independent operations run side by side",
    ),
    rule(
        |facts| facts.library_operations == 0,
        Strategy::Manual,
        "every operation is known, so that independent ones run side by side; the device is the \
         bottleneck, and the host is free meanwhile",
    ),
    rule(
        |_| true,
        Strategy::Hybrid,
        "the work of libraries is captured into the graph, behind what it has to wait for, and \
         every other operation is known",
    ),
    rule(
        |_| true,
        Strategy::Capture,
        "libraries have work in the pass, and the driver cannot capture it into a graph that \
         exists, so that the whole stream is captured",
    ),
];

/// The strategy for a program of which `facts` are known.
pub fn choose(policy: Policy, facts: &Facts) -> Choice {
    let asked = |strategy| Choice { strategy, reason: "it was asked for" };
    match policy {
        Policy::Eager => asked(Strategy::Eager),
        Policy::Manual => asked(Strategy::Manual),
        Policy::Hybrid => asked(Strategy::Hybrid),
        Policy::Capture => asked(Strategy::Capture),
        Policy::Auto => {
            let allowed = |rule: &&Rule| facts.quirk(rule.choice.strategy).is_none();
            let found = RULES.iter().filter(allowed).find(|rule| (rule.applies)(facts));
            found.expect("the last rule always applies").choice
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTS: Facts = Facts {
        operations: 3000,
        library_operations: 0,
        driver: DriverVersion::from_number(13000),
        captures_into_graphs: true,
        host_bound: true,
        profiled: false,
    };

    #[test]
    fn the_table_chooses_by_what_is_known() {
        use Strategy::{Capture, Eager, Hybrid, Manual};
        let old = DriverVersion::from_number(12020);
        let rows = [
            (Facts { operations: 0, ..FACTS }, Eager, "nothing"),
            (Facts { operations: 1, ..FACTS }, Eager, "single"),
            (Facts { operations: 2, ..FACTS }, Manual, "longer than the device"),
            (FACTS, Manual, "longer than the device"),
            (Facts { host_bound: false, ..FACTS }, Manual, "bottleneck"),
            (Facts { profiled: true, ..FACTS }, Eager, "profiler"),
            (Facts { library_operations: 9, ..FACTS }, Hybrid, "libraries"),
            (Facts { operations: 1, library_operations: 1, ..FACTS }, Hybrid, "libraries"),
            (Facts { library_operations: 9, driver: old, ..FACTS }, Capture, "whole stream"),
            (
                Facts { library_operations: 1, captures_into_graphs: false, ..FACTS },
                Capture,
                "whole stream",
            ),
        ];
        for (facts, strategy, because) in rows {
            let choice = choose(Policy::Auto, &facts);
            assert_eq!(choice.strategy, strategy, "{facts:?}");
            assert!(choice.reason.contains(because), "{}: {}", choice.strategy, choice.reason);
        }
    }

    #[test]
    fn every_rule_decides_for_some_facts_and_every_quirk_has_evidence() {
        let mut reasons = std::collections::HashSet::new();
        for bits in 0..64_u32 {
            let bit = |at: u32| bits >> at & 1 == 1;
            let operations = [0, 1, 7][bits as usize % 3];
            let facts = Facts {
                operations,
                library_operations: if bit(1) { operations } else { 0 },
                driver: DriverVersion::from_number(if bit(2) { 12000 } else { 12080 }),
                captures_into_graphs: bit(3),
                host_bound: bit(4),
                profiled: bit(5),
            };
            let choice = choose(Policy::Auto, &facts);
            assert!(facts.quirk(choice.strategy).is_none(), "{facts:?}");
            let library = facts.library_operations > 0;
            assert!(choice.strategy != Strategy::Manual || !library, "{facts:?}");
            reasons.insert(choice.reason);
        }
        assert_eq!(reasons.len(), RULES.len());
        assert!(QUIRKS.iter().all(|quirk| !quirk.what.is_empty() && !quirk.evidence.is_empty()));
    }

    #[test]
    fn what_is_asked_for_is_chosen_whatever_the_facts() {
        for operations in [0, 1, 2] {
            let facts = Facts { operations, profiled: true, ..FACTS };
            let chosen = |policy| choose(policy, &facts).strategy;
            assert_eq!(chosen(Policy::Eager), Strategy::Eager);
            assert_eq!(chosen(Policy::Manual), Strategy::Manual);
            assert_eq!(chosen(Policy::Hybrid), Strategy::Hybrid);
            assert_eq!(chosen(Policy::Capture), Strategy::Capture);
        }
    }
}
