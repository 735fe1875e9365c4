//! `retrograph bench --decode`.

use indicatif::HumanBytes;
use retrograph_finetune::bench::decode::{DecodeBench, DecodeMeasurement};
use retrograph_finetune::{Device, InferenceConfig, Sampling, Stage, TrainingConfig};
use retrograph_runtime::ModuleCache;
use serde::Serialize;

use crate::Outcome;
use crate::args::BenchArguments;
use crate::bench::Table;
use crate::error::CliError;
use crate::screen;

/// The settings of a benchmark of generation.
#[derive(Serialize)]
struct Settings {
    temperature: f32,
    tokens: u32,
}

/// Measures text generation with the settings of the arguments.
pub(crate) fn run(
    arguments: &BenchArguments,
    config: &TrainingConfig,
    device: &Device,
    modules: &ModuleCache,
    start: &mut dyn FnMut(Stage<'_>),
) -> Result<Outcome, CliError> {
    let drawn = Sampling { temperature: 1.0, top_k: 20, top_p: 0.8, ..Sampling::greedy() };
    let bench = DecodeBench {
        config: InferenceConfig::from(config),
        sizes: arguments.decode.iter().map(|size| size.0).collect(),
        strategies: arguments.strategies.clone(),
        cache: arguments.cache_dtype,
        batch: arguments.batch.into(),
        sampling: Sampling { temperature: arguments.temperature, ..drawn },
        warm_up: arguments.warm_up as usize,
        steps: arguments.steps as usize,
        profile: arguments.profile,
    };
    let settings = Settings { temperature: arguments.temperature, tokens: arguments.steps };
    let mut table = Table::new(arguments, config, device, settings, heading, line);
    bench.run(modules, start, &mut |measurement| table.add(measurement))?;
    table.finish()
}

fn heading() {
    screen::line(format_args!(
        "{:>10} {:>14} {:>6} {:>6} {:>9} {:>9} {:>9} {:>9} {:>11} {:>11} {:>11}",
        "size",
        "strategy",
        "nodes",
        "depth",
        "token",
        "pipelined",
        "prefill",
        "prompt",
        "planned",
        "allocated",
        "taken"
    ));
}

fn line(one: &DecodeMeasurement) {
    let size = format!("{}x{}", one.position, one.cache);
    let bytes = |bytes: usize| HumanBytes(bytes as u64).to_string();
    screen::line(format_args!(
        "{size:>10} {:>14} {:>6} {:>6} {:>9.3} {:>9.3} {:>9.3} {:>9.3} {:>11} {:>11} {:>11}",
        one.strategy,
        one.nodes,
        one.depth,
        one.token_ms_median,
        one.pipelined_ms,
        one.prefill_ms_median,
        one.prompt_ms,
        bytes(one.planned_bytes),
        bytes(one.allocated_bytes),
        bytes(one.measured_bytes)
    ));
    one.prefill_profile.iter().chain(&one.profile).for_each(screen::line);
}
