//! Benchmarks of training steps: one model, by size and strategy.
//!
//! Weights are uploaded once and shared by all cases. A case is measured twice: with a wait after
//! each step (device time of a step, by events), and without (throughput of training).

pub mod decode;
mod strategy;

use std::time::{Duration, Instant};

use retrograph_runtime::{EnergyCounter, ModuleCache, Profile, Requirements, Stream};
use serde::{Deserialize, Serialize};

pub use strategy::BenchStrategy;

use crate::config::TrainingConfig;
use crate::data::{Batch, IGNORED_TARGET, TextData};
use crate::error::Result;
use crate::init;
use crate::parameters::{Chunk, Parameter};
use crate::report::median;
use crate::stage::Stage;
use crate::state::{ModelState, Source};
use crate::trainer::{MemoryUse, Plan, Trainer, TrainerOptions};

/// Minimum time in milliseconds over which energy is measured: its counter is updated slowly.
const ENERGY_MS: f64 = 3000.0;

/// Replays per measurement of a profile.
const PROFILE_REPLAYS: usize = 20;

/// A benchmark.
#[derive(Clone, Debug)]
pub struct Bench {
    /// Model, mode and optimizer; batch and sequence come from `sizes`.
    pub config: TrainingConfig,
    /// Batch and sequence of each size.
    pub sizes: Vec<[usize; 2]>,
    /// The strategies.
    pub strategies: Vec<BenchStrategy>,
    /// Unmeasured steps before the measurement.
    pub warm_up: u32,
    /// Measured steps.
    pub steps: u32,
    /// The share of the tokens of each sequence that have a target, from 0 to 1: the last ones, as
    /// in examples with a prompt.
    pub targets: f32,
    /// Whether to measure energy, with extra steps for about 3 s.
    pub energy: bool,
    /// Whether to profile the operations of a step.
    pub profile: bool,
}

/// The result of one case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Measurement {
    /// Sequences per step.
    pub batch: usize,
    /// Tokens per sequence.
    pub seq: usize,
    /// The strategy.
    pub strategy: String,
    /// Operations of the step.
    pub operations: usize,
    /// Nodes of the graph; 0 for eager.
    pub nodes: usize,
    /// Edges of the graph.
    pub edges: usize,
    /// Nodes on the longest path.
    pub depth: usize,
    /// Device bytes of transients.
    pub peak_bytes: usize,
    /// Device memory, including parameters, moments and the driver's memory, from before the first
    /// kernel of the first case to after the last step of this case. Includes memory that the
    /// driver keeps from earlier cases.
    pub memory: MemoryUse,
    /// Milliseconds for planning, binding and creating the graph.
    pub build_ms: f64,
    /// Milliseconds for instantiating the graph.
    pub instantiate_ms: f64,
    /// Milliseconds for uploading the graph.
    pub upload_ms: f64,
    /// Median device time of a step between events, with a wait after each, in milliseconds.
    pub step_ms_median: f32,
    /// Minimum of these times.
    pub step_ms_min: f32,
    /// Maximum of these times.
    pub step_ms_max: f32,
    /// Median host time to enqueue a step, in milliseconds.
    pub submit_ms_median: f32,
    /// Host time per step without waits between steps, in milliseconds.
    pub pipelined_ms: f64,
    /// Energy of the whole device per step without waits between steps, in joules, if requested and
    /// if the device has a counter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joules: Option<f64>,
    /// The loss of the last step, as a check that the model was trained.
    pub last_loss: f32,
    /// The profile of a step, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
}

