//! `retrograph export` and `retrograph merge`.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use retrograph_finetune::adapter::write_adapter;
use retrograph_finetune::export::{
    GgufOutput, MAX_SHARD_BYTES, Progress, Written, write_gguf, write_gguf_adapter, write_model,
};
use retrograph_finetune::parameters::{Parameter, inventory};
use retrograph_finetune::{
    AdapterOutput, Error, ExportError, ModelDirectory, ModelOutput, ModelWeights, Precision,
    Trainer, TrainingConfig, WeightType,
};

use crate::args::{DestinationArguments, ExportArguments, FormatArgument, OutputArguments};
use crate::error::CliError;
use crate::screen::{self, Writing, fact};
use crate::trained::{Chosen, Trained, Weights, untrained};
use crate::{Outcome, interrupt};

/// Writes a model with its adapter or checkpoint merged, or only the adapter.
pub(crate) fn run(arguments: &ExportArguments) -> Result<Outcome, CliError> {
    let ExportArguments { checkpoint, best, model, adapter, adapter_only, destination } = arguments;
    destination.require_format()?;
    require_free(destination)?;
    let base = model.as_deref().map(ModelDirectory::open).transpose()?;
    let checkpoint = Chosen::of(checkpoint.as_ref(), *best);
    let (config, trained) = Trained::open(
        untrained(base.as_ref(), Precision::F32),
        base.as_ref(),
        checkpoint,
        adapter.as_deref(),
    )?;
    trained.show();
    screen::model(&config);
    if *adapter_only && config.mode.lora().is_none() {
        return Err(CliError::NoAdapter);
    }
    let facts: Vec<String> = trained.fact().into_iter().collect();
    let mut weights = Weights { trained, base: base.clone(), seed: config.seed };
    if *adapter_only && destination.format == FormatArgument::Hf {
        if let Some(dtype) = destination.dtype.filter(|dtype| *dtype != WeightType::F32) {
            return Err(CliError::AdapterType(dtype));
        }
        return adapter_directory(&destination.out, &config, base.as_ref(), &mut weights);
    }
    let values = &mut |parameter: &Parameter| weights.of(parameter);
    let mut weights = ModelWeights::new(&config.model, config.mode, values);
    let written = write(interrupt::defer(), |on| match destination.format {
        FormatArgument::Hf => {
            let output =
                ModelOutput { base: base.as_ref(), facts: &facts, ..directory(destination) };
            write_model(&mut weights, output, on)
        }
        FormatArgument::Gguf => {
            let output = GgufOutput { base: base.as_ref(), ..file(destination) };
            let write = if *adapter_only { write_gguf_adapter } else { write_gguf };
            write(&mut weights, output, on)
        }
    });
    match written {
        Err(Error::Export(ExportError::Stopped)) => return Ok(Outcome::Interrupted),
        written => show(&written?, &destination.out),
    }
    Ok(Outcome::Done)
}

/// Checks that the destination is free, before anything is read.
fn require_free(destination: &DestinationArguments) -> Result<(), Error> {
    match destination.format {
        FormatArgument::Hf => Ok(directory(destination).require_free()?),
        FormatArgument::Gguf => Ok(file(destination).require_free()?),
    }
}

fn directory(destination: &DestinationArguments) -> ModelOutput<'_> {
    let DestinationArguments { out: folder, dtype, max_shard_size, .. } = destination;
    let (dtype, max_shard_bytes) = (*dtype, max_shard_size.unwrap_or(MAX_SHARD_BYTES));
    ModelOutput { folder, base: None, dtype, max_shard_bytes, facts: &[] }
}

fn file(destination: &DestinationArguments) -> GgufOutput<'_> {
    GgufOutput { path: &destination.out, base: None, dtype: destination.dtype }
}

/// Writes the LoRA matrices in PEFT format.
fn adapter_directory(
    folder: &Path,
    config: &TrainingConfig,
    base: Option<&ModelDirectory>,
    weights: &mut Weights,
) -> Result<Outcome, CliError> {
    let base = base.and_then(|base| base.path().to_str());
    let tensors = adapter(AdapterOutput { folder, base }, config, weights)?;
    fact("written", format!("{}: {tensors} tensors", folder.display()));
    Ok(Outcome::Done)
}

/// Writes the LoRA matrices. Returns their number.
pub(crate) fn adapter(
    output: AdapterOutput<'_>,
    config: &TrainingConfig,
    weights: &mut Weights,
) -> Result<usize, CliError> {
    let lora = config.mode.lora().ok_or(CliError::NoAdapter)?;
    let parameters = inventory(&config.model, config.mode);
    let all: Vec<&Parameter> = parameters.iter().collect();
    let values = &mut |parameter: &Parameter| weights.of(parameter);
    write_adapter(output, lora, &all, values)?;
    Ok(all.into_iter().filter(|parameter| parameter.trainable).count())
}

/// Writes the model of a checkpoint after its run has ended.
pub(crate) fn weights(
    output: ModelOutput<'_>,
    config: &TrainingConfig,
    weights: &mut Weights,
) -> Result<(), Error> {
    let values = &mut |parameter: &Parameter| weights.of(parameter);
    let mut model = ModelWeights::new(&config.model, config.mode, values);
    let never = AtomicBool::new(false);
    let written = write(&never, |on| write_model(&mut model, output, on))?;
    show(&written, output.folder);
    Ok(())
}

/// Writes the trained model after its run has ended.
pub(crate) fn trained(trainer: &Trainer, output: ModelOutput<'_>) -> Result<(), Error> {
    // A signal that ended training early must not prevent writing the model.
    let written = write(&AtomicBool::new(false), |on| trainer.export_model(output, on))?;
    show(&written, output.folder);
    Ok(())
}

/// The destination of the model of a training run, if one is written.
pub(crate) fn output(arguments: &OutputArguments) -> Option<ModelOutput<'_>> {
    let folder = arguments.model_out.as_deref()?;
    let max_shard_bytes = arguments.max_shard_size.unwrap_or(MAX_SHARD_BYTES);
    let dtype = arguments.model_dtype;
    Some(ModelOutput { folder, base: None, dtype, max_shard_bytes, facts: &[] })
}

/// Shows the progress of `write`, which `stop` interrupts.
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

fn show(written: &Written, destination: &Path) {
    let Written { tensors, files, bytes, .. } = written;
    let (destination, size) = (destination.display(), screen::bytes(*bytes));
    fact("written", format!("{destination}: {tensors} tensors, {size}, weight files: {files}"));
}
