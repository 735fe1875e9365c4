//! Text from a model: a pass over the prompt, then one replayed graph for each token.
//!
//! The passes are built of the layers of training, over a cache of keys and values in buffers that
//! stay where they are. What changes from token to token — position, length, how the token is
//! chosen — is in the control block; the token itself stays on the device, where the next step
//! reads it. It comes to the host beside that, so that a step is enqueued before the token of the
//! one before is known. Programs are built by the length that they can see, when it is needed.
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
//! Absent on purpose: several texts at once, and beams.

mod cache;
mod lane;
mod plan;
mod request;
mod ring;
mod sizes;
mod stops;
mod text;
mod tokens;
mod trained;
mod verify;

use retrograph_runtime::{BuildOptions, Context, ModuleCache, Report, Stream};

pub use plan::{GenerationNeed, GenerationPlan};
pub use request::{Request, Sampling};
pub use stops::StopStrings;
pub use text::{Ended, Generated, TextRequest};
pub use tokens::Tokens;

use crate::config::{Dtype, InferenceConfig};
use crate::error::{Error, Result};
use lane::Lane;
use ring::Ring;

/// How text is generated; nothing of this but the type of the cache changes which.
#[derive(Clone, Copy, Debug)]
pub struct GeneratorOptions {
    /// The most tokens of a prompt and of what follows it together: the room in the cache.
    pub max_length: usize,
    /// The type of keys and values in the cache; without it that of the products. bf16 takes half
    /// the memory and rounds them.
    pub cache: Option<Dtype>,
    /// Strategy and memory of the programs.
    pub build: BuildOptions,
    /// Whether an eager step runs beside each step, to be compared bit for bit.
    pub verify: bool,
}

impl GeneratorOptions {
    /// Room for `max_length` tokens in the type of the products, and the strategy that the programs
    /// choose.
    pub fn new(max_length: usize) -> Self {
        Self { max_length, cache: None, build: BuildOptions::default(), verify: false }
    }

    /// The type of the cache for a model of `config`.
    fn cache_dtype(&self, config: &InferenceConfig) -> Dtype {
        self.cache.unwrap_or(config.precision.dtype)
    }
}

/// A model on a device, ready to generate.
#[derive(Debug)]
pub struct Generator {
    config: InferenceConfig,
    room: usize,
    cache_dtype: Dtype,
    lane: Lane,
    shadow: Option<Lane>,
    ring: Ring,
    stream: Stream,
    cache: ModuleCache,
    verified: u64,
}

impl Generator {
    /// The configuration.
    pub fn config(&self) -> &InferenceConfig {
        &self.config
    }

    /// The most tokens of a prompt and of what follows it together.
    pub fn room(&self) -> usize {
        self.room
    }

    /// The type of keys and values in the cache.
    pub fn cache_dtype(&self) -> Dtype {
        self.cache_dtype
    }

    /// The context.
    pub fn context(&self) -> &Context {
        self.stream.context()
    }

    /// The program of the last step: what was built, why, and what it cost. `None` before the
    /// first.
    pub fn report(&self) -> Option<&Report> {
        self.lane.report()
    }

    /// Device bytes of caches, programs and what else generating needs beside the parameters.
    pub fn bytes(&self) -> usize {
        self.lane.bytes() + self.shadow.as_ref().map_or(0, Lane::bytes)
    }

    /// Steps that were compared with an eager step, and found equal bit for bit.
    pub fn verified_steps(&self) -> u64 {
        self.verified
    }

    /// How often a kernel was needed that was not warm.
    pub fn jit_after_warm(&self) -> usize {
        self.cache.jit_after_warm()
    }

    /// Takes in the prompt and starts generating. What was generated before is forgotten.
    ///
    /// # Errors
    /// When the prompt is empty, has a token that the model does not know, or leaves no room; when
    /// sampling is not valid; or when the device fails.
    pub fn tokens(&mut self, request: &Request<'_>) -> Result<Tokens<'_>> {
        request.sampling.validate()?;
        self.require(request.prompt)?;
        Tokens::start(self, request)
    }

    /// The logits behind the token that was taken in last.
    ///
    /// # Errors
    /// When the device fails.
    pub fn logits(&self) -> Result<Vec<f32>> {
        self.lane.logits(&self.stream)
    }

    fn require(&self, prompt: &[u32]) -> Result<()> {
        let vocab = self.config.model.vocab;
        if prompt.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        if prompt.len() >= self.room {
            return Err(Error::PromptTooLong { tokens: prompt.len(), room: self.room });
        }
        let outside = prompt.iter().position(|&token| token as usize >= vocab);
        match outside {
            Some(index) => Err(Error::TokenOutside { index, token: prompt[index], vocab }),
            None => Ok(()),
        }
    }

    /// Runs `step` on the lane, and with verification on the eager one, and compares the two.
    fn both(&mut self, step: lane::Step<'_>) -> Result<()> {
        self.lane.run(&self.stream, step)?;
        if let Some(shadow) = &mut self.shadow {
            shadow.run(&self.stream, step)?;
            verify::require_equal(&self.stream, (&self.lane, shadow), step.positions())?;
            self.verified += 1;
        }
        Ok(())
    }
}
