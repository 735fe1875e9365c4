//! Text generation: prefill of the prompt, then one graph replay for each token.
//!
//! Both run the layers of training over a KV cache in fixed buffers. Position and sampling
//! parameters change from token to token and are controls. The sampled token stays on the device
//! for the next step and is also copied to the host, so a step can be enqueued before the host
//! knows the last token. There is one program per length that attention can cover, built on demand.
//!
//! ```
//! # #[cfg(feature = "sim")] {
//! use retrograph_finetune::{
//!     Device, DeviceChoice, GenerationPlan, GeneratorOptions, InferenceConfig, Precision, Preset,
//!     Request, Sampling, Source,
//! };
//!
//! let config = InferenceConfig::frozen(Preset::Tiny.model(), Precision::F32);
//! let plan = GenerationPlan::new(&config, GeneratorOptions::new(64))?; // no device is needed
//! let device = Device::open(DeviceChoice::Simulated)?;
//! let mut generator = plan.start(&device.modules(), Source::Seed, &mut |_| ())?;
//! let prompt = [104, 105];
//! let request = Request { max_tokens: 5, ..Request::new(&prompt, Sampling::greedy()) };
//! let tokens: Vec<u32> = generator.tokens(&request)?.collect::<Result<_, _>>()?;
//! assert_eq!(tokens.len(), 5);
//! # }
//! # Ok::<(), retrograph_finetune::Error>(())
//! ```
//!
//! A generator has one sequence at a time, a [`GenerationBatch`] up to 64. Beam search is not
//! supported.

mod adapted;
mod batch;
mod cache;
mod plan;
mod request;
mod ring;
mod sizes;
mod stops;
mod text;
mod tokens;
mod workload;

use retrograph_kernels::DType;
use retrograph_kernels::ops::KvCacheShape;
use retrograph_runtime::{BuildOptions, Context, ModuleCache, Policy, Report, Stream, WarmModules};

pub use batch::{Advance, Event, GenerationBatch};
pub use plan::{GenerationNeed, GenerationPlan};
pub use request::{Request, Sampling};
pub use stops::StopStrings;
pub use text::{Generated, StopReason, TextRequest, TextStream};
pub use tokens::Tokens;

use crate::config::InferenceConfig;
use crate::error::Result;
use crate::programs::Programs;
use crate::state::{ModelState, RotaryTables};
use crate::verify::Verified;
use ring::Ring;
use sizes::Sizes;
use workload::GenerationWorkload;

/// Options of a generator. Only the dtype of the KV cache and `batch` change the text.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct GeneratorOptions {
    /// Maximum tokens of prompt and text together: the capacity of the KV cache, from 2 to
    /// [`GeneratorOptions::MAX_LENGTH`].
    pub max_length: usize,
    /// Texts that a [`GenerationBatch`] generates together, from 1 to
    /// [`GeneratorOptions::MAX_BATCH`]. Each has a KV cache of its own. Batches of 1, of 2 to 8 and
    /// of more use different kernels, whose sums differ in the last bits.
    pub batch: usize,
    /// The dtype of the KV cache, f32 or bf16; by default the dtype of matrix products. bf16 halves
    /// its memory, but rounds keys and values.
    pub cache: Option<DType>,
    /// Strategy and memory of the programs.
    pub build: BuildOptions,
    /// Whether each step is compared with an eager step, bit for bit.
    pub verify: bool,
}

impl GeneratorOptions {
    /// The largest [`max_length`](Self::max_length). Models with many or large heads have a smaller
    /// limit.
    pub const MAX_LENGTH: usize = KvCacheShape::MAX_CAPACITY;

    /// The largest [`batch`](Self::batch).
    pub const MAX_BATCH: usize = sizes::MAX_BATCH;

    /// Returns defaults for `max_length` tokens: a KV cache in the dtype of matrix products, and an
    /// automatically chosen strategy.
    pub fn new(max_length: usize) -> Self {
        Self { max_length, batch: 1, cache: None, build: BuildOptions::default(), verify: false }
    }

