//! The results as a page.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::cases;
use super::floor;
use super::results::{Record, Timing};

const HEADER: &str = "\
| Row | ours, ms | PyTorch, ms | fastest variant | PyTorch ÷ ours \
| our rate | PyTorch's rate | floor ÷ ours | ours, J | PyTorch, J |
|---|---|---|---|---|---|---|---|---|---|
";

const NOTES: &str = "\
Times are medians of device time with a wait after each run. PyTorch is its fastest variant.
Bold rows are slower than PyTorch. Rates are TFLOP/s, or GB/s if memory is the floor. The floor
is the larger of FLOP / peak and bytes / bandwidth. Joules are of the whole GPU per run,
without waits between runs.
";

/// Writes the page; `records` are in the order of the table.
pub(super) fn markdown(records: &[Record]) -> String {
    let mut page = String::from("# Comparison with PyTorch\n\n");
    for machine in records.iter().map(machine).collect::<BTreeSet<_>>() {
        writeln!(page, "- {machine}").expect("text");
    }
    let ratios: Vec<f64> = records.iter().filter_map(Record::ratio).collect();
    let lost = ratios.iter().filter(|ratio| **ratio < 1.0).count();
    writeln!(page, "\nPyTorch is faster in {lost} of {} compared rows.\n", ratios.len())
        .expect("text");
    page += HEADER;
    for record in records {
        page += &line(record);
    }
    writeln!(page, "\n{NOTES}").expect("text");
    list(&mut page, "Geometric means of PyTorch ÷ ours", means(records));
    list(&mut page, "Variants of PyTorch that failed", failures(records));
    list(&mut page, "Rows that were not measured", missing(records));
    page.truncate(page.trim_end().len());
    page + "\n"
}

fn list(page: &mut String, title: &str, lines: Vec<String>) {
    if !lines.is_empty() {
        writeln!(page, "{title}:\n").expect("text");
        for line in lines {
            writeln!(page, "- {line}").expect("text");
        }
        page.push('\n');
    }
}

/// The machine and the settings of a record.
fn machine(record: &Record) -> String {
    let mut parts = vec![record.device().to_owned()];
    for (field, name) in
        [("driver", "driver"), ("driver_cuda", "CUDA"), ("torch", "PyTorch"), ("cudnn", "cuDNN")]
    {
        match &record.machine[field] {
            serde_json::Value::String(text) => parts.push(format!("{name} {text}")),
            serde_json::Value::Null => {}
            other => parts.push(format!("{name} {other}")),
        }
    }
    parts.extend(record.label.clone());
    if record.quick {
        parts.push("quick: few samples, no eager and merged variants".to_owned());
    }
    parts.join(", ")
}

fn line(record: &Record) -> String {
    let ours = &record.measured.ours;
    let absent = || match &record.measured.no_peer {
        Some(why) => why.clone(),
        None => "failed".to_owned(),
    };
    let (peer, variant) = match record.best_peer() {
        Some((variant, timing)) => (Some(timing), variant.to_owned()),
        None => (None, absent()),
    };
    let ratio = record.ratio();
    let lost = ratio.is_some_and(|ratio| ratio < 1.0);
    let bold = |text: String| if lost { format!("**{text}**") } else { text };
    let dash = |text: Option<String>| text.unwrap_or_else(|| "–".to_owned());
    let floor = record.row.floor(record.device());
    let of_floor = floor.map(|floor| format!("{:.0} %", 100.0 * floor.ms / ours.ms_median));
    let joules = |timing: &Timing| timing.joules.map(significant);
    let cells = [
        bold(record.row.row.clone()),
        significant(ours.ms_median),
        dash(peer.map(|peer| significant(peer.ms_median))),
        variant,
        bold(dash(ratio.map(|ratio| format!("{ratio:.2}")))),
        rate(record, ours),
        dash(peer.map(|peer| rate(record, peer))),
        dash(of_floor),
        dash(joules(ours)),
        dash(peer.and_then(joules)),
    ];
    format!("| {} |\n", cells.join(" | "))
}

