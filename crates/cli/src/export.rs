//! `retrograph export` and `retrograph merge`.

use std::sync::atomic::{AtomicBool, Ordering};

use retrograph_finetune::export::{MAX_SHARD_BYTES, Progress, Written, write_model};
use retrograph_finetune::parameters::Parameter;
use retrograph_finetune::{
    Error, ExportError, Mode, ModelDirectory, ModelOutput, ModelWeights, OptimizerConfig,
    Precision, Preset, Trainer, TrainingConfig,
};

use crate::args::{ExportArguments, OutputArguments};
use crate::error::CliError;
use crate::screen::{self, Writing, fact};
use crate::trained::{Trained, Weights};
use crate::{Outcome, interrupt};

/// Writes a model, with its adapter or checkpoint merged.
pub(crate) fn run(arguments: &ExportArguments) -> Result<Outcome, CliError> {
    let ExportArguments { checkpoint, model, adapter, place } = arguments;
    let facts = &mut Vec::new();
    let output = ModelOutput {
        folder: &place.out,
        base: None,
        dtype: place.dtype,
        max_shard_bytes: place.max_shard_size,
        facts: &[],
    };
    output.require_free().map_err(Error::from)?;
    let base = model.as_deref().map(ModelDirectory::open).transpose()?;
    let given = (checkpoint.as_deref(), adapter.as_deref());
    let (config, trained) = Trained::open(config(base.as_ref()), base.as_ref(), given)?;
    trained.show();
    screen::model(&config);
    facts.extend(trained.fact());
    let mut weights = Weights { trained, base: base.clone(), seed: config.seed };
    let values = &mut |parameter: &Parameter| weights.of(parameter);
    let mut weights = ModelWeights::new(&config.model, config.mode, values);
    let output = ModelOutput { base: base.as_ref(), facts, ..output };
    let written = write(interrupt::defer(), |on| write_model(&mut weights, output, on));
    match written {
        Err(Error::Export(ExportError::Stopped)) => return Ok(Outcome::Interrupted),
        written => show(&written?, output),
    }
    Ok(Outcome::Done)
}

/// Returns the configuration of the model, unless a checkpoint has it.
fn config(base: Option<&ModelDirectory>) -> TrainingConfig {
    TrainingConfig {
        model: base.map_or_else(|| Preset::Tiny.model(), |base| *base.config()),
        mode: Mode::Frozen,
        precision: Precision::F32,
        batch: 1,
        seq: 1,
        optimizer: OptimizerConfig::new(0.0, 1),
        seed: 0,
    }
}

/// Writes the model of a run that has ended.
pub(crate) fn trained(trainer: &Trainer, output: ModelOutput<'_>) -> Result<(), Error> {
    // A signal before the end of training must not cost the model.
    let written = write(&AtomicBool::new(false), |on| trainer.export_model(output, on))?;
    show(&written, output);
    Ok(())
}

/// The destination of the model of a training run, if one is written.
pub(crate) fn output(arguments: &OutputArguments) -> Option<ModelOutput<'_>> {
    let folder = arguments.model_out.as_deref()?;
    let max_shard_bytes = arguments.max_shard_size.unwrap_or(MAX_SHARD_BYTES);
    let dtype = arguments.model_dtype;
    Some(ModelOutput { folder, base: None, dtype, max_shard_bytes, facts: &[] })
}

/// Shows the progress of `write` until it ends or `stop` is set.
fn write(
    stop: &AtomicBool,
    write: impl FnOnce(&mut dyn FnMut(Progress<'_>) -> bool) -> Result<Written, Error>,
) -> Result<Written, Error> {
    let bar = Writing::new();
    let written = write(&mut |progress| {
        bar.show(progress);
        !stop.load(Ordering::Relaxed)
    });
    bar.finish();
    written
}

fn show(written: &Written, output: ModelOutput<'_>) {
    let Written { tensors, files, bytes } = written;
    let (place, size) = (output.folder.display(), screen::bytes(*bytes));
    fact("written", format!("{place}: {tensors} tensors, {size}, weight files: {files}"));
}