    /// Returns the dtype of the KV cache of a model.
    fn cache_dtype(&self, config: &InferenceConfig) -> DType {
        self.cache.unwrap_or(config.precision.dtype)
    }
}

/// A model on a device, ready to generate.
#[derive(Debug)]
pub struct Generator {
    config: InferenceConfig,
    options: GeneratorOptions,
    capacity: usize,
    cache_dtype: DType,
    /// Prefill, and decode of one sequence.
    programs: Verified<2, GenerationWorkload>,
    /// Decode of several sequences.
    several: Option<Verified<2, GenerationWorkload>>,
    ring: Ring,
    stream: Stream,
    cache: ModuleCache,
}

impl Generator {
    /// Returns a generator over `state`, whose kernels are in the modules.
    pub(crate) fn new(
        stream: &Stream,
        modules: &WarmModules,
        cache: &ModuleCache,
        config: &InferenceConfig,
        state: ModelState,
        options: GeneratorOptions,
    ) -> Result<Self> {
        let GeneratorOptions { max_length: capacity, mut build, verify, .. } = options;
        let cache_dtype = options.cache_dtype(config);
        let rotary = RotaryTables::new(stream, &config.model, capacity)?;
        // Verification must detect reads of memory that the step has not written.
        build.nan_transients |= verify;
        let programs = |sizes: &Sizes, build| {
            let (state, rotary) = (state.clone(), rotary.clone());
            let workload = GenerationWorkload::new(stream, config, sizes.clone(), state, rotary)?;
            Ok::<_, crate::Error>(Programs::new(workload, modules, sizes.buckets(), build))
        };
        let verified = |sizes: Sizes| {
            let mut eager = build;
            eager.policy = Policy::Eager;
            let eager = verify.then(|| programs(&sizes, eager)).transpose()?;
            Ok::<_, crate::Error>(Verified::new(programs(&sizes, build)?, eager))
        };
        let sizes = Sizes::new(config, capacity, cache_dtype)?;
        let several = match options.batch {
            1 => None,
            batch => Some(verified(sizes.clone().with_batch(config, batch)?)?),
        };
        let programs = verified(sizes)?;
        let (config, ring) = (*config, Ring::new(stream.context(), ring::AHEAD, 1)?);
        let (stream, cache) = (stream.clone(), cache.clone());
        Ok(Self { config, options, capacity, cache_dtype, programs, several, ring, stream, cache })
    }

    /// The configuration.
    pub fn config(&self) -> &InferenceConfig {
        &self.config
    }

    /// Returns the maximum tokens of prompt and text together.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// The dtype of the KV cache.
    pub fn cache_dtype(&self) -> DType {
        self.cache_dtype
    }

    /// The context.
    pub fn context(&self) -> &Context {
        self.stream.context()
    }

    /// The report of the program of the last step, of several sequences if there was one; `None`
    /// before the first step.
    pub fn report(&self) -> Option<&Report> {
        let several = self.several.as_ref().and_then(|several| several.replayed().report());
        several.or(self.programs.replayed().report())
    }

    /// Returns the device bytes of KV cache, programs and buffers, without the parameters.
    pub fn bytes(&self) -> usize {
        let programs = self.programs.each().chain(self.several.iter().flat_map(Verified::each));
        programs.map(|one| one.workload().bytes() + one.cached_bytes()).sum()
    }

    /// Returns the number of steps that were verified bitwise against an eager step.
    pub fn verified_steps(&self) -> u64 {
        self.programs.steps() + self.several.as_ref().map_or(0, Verified::steps)
    }

    /// Returns how often a step needed a kernel that was not warm.
    pub fn jit_after_warm(&self) -> usize {
        self.cache.jit_after_warm()
    }

    /// Returns the logits of the last computed token.
    ///
    /// # Errors
    /// If the device fails.
    pub fn logits(&self) -> Result<Vec<f32>> {
        self.programs.replayed().workload().logits(&self.stream)
    }
}
