//! Benchmarks of text generation: one model, by prompt length and strategy.

use std::time::Instant;

use retrograph_kernels::DType;
use retrograph_runtime::{ModuleCache, Profile, Report, Requirements, Stream};
use serde::{Deserialize, Serialize};

use super::{BenchStrategy, PROFILE_REPLAYS, milliseconds, tokens};
use crate::config::{InferenceConfig, Mode, dtype_name, require};
use crate::error::{Error, Result};
use crate::generate::{
    Advance, Event, GenerationBatch, GenerationPlan, GeneratorOptions, Request, Sampling,
};
use crate::init;
use crate::parameters::{Chunk, Parameter};
use crate::report::median;
use crate::stage::Stage;
use crate::state::{ModelState, Source};

/// Maximum number of timed prefills.
const MAX_PREFILLS: usize = 20;

/// A benchmark of generation.
#[derive(Clone, Debug)]
pub struct DecodeBench {
    /// The model; its weights come from the seed.
    pub config: InferenceConfig,
    /// Tokens of the prompt, and KV-cache capacity, of each size.
    pub sizes: Vec<[usize; 2]>,
    /// The dtype of the KV cache; by default the dtype of matrix products.
    pub cache: Option<DType>,
    /// The strategies.
    pub strategies: Vec<BenchStrategy>,
    /// Batch size: sequences that are generated together, 1 to 64, all with the same prompt.
    pub batch: usize,
    /// The sampling parameters.
    pub sampling: Sampling,
    /// Unmeasured tokens before the measurement; the first token of a sequence never is measured.
    pub warm_up: usize,
    /// Measured tokens.
    pub steps: usize,
    /// Whether to profile the operations of a prefill and of a step.
    pub profile: bool,
}

/// The result of one case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DecodeMeasurement {
    /// Tokens of the prompt.
    pub position: usize,
    /// KV-cache capacity in tokens.
    pub cache: usize,
    /// Texts that were generated together.
    pub batch: usize,
    /// The dtype of the KV cache.
    #[serde(with = "dtype_name")]
    pub cache_dtype: DType,
    /// The strategy.
    pub strategy: String,
    /// Operations of a step.
    pub operations: usize,
    /// Nodes of the graph; 0 for eager.
    pub nodes: usize,
    /// Nodes on the longest path.
    pub depth: usize,
    /// Milliseconds for planning, binding and creating the graph of a step.
    pub build_ms: f64,
    /// Milliseconds for instantiating the graph.
    pub instantiate_ms: f64,
    /// Median device time of the prefill of one sequence, in milliseconds.
    pub prefill_ms_median: f32,
    /// Minimum of these times.
    pub prefill_ms_min: f32,
    /// Maximum of these times.
    pub prefill_ms_max: f32,
    /// Host time until the first token of the first sequence, in milliseconds. Programs are built
    /// before; the prompts of all sequences are enqueued first.
    pub prompt_ms: f64,
    /// Median device time per token of each sequence, in milliseconds.
    pub token_ms_median: f32,
    /// Minimum of these times.
    pub token_ms_min: f32,
    /// Maximum of these times.
    pub token_ms_max: f32,
    /// Host time per token of each sequence, in milliseconds.
    pub pipelined_ms: f64,
    /// Bytes of the parameters.
    pub parameter_bytes: usize,
    /// Planned bytes, without the parameters.
    pub planned_bytes: usize,
    /// Planned memory of the driver, without code, which was loaded before.
    pub driver_bytes: usize,
    /// Allocated bytes of the generator, without the parameters.
    pub allocated_bytes: usize,
    /// Decrease of free device memory from before the generator to after its last token, in bytes
    /// of whole pages, including the driver's memory for graphs.
    pub measured_bytes: usize,
    /// The last tokens, equal for every strategy.
    pub last_tokens: Vec<u32>,
    /// The profile of the prefill of one sequence, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefill_profile: Option<Profile>,
    /// The profile of a step at the end of the prompt, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
}

