//! Output of the results as tables and as JSON.

use std::collections::BTreeMap;

use retrograph_ptx::SmTarget;
use serde_json::{Value, json};

use super::{Findings, Row, occupancy};

pub(crate) fn all(findings: &Findings, as_json: bool) {
    if as_json {
        println!("{:#}", to_json(findings));
        return;
    }
    if !findings.rows.is_empty() {
        table(&findings.rows);
    }
    device(&findings.device);
    measured(&findings.measured);
    findings.notes.iter().for_each(|note| println!("note: {note}"));
    findings.unchecked.iter().for_each(|what| println!("not checked: {what}"));
    findings.shortfalls.iter().for_each(|what| println!("SHORTFALL: {what}"));
    let (entries, shortfalls) = (findings.rows.len(), findings.shortfalls.len());
    println!("prewarm: {entries} entry points assembled, {shortfalls} shortfalls");
}

fn to_json(findings: &Findings) -> Value {
    let kernel = |row: &Row| {
        let Row { usage, threads, blocks, statements } = row;
        json!({
            "target": usage.target.to_string(), "image": usage.image, "entry": usage.entry,
            "registers": usage.registers, "shared_bytes": usage.shared_bytes,
            "spill_bytes": usage.spill_bytes, "threads": threads, "blocks": blocks,
            "statements": statements,
            "occupancy_percent": occupancy::percent(usage.target, *blocks, *threads),
        })
    };
    json!({
        "kernels": findings.rows.iter().map(kernel).collect::<Vec<_>>(),
        "device": findings.device, "measured": findings.measured,
        "notes": findings.notes, "not_checked": findings.unchecked,
        "shortfalls": findings.shortfalls,
    })
}

/// One row per entry point: static shared memory, then registers and occupancy per target.
fn table(rows: &[Row]) {
    let mut targets: Vec<SmTarget> = rows.iter().map(|row| row.usage.target).collect();
    targets.sort_unstable();
    targets.dedup();
    let heads: Vec<_> = targets.iter().map(|target| format!("{target:>9}")).collect();
    println!("{:<40} {:>7} {}", "registers, occupancy of", "shared", heads.join(" "));
    let mut entries: BTreeMap<(&str, &str), Vec<&Row>> = BTreeMap::new();
    for row in rows {
        entries.entry((&row.usage.image, &row.usage.entry)).or_default().push(row);
    }
    for ((_, entry), rows) in entries {
        let shared = rows.iter().map(|row| row.usage.shared_bytes).max().unwrap_or(0);
        let cell = |target: &SmTarget| {
            let row = rows.iter().find(|row| row.usage.target == *target);
            row.map_or("-".to_owned(), |row| {
                let percent = occupancy::percent(*target, row.blocks, row.threads);
                format!("{}, {percent}%", row.usage.registers)
            })
        };
        let cells: Vec<_> = targets.iter().map(|target| format!("{:>9}", cell(target))).collect();
        println!("{entry:<40} {shared:>7} {}", cells.join(" "));
    }
}

fn device(device: &Value) {
    let Some(kernels) = device["kernels"].as_array() else { return };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    println!("{}: {}", text(&device["name"]), text(&device["sources"]));
    println!("{:<40} {:>9} {:>6} {:>7}", "as loaded", "registers", "local", "shared");
    for kernel in kernels {
        // JSON values ignore the width of a format.
        let [registers, local, shared] =
            ["registers", "local_bytes", "shared_bytes"].map(|key| kernel[key].to_string());
        println!("{:<40} {registers:>9} {local:>6} {shared:>7}", text(&kernel["entry"]));
    }
}

fn measured(measured: &Value) {
    for case in measured.as_array().into_iter().flatten() {
        let name = case["case"].as_str().unwrap_or_default();
        let (times, sources) = (&case["ms"], case["sources"].as_str().unwrap_or_default());
        let (all, jit) = (&case["ms_with_generation"], &case["jit_after_warm"]);
        println!(
            "{name:<12} {times} ms, {sources}, with generation {all} ms, JIT after warm {jit}"
        );
    }
}
