//! Which errors are attested: the index of recorded traces by rule, function and code.
//!
//! The index is a text file with one line for each, `rule function code trace`. It is written by
//! `cargo xtask conformance replay --bless`, which replays the traces that were recorded on
//! hardware and notes which rule made each call return what hardware returned.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use retrograph_driver_sys::CUresult;

type Key = (&'static str, &'static str, u32);

static INDEX: LazyLock<BTreeMap<Key, &'static str>> =
    LazyLock::new(|| include_str!("attested.txt").lines().filter_map(entry).collect());

/// One line of the index; comments have fewer words or no number.
fn entry(line: &'static str) -> Option<(Key, &'static str)> {
    let mut words = line.split_whitespace();
    let (rule, call, code, trace) = (words.next()?, words.next()?, words.next()?, words.next()?);
    Some(((rule, call, code.parse().ok()?), trace))
}

/// The trace that shows `rule` make `call` return `code`.
pub(crate) fn trace(
    rule: &'static str,
    call: &'static str,
    code: CUresult,
) -> Option<&'static str> {
    INDEX.get(&(rule, call, code.0)).copied()
}

/// How many errors are attested, and by how many traces.
pub fn counts() -> (usize, usize) {
    let traces: std::collections::BTreeSet<_> = INDEX.values().collect();
    (INDEX.len(), traces.len())
}