impl Bench {
    /// Measures every case. `start` receives the stages before the first one; `on` receives each
    /// measurement and returns whether to continue.
    ///
    /// # Errors
    /// If a case cannot be built, or the device fails.
    pub fn run(
        &self,
        modules: &ModuleCache,
        start: &mut dyn FnMut(Stage<'_>),
        on: &mut dyn FnMut(&Measurement) -> bool,
    ) -> Result<Vec<Measurement>> {
        let (free, _) = modules.context().mem_get_info()?;
        let fitting = self.fitting(free, start)?;
        let state = fitting.state(modules, start)?;
        let mut measurements = Vec::new();
        for &size in &self.sizes {
            for &strategy in &self.strategies {
                let measurement = fitting.case(modules, free, &state, size, strategy)?;
                let go_on = on(&measurement);
                measurements.push(measurement);
                if !go_on {
                    return Ok(measurements);
                }
            }
        }
        Ok(measurements)
    }

    /// Returns the benchmark without two-part copies if the largest size does not fit in `free`
    /// bytes with them.
    fn fitting(&self, free: usize, on: &mut dyn FnMut(Stage<'_>)) -> Result<Self> {
        let Some(largest) = self.largest() else { return Ok(self.clone()) };
        let plan = Plan::new(&largest, TrainerOptions::default())?.fitting(free, on)?;
        let precision = plan.config().precision;
        Ok(Self { config: TrainingConfig { precision, ..self.config }, ..self.clone() })
    }

    /// The configuration of the largest size.
    fn largest(&self) -> Option<TrainingConfig> {
        let largest = self.sizes.iter().max_by_key(|[batch, seq]| batch.saturating_mul(*seq));
        largest.map(|size| self.sized(*size))
    }

    /// Warms the kernels of all sizes, checks their memory, and uploads the weights.
    fn state(&self, modules: &ModuleCache, start: &mut dyn FnMut(Stage<'_>)) -> Result<ModelState> {
        let plan = |size: &[usize; 2]| Plan::new(&self.sized(*size), TrainerOptions::default());
        let plans = self.sizes.iter().map(plan).collect::<Result<Vec<_>>>()?;
        let required = plans.iter().map(Plan::requirements);
        let required = required.fold(Requirements::default(), |all, one| all.union(&one));
        let warm = modules.prewarm(&required, |progress| start(Stage::Warming(progress)))?;
        start(Stage::Warm(&warm));
        plans.iter().try_for_each(|plan| plan.memory().require(modules.context()))?;
        let stream = Stream::new(modules.context())?;
        // The state of the largest size has all copies that any size needs.
        let parameters = self.largest().unwrap_or(self.config).parameters();
        let fill = |parameter: &Parameter, first, chunk: Chunk<'_>| {
            chunk.fill(|values| init::fill(values, first, parameter, self.config.seed));
            Ok(())
        };
        let upload = &mut |done, total, name: &str| start(Stage::Uploading { done, total, name });
        ModelState::from_values(&stream, &parameters, fill, upload)
    }

    fn sized(&self, [batch, seq]: [usize; 2]) -> TrainingConfig {
        TrainingConfig { batch, seq, ..self.config }
    }

    /// Measures a case. `free` is the free memory before the first case.
    fn case(
        &self,
        modules: &ModuleCache,
        free: usize,
        state: &ModelState,
        size: [usize; 2],
        strategy: BenchStrategy,
    ) -> Result<Measurement> {
        let options = TrainerOptions { build: strategy.build(), ..TrainerOptions::default() };
        let plan = Plan::new(&self.sized(size), options)?;
        let mut trainer = plan.start(modules, Source::State(state.clone()), &mut |_| ())?;
        let text = TextData::from_tokens(tokens(size[1] * 16 + 1, self.config.model.vocab));
        let ignored = size[1].saturating_sub((size[1] as f32 * self.targets).round() as usize);
        let batch = |step| {
            let mut batch = text.batch(size, self.config.seed, step)?;
            let sequences = batch.targets.chunks_mut(size[1]);
            sequences.for_each(|targets| targets[..ignored].fill(IGNORED_TARGET));
            Ok(batch)
        };
        for step in 0..self.warm_up {
            trainer.step(&batch(step)?)?;
        }
        let waited = self.waited(&mut trainer, &batch)?;
        let (pipelined_ms, _) = pipelined(&mut trainer, &batch, self.steps, None)?;
        let joules = match self.energy {
            true => joules(&mut trainer, &batch, modules, pipelined_ms)?,
            false => None,
        };
        let memory = trainer.memory_use_since(free)?;
        let profile = match self.profile {
            true => Some(trainer.profile(&batch(self.steps)?, PROFILE_REPLAYS)?),
            false => None,
        };
        let measured = measurement(&trainer, memory, strategy, &waited, pipelined_ms);
        Ok(Measurement { joules, profile, ..measured })
    }

    /// Returns device time and host time of each step in milliseconds, with a wait after each.
    fn waited(
        &self,
        trainer: &mut Trainer,
        batch: &impl Fn(u32) -> Result<Batch>,
    ) -> Result<Vec<[f32; 2]>> {
        let mut times = Vec::new();
        for step in 0..self.steps {
            let batch = batch(step)?;
            let started = Instant::now();
            trainer.enqueue(&batch)?;
            let submitted = started.elapsed().as_secs_f32() * 1e3;
            while let Some(metrics) = trainer.finished(true)? {
                times.push([metrics.device_ms, submitted]);
            }
        }
        Ok(times)
    }
}

/// Runs steps without waits between them. Returns host time per step in milliseconds, and energy
/// per step in joules if there is a counter.
fn pipelined(
    trainer: &mut Trainer,
    batch: &impl Fn(u32) -> Result<Batch>,
    steps: u32,
    counter: Option<&EnergyCounter>,
) -> Result<(f64, Option<f64>)> {
    let batches: Vec<_> = (0..steps).map(batch).collect::<Result<_>>()?;
    let energy = || counter.and_then(EnergyCounter::joules);
    let (before, started) = (energy(), Instant::now());
    for batch in &batches {
        if trainer.is_full() {
            trainer.finished(true)?;
        }
        trainer.enqueue(batch)?;
    }
    while trainer.finished(true)?.is_some() {}
    let (ms, steps) = (started.elapsed().as_secs_f64() * 1e3, f64::from(steps.max(1)));
    let used = before.zip(energy()).map(|(before, after)| (after - before) / steps);
    Ok((ms / steps, used))
}

/// Returns energy per step in joules, over enough steps of `ms` each; `None` without a counter.
fn joules(
    trainer: &mut Trainer,
    batch: &impl Fn(u32) -> Result<Batch>,
    modules: &ModuleCache,
    ms: f64,
) -> Result<Option<f64>> {
    let Some(counter) = EnergyCounter::of(modules.context())? else { return Ok(None) };
    let steps = (ENERGY_MS / ms).ceil() as u32;
    Ok(pipelined(trainer, batch, steps, Some(&counter))?.1)
}

fn measurement(
    trainer: &Trainer,
    memory: MemoryUse,
    strategy: BenchStrategy,
    waited: &[[f32; 2]],
    pipelined_ms: f64,
) -> Measurement {
    let report = trainer.report();
    let steps: Vec<f32> = waited.iter().map(|[step, _]| *step).collect();
    let submits: Vec<f32> = waited.iter().map(|[_, submit]| *submit).collect();
    Measurement {
        batch: trainer.config().batch,
        seq: trainer.config().seq,
        strategy: strategy.name().to_owned(),
        operations: report.operations,
        nodes: report.nodes,
        edges: report.edges,
        depth: report.depth,
        peak_bytes: report.peak_bytes,
        memory,
        build_ms: milliseconds(report.build_time),
        instantiate_ms: milliseconds(report.instantiate_time),
        upload_ms: milliseconds(report.upload_time),
        step_ms_median: median(&steps).unwrap_or(f32::NAN),
        step_ms_min: steps.iter().copied().fold(f32::INFINITY, f32::min),
        step_ms_max: steps.iter().copied().fold(0.0, f32::max),
        submit_ms_median: median(&submits).unwrap_or(f32::NAN),
        pipelined_ms,
        joules: None,
        last_loss: trainer.losses().last().copied().unwrap_or(f32::NAN),
        profile: None,
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Returns pseudo-random tokens of the whole vocabulary.
fn tokens(len: usize, vocab: usize) -> Vec<u32> {
    let hash = |index: u64| index.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    (0..len as u64).map(|index| (hash(index) % vocab as u64) as u32).collect()
}
