//! A model on a device, with and without adapters, for `chat` and `serve`.

use std::path::Path;

use retrograph_finetune::{
    Adapter, ChatTemplate, DType, Device, Error, GenerationBatch, GenerationConfig, GenerationPlan,
    Generator, HubError, InferenceConfig, ModelDirectory, Sampling, Source, Stage, Tokenizer,
};

use crate::args::{EngineArguments, InferenceArguments, default_seq};
use crate::data::NO_TOKENIZER;
use crate::error::CliError;
use crate::screen::{self, Startup, fact};

/// A model with its tokenizer.
pub(crate) struct Engine {
    pub(crate) tokenizer: Tokenizer,
    /// The chat template, if the model has one.
    pub(crate) template: Option<ChatTemplate>,
    pub(crate) defaults: GenerationConfig,
    /// Tokens that end an answer.
    pub(crate) ends: Vec<u32>,
    base: Generator,
    adapted: Vec<Generator>,
}

/// Reads the default sampling parameters of the model in `directory`, and checks them.
pub(crate) fn sampling_defaults(
    directory: &Path,
    tokenizer: &Tokenizer,
) -> Result<GenerationConfig, CliError> {
    let defaults = GenerationConfig::open(directory, tokenizer)?;
    let drawn = GenerationConfig { do_sample: Some(true), ..defaults.clone() };
    Sampling::from_config(&drawn).validate().map_err(|error| CliError::Read {
        what: "the default sampling",
        path: directory.join("generation_config.json"),
        reason: std::io::Error::new(std::io::ErrorKind::InvalidData, error.to_string()),
    })?;
    Ok(defaults)
}

impl Engine {
    /// Opens the model and the adapters, and uploads them. All generators share the weights of the
    /// model; each generates up to `batch` sequences at a time. `check` gets the chat template and
    /// the default sampling parameters before the device is opened.
    pub(crate) fn open(
        arguments: &EngineArguments,
        adapters: &[&Path],
        batch: usize,
        quiet: bool,
        check: impl FnOnce(Option<&ChatTemplate>, &GenerationConfig) -> Result<(), CliError>,
    ) -> Result<Self, CliError> {
        let model = ModelDirectory::open(&arguments.model)?;
        let tokenizer = model.tokenizer()?;
        if tokenizer.is_bytes() && !quiet {
            fact("tokenizer", NO_TOKENIZER);
        }
        let template = match tokenizer.chat_template() {
            Err(HubError::NoChatTemplate) => None,
            template => Some(template.map_err(Error::from)?),
        };
        let defaults = sampling_defaults(model.path(), &tokenizer)?;
        check(template.as_ref(), &defaults)?;
        let mut ends = defaults.eos.clone();
        ends.extend(tokenizer.eos().filter(|end| !defaults.eos.contains(end)));
        let adapters = adapters.iter().map(|path| Adapter::open(path));
        let mut adapters = adapters.collect::<Result<Vec<_>, _>>().map_err(Error::from)?;
        if !quiet {
            adapters.iter().for_each(screen::adapter);
        }
        let plan = plan(arguments, batch, model)?;
        let InferenceArguments { device: choice, cache, .. } = &arguments.inference;
        let device = Device::open(*choice)?;
        if !quiet {
            screen::device(&device);
            fact("context", format!("{} tokens of prompt and answer together", plan.max_length()));
        }
        let modules = cache.modules(&device, *choice)?;
        let mut startup = Startup::new();
        let show = &mut |stage: Stage<'_>| {
            if !quiet {
                startup.show(&stage);
            }
        };
        let base = plan.start(&modules, Source::Seed, show)?;
        let mut adapted = Vec::new();
        for adapter in &mut adapters {
            adapted.push(base.with_adapter(adapter, show)?);
        }
        Ok(Self { tokenizer, template, defaults, ends, base, adapted })
    }

    /// Returns the generator with adapter `index`, or without an adapter.
    pub(crate) fn generator(&mut self, adapter: Option<usize>) -> (&mut Generator, &Tokenizer) {
        let generator = match adapter {
            Some(index) => &mut self.adapted[index],
            None => &mut self.base,
        };
        (generator, &self.tokenizer)
    }

    /// Returns one batch without an adapter, followed by one for each adapter.
    pub(crate) fn into_batches(self) -> Result<Vec<GenerationBatch>, Error> {
        std::iter::once(self.base).chain(self.adapted).map(GenerationBatch::new).collect()
    }

    /// Returns the vocabulary size of the model.
    pub(crate) fn vocab(&self) -> usize {
        self.base.config().model.vocab
    }

    /// Returns the maximum tokens of a prompt and its answer together.
    pub(crate) fn capacity(&self) -> usize {
        self.base.capacity()
    }
}

/// Plans the generator of the model.
fn plan(
    arguments: &EngineArguments,
    batch: usize,
    model: ModelDirectory,
) -> Result<GenerationPlan, CliError> {
    let max_length = arguments.max_length.unwrap_or_else(|| default_seq(&model));
    let mut options = arguments.inference.options(max_length, false);
    options.batch = batch;
    let precision = arguments.inference.precision.precision(DType::F32);
    let config = InferenceConfig::frozen(*model.config(), precision);
    Ok(GenerationPlan::new(&config, options)?.with_base(model)?)
}
