//! `retrograph bench`.

use std::path::Path;

use indicatif::HumanBytes;
use retrograph_finetune::bench::{Bench, Measurement};
use retrograph_finetune::{Device, Mode, Stage};
use serde::Serialize;

use crate::args::BenchArguments;
use crate::error::CliError;
use crate::outputs::{self, Output};
use crate::screen::{self, Startup, fact};
use crate::{Outcome, decode_bench, file};

/// The results, the device, and the settings of a benchmark.
#[derive(Serialize)]
struct Results<'a, S, M> {
    device: &'a str,
    simulated: bool,
    driver: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    preset: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model_config: Option<&'a Path>,
    mode: retrograph_finetune::Mode,
    #[serde(flatten)]
    settings: S,
    measurements: &'a [M],
}

/// The settings of a benchmark of training.
#[derive(Serialize)]
struct Settings {
    steps: u32,
}

/// Runs the benchmarks of the arguments.
pub(crate) fn run(arguments: &BenchArguments) -> Result<Outcome, CliError> {
    arguments.model.require_mode()?;
    let output = arguments.json.as_deref();
    let output = output.map(|path| Output { what: "the results", path, begins: r#"{"device":"# });
    outputs::require(output.as_slice(), &[])?;
    let config = arguments.config()?;
    let device = Device::open(arguments.device)?;
    screen::device(&device);
    let modules = arguments.cache.modules(&device, arguments.device)?;
    let mut startup = Startup::new();
    let start = &mut |stage: Stage<'_>| startup.show(&stage);
    if !arguments.decode.is_empty() {
        return decode_bench::run(arguments, &config, &device, &modules, start);
    }
    let mode = config.mode;
    let bench = Bench {
        config,
        sizes: arguments.sizes.iter().map(|size| size.0).collect(),
        strategies: arguments.strategies.clone(),
        warm_up: arguments.warm_up,
        steps: arguments.steps.max(1),
        energy: arguments.energy,
    };
    let rows = &mut rows(device.simulated, heading, line, arguments);
    let measurements = bench.run(&modules, start, rows)?;
    if let Some(path) = &arguments.json {
        let settings = Settings { steps: arguments.steps };
        write(path, arguments, mode, settings, &device, &measurements)?;
    }
    Ok(Outcome::Done)
}

/// Prints each measurement, after a `heading`. Stops if printing fails, unless the results are also
/// written to a file.
pub(crate) fn rows<M>(
    simulated: bool,
    heading: fn(),
    line: fn(&M),
    arguments: &BenchArguments,
) -> impl FnMut(&M) -> bool {
    let mut begun = false;
    let kept = arguments.json.is_some();
    move |measurement| {
        if !begun {
            let nothing = "times are SIMULATED and meaningless";
            fact("results", if simulated { nothing } else { "times in ms" });
            heading();
        }
        begun = true;
        line(measurement);
        kept || screen::works()
    }
}

fn heading() {
    screen::line(format_args!(
        "{:>8} {:>13} {:>6} {:>6} {:>6} {:>9} {:>9} {:>9} {:>9} {:>11} {:>11} {:>11} {:>7}",
        "size",
        "strategy",
        "nodes",
        "edges",
        "depth",
        "step",
        "pipelined",
        "submit",
        "build",
        "instantiate",
        "planned",
        "taken",
        "%"
    ));
}

fn line(one: &Measurement) {
    let size = format!("{}x{}", one.batch, one.seq);
    let bytes = |bytes: usize| HumanBytes(bytes as u64).to_string();
    screen::line(format_args!(
        "{size:>8} {:>13} {:>6} {:>6} {:>6} {:>9.3} {:>9.3} {:>9.3} {:>9.2} {:>11.2} {:>11} {:>11} \
         {:>+7.1}",
        one.strategy,
        one.nodes,
        one.edges,
        one.depth,
        one.step_ms_median,
        one.pipelined_ms,
        one.submit_ms_median,
        one.build_ms,
        one.instantiate_ms,
        bytes(one.memory.planned_bytes),
        bytes(one.memory.measured_bytes),
        one.memory.difference_percent
    ));
}

/// Writes the results as JSON.
pub(crate) fn write(
    path: &Path,
    arguments: &BenchArguments,
    mode: Mode,
    settings: impl Serialize,
    device: &Device,
    measurements: &[impl Serialize],
) -> Result<(), CliError> {
    let model_config = arguments.model_config.as_deref();
    let results = Results {
        device: &device.info.name,
        simulated: device.simulated,
        driver: device.context.driver().version().to_string(),
        preset: model_config.is_none().then_some(arguments.model.preset.name()),
        model_config,
        mode,
        settings,
        measurements,
    };
    file::write_json("the results", path, &results)?;
    fact("json", path.display());
    Ok(())
}
