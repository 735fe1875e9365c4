//! Profiles as tables.

use std::fmt;

use super::{KernelTime, PhaseTime, Profile, family_of, printable};

/// A table row.
struct Row {
    name: String,
    count: usize,
    ms: f32,
}

impl fmt::Display for Profile {
    /// Phases by family, then kernels. Shares refer to the sum of each table.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { subject, device, strategy, replays, .. } = self;
        let subject = printable(subject);
        writeln!(
            f,
            "profile of `{subject}` on {device}, {strategy}, medians of {replays} replays"
        )?;
        if self.simulated {
            writeln!(f, "SIMULATED: times are of the CPU and say nothing about a GPU")?;
        }
        let (step, record) = (self.step_ms, self.record_ms * 1e3);
        writeln!(f, "step        {step:.3} ms as it runs; each figure below includes a record of")?;
        writeln!(f, "            an event, {record:.1} µs with nothing in between")?;
        let phases: Vec<Row> = families(&self.phases);
        if !phases.is_empty() {
            writeln!(f)?;
            table(f, ["phase", "scopes"], &phases)?;
        }
        writeln!(f)?;
        let kernels = self.kernels().into_iter();
        let rows = kernels.map(|KernelTime { kernel, count, ms }| Row {
            name: printable(&kernel),
            count,
            ms,
        });
        table(f, ["kernel", "count"], &rows.collect::<Vec<_>>())
    }
}

/// One row per family of phases, in the order of first appearance.
fn families(phases: &[PhaseTime]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for phase in phases {
        let name = match family_of(&phase.name) {
            family if family.is_empty() => "(no scope)".to_owned(),
            family => printable(&family),
        };
        match rows.iter_mut().find(|row| row.name == name) {
            Some(row) => {
                row.count += 1;
                row.ms += phase.ms;
            }
            None => rows.push(Row { name, count: 1, ms: phase.ms }),
        }
    }
    rows
}

fn table(f: &mut fmt::Formatter<'_>, heads: [&str; 2], rows: &[Row]) -> fmt::Result {
    let [name, count] = heads;
    let longest = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
    let (width, sum) = (longest.max(name.len()), rows.iter().map(|row| row.ms).sum::<f32>());
    writeln!(f, "{name:width$}  {count:>6}  {:>10}  {:>6}", "ms", "share")?;
    for Row { name, count, ms } in rows {
        let share = if sum > 0.0 { ms / sum * 100.0 } else { 0.0 };
        writeln!(f, "{name:width$}  {count:>6}  {ms:>10.3}  {share:>5.1}%")?;
    }
    let count: usize = rows.iter().map(|row| row.count).sum();
    writeln!(f, "{:width$}  {count:>6}  {sum:>10.3}", "in all")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::OperationTime;

    fn profile() -> Profile {
        let phase = |name: &str, ms| PhaseTime { name: name.into(), entries: 1, operations: 1, ms };
        let operation = |at, kernel: &str, ms| {
            let (name, kernel) = (format!("scope/{kernel}"), kernel.to_owned());
            OperationTime { operation: at, name, kernel, ms }
        };
        Profile {
            subject: "step".to_owned(),
            device: "a device".to_owned(),
            simulated: true,
            strategy: "manual".to_owned(),
            replays: 5,
            step_ms: 1.0,
            record_ms: 0.001,
            phases: vec![phase("layer 0/q", 0.25), phase("layer 10/q", 0.5), phase("", 0.25)],
            operations: vec![
                operation(0, "copy", 0.5),
                operation(1, "gemm", 2.0),
                operation(3, "copy", 0.5),
            ],
        }
    }

    #[test]
    fn tables_sum_rows_of_one_group() {
        let text = profile().to_string();
        let line = |start: &str| {
            let found = text.lines().find(|line| line.starts_with(start));
            found.unwrap_or_else(|| panic!("no `{start}` in {text}")).to_owned()
        };
        let words = |start| line(start).split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words("layer */q"), ["layer", "*/q", "2", "0.750", "75.0%"]);
        assert_eq!(words("(no scope)"), ["(no", "scope)", "1", "0.250", "25.0%"]);
        assert_eq!(words("gemm"), ["gemm", "1", "2.000", "66.7%"]);
        assert_eq!(words("copy"), ["copy", "2", "1.000", "33.3%"]);
        assert!(text.contains("SIMULATED") && text.contains("in all"), "{text}");
    }

    #[test]
    fn names_stay_in_their_lines() {
        let mut odd = profile();
        odd.subject = "two\nlines".to_owned();
        odd.phases[0].name = "phase\r".to_owned();
        odd.operations[0].kernel = "red \u{1b}[31m \"quoted\"".to_owned();
        let text = odd.to_string();
        assert_eq!(text.lines().count(), profile().to_string().lines().count() + 2);
        assert!(text.chars().all(|letter| letter == '\n' || !letter.is_control()), "{text:?}");
        assert!(text.contains("red \\u{1b}[31m \"quoted\""), "{text}");
    }

    #[test]
    fn kernels_come_by_their_time() {
        let kernels = profile().kernels();
        let names: Vec<_> = kernels.iter().map(|held| held.kernel.as_str()).collect();
        assert_eq!(names, ["gemm", "copy"]);
        assert_eq!(profile().times(5), [Some(0.5), Some(2.0), None, Some(0.5), None]);
    }

    #[test]
    fn hardware_is_not_called_simulated() {
        let text = Profile { simulated: false, ..profile() }.to_string();
        assert!(!text.contains("SIMULATED"), "{text}");
    }
}
