//! Runs our program and the peer's script of a case, and reads their results.

use anyhow::{Context, bail};
use serde_json::Value;

use super::cases::Case;
use super::commands::{self, Place, Settings};
use super::floor::{self, Row, attention_name, product_name};
use super::programs::Programs;
use super::results::{Measured, Timing, Variant};

/// Measures a case: our program first, then the peer's script.
pub(crate) fn case(
    case: &Case,
    programs: &Programs,
    settings: Settings,
) -> anyhow::Result<Vec<(Row, Measured)>> {
    let ours = ours(case, programs, Place::Gpu(settings))?;
    let (peers, no_peer) = match commands::peer(case, settings) {
        Err(why) => (Vec::new(), Some(why.to_owned())),
        Ok(_) if settings.without_peers => (Vec::new(), Some(LEFT_OUT.to_owned())),
        Ok(call) => (peers(case, &programs.script(call.program, &call.arguments)), None),
    };
    let row = |row: Row| {
        let found = ours.iter().find(|(name, _)| *name == row.row);
        let (_, ours) = found.with_context(|| format!("our program measured no {}", row.row))?;
        let of_row = peers.iter().filter(|(name, _)| *name == row.row);
        let mut peers: Vec<_> = of_row.map(|(_, variant)| variant.clone()).collect();
        if no_peer.is_none() && peers.is_empty() {
            peers.push(Variant::failed("script", "the script measured no such row"));
        }
        Ok((row, Measured { ours: ours.clone(), peers, no_peer: no_peer.clone() }))
    };
    floor::rows(case).into_iter().map(row).collect()
}

/// Why a row has no peer if the command line says so.
pub(crate) const LEFT_OUT: &str = "left out";

/// Runs our program, and returns its times by row.
pub(crate) fn ours(
    case: &Case,
    programs: &Programs,
    place: Place,
) -> anyhow::Result<Vec<(String, Timing)>> {
    let folder = tempfile::tempdir()?;
    let out = folder.path().join("results");
    programs.ours(&commands::ours(case, place, &out))?;
    let text = std::fs::read_to_string(&out)?;
    let found = match case {
        Case::Step { .. } => vec![(case.name(), step(&text, place, "step_ms")?)],
        Case::Prefill { .. } => {
            // The results have only the number of decode steps and their pipelined time.
            let timing = step(&text, place, "prefill_ms")?;
            vec![(case.name(), Timing { samples: None, pipelined_ms: None, ..timing })]
        }
        Case::Decode { .. } => vec![(case.name(), step(&text, place, "token_ms")?)],
        Case::Products { .. } => products(&text)?,
        Case::Attention { .. } => attention(&text)?,
    };
    if found.is_empty() {
        bail!("our program wrote no results of {}", case.name());
    }
    Ok(found)
}

/// The only measurement of `retrograph bench --json`; `prefix` begins the names of its times.
fn step(text: &str, place: Place, prefix: &str) -> anyhow::Result<Timing> {
    let results: Value = serde_json::from_str(text)?;
    if results["simulated"] != (place == Place::Simulator) {
        bail!("`simulated` is {}, which the command did not ask for", results["simulated"]);
    }
    let measured = &results["measurements"][0];
    let number = |name: &str| measured[name].as_f64();
    let median = format!("{prefix}_median");
    Ok(Timing {
        ms_median: number(&median).with_context(|| format!("no {median}"))?,
        ms_min: number(&format!("{prefix}_min")),
        ms_max: number(&format!("{prefix}_max")),
        samples: results["steps"].as_u64().or(results["tokens"].as_u64()),
        pipelined_ms: number("pipelined_ms"),
        joules: number("joules"),
    })
}

/// The times of `gemm_speed --chosen`.
fn products(text: &str) -> anyhow::Result<Vec<(String, Timing)>> {
    let line = |line: &str| {
        let value: Value = serde_json::from_str(line)?;
        let micros = value["us"].as_f64().context("no us")?;
        Ok((product_row(&value)?, Timing::of_ms(micros / 1e3)))
    };
    text.lines().map(line).collect()
}

/// The times of `attention_speed`, summed over the launches of a pass.
fn attention(text: &str) -> anyhow::Result<Vec<(String, Timing)>> {
    let mut found: Vec<(String, Timing)> = Vec::new();
    for line in text.lines() {
        let value: Value = serde_json::from_str(line)?;
        let ms = value["us"].as_f64().context("no us")? / 1e3;
        let pass = value["pass"].as_str().context("no pass")?.trim_start_matches("bf16 ");
        let name = attention_name(pass, numbers(&value["sizes"])?);
        match found.iter_mut().find(|(row, _)| *row == name) {
            Some((_, timing)) => timing.ms_median += ms,
            None => found.push((name, Timing::of_ms(ms))),
        }
    }
    Ok(found)
}

