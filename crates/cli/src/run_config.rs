//! The configuration of `retrograph finetune`, resolved from the arguments, the model directory,
//! the adapter and the checkpoint, and checked before training starts.

use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use retrograph_finetune::checkpoint::Checkpoint;
use retrograph_finetune::export::read_files_of;
use retrograph_finetune::files::require_writable;
use retrograph_finetune::files::staging_directory;
use retrograph_finetune::parameters::inventory;
use retrograph_finetune::{
    Adapter, AdapterError, AdapterOutput, Data, Device, DeviceChoice, Error, LoraConfig, Mode,
    ModelDirectory, Split, Tokenizer, TrainerOptions, TrainingConfig,
};
use retrograph_runtime::Ranks;

use crate::args::{
    CacheArguments, DEFAULT_EPOCHS, FinetuneArguments, HoldoutArguments, OutputArguments,
};
use crate::config_file::Given;
use crate::error::CliError;
use crate::outputs::is_within;
use crate::resume::{self, Checkpoints};
use crate::sample::Sample;
use crate::screen::fact;
use crate::trained::{Trained, training_fact};
use crate::{data, export, outputs, screen, sequence_length};

/// The directory for the trained weights if the arguments name none.
pub(crate) const DEFAULT_OUTPUT: &str = "retrograph-out";

/// The resolved configuration and inputs of a run.
pub(crate) struct RunConfig {
    pub(crate) training: TrainingConfig,
    pub(crate) options: TrainerOptions,
    /// The run ends after this many steps.
    pub(crate) until: u32,
    pub(crate) base: Option<ModelDirectory>,
    /// The source of the trained weights.
    pub(crate) trained: Trained,
    pub(crate) tokenizer: Tokenizer,
    pub(crate) data: Split,
    /// When the held-out loss is measured, and how it is used.
    pub(crate) held_out: HoldoutArguments,
    /// The directory for checkpoints.
    pub(crate) checkpoint: Option<PathBuf>,
    /// Steps between checkpoints.
    pub(crate) checkpoint_every: u32,
    /// The directory of a resumed run, locked.
    pub(crate) resumed: Option<Checkpoints>,
    pub(crate) sample: Option<Sample>,
    pub(crate) output: OutputArguments,
    pub(crate) device: DeviceChoice,
    /// The device, if it was opened to choose the sequence length by its memory.
    pub(crate) opened: Option<Device>,
    /// The flags of the run.
    pub(crate) given: Given,
    pub(crate) cache: CacheArguments,
    /// The directory for the weights, if the arguments named none.
    pub(crate) _claimed: Option<ClaimedDirectory>,
}

