//! `retrograph finetune`.

use std::path::PathBuf;

use retrograph_finetune::parameters::inventory;
use retrograph_finetune::{
    Adapter, Device, Error, Evaluator, HeldOut, Mode, ModelDirectory, Plan, Run, Split, Tokenizer,
    TrainerOptions, TrainingConfig,
};

use crate::args::FinetuneArguments;
use crate::error::CliError;
use crate::failures::Failures;
use crate::file::write;
use crate::metrics::MetricsFile;
use crate::results::Results;
use crate::resume::{self, Checkpoints};
use crate::sample::Sample;
use crate::screen::{self, fact};
use crate::{Outcome, data, interrupt, outputs, start};

/// What is learned from, and by which tokens.
struct Material {
    tokenizer: Tokenizer,
    split: Split,
}

/// Trains as the arguments say.
pub(crate) fn run(arguments: &FinetuneArguments) -> Result<Outcome, CliError> {
    require(arguments)?;
    let base = arguments.base.as_deref().map(ModelDirectory::open).transpose()?;
    let mut adapter = start::adapter(arguments)?;
    // Sequences are made of the size that is asked for while the data is read.
    let asked = arguments.config(base.as_ref());
    TrainingConfig { mode: Mode::Frozen, ..asked }.validate_sizes()?;
    let material = material(arguments, base.as_ref())?;
    let Material { tokenizer, split } = &material;
    let (config, checkpoints) = resolve(arguments, &material, (base.as_ref(), adapter.as_ref()))?;
    start::require_adapter_out(arguments, &config)?;
    let sample = Sample::new(arguments, &config, (&split.training, tokenizer))?;
    let mut failures = Failures::default();
    let plan = plan(arguments, &config, (base, split.held_out.is_some()), &mut failures)?;
    let mut checkpoints = match (checkpoints, &arguments.checkpoint) {
        (None, Some(path)) => Some(Checkpoints::create(path)?),
        (checkpoints, _) => checkpoints,
    };
    let metrics = arguments.output.metrics.as_deref().map(MetricsFile::open).transpose()?;
    let device = Device::open(arguments.device)?;
    screen::device(&device);
    screen::run(&config);
    screen::batch(&config, plan.step_pass().division);
    data::show(split, tokenizer, &config);
    let modules = arguments.cache.modules(&device, arguments.device)?;
    let resumed = checkpoints.as_mut().and_then(|checkpoints| checkpoints.resumed.as_mut());
    let mut trainer = start::start(plan, &modules, (resumed, adapter.as_mut()))?;
    let mut results = Results { arguments, device: &device, tokenizer, metrics, failures };
    results.picture(&mut trainer, &split.training)?;
    let held_out = match &split.held_out {
        None => None,
        Some(data) => {
            let (evaluator, every) = (Evaluator::of(&trainer)?, arguments.data_use.eval_every);
            Some(HeldOut { data, evaluator, every })
        }
    };
    let run = Run {
        trainer,
        data: &split.training,
        held_out,
        checkpoints: checkpoints.as_ref().map(|checkpoints| checkpoints.directory.clone()),
        checkpoint_every: arguments.checkpoint_every,
    };
    results.of(run, interrupt::defer(), sample.as_ref())
}

/// Finds out before anything is read whether results have a place.
fn require(arguments: &FinetuneArguments) -> Result<(), CliError> {
    arguments.model.require_mode()?;
    let mut inputs: Vec<PathBuf> =
        [&arguments.data.text, &arguments.data.data].into_iter().flatten().cloned().collect();
    for folder in [&arguments.base, &arguments.model.lora.adapter].into_iter().flatten() {
        inputs.extend(outputs::files_in(folder));
    }
    outputs::require(&arguments.output.files(), &inputs)?;
    start::require_adapter_place(arguments)?;
    match &arguments.checkpoint {
        Some(path) => resume::require_usable(path, arguments.resume),
        None => Ok(()),
    }
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

/// The configuration, from the arguments or, for what a resumed run must not change, from its
/// checkpoint.
fn resolve(
    arguments: &FinetuneArguments,
    material: &Material,
    (base, adapter): (Option<&ModelDirectory>, Option<&Adapter>),
) -> Result<(TrainingConfig, Option<Checkpoints>), CliError> {
    let mut asked = arguments.config(base);
    if let Some(adapter) = adapter {
        asked.mode = Mode::Lora(adapter.lora());
        adapter.require(&inventory(&asked.model, asked.mode)).map_err(Error::from)?;
    }
    let training = &material.split.training;
    let path = arguments.checkpoint.as_ref().filter(|_| arguments.resume);
    let checkpoints = path.map(|path| Checkpoints::resume(path)).transpose()?;
    let resumed = checkpoints.as_ref().and_then(|checkpoints| checkpoints.resumed.as_ref());
    let config = match resumed {
        None => asked,
        Some(checkpoint) => {
            let asked = (&asked, training.fingerprint());
            resume::config(arguments, checkpoint, asked, base)?
        }
    };
    config.validate()?;
    training.require(config.seq)?;
    data::require_vocab(&material.split, &config)?;
    Ok((config, checkpoints))
}

fn plan(
    arguments: &FinetuneArguments,
    config: &TrainingConfig,
    (base, held_out): (Option<ModelDirectory>, bool),
    failures: &mut Failures,
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
        plan = plan.with_base(base).map_err(CliError::of_sequences)?;
    }
    if held_out {
        plan = plan.with_held_out()?;
    }
    if arguments.output.sample > 0 {
        plan = plan.with_sample()?;
    }
    let pass = &plan.step_pass().pass;
    if arguments.output.explain {
        screen::line(pass.explain());
    }
    if let Some(path) = &arguments.output.dot {
        failures.warn(write("the drawing", path, &pass.to_dot()));
    }
    Ok(plan)
}