/// The variants that a script measured, by row; one failed variant of all rows if it failed.
fn peers(case: &Case, lines: &anyhow::Result<Vec<Value>>) -> Vec<(String, Variant)> {
    let failed = |error: &anyhow::Error| {
        let variant = Variant::failed("script", &format!("{error:#}"));
        floor::rows(case).into_iter().map(|row| (row.row, variant.clone())).collect()
    };
    let parsed = match lines {
        Ok(lines) => lines.iter().map(|line| peer(case, line)).collect::<anyhow::Result<Vec<_>>>(),
        Err(error) => return failed(error),
    };
    match parsed {
        Ok(parsed) => parsed,
        Err(error) => failed(&error),
    }
}

/// The variant of one line of a script, and the row that it is about.
fn peer(case: &Case, line: &Value) -> anyhow::Result<(String, Variant)> {
    let row = match case {
        Case::Step { .. } | Case::Prefill { .. } | Case::Decode { .. } => case.name(),
        Case::Products { .. } => product_row(line)?,
        Case::Attention { .. } => {
            let pass = line["pass"].as_str().with_context(|| format!("no pass in {line}"))?;
            attention_name(pass, numbers(&line["size"])?)
        }
    };
    Ok((row, serde_json::from_value(line.clone())?))
}

fn product_row(line: &Value) -> anyhow::Result<String> {
    let number = |name: &str| {
        let number = line[name].as_u64().with_context(|| format!("no {name} in {line}"))?;
        anyhow::Ok(number as usize)
    };
    let op = line["op"].as_str().with_context(|| format!("no op in {line}"))?;
    Ok(product_name(op, [number("rows")?, number("inputs")?, number("outputs")?]))
}

fn numbers(value: &Value) -> anyhow::Result<[usize; 5]> {
    serde_json::from_value(value.clone()).with_context(|| format!("{value} are not five numbers"))
}

/// Checks that a case runs: small, on the simulated driver.
pub(crate) fn check(case: &Case, programs: &Programs) -> anyhow::Result<()> {
    ours(case, programs, Place::Simulator).map(|_| ())
}

/// Checks that the peer's script accepts its arguments.
pub(crate) fn check_peer(case: &Case, programs: &Programs) -> anyhow::Result<()> {
    let all = Settings::default();
    for settings in [all, Settings { quick: true, ..all }, Settings { compiled_only: true, ..all }]
    {
        if let Ok(call) = commands::peer(case, settings) {
            let arguments = call.arguments.iter().cloned().chain(["--dry-run".to_owned()]);
            programs.script(call.program, &arguments.collect::<Vec<_>>())?;
        }
        for call in commands::compilations(case, settings) {
            programs.script(call.program, &call.with(&["--dry-run"]).arguments)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    // All numbers are made up.

    const SIZE: [usize; 5] = [1, 32, 12, 2, 128];

    fn of_size() -> Case {
        Case::Attention { sizes: &[SIZE] }
    }

    #[test]
    fn launches_of_a_pass_are_added() {
        let line = |(pass, us): (&str, f64)| {
            json!({ "sizes": SIZE, "pass": pass, "entry": "e", "us": us }).to_string()
        };
        let lines = [("bf16 forward", 5.0), ("bf16 backward", 1.0), ("bf16 backward", 2.5)];
        let found = attention(&lines.map(line).join("\n")).unwrap();
        let times: Vec<_> = found.into_iter().map(|(_, timing)| timing.ms_median).collect();
        assert_eq!(times, [0.005, 0.0035]);
    }

    #[test]
    fn lines_of_a_script_find_their_rows() {
        let timed = json!({ "variant": "cudnn", "size": SIZE, "ms_median": 0.01 });
        let line = |pass: &str| {
            let mut line = timed.clone();
            line["pass"] = pass.into();
            line
        };
        let mut failed = line("backward");
        failed["variant"] = "flash".into();
        failed["error"] = "no kernel".into();
        failed.as_object_mut().unwrap().remove("ms_median");
        let found = peers(&of_size(), &Ok(vec![line("forward"), line("backward"), failed]));
        let rows: Vec<_> = floor::rows(&of_size()).into_iter().map(|row| row.row).collect();
        let [forward, backward] = &rows[..] else { panic!("{rows:?}") };
        let names: Vec<_> = found.iter().map(|(row, _)| row).collect();
        assert_eq!(names, [forward, backward, backward]);
        assert_eq!(found[1].1.timing, Some(Timing::of_ms(0.01)));
        assert_eq!(found[2].1, Variant::failed("flash", "no kernel"));
    }

    #[test]
    fn a_failed_script_fails_every_row() {
        let found = peers(&of_size(), &Err(anyhow::anyhow!("no memory")));
        assert_eq!(found.len(), 2);
        assert!(found.iter().all(|(_, it)| it.error.as_deref() == Some("no memory")));
    }

    #[test]
    fn simulated_times_are_refused() {
        let text = json!({
            "simulated": true, "steps": 2, "measurements": [{ "step_ms_median": 1.0 }],
        });
        let settings = Settings::default();
        let error = step(&text.to_string(), Place::Gpu(settings), "step_ms").unwrap_err();
        assert!(error.to_string().contains("`simulated` is true"), "{error}");
        let found = step(&text.to_string(), Place::Simulator, "step_ms").unwrap();
        assert_eq!((found.ms_median, found.samples), (1.0, Some(2)));
    }
}
