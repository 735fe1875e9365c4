//! A model in training on a device.
//!
//! [`Plan::new`] describes the run without a device. [`Plan::start`] warms the kernels, checks that
//! the run fits into the device's memory, and only then uploads and builds. [`Trainer::enqueue`]
//! starts a step without waiting for it; [`Trainer::finished`] hands out what steps computed.

mod lane;
mod memory;
mod memory_use;
mod metrics;
mod options;
mod shorter;
mod start;
mod verify;

use retrograph_runtime::{
    Context, Controls, ModuleCache, Profile, Program, Report, Stream, WarmModules,
};

pub use memory::MemoryNeed;
pub use memory_use::MemoryUse;
pub use metrics::StepMetrics;
pub use options::TrainerOptions;
pub use start::{Plan, Stage};

use crate::adapter::{AdapterError, AdapterOutput, write_adapter};
use crate::checkpoint::HeldOutLoss;
use crate::checkpoint::{CheckpointDirectory, Header};
use crate::config::TrainingConfig;
use crate::data::Batch;
use crate::error::{Error, Kept, Result};
use crate::hub::ModelDirectory;
use crate::model::StepPass;
use crate::parameters::Parameter;
use crate::state::ModelState;
use lane::Lane;
use metrics::MetricsQueue;

/// A model in training.
#[derive(Debug)]
pub struct Trainer {
    config: TrainingConfig,
    step: StepPass,
    lane: Lane,
    shadow: Option<Lane>,
    queue: MetricsQueue,
    controls: Controls,
    stream: Stream,
    modules: WarmModules,
    cache: ModuleCache,
    base: Option<ModelDirectory>,
    next_step: u32,
    losses: Vec<f32>,
    held_out: Vec<HeldOutLoss>,
    verified: u32,
    need: MemoryNeed,
    /// Free bytes of the device before the first kernel was loaded.
    free_before: usize,
}

impl Trainer {
    /// The configuration.
    pub fn config(&self) -> &TrainingConfig {
        &self.config
    }

    /// What was built, why, and what it cost.
    pub fn report(&self) -> &Report {
        self.lane.program().report()
    }

    /// The device memory that was planned for the run, and what it has taken until now.
    ///
    /// # Errors
    /// When the device cannot be asked.
    pub fn memory_use(&self) -> Result<MemoryUse> {
        self.memory_use_since(self.free_before)
    }

    /// The same where `free` bytes were free before the run, with the parameters.
    pub(crate) fn memory_use_since(&self, free: usize) -> Result<MemoryUse> {
        MemoryUse::of((&self.need, self.report().reuse), (self.context(), free))
    }

    /// The pass of one step.
    pub fn step_pass(&self) -> &StepPass {
        &self.step
    }

    /// The step that comes next: the number of steps enqueued since the start of training.
    pub fn next_step(&self) -> u32 {
        self.next_step
    }

    /// The loss of each step that has ended, from the start of training.
    pub fn losses(&self) -> &[f32] {
        &self.losses
    }

    /// What was measured on held-out data, from the start of training.
    pub fn held_out(&self) -> &[HeldOutLoss] {
        &self.held_out
    }

    /// Keeps what was measured on held-out data for reports and checkpoints.
    pub(crate) fn keep_held_out(&mut self, found: HeldOutLoss) {
        self.held_out.push(found);
    }

    /// The kernels.
    pub(crate) fn modules(&self) -> &WarmModules {
        &self.modules
    }

    /// Steps that were compared with an eager step, and found equal bit for bit.
    pub fn verified_steps(&self) -> u32 {
        self.verified
    }

    /// How often a kernel was needed that was not warm.
    pub fn jit_after_warm(&self) -> usize {
        self.cache.jit_after_warm()
    }

    /// The context.
    pub fn context(&self) -> &Context {
        self.stream.context()
    }

    /// The stream of the steps.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The parameters and moments.
    pub fn state(&self) -> &ModelState {
        &self.lane.state
    }

    /// The program, for those who step it by themselves, for example to admit it.
    pub fn program_mut(&mut self) -> (&mut Program, &Stream) {
        (self.lane.program_mut(), &self.stream)
    }

    /// The controls of a step.
    ///
    /// # Errors
    /// When the batch has another size than the configuration says.
    pub fn controls(&mut self, step: u32, batch: &Batch) -> Result<&Controls> {
        self.step.controls().set(&mut self.controls, step, batch)?;
        Ok(&self.controls)
    }

    /// Whether [`Trainer::finished`] must hand out a step before another can start.
    pub fn is_full(&self) -> bool {
        self.queue.is_full()
    }

    /// Starts the next step on `batch`. Without verification nothing waits for it, unless too many
    /// steps are under way: then the oldest is waited for.
    ///
    /// # Errors
    /// When the device fails; with verification, [`Error::NotBitEqual`].
    pub fn enqueue(&mut self, batch: &Batch) -> Result<()> {
        let step = self.next_step;
        if !self.lane.is_shorter(batch) {
            self.controls(step, batch)?;
        }
        let (lane, stream, controls) = (&mut self.lane, &self.stream, &self.controls);
        let numbered = (step, batch.tokens.len());
        self.queue.around(stream, numbered, || lane.step(stream, controls, (step, batch)))?;
        self.next_step += 1;
        if let Some(shadow) = &mut self.shadow {
            shadow.step(stream, controls, (step, batch))?;
            verify::require_equal(stream, (&self.lane, shadow), step)?;
            self.verified += 1;
        }
        Ok(())
    }

