//! Results: one JSON line per row, and the table and plot of them.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::cases::Case;
use super::commands::Settings;
use super::floor::{self, Row};
use super::measure::LEFT_OUT;
use super::{cases, plot, table};

/// The time of one run of a row. Records before 2026-11-28 have the aliases.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Timing {
    /// Median device time with a wait after each run.
    pub(crate) ms_median: f64,
    #[serde(default, alias = "ms_least", skip_serializing_if = "Option::is_none")]
    pub(crate) ms_min: Option<f64>,
    #[serde(default, alias = "ms_most", skip_serializing_if = "Option::is_none")]
    pub(crate) ms_max: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) samples: Option<u64>,
    /// Host time per run without waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pipelined_ms: Option<f64>,
    /// Energy per run without waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) joules: Option<f64>,
}

impl Timing {
    /// Returns a timing with only a median.
    pub(crate) fn of_ms(ms_median: f64) -> Self {
        Self {
            ms_median,
            ms_min: None,
            ms_max: None,
            samples: None,
            pipelined_ms: None,
            joules: None,
        }
    }
}

/// A variant of PyTorch: its time, or why it failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Variant {
    pub(crate) variant: String,
    #[serde(flatten)]
    pub(crate) timing: Option<Timing>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

impl Variant {
    pub(crate) fn failed(variant: &str, error: &str) -> Self {
        Self { variant: variant.to_owned(), timing: None, error: Some(error.to_owned()) }
    }
}

/// The measurements of a row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(crate) ours: Timing,
    pub(crate) peers: Vec<Variant>,
    /// Why no peer was run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) no_peer: Option<String>,
}

/// A line of results.jsonl.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    #[serde(flatten)]
    pub(crate) row: Row,
    #[serde(flatten)]
    pub(crate) measured: Measured,
    pub(crate) quick: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) label: Option<String>,
    pub(crate) machine: Value,
}

impl Record {
    /// The fastest variant of the peer.
    pub(crate) fn best_peer(&self) -> Option<(&str, &Timing)> {
        let timed = |it: &'_ Variant| it.timing.is_some();
        let timed = self.measured.peers.iter().filter(|it| timed(it));
        let pairs = timed.filter_map(|it| Some((it.variant.as_str(), it.timing.as_ref()?)));
        pairs.min_by(|(_, a), (_, b)| a.ms_median.total_cmp(&b.ms_median))
    }

    /// Time of the fastest peer ÷ our time.
    pub(crate) fn ratio(&self) -> Option<f64> {
        Some(self.best_peer()?.1.ms_median / self.measured.ours.ms_median)
    }

    pub(crate) fn device(&self) -> &str {
        self.machine["device"].as_str().unwrap_or("an unknown device")
    }

    /// Variants of the peer that failed, with their errors.
    pub(crate) fn failed(&self) -> impl Iterator<Item = (&str, &str)> {
        let failed = |it: &'_ Variant| it.error.is_some();
        let failed = self.measured.peers.iter().filter(move |it| failed(it));
        failed.filter_map(|it| Some((it.variant.as_str(), it.error.as_deref()?)))
    }

    /// Whether the row need not run again.
    fn satisfies(&self, settings: Settings) -> bool {
        let left_out = self.measured.no_peer.as_deref() == Some(LEFT_OUT);
        let no_peer = self.measured.no_peer.is_some();
        let compared = settings.without_peers || (no_peer && !left_out) || self.ratio().is_some();
        compared && (settings.quick || !self.quick)
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:44} {:>10.4} ms", self.row.row, self.measured.ours.ms_median)?;
        if let (Some((variant, peer)), Some(ratio)) = (self.best_peer(), self.ratio()) {
            return write!(f, "  {:>10.4} ms ({variant})  {ratio:.2}", peer.ms_median);
        }
        match &self.measured.no_peer {
            Some(why) => write!(f, "  no peer: {why}"),
            None => write!(f, "  PyTorch failed"),
        }
    }
}

/// The results in a folder. The last line of a row counts.
pub(crate) struct Results {
    folder: PathBuf,
    records: Vec<Record>,
}

impl Results {
    /// Reads results.jsonl of a folder, which is created if it is missing.
    pub(crate) fn open(folder: &Path) -> anyhow::Result<Self> {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        let mut results = Self { folder: folder.to_owned(), records: Vec::new() };
        let path = results.lines();
        if path.exists() {
            for record in
                parse(&fs::read_to_string(&path)?).with_context(|| path.display().to_string())?
            {
                results.keep(record);
            }
        }
        Ok(results)
    }

