//! `retrograph bench`.

use std::path::Path;

use indicatif::HumanBytes;
use retrograph_finetune::bench::{Bench, Measurement};
use retrograph_finetune::{Device, Mode, ModelConfig, Precision, Stage, TrainingConfig};
use serde::Serialize;

use crate::args::BenchArguments;
use crate::error::CliError;
use crate::outputs::{self, Output};
use crate::run_config::with_used_patterns;
use crate::screen::{self, Startup, fact};
use crate::{Outcome, decode_bench, file};

/// The JSON file: the device, the model, the settings and the measurements.
#[derive(Serialize)]
struct Results<'a, S, M> {
    device: &'a str,
    simulated: bool,
    driver: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    preset: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model_config: Option<&'a Path>,
    model: ModelConfig,
    mode: Mode,
    precision: Precision,
    bf16_weights: bool,
    warm_up: u32,
    #[serde(flatten)]
    settings: S,
    /// Whether every case was measured.
    complete: bool,
    measurements: &'a [M],
}

/// The settings of a benchmark of training.
#[derive(Serialize)]
struct Settings {
    steps: u32,
    /// The share of the tokens that have a target.
    targets: f32,
}

/// Runs the benchmarks of the arguments.
pub(crate) fn run(arguments: &BenchArguments) -> Result<Outcome, CliError> {
    arguments.model.require_mode()?;
    let output = arguments.json.as_deref();
    let output = output.map(|path| Output { what: "the results", path, begins: r#"{"device":"# });
    outputs::require(output.as_slice(), &[])?;
    let config = with_used_patterns(arguments.config()?)?;
    let device = Device::open(arguments.device)?;
    screen::device(&device);
    let modules = arguments.cache.modules(&device, arguments.device)?;
    let mut startup = Startup::new();
    let start = &mut |stage: Stage<'_>| startup.show(&stage);
    if !arguments.decode.is_empty() {
        return decode_bench::run(arguments, &config, &device, &modules, start);
    }
    let bench = Bench {
        config,
        sizes: arguments.sizes.iter().map(|size| size.0).collect(),
        strategies: arguments.strategies.clone(),
        warm_up: arguments.warm_up,
        steps: arguments.steps,
        targets: arguments.targets,
        energy: arguments.energy,
        profile: arguments.profile,
    };
    let settings = Settings { steps: arguments.steps, targets: arguments.targets };
    let mut table = Table::new(arguments, &config, &device, settings, heading, line);
    bench.run(&modules, start, &mut |measurement| table.add(measurement))?;
    table.finish()
}

/// Prints each measurement, and writes all of them to the JSON file after each, so that an
/// interrupted benchmark keeps what it has measured.
pub(crate) struct Table<'a, S, M> {
    arguments: &'a BenchArguments,
    config: &'a TrainingConfig,
    device: &'a Device,
    settings: S,
    heading: fn(),
    line: fn(&M),
    measurements: Vec<M>,
    written: Result<(), CliError>,
}

impl<'a, S: Serialize, M: Serialize + Clone> Table<'a, S, M> {
    pub(crate) fn new(
        arguments: &'a BenchArguments,
        config: &'a TrainingConfig,
        device: &'a Device,
        settings: S,
        heading: fn(),
        line: fn(&M),
    ) -> Self {
        let (measurements, written) = (Vec::new(), Ok(()));
        Self { arguments, config, device, settings, heading, line, measurements, written }
    }

    /// Prints a measurement. Returns whether to continue: until printing fails, unless the results
    /// are also written to a file, or until writing fails.
    pub(crate) fn add(&mut self, measurement: &M) -> bool {
        if self.measurements.is_empty() {
            let nothing = "times are SIMULATED and meaningless";
            fact("results", if self.device.simulated { nothing } else { "times in ms" });
            (self.heading)();
        }
        (self.line)(measurement);
        self.measurements.push(measurement.clone());
        let Some(path) = &self.arguments.json else { return screen::works() };
        self.written = self.write(path, false);
        self.written.is_ok()
    }

    /// Writes the file of all cases.
    pub(crate) fn finish(self) -> Result<Outcome, CliError> {
        self.written?;
        let table = Self { written: Ok(()), ..self };
        if let Some(path) = &table.arguments.json {
            table.write(path, true)?;
            fact("json", path.display());
        }
        Ok(Outcome::Done)
    }

    fn write(&self, path: &Path, complete: bool) -> Result<(), CliError> {
        let Self { arguments, config, device, .. } = self;
        let model_config = arguments.model_config.as_deref();
        let results = Results {
            device: &device.info.name,
            simulated: device.simulated,
            driver: device.context.driver().version().to_string(),
            preset: model_config.is_none().then_some(arguments.model.dimensions.preset.name()),
            model_config,
            model: config.model,
            mode: config.mode,
            precision: config.precision,
            bf16_weights: arguments.bf16_weights,
            warm_up: arguments.warm_up,
            settings: &self.settings,
            complete,
            measurements: &self.measurements,
        };
        file::write_json("the results", path, &results)
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
    one.profile.iter().for_each(screen::line);
}
