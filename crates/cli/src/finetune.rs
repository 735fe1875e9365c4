//! `retrograph finetune`.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use retrograph_finetune::checkpoint::{Checkpoint, CheckpointDirectory};
use retrograph_finetune::parameters::inventory;
use retrograph_finetune::{
    Adapter, Data, Device, Ending, Error, Evaluator, Event, HeldOut, Mode, ModelDirectory, Plan,
    Run, RunReport, Sampling, Split, Tokenizer, TrainedModel, Trainer, TrainerOptions,
    TrainingConfig,
};

use crate::args::FinetuneArguments;
use crate::error::CliError;
use crate::file::{write, write_json};
use crate::metrics::MetricsFile;
use crate::plot::Curves;
use crate::screen::{self, Steps, fact};
use crate::{Outcome, data, interrupt, plot, start};

/// Tokens of the data that the sample continues when no prompt is given.
const PROMPT_TOKENS: usize = 24;

/// What is learned from, and by which tokens.
struct Material {
    tokenizer: Tokenizer,
    split: Split,
}

/// Trains as the arguments say.
pub(crate) fn run(arguments: &FinetuneArguments) -> Result<Outcome, CliError> {
    arguments.output.require_folders()?;
    let base = arguments.base.as_deref().map(ModelDirectory::open).transpose()?;
    let mut adapter = start::adapter(arguments)?;
    // Sequences are made of the size that is asked for while the data is read.
    let asked = arguments.config(base.as_ref());
    TrainingConfig { mode: Mode::Frozen, ..asked }.validate_sizes()?;
    let material = material(arguments, base.as_ref())?;
    let Material { tokenizer, split } = &material;
    let (config, directory, mut checkpoint) =
        resolve(arguments, &split.training, (base.as_ref(), adapter.as_ref()))?;
    config.validate()?;
    start::require_adapter_out(arguments, &config)?;
    split.training.require(config.seq)?;
    let plan = plan(arguments, &config, (base, split.held_out.is_some()))?;
    let device = Device::open(arguments.device)?;
    screen::device(&device);
    screen::run(&config);
    screen::batch(&config, plan.step_pass().division);
    data::show(split, tokenizer, &config);
    let modules = arguments.cache.modules(&device, arguments.device)?;
    let mut trainer = start::start(plan, &modules, (checkpoint.as_mut(), adapter.as_mut()))?;
    picture(arguments, &mut trainer, &split.training)?;
    let until = arguments.training.steps.unwrap_or(config.optimizer.total_steps);
    let held_out = match &split.held_out {
        None => None,
        Some(data) => {
            let (evaluator, every) = (Evaluator::of(&trainer)?, arguments.data_use.eval_every);
            Some(HeldOut { data, evaluator, every })
        }
    };
    let checkpoint_every = arguments.checkpoint_every;
    let data = &split.training;
    let mut run = Run { trainer, data, held_out, checkpoints: directory, checkpoint_every };
    let (ending, times) = train(&mut run, &device, (until, interrupt::defer()), arguments)?;
    finish(arguments, (run, &device, tokenizer), (ending, &times))
}

/// Reads the data by the tokenizer of `base`.
fn material(
    arguments: &FinetuneArguments,
    base: Option<&ModelDirectory>,
) -> Result<Material, CliError> {
    let tokenizer = data::tokenizer(base)?;
    let training = &arguments.training;
    let options = arguments.data.options(training.seq);
    let options = arguments.data_use.options(options, training.seed);
    let split = data::read(&arguments.data, &tokenizer, options)?;
    Ok(Material { tokenizer, split })
}

type Resolved = (TrainingConfig, Option<CheckpointDirectory>, Option<Checkpoint>);

