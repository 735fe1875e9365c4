//! `retrograph finetune`.

use retrograph_finetune::{Device, Evaluator, HeldOut, Plan, Run, Stage};

use crate::args::{FinetuneArguments, UseArguments};
use crate::config_file::RUN_FILE;
use crate::error::CliError;
use crate::failures::Failures;
use crate::file::write;
use crate::metrics::MetricsFile;
use crate::results::Results;
use crate::resume::Checkpoints;
use crate::run_config::RunConfig;
use crate::screen::{self, Startup, fact};
use crate::tensorboard::EventFile;
use crate::{Outcome, data, interrupt};

/// Trains as the arguments say.
pub(crate) fn run(arguments: FinetuneArguments) -> Result<Outcome, CliError> {
    let mut config = RunConfig::resolve(arguments)?;
    let mut failures = Failures::default();
    let plan = plan(&config, &mut failures)?;
    let checkpoints = match (config.resumed.take(), &config.checkpoint) {
        (None, Some(path)) => Some(Checkpoints::create(path)?),
        (resumed, _) => resumed,
    };
    if let Some(checkpoints) = &checkpoints {
        let path = checkpoints.directory.path().join(RUN_FILE);
        write("the configuration", &path, &config.file())?;
    }
    let metrics = config.output.metrics.as_deref().map(MetricsFile::open).transpose()?;
    let events = config.output.tensorboard.as_deref().map(EventFile::create).transpose()?;
    let device = match config.opened.take() {
        Some(device) => device,
        None => Device::open(config.device)?,
    };
    screen::device(&device);
    screen::run(&config.training);
    screen::batch(&config.training, plan.step_pass().micro_batching);
    data::show(&config.data, &config.tokenizer, &config.training);
    let modules = config.cache.modules(&device, config.device)?;
    let mut startup = Startup::new();
    let show = &mut |stage: Stage<'_>| startup.show(&stage);
    let mut trainer = plan.start(&modules, config.trained.source(), show)?;
    let mut results = Results { config: &config, device: &device, metrics, events, failures };
    results.picture(&mut trainer)?;
    let held_out = match &config.data.held_out {
        None => None,
        Some(data) => {
            let UseArguments { eval_every, save_best: keep_best, early_stop: patience, .. } =
                config.held_out;
            let new = HeldOut::new(data, Evaluator::of(&trainer)?, eval_every);
            Some(HeldOut { patience, keep_best, ..new })
        }
    };
    let run = Run {
        trainer,
        data: &config.data.training,
        held_out,
        checkpoints: checkpoints.as_ref().map(|checkpoints| checkpoints.directory.clone()),
        checkpoint_every: config.checkpoint_every,
    };
    results.of(run, interrupt::defer())
}

/// Describes the run, and prints and draws its step if requested.
fn plan(config: &RunConfig, failures: &mut Failures) -> Result<Plan, CliError> {
    let mut plan = Plan::new(&config.training, config.options)?;
    if let Some(base) = &config.base {
        fact("base", base.path().display());
        plan = plan.with_base(base.clone()).map_err(CliError::of_sequences)?;
    }
    if config.data.held_out.is_some() {
        plan = plan.with_held_out()?;
    }
    if config.sample.is_some() {
        plan = plan.with_sample()?;
    }
    let pass = &plan.step_pass().pass;
    if config.output.explain {
        screen::line(pass.explain());
    }
    if let Some(path) = &config.output.dot {
        failures.warn(write("the drawing", path, &pass.to_dot()));
    }
    Ok(plan)
}