    /// The metrics of the oldest step that was not handed out yet, if it has ended; with `wait`,
    /// waits for it. `None` when nothing has ended, or nothing is under way.
    ///
    /// # Errors
    /// [`Error::NotFinite`] for a step whose loss or norm is not finite: from that step on, the
    /// device has changed nothing. Otherwise when the device fails.
    pub fn finished(&mut self, wait: bool) -> Result<Option<StepMetrics>> {
        let Some(metrics) = self.queue.take(wait)? else { return Ok(None) };
        let StepMetrics { step, loss, norm, .. } = metrics;
        if !(loss.is_finite() && norm.is_finite()) {
            return Err(Error::NotFinite { step, loss, norm, kept: Kept::Nothing });
        }
        self.losses.push(loss);
        Ok(Some(metrics))
    }

    /// Does one step and waits for it; earlier steps must have been handed out.
    ///
    /// # Errors
    /// Those of [`Trainer::enqueue`] and [`Trainer::finished`].
    pub fn step(&mut self, batch: &Batch) -> Result<StepMetrics> {
        self.enqueue(batch)?;
        let mut last = None;
        while let Some(metrics) = self.finished(true)? {
            last = Some(metrics);
        }
        Ok(last.expect("a step was enqueued and has ended"))
    }

    /// Measures where the device time of a step on `batch` goes, see
    /// [`retrograph_runtime::profile`]. Earlier steps must have been handed out. Nothing is trained
    /// by it: the state is afterwards what it was.
    ///
    /// # Errors
    /// When a graph that measures cannot be built, or the device fails.
    pub fn profile(&mut self, batch: &Batch, replays: usize) -> Result<Profile> {
        self.controls(self.next_step, batch)?;
        let (lane, stream, controls) = (&mut self.lane, &self.stream, &self.controls);
        Ok(lane.program_mut().profile(stream, controls, replays)?)
    }

    /// The gradients of the last step after clipping, by the names of their parameters; empty
    /// unless the options say that the caller keeps them.
    ///
    /// # Errors
    /// When the device fails.
    pub fn gradients(&self) -> Result<Vec<(String, Vec<f32>)>> {
        let read = |(name, buffer): &(String, retrograph_runtime::DeviceBuffer<f32>)| {
            Ok((name.clone(), buffer.download(&self.stream)?))
        };
        self.lane.gradients.iter().map(read).collect()
    }

    /// Writes a checkpoint after all steps that were enqueued, whose metrics must have been handed
    /// out.
    ///
    /// # Errors
    /// When the checkpoint cannot be written or the device fails.
    pub fn save(&self, directory: &CheckpointDirectory, text: &str) -> Result<std::path::PathBuf> {
        let state = &self.lane.state;
        let mut reader = state.reader(&self.stream);
        directory.save(&self.header(text)?, &state.trained_parameters(), &mut reader)
    }

    /// What a checkpoint says of the steps that were handed out.
    pub(crate) fn header(&self, text: &str) -> Result<Header> {
        let mut header = Header::new(self.config, text, self.losses.clone());
        header.held_out.clone_from(&self.held_out);
        header.micro_batch = self.step.options.micro_batch;
        header.interleave = self.step.division.interleaved();
        let digest = self.base.as_ref().map(ModelDirectory::digest).transpose()?;
        header.base = digest.map(str::to_owned);
        Ok(header)
    }

    /// Writes what LoRA trained as an adapter, after all steps that were enqueued.
    ///
    /// # Errors
    /// [`AdapterError::NotLora`] when all weights are trained; when the adapter cannot be written,
    /// the one that was there is unchanged.
    pub fn export_adapter(&self, output: AdapterOutput<'_>) -> Result<()> {
        let lora = self.config.mode.lora().ok_or(AdapterError::NotLora)?;
        let state = &self.lane.state;
        let values = &mut |parameter: &Parameter| {
            let values = state.values(&self.stream, &parameter.name)?;
            Ok(values.expect("the state has what it lists"))
        };
        write_adapter(output, lora, &state.trained_parameters(), values)
    }

    /// Ends training: what only a step needs is freed, and the trained model is left.
    pub fn into_model(self) -> TrainedModel {
        let Self { config, lane, stream, modules, cache, .. } = self;
        let state = lane.state.without_moments();
        TrainedModel { config, state, stream, modules, cache }
    }
}

/// The parameters of a model on a device, with the means to run it.
#[derive(Debug)]
pub struct TrainedModel {
    pub(crate) config: TrainingConfig,
    pub(crate) state: ModelState,
    pub(crate) stream: Stream,
    pub(crate) modules: WarmModules,
    pub(crate) cache: ModuleCache,
}