/// The configuration, from the arguments or, for what a resumed run must not change, from its
/// checkpoint.
fn resolve(
    arguments: &FinetuneArguments,
    data: &Data,
    (base, adapter): (Option<&ModelDirectory>, Option<&Adapter>),
) -> Result<Resolved, CliError> {
    let mut asked = arguments.config(base);
    if let Some(adapter) = adapter {
        asked.mode = Mode::Lora(adapter.lora());
        adapter.require(&inventory(&asked.model, asked.mode)).map_err(Error::from)?;
    }
    let Some(path) = &arguments.checkpoint else { return Ok((asked, None, None)) };
    if !arguments.resume {
        asked.validate()?;
        data.require(asked.seq)?;
        let directory = CheckpointDirectory::create(path)?;
        directory.require_empty()?;
        return Ok((asked, Some(directory), None));
    }
    let directory = CheckpointDirectory::at(path);
    let checkpoint = directory.open_latest()?;
    let header = checkpoint.header();
    header.require(&asked, data.fingerprint())?;
    header.require_base(base)?;
    header.require_division(&arguments.division.step(), &asked)?;
    header.require_optimizer(&arguments.training.given(&header.config.optimizer))?;
    fact("resume", format!("{} after step {}", checkpoint.path().display(), header.next_step));
    Ok((header.config, Some(directory), Some(checkpoint)))
}

fn plan(
    arguments: &FinetuneArguments,
    config: &TrainingConfig,
    (base, held_out): (Option<ModelDirectory>, bool),
) -> Result<Plan, CliError> {
    let options = TrainerOptions {
        build: arguments.strategy.policy().into(),
        verify: arguments.verify,
        step: arguments.division.step(),
        lengths: arguments.data_use.buckets as usize,
    };
    let mut plan = Plan::new(config, options)?;
    if let Some(base) = base {
        fact("base", base.path().display());
        plan = plan.with_base(base)?;
    }
    if held_out {
        plan = plan.with_held_out()?;
    }
    let pass = &plan.step_pass().pass;
    if arguments.output.explain {
        screen::line(pass.explain());
    }
    if let Some(path) = &arguments.output.dot {
        write("the drawing", path, &pass.to_dot())?;
    }
    Ok(plan)
}

/// Measures the step and draws it, as far as that was asked for. Training begins behind it as if
/// nothing had been measured.
fn picture(
    arguments: &FinetuneArguments,
    trainer: &mut Trainer,
    data: &Data,
) -> Result<(), CliError> {
    let output = &arguments.output;
    let mut profile = None;
    if let Some(path) = &output.profile {
        let config = *trainer.config();
        let batch = data.batch([config.batch, config.seq], config.seed, trainer.next_step())?;
        let measured = trainer.profile(&batch, output.profile_replays)?;
        screen::line(&measured);
        write_json("the profile", path, &measured)?;
        fact("profile", path.display());
        profile = Some(measured);
    }
    if let Some(path) = &output.graph {
        let pass = &trainer.step_pass().pass;
        write("the graph", path, &pass.to_svg(profile.as_ref()))?;
        fact("graph", path.display());
    }
    Ok(())
}

/// Trains and says how it ended, with the time of each step.
fn train(
    run: &mut Run<'_>,
    device: &Device,
    (until, stop): (u32, &AtomicBool),
    arguments: &FinetuneArguments,
) -> Result<(Ending, Vec<f32>), CliError> {
    let mut times = Vec::new();
    let from = run.trainer.next_step();
    let config = *run.trainer.config();
    let mut steps = Steps::new(&config, from, until, device.simulated);
    let described = (&config, device.simulated);
    let open = |path: &PathBuf| MetricsFile::open(path, from, described);
    let mut file = arguments.output.metrics.as_ref().map(open).transpose()?;
    let ending = run.train(until, stop, &mut |event| match event {
        Event::Step(metrics) => {
            times.push(metrics.device_ms);
            steps.show(&metrics);
            file.iter_mut().for_each(|file| file.write(&metrics));
        }
        Event::HeldOut(found) => {
            steps.held_out(&found);
            file.iter_mut().for_each(|file| file.held_out(&found));
        }
    });
    steps.finish();
    if let Err(error @ Error::NotBitEqual { .. }) = ending {
        // A report that says so is worth more than none.
        let report = RunReport {
            verified_bitwise: Some(false),
            ..RunReport::new(device, &run.trainer, &times)
        };
        write_report(arguments.output.report.as_deref(), &report)?;
        return Err(error.into());
    }
    let ending = ending?;
    file.map_or(Ok(()), MetricsFile::finish)?;
    Ok((ending, times))
}