    fn lines(&self) -> PathBuf {
        self.folder.join("results.jsonl")
    }

    fn keep(&mut self, record: Record) {
        self.records.retain(|it| it.row.row != record.row.row);
        self.records.push(record);
    }

    /// Whether all rows of a case are there.
    pub(crate) fn has(&self, case: &Case, settings: Settings) -> bool {
        let there = |row: &Row| {
            self.records.iter().any(|it| it.row.row == row.row && it.satisfies(settings))
        };
        floor::rows(case).iter().all(there)
    }

    /// Adds lines, and writes the table and the plot. Returns the rows for the screen.
    pub(crate) fn append(&mut self, records: Vec<Record>) -> anyhow::Result<String> {
        let (mut text, mut shown) = (String::new(), String::new());
        for record in records {
            text += &(serde_json::to_string(&record)? + "\n");
            shown += &format!("{record}\n");
            self.keep(record);
        }
        let mut file = OpenOptions::new().create(true).append(true).open(self.lines())?;
        file.write_all(text.as_bytes())?;
        self.write()?;
        Ok(shown)
    }

    /// Writes the table and the plot.
    pub(crate) fn write(&mut self) -> anyhow::Result<()> {
        let order: Vec<_> = cases::all().iter().flat_map(floor::rows).map(|it| it.row).collect();
        self.records.sort_by_key(|it| order.iter().position(|row| *row == it.row.row));
        fs::write(self.folder.join("table.md"), table::markdown(&self.records))?;
        fs::write(self.folder.join("plot.svg"), plot::svg(&self.records)?)?;
        Ok(())
    }

    /// The rows in which every variant of the peer failed, with the first error.
    pub(crate) fn peer_errors(&self) -> Vec<String> {
        let none = |it: &&Record| it.measured.no_peer.is_none() && it.best_peer().is_none();
        let line = |it: &Record| {
            let error = it.failed().next().map_or("it printed nothing", |(_, error)| error);
            format!("{}: {error}", it.row.row)
        };
        self.records.iter().filter(none).map(line).collect()
    }
}

/// Parses the lines of results.jsonl.
pub(crate) fn parse(text: &str) -> anyhow::Result<Vec<Record>> {
    let line = |(number, line): (usize, &str)| {
        serde_json::from_str(line).with_context(|| format!("line {}", number + 1))
    };
    text.lines().enumerate().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixture(index: usize) -> Record {
        // Made up: these times were not measured.
        parse(include_str!("fixture.jsonl")).unwrap().remove(index)
    }

    #[test]
    fn a_row_runs_again_if_less_was_measured() {
        let full = Settings::default();
        let [compared, _, no_peer, failed] = [0, 1, 2, 3].map(fixture);
        assert!(compared.satisfies(full) && no_peer.satisfies(full));
        assert!(!failed.satisfies(full), "PyTorch may run next time");
        let quick = Record { quick: true, ..compared.clone() };
        assert!(!quick.satisfies(full) && quick.satisfies(Settings { quick: true, ..full }));
        let mut left_out = compared;
        left_out.measured.peers.clear();
        left_out.measured.no_peer = Some(LEFT_OUT.to_owned());
        assert!(!left_out.satisfies(full));
        assert!(left_out.satisfies(Settings { without_peers: true, ..full }));
    }

    #[test]
    fn lines_are_read_back_and_the_last_one_counts() {
        let folder = tempfile::tempdir().unwrap();
        let mut results = Results::open(folder.path()).unwrap();
        results.append(vec![fixture(1), fixture(0)]).unwrap();
        let mut again = fixture(1);
        again.measured.ours.ms_median = 20.0;
        results.append(vec![again.clone()]).unwrap();
        let mut results = Results::open(folder.path()).unwrap();
        results.write().unwrap();
        // In the order of the table.
        assert_eq!(results.records, [fixture(0), again]);
        assert!(folder.path().join("table.md").is_file());
        assert!(folder.path().join("plot.svg").is_file());
    }

    #[test]
    fn a_damaged_line_is_named() {
        let error = parse("{\"row\":1}\n").unwrap_err().to_string();
        assert!(error.contains("line 1"), "{error}");
    }
}
