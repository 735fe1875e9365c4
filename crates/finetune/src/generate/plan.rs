//! The start of a generator: plan, warm the kernels, check the memory, upload.

use retrograph_runtime::{
    Context, DriverOverhead, ModuleCache, Policy, Requirements, Reuse, Stream,
};

use super::sizes::Sizes;
use super::{Generator, GeneratorOptions};
use crate::config::InferenceConfig;
use crate::error::{Error, Reduce, Result};
use crate::hub::ModelDirectory;
use crate::model::GenerationPass;
use crate::stage::Stage;
use crate::state::{
    InitialValues, ModelState, Placement, Source, load_state, pooled_bytes, trained,
};

/// The device bytes of a generator, by purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GenerationNeed {
    /// The parameters.
    pub parameters: usize,
    /// KV cache, rotary tables, norms of DoRA layers and the buffers of sampling.
    pub cache: usize,
    /// Transients of the largest pass over a prompt.
    pub step: usize,
    /// The second cache and step for verification.
    pub verify: usize,
    /// The driver's own memory for these allocations, graphs and code.
    pub driver: DriverOverhead,
}

impl GenerationNeed {
    /// All that is allocated.
    pub fn total(&self) -> usize {
        self.parameters + self.cache + self.step + self.verify
    }

    /// Fails unless this much memory is free. Parameters that are already `uploaded` do not count.
    fn require(&self, context: &Context, uploaded: bool) -> Result<()> {
        let (free, total) = context.mem_get_info()?;
        let parameters = if uploaded { 0 } else { self.parameters };
        let driver = self.driver.total() - self.driver.code;
        let planned = self.total() - self.parameters + parameters + driver;
        if planned <= free {
            return Ok(());
        }
        let Self { cache, step, verify, .. } = *self;
        let reduce = if planned - verify <= free { Reduce::Verification } else { Reduce::Length };
        let step = cache + step;
        Err(Error::OutOfMemory {
            planned,
            free,
            total,
            parameters,
            optimizer: 0,
            verify,
            held_out: 0,
            driver,
            step,
            reduce,
        })
    }
}

/// The plan of a generator. Needs no device.
#[derive(Debug)]
pub struct GenerationPlan {
    config: InferenceConfig,
    options: GeneratorOptions,
    prompt: GenerationPass,
    next: GenerationPass,
    /// The largest pass over several sequences, if the batch has several.
    several: Option<GenerationPass>,
    /// The kernels of the programs of all sizes.
    launched: Requirements,
    base: Option<ModelDirectory>,
}

impl GenerationPlan {
    /// Plans generation with the model of `config`.
    ///
    /// # Errors
    /// When the configuration or the length is not valid.
    pub fn new(config: &InferenceConfig, options: GeneratorOptions) -> Result<Self> {
        config.validate(1)?;
        let capacity = options.max_length;
        let sizes = Sizes::new(config, capacity, options.cache_dtype(config))?;
        let prompt = sizes.describe(config, sizes.largest_prompt())?;
        let next = sizes.describe(config, [1, capacity])?;
        let mut launched = sizes.requirements(config)?;
        let several = match options.batch {
            1 => None,
            batch => {
                let sizes = sizes.with_batch(config, batch)?;
                launched = launched.union(&sizes.requirements(config)?);
                Some(sizes.describe(config, [1, capacity])?)
            }
        };
        Ok(Self { config: *config, options, prompt, next, several, launched, base: None })
    }

    /// Takes the weights from `base`, except the weights of an adapter.
    ///
    /// # Errors
    /// When `base` is a model of other dimensions, or its context is shorter than the maximum
    /// length.
    pub fn with_base(self, base: ModelDirectory) -> Result<Self> {
        base.require_seq(self.options.max_length)?;
        base.require_config(&self.config.model)?;
        Ok(Self { base: Some(base), ..self })
    }

    /// Returns the maximum tokens of prompt and text together.
    pub fn max_length(&self) -> usize {
        self.options.max_length
    }

