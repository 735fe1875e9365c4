//! The results as tables in the document of the simulator.

use std::collections::BTreeMap;

use anyhow::Context;

use super::expected::Expectations;
use super::suite::{Outcome, Report};
use crate::workspace::{command, output, root};

const PAGE: &str = "docs/simulator-clients.md";
const BEGIN: &str = "<!-- clients: `cargo xtask clients` writes this part -->\n";
const END: &str = "<!-- clients: end -->\n";
const RESULTS: &str =
    "\n| Client | Versions | Date | Passed | Failed | Skipped |\n|---|---|---|---|---|---|\n";
const CAUSES: &str = "\n| Client | Failed | Cause |\n|---|---|---|\n";

/// The lines of one client.
pub(super) struct Rows {
    client: &'static str,
    result: String,
    causes: Vec<String>,
}

impl Rows {
    pub(super) fn new(
        client: &'static str,
        report: &Report,
        expectations: &Expectations,
    ) -> anyhow::Result<Self> {
        let count = |outcome| report.tests.iter().filter(|test| test.outcome == outcome).count();
        let date = output(command("date", &["-u", "+%F"]))?;
        let result = format!(
            "| {client} | {} | {} | {} | {} | {} |\n",
            report.versions,
            date.trim(),
            count(Outcome::Pass),
            count(Outcome::Fail),
            count(Outcome::Skip),
        );
        let mut causes: BTreeMap<&str, usize> = BTreeMap::new();
        for test in report.tests.iter().filter(|test| test.outcome == Outcome::Fail) {
            let entry = expectations.find(client, &test.name);
            *causes.entry(entry.map_or("regression", |entry| &entry.reason)).or_default() += 1;
        }
        let mut causes: Vec<_> = causes.into_iter().collect();
        causes.sort_by_key(|&(cause, count)| (usize::MAX - count, cause));
        let causes =
            causes.iter().map(|(cause, count)| format!("| {client} | {count} | {cause} |\n"));
        Ok(Self { client, result, causes: causes.collect() })
    }
}

/// Writes the rows to the page. Keeps rows of other clients.
pub(super) fn write(rows: &[Rows]) -> anyhow::Result<()> {
    let path = root().join(PAGE);
    let page = std::fs::read_to_string(&path)?;
    let page = replace(&page, rows).with_context(|| format!("{PAGE} lacks `{}`", BEGIN.trim()))?;
    Ok(std::fs::write(path, page)?)
}

fn replace(page: &str, rows: &[Rows]) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (old, after) = rest.split_once(END)?;
    let (old_results, old_causes) = old.split_once(CAUSES).unwrap_or((old, ""));
    let kept = |lines: &str| -> Vec<String> {
        let is_kept = |line: &&str| {
            let client = line.split('|').nth(1).map(str::trim);
            let is_row = client.is_some_and(|name| !["Client", "---"].contains(&name));
            is_row && rows.iter().all(|rows| Some(rows.client) != client)
        };
        lines.lines().filter(is_kept).map(|line| format!("{line}\n")).collect()
    };
    let (mut results, mut causes) = (kept(old_results), kept(old_causes));
    results.extend(rows.iter().map(|rows| rows.result.clone()));
    results.sort();
    causes.extend(rows.iter().flat_map(|rows| rows.causes.clone()));
    // Stable: the rows of a client stay in order.
    causes.sort_by_key(|line| line.split('|').nth(1).unwrap_or_default().to_owned());
    let (results, causes) = (results.concat(), causes.concat());
    Some(format!("{before}{BEGIN}{RESULTS}{results}{CAUSES}{causes}\n{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_rows_of_the_clients_that_ran_are_replaced() {
        let rows = |client, result: &str, cause: &str| Rows {
            client,
            result: format!("| {client} | {result} |\n"),
            causes: vec![format!("| {client} | 1 | {cause} |\n")],
        };
        let empty = format!("before\n{BEGIN}{END}after\n");
        let page = replace(&empty, &[rows("a", "x", "p"), rows("b", "y", "q")]).unwrap();
        let page = replace(&page, &[rows("b", "z", "r")]).unwrap();
        let expected = format!(
            "before\n{BEGIN}{RESULTS}| a | x |\n| b | z |\n{CAUSES}| a | 1 | p |\n| b | 1 | r |\n\n\
             {END}after\n"
        );
        assert_eq!(page, expected);
        assert_eq!(replace("no markers", &[]), None);
    }
}
