//! Where the weights of a run come from: a seed, a checkpoint or an adapter; and where an adapter
//! goes, which is found out before the run.

use std::path::Path;

use retrograph_finetune::checkpoint::Checkpoint;
use retrograph_finetune::temporary::require_writable;
use retrograph_finetune::{
    Adapter, AdapterError, AdapterOutput, Error, Plan, Source, Stage, Trainer, TrainingConfig,
};
use retrograph_runtime::ModuleCache;

use crate::args::FinetuneArguments;
use crate::error::CliError;
use crate::outputs::is_within;
use crate::screen::{self, Startup};

/// The adapter from which the run starts.
pub(crate) fn adapter(arguments: &FinetuneArguments) -> Result<Option<Adapter>, CliError> {
    let Some(path) = &arguments.model.lora.adapter else { return Ok(None) };
    if arguments.asks_for_full() {
        return Err(CliError::AdapterOfFull);
    }
    let adapter = Adapter::open(path).map_err(Error::from)?;
    screen::adapter(&adapter);
    Ok(Some(adapter))
}

/// Finds out before anything is read whether an adapter can be written.
pub(crate) fn require_adapter_place(arguments: &FinetuneArguments) -> Result<(), CliError> {
    let Some(output) = adapter_output(arguments) else { return Ok(()) };
    output.require_free().map_err(Error::from)?;
    // The folder is replaced as a whole, so nothing else may go there.
    let files = arguments.output.files().into_iter().map(|file| (file.what, file.path));
    let checkpoints = arguments.checkpoint.as_deref().map(|path| ("the checkpoints", path));
    if let Some((what, _)) = files.chain(checkpoints).find(|one| is_within(one.1, output.folder)) {
        let why = format!("{what} would go into the same folder; give another one");
        return Err(CliError::write("the adapter", output.folder, why));
    }
    // Folders above it that are not there are made when it is written.
    let above = output.folder.ancestors().skip(1).map(|folder| match folder {
        empty if empty == Path::new("") => Path::new("."),
        folder => folder,
    });
    let Some(there) = above.into_iter().find(|folder| folder.exists()) else { return Ok(()) };
    let failed = |why: std::io::Error| CliError::write("the adapter", output.folder, why);
    require_writable(there).map_err(failed)
}

/// Finds out before the run whether there will be an adapter.
pub(crate) fn require_adapter_out(
    arguments: &FinetuneArguments,
    config: &TrainingConfig,
) -> Result<(), CliError> {
    if adapter_output(arguments).is_some() {
        config.mode.lora().ok_or(AdapterError::NotLora).map_err(Error::from)?;
    }
    Ok(())
}

/// Where the adapter goes, if one is to be written.
pub(crate) fn adapter_output(arguments: &FinetuneArguments) -> Option<AdapterOutput<'_>> {
    arguments.output.adapter_out.as_deref().map(|folder| AdapterOutput {
        folder,
        base: arguments.base.as_deref().and_then(Path::to_str),
    })
}

/// Starts from a checkpoint, from an adapter, or from the seed.
pub(crate) fn start(
    plan: Plan,
    modules: &ModuleCache,
    (checkpoint, adapter): (Option<&mut Checkpoint>, Option<&mut Adapter>),
) -> Result<Trainer, CliError> {
    let mut startup = Startup::new();
    let show = &mut |stage: Stage<'_>| startup.show(&stage);
    let source = match (checkpoint, adapter) {
        (Some(checkpoint), _) => Source::Checkpoint(checkpoint),
        (None, Some(adapter)) => Source::Adapter(adapter),
        (None, None) => Source::Seed,
    };
    Ok(plan.start(modules, source, show)?)
}