    /// The largest prefill.
    pub fn prompt_pass(&self) -> &GenerationPass {
        &self.prompt
    }

    /// The decode pass that can attend to the whole KV cache.
    pub fn next_pass(&self) -> &GenerationPass {
        &self.next
    }

    /// Returns the kernels for prompts and sequences of any length up to the maximum.
    pub fn requirements(&self) -> &Requirements {
        &self.launched
    }

    /// Returns the device memory of the generator.
    pub fn memory(&self) -> GenerationNeed {
        let (model, capacity) = (&self.config.model, self.options.max_length);
        let all = self.config.parameters();
        let parameters = all.iter().map(|parameter| parameter.bytes()).sum();
        let dtype = self.options.cache_dtype(&self.config);
        let buffer = capacity * model.kv_width() * dtype.bytes() as usize;
        let words = 2 * model.vocab + self.config.dora_norms();
        // Prefill writes the cache of one sequence; the batch has its own caches.
        let batches = [1].into_iter().chain(self.several.as_ref().map(|_| self.options.batch));
        let sequence = 2 * model.layers * buffer + words * size_of::<f32>();
        let tables = capacity * model.head_dim() * size_of::<f32>();
        let cache = batches.clone().sum::<usize>() * sequence + tables;
        let peak = |pass: &GenerationPass| pass.pass.plan_with(Reuse::WhenOrdered).peak_bytes();
        let several = self.several.as_ref().map_or(0, peak);
        let step = peak(&self.prompt).max(peak(&self.next)) + several;
        let verify = if self.options.verify { cache + step } else { 0 };
        let mut driver = DriverOverhead::default().with_code(&self.launched);
        let marks = model.vocab * size_of::<f32>();
        let buffers = batches.flat_map(|batch| {
            let caches = std::iter::repeat_n(batch * buffer, 2 * model.layers);
            caches.chain([batch * marks; 2])
        });
        for bytes in buffers.chain([pooled_bytes(&all), step]) {
            driver = driver.with_allocation(bytes);
        }
        if self.options.build.policy != Policy::Eager {
            let passes = [&self.prompt, &self.next].into_iter().chain(&self.several);
            driver = passes.fold(driver, |driver, pass| driver.with_graph(&pass.pass));
        }
        GenerationNeed { parameters, cache, step, verify, driver }
    }

    /// Starts on the device of `cache`. Uploads nothing until all kernels are warm and the memory
    /// is known to suffice.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] before anything is uploaded, an adapter or checkpoint that does not
    /// fit, or when the device fails.
    pub fn start(
        self,
        cache: &ModuleCache,
        source: Source<'_>,
        on: &mut dyn FnMut(Stage<'_>),
    ) -> Result<Generator> {
        let modules = cache.prewarm(&self.launched, |progress| on(Stage::Warming(progress)))?;
        on(Stage::Warm(&modules));
        let uploaded = matches!(source, Source::State(_));
        self.memory().require(cache.context(), uploaded)?;
        let stream = Stream::new(cache.context())?;
        let state = self.state(&stream, source, on)?;
        Generator::new(&stream, &modules, cache, &self.config, state, self.options)
    }

    /// Uploads the parameters, without moments.
    fn state(
        &self,
        stream: &Stream,
        source: Source<'_>,
        on: &mut dyn FnMut(Stage<'_>),
    ) -> Result<ModelState> {
        let mut parameters = self.config.parameters();
        if let Source::Checkpoint(checkpoint) = &source {
            checkpoint.require(&trained(&parameters))?;
        }
        if !matches!(source, Source::Adapter(_)) {
            // A trainable parameter has moments, which generation does not need.
            parameters.iter_mut().for_each(|parameter| parameter.trainable = false);
        }
        let initial = InitialValues { base: self.base.as_ref(), seed: self.config.seed };
        let progress = &mut |done, total, name: &str| on(Stage::Uploading { done, total, name });
        let (_, state) =
            load_state(stream, &parameters, Placement::ALONE, initial, source, progress)?;
        Ok(state.without_moments())
    }
}