impl DecodeBench {
    /// Measures every case. `start` receives the stages before the first one; `on` receives each
    /// measurement and returns whether to continue.
    ///
    /// # Errors
    /// If the prompt, warm-up and measured tokens of a case exceed its capacity, a case cannot be
    /// built, or the device fails.
    pub fn run(
        &self,
        modules: &ModuleCache,
        start: &mut dyn FnMut(Stage<'_>),
        on: &mut dyn FnMut(&DecodeMeasurement) -> bool,
    ) -> Result<Vec<DecodeMeasurement>> {
        let mut required = Requirements::default();
        for &[position, capacity] in &self.sizes {
            self.require_capacity(position, capacity)?;
            let plan = GenerationPlan::new(&self.config(), self.options(capacity))?;
            required = required.union(plan.requirements());
        }
        let warm = modules.prewarm(&required, |progress| start(Stage::Warming(progress)))?;
        start(Stage::Warm(&warm));
        let state = self.state(modules, start)?;
        let mut measurements = Vec::new();
        for &size in &self.sizes {
            for &strategy in &self.strategies {
                let measurement = self.case(modules, &state, size, strategy)?;
                let go_on = on(&measurement);
                measurements.push(measurement);
                if !go_on {
                    return Ok(measurements);
                }
            }
        }
        Ok(measurements)
    }

    /// Tokens before the measurement: the first one comes from the prefill.
    fn unmeasured(&self) -> usize {
        self.warm_up.max(1)
    }

    /// Checks that the prompt and all generated tokens fit.
    fn require_capacity(&self, position: usize, capacity: usize) -> Result<()> {
        let (warm_up, measured) = (self.unmeasured(), self.steps);
        let needed = position.saturating_add(warm_up).saturating_add(measured);
        let rule = format!(
            "at least {needed}: {position} tokens of the prompt, {warm_up} of warm-up and \
             {measured} measured"
        );
        require("the capacity of the KV cache", capacity, needed <= capacity, &rule)
    }

    /// Returns the configuration without trained weights, unless it has LoRA updates.
    fn config(&self) -> InferenceConfig {
        let mode = self.config.mode.lora().map_or(Mode::Frozen, Mode::Lora);
        InferenceConfig { mode, ..self.config }
    }

    fn options(&self, capacity: usize) -> GeneratorOptions {
        let batch = self.batch;
        GeneratorOptions { cache: self.cache, batch, ..GeneratorOptions::new(capacity) }
    }

    fn state(&self, modules: &ModuleCache, start: &mut dyn FnMut(Stage<'_>)) -> Result<ModelState> {
        let stream = Stream::new(modules.context())?;
        let mut parameters = self.config().parameters();
        parameters.iter_mut().for_each(|parameter| parameter.trainable = false);
        let fill = |parameter: &Parameter, first, chunk: Chunk<'_>| {
            chunk.fill(|values| init::fill(values, first, parameter, self.config.seed));
            Ok(())
        };
        let upload = &mut |done, total, name: &str| start(Stage::Uploading { done, total, name });
        ModelState::from_values(&stream, &parameters, fill, upload)
    }

    fn case(
        &self,
        modules: &ModuleCache,
        state: &ModelState,
        [position, capacity]: [usize; 2],
        strategy: BenchStrategy,
    ) -> Result<DecodeMeasurement> {
        let options = GeneratorOptions { build: strategy.build(), ..self.options(capacity) };
        let plan = GenerationPlan::new(&self.config(), options)?;
        let need = plan.memory();
        let (before, _) = modules.context().mem_get_info()?;
        let source = Source::State(state.clone());
        let mut batch = GenerationBatch::new(plan.start(modules, source, &mut |_| ())?)?;
        let vocab = self.config.model.vocab;
        let prompt = tokens(position, vocab);
        // Builds the programs of the prompt and of the first step.
        let count = self.unmeasured() + self.steps;
        let request = Request { max_tokens: 2, ..Request::new(&prompt, self.sampling) };
        self.timed(&mut batch, &request)?;
        let request = Request { max_tokens: count, ..request };
        let times = self.timed(&mut batch, &request)?;
        let (after, _) = modules.context().mem_get_info()?;
        let generator = batch.generator_mut();
        // A prefill would replace the report of decoding.
        let report = generator.report().cloned();
        let allocated = generator.bytes();
        let prefills = (0..self.steps.min(MAX_PREFILLS)).map(|_| generator.prefill_ms(&request));
        let prefill_ms = prefills.collect::<Result<Vec<_>>>()?;
        let times = Times { prefill_ms, ..times };
        let (mut prefill_profile, mut profile) = (None, None);
        if self.profile {
            prefill_profile = Some(generator.profile_prefill(&request, PROFILE_REPLAYS)?);
            profile = Some(batch.profile(position, PROFILE_REPLAYS)?);
        }
        let (planned, taken) = (need.cache + need.step, before.saturating_sub(after));
        let driver = match modules.context().driver().is_simulated() {
            true => 0,
            false => need.driver.total() - need.driver.code,
        };
        let bytes = [need.parameters, planned, driver, allocated, taken];
        let (sizes, dtype) = ([position, capacity, self.batch], batch.generator().cache_dtype());
        let measured = measurement(sizes, dtype, strategy, report.as_ref(), times, bytes);
        Ok(DecodeMeasurement { prefill_profile, profile, ..measured })
    }

    /// Runs equal sequences, and times the first.
    fn timed(&self, batch: &mut GenerationBatch, request: &Request<'_>) -> Result<Times> {
        let started = Instant::now();
        let first = batch.start(request)?;
        for _ in 1..self.batch {
            batch.start(request)?;
        }
        let (mut all, mut device_ms) = (Vec::new(), Vec::new());
        let (mut prompt_ms, mut pipelined) = (0.0, started);
        while batch.is_active() {
            let advances = batch.step()?;
            let of_first = advances.into_iter().filter(|advance| advance.slot == first);
            for Advance { event, .. } in of_first {
                match event {
                    Event::Token(token) => all.push(token),
                    Event::NotFinite { position } => {
                        return Err(Error::LogitsNotFinite { position });
                    }
                    Event::EndedBy(_) | Event::Full => continue,
                }
                if all.len() == 1 {
                    prompt_ms = started.elapsed().as_secs_f64() * 1e3;
                }
                if all.len() == self.unmeasured() {
                    pipelined = Instant::now();
                } else if all.len() > self.unmeasured() {
                    device_ms.extend(batch.device_ms());
                }
            }
        }
        let measured = all.len().saturating_sub(self.unmeasured()).max(1);
        let pipelined_ms = pipelined.elapsed().as_secs_f64() * 1e3 / measured as f64;
        let last_tokens = all.split_off(all.len().saturating_sub(8));
        let prefill_ms = Vec::new();
        Ok(Times { prefill_ms, prompt_ms, device_ms, pipelined_ms, last_tokens })
    }
}

struct Times {
    prefill_ms: Vec<f32>,
    prompt_ms: f64,
    device_ms: Vec<f32>,
    pipelined_ms: f64,
    last_tokens: Vec<u32>,
}

fn minimum(times: &[f32]) -> f32 {
    times.iter().copied().fold(f32::INFINITY, f32::min)
}

fn maximum(times: &[f32]) -> f32 {
    times.iter().copied().fold(0.0, f32::max)
}

fn measurement(
    [position, cache, batch]: [usize; 3],
    cache_dtype: DType,
    strategy: BenchStrategy,
    report: Option<&Report>,
    times: Times,
    bytes: [usize; 5],
) -> DecodeMeasurement {
    let Times { prefill_ms, prompt_ms, device_ms, pipelined_ms, last_tokens } = times;
    let [parameter_bytes, planned_bytes, driver_bytes, allocated_bytes, measured_bytes] = bytes;
    DecodeMeasurement {
        position,
        cache,
        batch,
        cache_dtype,
        strategy: strategy.name().to_owned(),
        operations: report.map_or(0, |report| report.operations),
        nodes: report.map_or(0, |report| report.nodes),
        depth: report.map_or(0, |report| report.depth),
        build_ms: report.map_or(0.0, |report| milliseconds(report.build_time)),
        instantiate_ms: report.map_or(0.0, |report| milliseconds(report.instantiate_time)),
        prefill_ms_median: median(&prefill_ms).unwrap_or(f32::NAN),
        prefill_ms_min: minimum(&prefill_ms),
        prefill_ms_max: maximum(&prefill_ms),
        prompt_ms,
        token_ms_median: median(&device_ms).unwrap_or(f32::NAN),
        token_ms_min: minimum(&device_ms),
        token_ms_max: maximum(&device_ms),
        pipelined_ms,
        parameter_bytes,
        planned_bytes,
        driver_bytes,
        allocated_bytes,
        measured_bytes,
        last_tokens,
        prefill_profile: None,
        profile: None,
    }
}
