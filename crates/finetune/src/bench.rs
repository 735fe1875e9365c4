//! Measuring steps: the same model at several sizes, by each strategy.
//!
//! Weights are made and uploaded once and shared by all cases. A case is measured twice: with a
//! wait after each step (how long a step takes on the device, by events) and without (how many
//! steps per second training gets).

pub mod decode;

use std::time::{Duration, Instant};

use retrograph_runtime::{BuildOptions, ModuleCache, PdlMode, Policy, Stream};
use serde::{Deserialize, Serialize};

use crate::config::TrainingConfig;
use crate::data::TextData;
use crate::error::Result;
use crate::init;
use crate::model::StepOptions;
use crate::parameters::{Chunk, Parameter};
use crate::report::median;
use crate::state::{ModelState, Source};
use crate::trainer::{MemoryUse, Plan, Trainer, TrainerOptions};

/// What is measured against each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    /// Launch after launch.
    Eager,
    /// A captured graph, which is a chain.
    Capture,
    /// A graph built by hand, with the edges of the pass.
    Manual,
    /// A graph built by hand, in which no kernel starts before what it waits for has ended.
    ManualLate,
    /// A graph built by hand, in which all operations are equally urgent.
    ManualEqual,
    /// Launch after launch, of batches that are computed as a whole.
    EagerWhole,
    /// A graph built by hand, of batches that are computed as a whole.
    ManualWhole,
}

impl Contender {
    /// Every contender.
    pub const ALL: [Self; 7] = [
        Self::Eager,
        Self::Capture,
        Self::Manual,
        Self::ManualLate,
        Self::ManualEqual,
        Self::EagerWhole,
        Self::ManualWhole,
    ];

    /// The name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Eager => "eager",
            Self::Capture => "capture",
            Self::Manual => "manual",
            Self::ManualLate => "manual-late",
            Self::ManualEqual => "manual-equal",
            Self::EagerWhole => "eager-whole",
            Self::ManualWhole => "manual-whole",
        }
    }

    fn build(self) -> BuildOptions {
        let policy = match self {
            Self::Eager | Self::EagerWhole => Policy::Eager,
            Self::Capture => Policy::Capture,
            Self::Manual | Self::ManualLate | Self::ManualEqual | Self::ManualWhole => {
                Policy::Manual
            }
        };
        let pdl = match self {
            Self::ManualLate => PdlMode::Never,
            _ => PdlMode::default(),
        };
        let equally_urgent = self == Self::ManualEqual;
        BuildOptions { policy, pdl, equally_urgent, ..BuildOptions::default() }
    }

    /// How its step is described.
    fn step(self) -> StepOptions {
        let whole = matches!(self, Self::EagerWhole | Self::ManualWhole);
        StepOptions { interleave: whole.then_some(1), ..StepOptions::default() }
    }
}

impl std::str::FromStr for Contender {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|contender| contender.name() == text);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("`{text}` cannot be measured; known are {names}")
        })
    }
}

/// What is measured.
#[derive(Clone, Debug)]
pub struct Bench {
    /// Model, mode and optimizer; batch and sequence come from `sizes`.
    pub config: TrainingConfig,
    /// Batch and sequence of each size.
    pub sizes: Vec<[usize; 2]>,
    /// Who takes part.
    pub contenders: Vec<Contender>,
    /// Steps before the measurement.
    pub warm_up: u32,
    /// Steps that are measured.
    pub steps: u32,
}

/// The result of one case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Sequences per step.
    pub batch: usize,
    /// Tokens per sequence.
    pub seq: usize,
    /// Who took part.
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
    /// Device memory with parameters, moments and all that the driver takes, from before the first
    /// kernel of the first case was loaded to behind the last step of this case. What the driver
    /// keeps of earlier cases counts, too.
    pub memory: MemoryUse,
    /// Milliseconds for planning, binding and making the graph, by hand or by capture.
    pub build_ms: f64,
    /// Milliseconds for instantiating it.
    pub instantiate_ms: f64,
    /// Milliseconds for uploading it.
    pub upload_ms: f64,
    /// Median milliseconds of a step on the device, between events, each waited for.
    pub step_ms_median: f32,
    /// The least of these.
    pub step_ms_least: f32,
    /// The most of these.
    pub step_ms_most: f32,
    /// Median milliseconds that the host took to enqueue a step.
    pub submit_ms_median: f32,
    /// Milliseconds per step when steps follow each other without a wait, by the host's clock.
    pub pipelined_ms: f64,
    /// The loss of the last step, which shows that something was trained.
    pub last_loss: f32,
}

