//! Which strategy runs a program, and why: a table, so that the choice can be read and tested.

use std::fmt;

/// How the operations of a program reach the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// One launch after the other on one stream, every step.
    Eager,
    /// A graph whose nodes and edges are added by hand; edges are those of the pass.
    Manual,
    /// A graph that is captured from the eager launches; it is a chain, as one stream is.
    Capture,
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Eager => "eager",
            Self::Manual => "manual",
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
    /// [`Strategy::Manual`], or the build fails.
    Manual,
    /// [`Strategy::Capture`], or the build fails.
    Capture,
}

/// What the choice depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Operations that reach the device; empty launches do not.
    pub operations: usize,
}

/// A strategy with the sentence that explains it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The strategy.
    pub strategy: Strategy,
    /// Why.
    pub reason: &'static str,
}

struct Rule {
    applies: fn(&Facts) -> bool,
    choice: Choice,
}

const fn rule(applies: fn(&Facts) -> bool, strategy: Strategy, reason: &'static str) -> Rule {
    Rule { applies, choice: Choice { strategy, reason } }
}

/// The first rule that applies decides; the last one always does.
const RULES: [Rule; 3] = [
    rule(|facts| facts.operations == 0, Strategy::Eager, "there is nothing to launch"),
    rule(
        |facts| facts.operations == 1,
        Strategy::Eager,
        "a graph of a single operation saves no launch",
    ),
    rule(
        |_| true,
        Strategy::Manual,
        "every operation is known, so that one graph launch replaces all others and independent \
         operations run side by side",
    ),
];

/// The strategy for a program of which `facts` are known.
pub fn choose(policy: Policy, facts: &Facts) -> Choice {
    let asked = |strategy| Choice { strategy, reason: "it was asked for" };
    match policy {
        Policy::Eager => asked(Strategy::Eager),
        Policy::Manual => asked(Strategy::Manual),
        Policy::Capture => asked(Strategy::Capture),
        Policy::Auto => {
            let found = RULES.iter().find(|rule| (rule.applies)(facts));
            found.expect("the last rule always applies").choice
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_chooses_by_the_number_of_operations() {
        let chosen = |operations| choose(Policy::Auto, &Facts { operations }).strategy;
        assert_eq!([0, 1, 2, 3000].map(chosen), {
            use Strategy::{Eager, Manual};
            [Eager, Eager, Manual, Manual]
        });
    }

    #[test]
    fn what_is_asked_for_is_chosen_whatever_the_facts() {
        for operations in [0, 1, 2] {
            let chosen = |policy| choose(policy, &Facts { operations }).strategy;
            assert_eq!(chosen(Policy::Eager), Strategy::Eager);
            assert_eq!(chosen(Policy::Manual), Strategy::Manual);
            assert_eq!(chosen(Policy::Capture), Strategy::Capture);
        }
    }
}
