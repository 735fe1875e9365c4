//! `retrograph finetune`.

use std::sync::atomic::Ordering;

use retrograph_finetune::{Device, Evaluator, HeldOut, Plan, ProcessGroup, Run, Stage};

use crate::args::{FinetuneArguments, HoldoutArguments};
use crate::config_file::RUN_FILE;
use crate::error::CliError;
use crate::failures::Failures;
use crate::file::write;
use crate::metrics::MetricsFile;
use crate::ranks::{self, Rank, Role};
use crate::results::Results;
use crate::resume::Checkpoints;
use crate::run_config::RunConfig;
use crate::screen::{self, Startup, fact};
use crate::tensorboard::EventFile;
use crate::{Outcome, data, interrupt};

/// Trains in this process, or in one process per GPU.
pub(crate) fn run(mut arguments: FinetuneArguments) -> Result<Outcome, CliError> {
    arguments.ranks.require_nccl()?;
    let placement = match Role::of(&arguments.ranks)? {
        Role::Alone => return train(RunConfig::resolve(arguments, None)?, None),
        Role::Launcher(count) => {
            arguments.require_equal_parts(count)?;
            let stop = interrupt::defer();
            let status = ranks::launch(count, stop)?;
            return Ok(match stop.load(Ordering::Relaxed) {
                true => Outcome::Interrupted,
                false => Outcome::OfRanks(status),
            });
        }
        Role::Rank(placement) => placement,
    };
    arguments.ranks.ranks = placement.ranks;
    if placement.ranks.rank > 0 {
        screen::be_quiet();
        arguments.output = arguments.output.of_other_ranks();
    }
    let nccl = arguments.ranks.nccl.clone();
    let device = Rank::device(&placement, arguments.device)?;
    let config = RunConfig::resolve(arguments, Some(device.clone()))?;
    let rank = Rank::join(placement, &config.described(device.simulated), nccl)?;
    let outcome = rank.connect(&device).and_then(|()| train(config, Some(rank.group().clone())));
    rank.end(outcome)
}

/// Trains, as one rank of `group` if there is one.
fn train(mut config: RunConfig, group: Option<ProcessGroup>) -> Result<Outcome, CliError> {
    let mut failures = Failures::default();
    let mut plan = plan(&config, &mut failures)?;
    let writes = config.writes();
    let checkpoints = match (config.resumed.take(), &config.checkpoint) {
        (None, Some(path)) if writes => Some(Checkpoints::create(path)?),
        (None, Some(path)) => Some(Checkpoints::of_first_rank(path)),
        (resumed, _) => resumed,
    };
    let done = config.trained.steps();
    if done > 0 && done >= config.until {
        let until = config.until;
        fact("steps", format!("none to train: {done} are done, and the run ends after {until}"));
    } else if let (Some(checkpoints), true) = (&checkpoints, writes) {
        let path = checkpoints.directory.path().join(RUN_FILE);
        write("the configuration", &path, &config.file())?;
    }
    let metrics = config.output.metrics.as_deref().map(MetricsFile::open).transpose()?;
    let events = config.output.tensorboard.as_deref().map(EventFile::create).transpose()?;
    if let Some(group) = group {
        plan = plan.with_group(group);
    }
    let device = match config.opened.take() {
        Some(device) => device,
        None => Device::open(config.device)?,
    };
    screen::device(&device);
    screen::run(&config.training);
    let ranks = config.options.step.ranks;
    screen::batch(&config.training, ranks, plan.step_pass().micro_batching);
    data::show(&config.data, &config.tokenizer, &config.training);
    let modules = config.cache.modules(&device, config.device)?;
    let mut startup = Startup::new();
    let show = &mut |stage: Stage<'_>| startup.show(&stage);
    let mut trainer = plan.start(&modules, config.trained.source(), show)?;
    let mut results = Results { config: &config, device: &device, metrics, events, failures };
    results.profile_and_draw(&mut trainer)?;
    let held_out = match &config.data.held_out {
        None => None,
        Some(data) => {
            let HoldoutArguments { eval_every, save_best: keep_best, early_stop: patience, .. } =
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
    results.train_and_write(run, interrupt::defer())
}

/// Plans the run, and prints and draws its step if requested.
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