impl RunConfig {
    /// Reads model, adapter, data and checkpoint, and checks everything that needs no device.
    /// `device` is the device of the run, if it is open.
    pub(crate) fn resolve(
        mut arguments: FinetuneArguments,
        mut device: Option<Device>,
    ) -> Result<Self, CliError> {
        require_outputs(&arguments)?;
        let base = arguments.base.as_deref().map(ModelDirectory::open).transpose()?;
        let adapter = adapter(&arguments)?;
        let path = arguments.checkpoint.as_deref().filter(|_| arguments.resume);
        let writes = arguments.ranks.ranks.rank == 0;
        let resumed = path.map(|path| Checkpoints::resume(path, writes)).transpose()?;
        let (resumed, checkpoint) = resumed.unzip();
        let asked = arguments.config(base.as_ref());
        TrainingConfig { mode: Mode::Frozen, ..asked }.validate_sizes()?;
        let mut asked = with_adapter(asked, adapter.as_ref())?;
        match (arguments.training.seq, &checkpoint, &base) {
            (Some(_), ..) | (None, None, None) => {}
            (None, Some(checkpoint), _) => asked.seq = checkpoint.header().config.seq,
            (None, None, Some(base)) => {
                let opened = device.take().map_or_else(|| Device::open(arguments.device), Ok)?;
                asked.seq = sequence_length::fitting(&arguments, &opened, base, &asked)?;
                device = Some(opened);
            }
        }
        // Reading the data makes sequences of this size.
        TrainingConfig { mode: Mode::Frozen, ..asked }.validate_sizes()?;
        let tokenizer = data::tokenizer(base.as_ref())?;
        let options = arguments.data.options(asked.seq);
        let options = arguments.data_use.options(options, asked.seed);
        let data = data::read(&arguments.data, &tokenizer, options, arguments.preference.dpo)?;
        let epochs = base.as_ref().filter(|_| checkpoint.is_none()).map(|_| DEFAULT_EPOCHS);
        let sequences = data.training.sequences(asked.seq);
        let steps = arguments.training.steps(sequences, asked.batch, epochs)?;
        let asked =
            TrainingConfig { optimizer: arguments.optimizer(base.as_ref(), steps), ..asked };
        let training = match &checkpoint {
            None => asked,
            Some(checkpoint) => {
                let fingerprint = data.training.fingerprint();
                resume::config(&arguments, checkpoint, &asked, fingerprint, base.as_ref())?
            }
        };
        training.validate()?;
        data.training.require(training.seq)?;
        data::require_vocab(&data, &training)?;
        // Claimed only after the data are read, so that a signal before leaves no directory.
        let claimed = default_output(&mut arguments);
        require_folders(&arguments)?;
        if let (Some(base), Some(_)) = (&base, &arguments.output.model_out) {
            // The directory may change during training.
            read_files_of(base)?;
        }
        if arguments.output.adapter_out.is_some() {
            training.mode.lora().ok_or(AdapterError::NotLora).map_err(Error::from)?;
        }
        let seed = arguments.training.seed;
        let (output, vocab) = (&arguments.output, training.model.vocab);
        let sample = Sample::new(output, seed, vocab, &data.training, &tokenizer)?;
        Ok(Self {
            training,
            options: arguments.options(),
            until: steps.unwrap_or(training.optimizer.total_steps),
            base,
            trained: trained(checkpoint, adapter),
            tokenizer,
            data,
            held_out: arguments.data_use,
            checkpoint: arguments.checkpoint,
            checkpoint_every: arguments.checkpoint_every,
            resumed,
            sample,
            output: arguments.output,
            device: arguments.device,
            opened: device,
            cache: arguments.cache,
            given: arguments.given,
            _claimed: claimed,
        })
    }

    /// Whether this process writes the outputs of the run.
    pub(crate) fn writes(&self) -> bool {
        self.options.step.ranks.rank == 0
    }

    /// Describes the settings that all ranks must share, one per line.
    pub(crate) fn described(&self, simulated: bool) -> String {
        let mut options = self.options;
        options.step.ranks = Ranks::ONE;
        let json = serde_json::to_string_pretty(&self.training);
        let training = json.unwrap_or_else(|_| format!("{:#?}", self.training));
        let Self { until, checkpoint_every, .. } = self;
        let HoldoutArguments { eval_every, save_best, early_stop, .. } = &self.held_out;
        let (data, held_out) = (&self.data.training, &self.data.held_out);
        let held_out = held_out.as_ref().map(Data::fingerprint);
        let (version, profiles) = (env!("CARGO_PKG_VERSION"), self.output.profiles());
        format!(
            "version {version}\nsimulated {simulated}\n{training}\ndata {}\nheld out \
             {held_out:?}\nuntil {until}\ncheckpoint {} every {checkpoint_every}\nevaluation \
             every {eval_every}, best {save_best}, stop {early_stop:?}\nprofile {profiles}\n\
             {options:#?}",
            data.fingerprint(),
            self.checkpoint.is_some(),
        )
    }

    /// The destination of the adapter, if one is written.
    pub(crate) fn adapter_output(&self) -> Option<AdapterOutput<'_>> {
        let base = self.base.as_ref().map(ModelDirectory::path);
        adapter_output(&self.output, base)
    }

    /// Describes the training of `steps` steps for a model card.
    pub(crate) fn fact(&self, steps: usize) -> String {
        training_fact(self.training.mode, Some(steps))
    }
}

/// A locked directory for the weights of this process, so that no concurrent run without a named
/// output chooses it. Removed on drop if nothing was written to it.
#[derive(Debug)]
pub(crate) struct ClaimedDirectory {
    path: PathBuf,
    _lock: Option<File>,
}

