//! The index of recorded traces by rule, function and code.
//!
//! The index is a text file with one line per error: `rule function code trace`. `cargo xtask
//! conformance replay --bless` writes it: it replays the traces recorded on hardware and records
//! the rule of each call that returned the same code as hardware.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use retrograph_driver_sys::CUresult;

use crate::rule::Rule;

type Key = (Rule, &'static str, u32);

static INDEX: LazyLock<BTreeMap<Key, &'static str>> =
    LazyLock::new(|| include_str!("attested.txt").lines().filter_map(entry).collect());

/// One line of the index, or nothing for a comment or an unknown rule.
fn entry(line: &'static str) -> Option<(Key, &'static str)> {
    let mut words = line.split_whitespace();
    let (rule, call, code, trace) = (words.next()?, words.next()?, words.next()?, words.next()?);
    Some(((Rule::from_name(rule)?, call, code.parse().ok()?), trace))
}

/// The rules by which a call returns the code of a lost context: the call that reports the fault,
/// and later calls. The sticky code depends on the fault, not on the call.
const LOST: [Rule; 2] = [Rule::Fault, Rule::Sticky];

/// The trace in which `call` returns `code` by `rule`.
pub(crate) fn trace(rule: Rule, call: &'static str, code: CUresult) -> Option<&'static str> {
    let exact = INDEX.get(&(rule, call, code.0));
    let lost = || {
        let mut rules = LOST.iter().filter(|_| LOST.contains(&rule));
        rules.find_map(|rule| INDEX.range((*rule, call, 0)..=(*rule, call, u32::MAX)).next())
    };
    exact.or_else(|| lost().map(|(_, trace)| trace)).copied()
}

/// The numbers of attested errors and of traces that attest them.
pub fn counts() -> (usize, usize) {
    let traces: std::collections::BTreeSet<_> = INDEX.values().collect();
    (INDEX.len(), traces.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_index_names_a_rule() {
        let lines = include_str!("attested.txt").lines();
        let lines: Vec<_> =
            lines.filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
        assert_eq!(lines.len(), INDEX.len());
    }

    #[test]
    fn rules_are_found_by_their_names() {
        for &rule in Rule::ALL {
            assert_eq!(Rule::from_name(rule.name()), Some(rule));
        }
    }
}