/// Everything after the last step.
fn finish(
    arguments: &FinetuneArguments,
    (run, device, tokenizer): (Run<'_>, &Device, &Tokenizer),
    (ending, times): (Ending, &[f32]),
) -> Result<Outcome, CliError> {
    let Run { trainer, data, checkpoints, .. } = run;
    let losses = trainer.losses();
    if let (Some(first), Some(last)) = (losses.first(), losses.last()) {
        fact("loss", format!("{first:.4} at the first step, {last:.4} at step {}", losses.len()));
    }
    if trainer.verified_steps() > 0 {
        let steps = trainer.verified_steps();
        fact("verified", format!("{steps} steps equal the eager step bit for bit"));
    }
    let report = RunReport { data: data::tally(data), ..RunReport::new(device, &trainer, times) };
    if let Some(found) = &report.memory {
        screen::memory_use(found, device.simulated);
    }
    write_report(arguments.output.report.as_deref(), &report)?;
    if let Some(path) = &arguments.output.plot {
        let title = &format!("loss on {}", report.device);
        let (unit, held_out) = (data::unit(tokenizer), trainer.held_out());
        plot::loss_curve(path, &Curves { title, unit, losses, held_out })?;
        fact("plot", path.display());
    }
    if let Some(output) = start::adapter_output(arguments) {
        trainer.export_adapter(output)?;
        fact("adapter", output.folder.display());
    }
    if let Some(directory) = checkpoints {
        let path = directory.latest()?.unwrap_or_default();
        fact("checkpoint", path.display());
    } else if ending == Ending::Stopped {
        fact("stopped", "nothing was kept, since there is no --checkpoint");
    }
    if ending == Ending::Stopped {
        return Ok(Outcome::Interrupted);
    }
    sample(arguments, &trainer.into_model(), (data, tokenizer))?;
    Ok(Outcome::Done)
}

/// Shows what the model writes.
fn sample(
    arguments: &FinetuneArguments,
    model: &TrainedModel,
    (data, tokenizer): (&Data, &Tokenizer),
) -> Result<(), CliError> {
    let output = &arguments.output;
    if output.sample == 0 {
        return Ok(());
    }
    let prompt = match &output.prompt {
        Some(prompt) => {
            let start = tokenizer.start().into_iter();
            start.chain(tokenizer.encode(prompt)?).collect()
        }
        None => data.first(PROMPT_TOKENS).to_vec(),
    };
    interrupt::at_once();
    // The model needs something to continue.
    let prompt = if prompt.is_empty() { tokenizer.encode("\n")? } else { prompt };
    let seed = arguments.training.seed;
    let sampling = Sampling { temperature: output.temperature, seed, ..Sampling::greedy() };
    let mut text = model.generate(&prompt, output.sample, sampling)?;
    let end = text.iter().position(|token| Some(*token) == tokenizer.end());
    text.truncate(end.unwrap_or(text.len()));
    fact("sample", "the prompt, then what the model makes of it");
    let [prompt, text] = [&prompt, &text].map(|tokens| tokenizer.decode(tokens));
    screen::line(format_args!("{prompt}\u{2502}{text}"));
    Ok(())
}

fn write_report(path: Option<&Path>, report: &RunReport) -> Result<(), CliError> {
    let Some(path) = path else { return Ok(()) };
    write_json("the report", path, report)?;
    fact("report", path.display());
    Ok(())
}
