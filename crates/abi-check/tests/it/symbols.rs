//! The simulator's list for `cuGetProcAddress` against the headers.

use retrograph_driver_sim::symbols;

#[test]
fn the_simulator_has_every_version_of_every_function() {
    let Some(oracles) = crate::oracles() else { return };
    let said: Vec<_> = oracles.symbols();
    let mut known: Vec<(String, i32, String)> = symbols::all()
        .map(|(name, since, symbol)| (name.to_owned(), since, symbol.to_owned()))
        .collect();
    known.sort();
    let text = |list: &[(String, i32, String)]| {
        let lines = list.iter().map(|(name, since, symbol)| format!("{name} {since} {symbol}"));
        lines.collect::<Vec<_>>().join("\n")
    };
    assert!(known == said, "crates/driver-sim/src/symbols.txt must say\n{}", text(&said));
    assert!(said.len() > 500, "the headers have more functions than {}", said.len());
}

#[test]
fn every_function_of_the_table_can_be_resolved() {
    let ours = retrograph_abi_check::ours::describe().unwrap_or_else(|error| panic!("{error}"));
    for (name, function) in &ours.functions {
        let found = symbols::all().find(|(_, _, symbol)| symbol == name);
        let (_, since, _) = found.unwrap_or_else(|| panic!("{name} is not in the list"));
        assert!(function.since.is_none_or(|claimed| claimed == since), "{name} came with {since}");
    }
}