impl ClaimedDirectory {
    /// Claims `path` if it is empty, or does not exist, and no other process has claimed it.
    fn at(path: PathBuf) -> Result<Self, PathBuf> {
        let created = std::fs::create_dir(&path);
        if created.as_ref().is_err_and(|error| error.kind() != ErrorKind::AlreadyExists) {
            // The check of all outputs reports the reason.
            return Ok(Self { path, _lock: None });
        }
        let is_empty = std::fs::read_dir(&path).is_ok_and(|mut entries| entries.next().is_none());
        let lock = File::open(&path).ok();
        let is_taken = |lock: &File| matches!(lock.try_lock(), Err(TryLockError::WouldBlock));
        if !is_empty || lock.as_ref().is_some_and(is_taken) {
            return Err(path);
        }
        Ok(Self { path, _lock: lock })
    }
}

impl Drop for ClaimedDirectory {
    fn drop(&mut self) {
        // Fails if the directory has the weights.
        let _ = std::fs::remove_dir(&self.path);
    }
}

/// Whether the arguments name an output for the trained weights, or `--discard`.
fn names_output(arguments: &FinetuneArguments) -> bool {
    let FinetuneArguments { output, checkpoint, .. } = arguments;
    let named = output.adapter_out.is_some() || output.model_out.is_some();
    named || output.discard || checkpoint.is_some()
}

/// Sets a directory for the trained weights if the arguments name none, and prints it.
fn default_output(arguments: &mut FinetuneArguments) -> Option<ClaimedDirectory> {
    if names_output(arguments) {
        return None;
    }
    let lora = arguments.trains_lora();
    let name = |number: u32| match number {
        1 => PathBuf::from(DEFAULT_OUTPUT),
        number => PathBuf::from(format!("{DEFAULT_OUTPUT}-{number}")),
    };
    let claimed = (1..).map(name).find_map(|folder| ClaimedDirectory::at(folder).ok());
    let claimed = claimed.expect("some number is free");
    let folder = claimed.path.clone();
    let what = if lora { "adapter" } else { "model" };
    fact("output", format!("{}: the {what}, as no output is named", folder.display()));
    let place =
        if lora { &mut arguments.output.adapter_out } else { &mut arguments.output.model_out };
    *place = Some(folder);
    Some(claimed)
}

fn adapter_output<'a>(
    output: &'a OutputArguments,
    base: Option<&'a Path>,
) -> Option<AdapterOutput<'a>> {
    let folder = output.adapter_out.as_deref()?;
    Some(AdapterOutput { folder, base: base.and_then(Path::to_str) })
}

/// Checks that all outputs can be written, before anything is read.
fn require_outputs(arguments: &FinetuneArguments) -> Result<(), CliError> {
    arguments.model.require_mode()?;
    arguments.training.require_schedule()?;
    arguments.preference.require_adapter(!arguments.trains_lora())?;
    arguments.data_use.require_measurements()?;
    arguments.require_strategy()?;
    let mut inputs: Vec<PathBuf> =
        [&arguments.data.text, &arguments.data.data].into_iter().flatten().cloned().collect();
    for folder in [&arguments.base, &arguments.model.lora.adapter].into_iter().flatten() {
        inputs.extend(outputs::files_in(folder));
    }
    outputs::require(&arguments.output.files(), &inputs)?;
    arguments.cache.require()?;
    require_folders(arguments)?;
    if !names_output(arguments) {
        require_place("the trained weights", DEFAULT_OUTPUT.as_ref())?;
    }
    match &arguments.checkpoint {
        Some(path) => resume::require_usable(path, arguments.resume),
        None => Ok(()),
    }
}

