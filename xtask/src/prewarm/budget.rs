//! The budget of each kernel, committed so that a review sees when a kernel grows.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context, bail};
use retrograph_ptx::SmTarget;

use super::Row;

const HEADING: &str =
    "entry\ttarget\tregisters\tshared bytes\tblocks per multiprocessor\tPTX statements";

/// The maximum of registers, shared bytes and PTX statements, which determine the time to compile,
/// and the minimum of resident blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limit {
    registers: u32,
    shared_bytes: u32,
    blocks: u32,
    statements: u32,
}

/// The limits of all entry points by name and target.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Budget {
    limits: BTreeMap<(String, SmTarget), Limit>,
}

impl Budget {
    /// The tightest budget for `rows`.
    pub(crate) fn of(rows: &[Row]) -> Self {
        let limits = rows.iter().map(|row| {
            let (registers, shared_bytes) = (row.usage.registers, row.usage.shared_bytes);
            let Row { blocks, statements, .. } = *row;
            let limit = Limit { registers, shared_bytes, blocks, statements };
            ((row.usage.entry.clone(), row.usage.target), limit)
        });
        Self { limits: limits.collect() }
    }

    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        let mut limits = BTreeMap::new();
        let mut lines = text.lines();
        if lines.next() != Some(HEADING) {
            bail!("kernels-ptx/budget.tsv does not begin with `{HEADING}`; write it with --bless");
        }
        for line in lines {
            let wrong = || format!("kernels-ptx/budget.tsv: invalid line `{line}`");
            let fields: Vec<&str> = line.split('\t').collect();
            let [entry, target, numbers @ ..] = &fields[..] else { bail!(wrong()) };
            let numbers: Vec<u32> =
                numbers.iter().map(|n| n.parse()).collect::<Result<_, _>>().with_context(wrong)?;
            let [registers, shared_bytes, blocks, statements] = numbers[..] else { bail!(wrong()) };
            let target: SmTarget = target.parse().with_context(wrong)?;
            let limit = Limit { registers, shared_bytes, blocks, statements };
            limits.insert(((*entry).to_owned(), target), limit);
        }
        Ok(Self { limits })
    }

    pub(crate) fn text(&self) -> String {
        let mut text = format!("{HEADING}\n");
        for ((entry, target), limit) in &self.limits {
            let Limit { registers, shared_bytes, blocks, statements } = limit;
            writeln!(
                text,
                "{entry}\t{target}\t{registers}\t{shared_bytes}\t{blocks}\t{statements}"
            )
            .expect("writing to a string does not fail");
        }
        text
    }

    /// Returns the entries of `rows` beyond the budget. If `whole`, `rows` are all entries, and
    /// unused lines of the budget are also shortfalls.
    pub(crate) fn shortfalls(&self, rows: &[Row], whole: bool) -> Vec<String> {
        let mut shortfalls = Vec::new();
        let mut unused = self.limits.clone();
        for row in rows {
            let (entry, target) = (&row.usage.entry, row.usage.target);
            let Some(limit) = unused.remove(&(entry.clone(), target)) else {
                shortfalls.push(format!("{entry} for {target} has no budget; review, --bless"));
                continue;
            };
            let mut more = |what: &str, found: u32, budget: u32, is_worse: bool| {
                if is_worse {
                    shortfalls.push(format!(
                        "{entry} for {target}: {what} {found}, budget {budget}; improve the \
                         kernel, or review and --bless"
                    ));
                }
            };
            let (registers, shared) = (row.usage.registers, row.usage.shared_bytes);
            more("registers", registers, limit.registers, registers > limit.registers);
            more("shared bytes", shared, limit.shared_bytes, shared > limit.shared_bytes);
            more("blocks per multiprocessor", row.blocks, limit.blocks, row.blocks < limit.blocks);
            let grows = row.statements > limit.statements;
            more("PTX statements", row.statements, limit.statements, grows);
        }
        if whole {
            let left = unused.keys().map(|(entry, target)| {
                format!("{entry} for {target} has a budget and does not exist; --bless")
            });
            shortfalls.extend(left);
        }
        shortfalls
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ptxas::Usage;

    fn row(entry: &str, registers: u32, blocks: u32) -> Row {
        let usage = Usage {
            target: SmTarget::arch_specific(90),
            image: "image".to_owned(),
            entry: entry.to_owned(),
            registers,
            shared_bytes: 128,
            spill_bytes: 0,
        };
        Row { usage, threads: 256, blocks, statements: 900 }
    }

    #[test]
    fn a_budget_survives_its_file() {
        let budget = Budget::of(&[row("a", 40, 5), row("b", 255, 1)]);
        assert_eq!(Budget::parse(&budget.text()).unwrap(), budget);
        assert!(Budget::parse("entry\n").is_err());
        assert!(Budget::parse(&format!("{HEADING}\na\tsm_90a\t1\t2\t3\n")).is_err());
    }

    #[test]
    fn a_kernel_beyond_its_budget_is_refused() {
        let budget = Budget::of(&[row("a", 40, 5), row("b", 64, 4)]);
        let caught = |rows: &[Row]| budget.shortfalls(rows, true).join("\n");
        assert_eq!(caught(&[row("a", 40, 5), row("b", 64, 4)]), "");
        assert_eq!(caught(&[row("a", 38, 6), row("b", 64, 4)]), "", "less is no shortfall");
        let text = caught(&[row("a", 41, 5), row("b", 64, 3)]);
        assert!(text.contains("a for sm_90a: registers 41, budget 40"), "{text}");
        assert!(text.contains("b for sm_90a: blocks per multiprocessor 3, budget 4"), "{text}");
        assert_eq!(text.lines().count(), 2);
        let text = caught(&[Row { statements: 901, ..row("a", 40, 5) }, row("b", 64, 4)]);
        assert!(text.contains("a for sm_90a: PTX statements 901, budget 900"), "{text}");
        let text = caught(&[row("a", 40, 5), row("c", 1, 1)]);
        assert!(text.contains("c for sm_90a has no budget"), "{text}");
        assert!(text.contains("b for sm_90a has a budget and does not exist"), "{text}");
        assert_eq!(budget.shortfalls(&[row("a", 40, 5)], false), Vec::<String>::new());
    }
}