impl Bench {
    /// Measures every case; `on` is told of each, and says whether to go on.
    ///
    /// # Errors
    /// When a case cannot be built, or the device fails.
    pub fn run(
        &self,
        modules: &ModuleCache,
        upload: &mut dyn FnMut(usize, usize, &str),
        on: &mut dyn FnMut(&Measurement) -> bool,
    ) -> Result<Vec<Measurement>> {
        let (free, _) = modules.context().memory()?;
        let state = self.state(modules, upload)?;
        let mut measurements = Vec::new();
        for &size in &self.sizes {
            for &contender in &self.contenders {
                let measurement = self.case((modules, free), &state, size, contender)?;
                let go_on = on(&measurement);
                measurements.push(measurement);
                if !go_on {
                    return Ok(measurements);
                }
            }
        }
        Ok(measurements)
    }

    /// Warms what the first size needs, checks the memory of the largest, and uploads the weights.
    fn state(
        &self,
        modules: &ModuleCache,
        upload: &mut dyn FnMut(usize, usize, &str),
    ) -> Result<ModelState> {
        for &size in &self.sizes {
            let plan = Plan::new(&self.sized(size), TrainerOptions::default())?;
            modules.prewarm(&plan.step_pass().pass.requirements(), |_| ())?;
            plan.memory().require(modules.context())?;
        }
        let stream = Stream::new(modules.context())?;
        let parameters = self.config.parameters();
        let fill = |parameter: &Parameter, first, chunk: Chunk<'_>| {
            chunk.fill(|values| init::fill(values, first, parameter, self.config.seed));
            Ok(())
        };
        ModelState::from_values(&stream, &parameters, fill, upload)
    }

    fn sized(&self, [batch, seq]: [usize; 2]) -> TrainingConfig {
        TrainingConfig { batch, seq, ..self.config }
    }

    /// Measures a case. Before all of them `free` bytes were free.
    fn case(
        &self,
        (modules, free): (&ModuleCache, usize),
        state: &ModelState,
        size: [usize; 2],
        contender: Contender,
    ) -> Result<Measurement> {
        let (build, step) = (contender.build(), contender.step());
        let options = TrainerOptions { build, step, ..TrainerOptions::default() };
        let plan = Plan::new(&self.sized(size), options)?;
        let mut trainer = plan.start(modules, Source::State(state.clone()), &mut |_| ())?;
        let text = noise(size[1] * 16 + 1);
        let batch = |step| text.batch(size, self.config.seed, step);
        for step in 0..self.warm_up {
            trainer.step(&batch(step)?)?;
        }
        let waited = self.waited(&mut trainer, &batch)?;
        let pipelined_ms = self.pipelined(&mut trainer, &batch)?;
        let memory = trainer.memory_use_since(free)?;
        Ok(measurement((&trainer, memory), contender, &waited, pipelined_ms))
    }

    /// Milliseconds on the device and for the submission of each step, one at a time.
    fn waited(
        &self,
        trainer: &mut Trainer,
        batch: &impl Fn(u32) -> Result<crate::data::Batch>,
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

    /// Milliseconds per step with nobody waiting in between.
    fn pipelined(
        &self,
        trainer: &mut Trainer,
        batch: &impl Fn(u32) -> Result<crate::data::Batch>,
    ) -> Result<f64> {
        let batches: Vec<_> = (0..self.steps).map(batch).collect::<Result<_>>()?;
        let started = Instant::now();
        for batch in &batches {
            if trainer.is_full() {
                trainer.finished(true)?;
            }
            trainer.enqueue(batch)?;
        }
        while trainer.finished(true)?.is_some() {}
        Ok(started.elapsed().as_secs_f64() * 1e3 / f64::from(self.steps.max(1)))
    }
}

fn measurement(
    (trainer, memory): (&Trainer, MemoryUse),
    contender: Contender,
    waited: &[[f32; 2]],
    pipelined_ms: f64,
) -> Measurement {
    let report = trainer.report();
    let steps: Vec<f32> = waited.iter().map(|[step, _]| *step).collect();
    let submits: Vec<f32> = waited.iter().map(|[_, submit]| *submit).collect();
    Measurement {
        batch: trainer.config().batch,
        seq: trainer.config().seq,
        strategy: contender.name().to_owned(),
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
        step_ms_least: steps.iter().copied().fold(f32::INFINITY, f32::min),
        step_ms_most: steps.iter().copied().fold(0.0, f32::max),
        submit_ms_median: median(&submits).unwrap_or(f32::NAN),
        pipelined_ms,
        last_loss: trainer.losses().last().copied().unwrap_or(f32::NAN),
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// A text without any pattern that matters.
fn noise(len: usize) -> TextData {
    let byte = |index: usize| (index.wrapping_mul(2_654_435_761) >> 11) as u8;
    TextData::from_bytes((0..len).map(byte).collect())
}