/// TFLOP/s, or GB/s if the floor is memory.
fn rate(record: &Record, timing: &Timing) -> String {
    let seconds = timing.ms_median / 1e3;
    let is_memory = record.row.floor(record.device()).is_some_and(|floor| floor.is_memory);
    match is_memory {
        true => format!("{:.0} GB/s", record.row.bytes / seconds / 1e9),
        false => format!("{} TFLOP/s", significant(record.row.flop / seconds / 1e12)),
    }
}

/// A positive number with three significant digits.
fn significant(value: f64) -> String {
    let decimals = (2 - value.abs().log10().floor() as i32).clamp(0, 6);
    format!("{value:.*}", decimals as usize)
}

fn failures(records: &[Record]) -> Vec<String> {
    let of_record = |record: &'_ Record| {
        let line = |(variant, error): (&str, &str)| {
            let words: Vec<_> = error.split_whitespace().collect();
            format!("{}, {variant}: {}", record.row.row, words.join(" "))
        };
        record.failed().map(line).collect::<Vec<_>>()
    };
    records.iter().flat_map(of_record).collect()
}

/// The mean of each group of rows: those whose names are equal up to shape or size.
fn means(records: &[Record]) -> Vec<String> {
    let mut groups: Vec<(String, Vec<f64>)> = Vec::new();
    for (record, ratio) in records.iter().filter_map(|it| Some((it, it.ratio()?))) {
        let parts = record.row.row.split('-');
        let kind = parts.take_while(|part| !part.starts_with(|it: char| it.is_ascii_digit()));
        let kind = kind.collect::<Vec<_>>().join("-");
        match groups.iter_mut().find(|(name, _)| *name == kind) {
            Some((_, ratios)) => ratios.push(ratio),
            None => groups.push((kind, vec![ratio])),
        }
    }
    let several = groups.into_iter().filter(|(_, ratios)| ratios.len() > 1);
    let line = |(kind, ratios): (String, Vec<f64>)| {
        let count = ratios.len();
        let logarithms: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
        format!("{kind}: {:.2} ({count} rows)", (logarithms / count as f64).exp())
    };
    several.map(line).collect()
}

fn missing(records: &[Record]) -> Vec<String> {
    let rows = cases::all().iter().flat_map(floor::rows).map(|row| row.row).collect::<Vec<_>>();
    rows.into_iter().filter(|row| records.iter().all(|it| it.row.row != *row)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::results::parse;
    use super::*;

    /// Made up: these times were not measured.
    const FIXTURE: &str = include_str!("fixture.jsonl");

    #[test]
    fn the_table_names_losses_failures_and_gaps() {
        let page = markdown(&parse(FIXTURE).unwrap());
        for expected in [
            "- NVIDIA H200, driver fixture, CUDA 13.0, PyTorch fixture, made by hand\n",
            "PyTorch is faster in 1 of 2 compared rows.",
            "| lora-bf16-1.5B-1x32 | 2.00 | 3.00 | compiled | 1.50 \
             | 1500 GB/s | 1000 GB/s | 36 % | 1.25 | – |",
            "| **lora-bf16-1.5B-4x512** | 40.0 | 30.0 | captured | **0.75** |",
            "| lora-nf4-1.5B-4x512 | 50.0 | – | PyTorch has no NF4 | – |",
            "| lora-f32-1.5B-1x32 | 10.0 | – | failed | – |",
            "- lora-bf16-1.5B-4x512, compiled: OutOfMemoryError: fixture\n",
            // √(1.5 · 0.75)
            "- lora-bf16: 1.06 (2 rows)\n",
            "- decode-bf16-1.5B-1x512of1024\n",
        ] {
            assert!(page.contains(expected), "{expected}\nis not in\n{page}");
        }
    }

    #[test]
    fn numbers_have_three_digits() {
        let found = [0.012_345, 1.0, 9.876, 98.76, 1234.5].map(significant);
        assert_eq!(found, ["0.0123", "1.00", "9.88", "98.8", "1234"]);
    }
}