/// Checks that an adapter and a model can be written.
fn require_folders(arguments: &FinetuneArguments) -> Result<(), CliError> {
    let base = arguments.base.as_deref();
    let adapter = adapter_output(&arguments.output, base);
    let model = export::output(&arguments.output);
    let replaced = [&arguments.output.adapter_out, &arguments.output.model_out];
    for (what, folder) in ["the adapter", "the model"].into_iter().zip(replaced) {
        folder.as_deref().map_or(Ok(()), |folder| require_directory(what, folder))?;
    }
    adapter.map_or(Ok(()), |output| output.require_free()).map_err(Error::from)?;
    model.map_or(Ok(()), |output| output.require_free()).map_err(Error::from)?;
    let adapter = adapter.map(|output| ("the adapter", output.folder));
    let model = model.map(|output| ("the model", output.folder));
    let checkpoints = arguments.checkpoint.as_deref().map(|path| ("the checkpoints", path));
    let files = arguments.output.files().into_iter().map(|file| (file.what, file.path));
    let events = arguments.output.tensorboard.as_deref().map(|path| ("the events", path));
    let tokens = arguments.data.token_cache_dir().map(|path| ("the token cache", path));
    let kernels = arguments.cache.dir().map(|path| ("the kernel cache", path));
    let folders = [checkpoints, events, tokens, kernels, adapter, model];
    let all: Vec<_> = files.chain(folders.into_iter().flatten()).collect();
    for (what, folder) in [events, tokens, kernels].into_iter().flatten() {
        require_directory(what, folder)?;
    }
    for (what, folder) in [checkpoints, events].into_iter().flatten() {
        if !folder.exists() {
            require_place(what, folder)?;
        }
    }
    for (what, folder) in adapter.into_iter().chain(model) {
        // The folder is replaced as a whole, so nothing else may go there.
        let others = all.iter().filter(|other| other.0 != what);
        if let Some((other, _)) = others.into_iter().find(|one| is_within(one.1, folder)) {
            let reason = format!("{other} would go to the same folder; give another one");
            return Err(CliError::write(what, folder, reason));
        }
        require_place(what, folder)?;
    }
    Ok(())
}

/// Checks that there is no file at `folder`.
fn require_directory(what: &'static str, folder: &Path) -> Result<(), CliError> {
    match std::fs::metadata(folder) {
        Ok(found) if !found.is_dir() => Err(CliError::write(what, folder, "it is not a directory")),
        _ => Ok(()),
    }
}

/// Checks that `folder` can be created or filled. Missing folders above it are created when it is
/// written.
fn require_place(what: &'static str, folder: &Path) -> Result<(), CliError> {
    let place = staging_directory(folder).and_then(|place| require_writable(&place));
    place.map_err(|reason| CliError::write(what, folder, reason))
}

/// Opens the adapter from which the run starts.
fn adapter(arguments: &FinetuneArguments) -> Result<Option<Adapter>, CliError> {
    let Some(path) = &arguments.model.lora.adapter else { return Ok(None) };
    let adapter = Adapter::open(path).map_err(Error::from)?;
    screen::adapter(&adapter);
    Ok(Some(adapter))
}

/// Takes the LoRA options from the adapter, which must fit the model.
fn with_adapter(
    config: TrainingConfig,
    adapter: Option<&Adapter>,
) -> Result<TrainingConfig, CliError> {
    let Some(adapter) = adapter else { return with_used_patterns(config) };
    let config = TrainingConfig { mode: Mode::Lora(adapter.lora()), ..config };
    adapter.require(&inventory(&config.model, config.mode)).map_err(Error::from)?;
    Ok(config)
}

/// Fails if a pattern on the command line has no effect.
pub(crate) fn with_used_patterns(config: TrainingConfig) -> Result<TrainingConfig, CliError> {
    let lora = config.mode.lora();
    match lora.and_then(|lora| Some((lora, lora.unused_pattern(&config.model)?))) {
        None => Ok(config),
        Some((LoraConfig { targets, layers, .. }, pattern)) => {
            Err(CliError::UnusedPattern { pattern, targets, layers })
        }
    }
}

fn trained(checkpoint: Option<Checkpoint>, adapter: Option<Adapter>) -> Trained {
    match (checkpoint, adapter) {
        (Some(checkpoint), _) => Trained::Checkpoint(Box::new(checkpoint)),
        (None, Some(adapter)) => Trained::Adapter(Box::new(adapter)),
        (None, None) => Trained::Nothing,
    }
}
