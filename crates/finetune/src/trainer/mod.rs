//! Training on a device.
//!
//! [`Plan::new`] plans the run without a device. [`Plan::start`] warms the kernels, checks that the
//! run fits in device memory, uploads the weights and builds the step. [`Trainer::enqueue`] starts
//! a step without waiting for it. [`Trainer::finished`] returns the metrics of steps.

mod export;
mod memory;
mod memory_use;
mod metrics;
mod options;
mod ranks;
mod save;
mod start;
mod trained_model;
mod workload;

use retrograph_runtime::{
    Context, Controls, ModuleCache, Profile, Program, Report, Stream, WarmModules,
};

pub use memory::MemoryNeed;
pub use memory_use::MemoryUse;
pub use metrics::{DpoMetrics, StepMetrics};
pub use options::TrainerOptions;
pub use start::Plan;
pub use trained_model::TrainedModel;

use crate::checkpoint::{Header, HeldOutLoss, Kept};
use crate::config::TrainingConfig;
use crate::data::Batch;
use crate::error::{Error, Result};
use crate::group::ProcessGroup;
use crate::hub::ModelDirectory;
use crate::model::{StepInput, StepPass};
use crate::state::ModelState;
use crate::verify::Verified;
use metrics::{IN_FLIGHT, MetricsQueue};
use workload::TrainingWorkload;

const PREBUILT: &str = "the program of whole sequences is prebuilt";

/// A model in training.
#[derive(Debug)]
pub struct Trainer {
    config: TrainingConfig,
    step: StepPass,
    /// The program of whole sequences is prebuilt.
    programs: Verified<1, TrainingWorkload>,
    queue: MetricsQueue,
    stream: Stream,
    modules: WarmModules,
    cache: ModuleCache,
    base: Option<ModelDirectory>,
    /// The processes of the run, if there are several.
    group: Option<ProcessGroup>,
    /// Whether this rank wants to stop.
    stop: bool,
    /// The step before which all ranks stop.
    stop_before: Option<u32>,
    next_step: u32,
    losses: Vec<f32>,
    held_out: Vec<HeldOutLoss>,
    need: MemoryNeed,
    /// Free bytes of the device before the first kernel was loaded.
    free_before: usize,
}

impl Trainer {
    /// The configuration.
    pub fn config(&self) -> &TrainingConfig {
        &self.config
    }

    /// The report of the program: strategy, reason and cost.
    pub fn report(&self) -> &Report {
        self.programs.replayed().report().expect(PREBUILT)
    }

    /// Returns the planned device memory of the run, and its use until now.
    ///
    /// # Errors
    /// If the device fails.
    pub fn memory_use(&self) -> Result<MemoryUse> {
        self.memory_use_since(self.free_before)
    }

    /// Returns [`Trainer::memory_use`], given that `free` bytes were free before the run.
    pub(crate) fn memory_use_since(&self, free: usize) -> Result<MemoryUse> {
        MemoryUse::of(&self.need, self.report().reuse, self.context(), free)
    }

    /// The pass of one step.
    pub fn step_pass(&self) -> &StepPass {
        &self.step
    }

    /// The next step, counted from 0: the number of steps enqueued since the start of training.
    pub fn next_step(&self) -> u32 {
        self.next_step
    }

    /// The loss of each finished step since the start of training.
    pub fn losses(&self) -> &[f32] {
        &self.losses
    }

    /// The losses on held-out data since the start of training.
    pub fn held_out(&self) -> &[HeldOutLoss] {
        &self.held_out
    }

    /// Adds a loss on held-out data, for reports and checkpoints.
    pub(crate) fn keep_held_out(&mut self, found: HeldOutLoss) {
        self.held_out.push(found);
    }

    /// The kernels.
    pub(crate) fn modules(&self) -> &WarmModules {
        &self.modules
    }

    /// Returns the number of steps that were verified bitwise against an eager step.
    pub fn verified_steps(&self) -> u64 {
        self.programs.steps()
    }

    /// Returns how often a step needed a kernel that was not warm.
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
        &self.workload().state
    }

    fn workload(&self) -> &TrainingWorkload {
        self.programs.replayed().workload()
    }

    /// Returns the program of whole sequences and its stream, for callers that run it themselves.
    pub fn program_mut(&mut self) -> (&mut Program, &Stream) {
        let (program, _) = self.programs.replayed_mut().prebuilt_mut().expect(PREBUILT);
        (program, &self.stream)
    }

    /// Sets the controls of a step of whole sequences.
    ///
    /// # Errors
    /// If the batch does not have the size of the configuration, or a token is not in the
    /// vocabulary.
    pub fn controls(&mut self, step: u32, batch: &Batch) -> Result<&Controls> {
        self.require_vocab(batch)?;
        let programs = self.programs.replayed_mut();
        Ok(programs.set_prebuilt(input(step, batch))?.expect(PREBUILT).1)
    }

    /// Whether [`Trainer::finished`] must return a step before another can start.
    pub fn is_full(&self) -> bool {
        self.queue.is_full()
    }

    /// Checks that all tokens of `batch` are in the vocabulary: other tokens would have no loss.
    fn require_vocab(&self, batch: &Batch) -> Result<()> {
        batch.require_vocab(self.config.model.vocab)
    }

    /// Starts the next step on `batch`. Does not wait for it, except to verify it. The queue must
    /// not be [full](Trainer::is_full).
    ///
    /// # Errors
    /// [`Error::StepsInFlight`] if the queue is full, and
    /// [`DataError::OutsideVocabulary`](crate::data::DataError::OutsideVocabulary); both change
    /// nothing. Or if the device fails; with verification, [`Error::NotBitEqual`].
    pub fn enqueue(&mut self, batch: &Batch) -> Result<()> {
        if self.is_full() {
            return Err(Error::StepsInFlight { most: IN_FLIGHT });
        }
        self.require_vocab(batch)?;
        self.check_group()?;
        let step = StepInput { number: self.next_step, batch, stop: self.stop };
        let (programs, stream) = (self.programs.replayed_mut(), &self.stream);
        programs.prepare(step)?;
        let tokens = batch.tokens.len();
        self.queue.around(stream, step.number, tokens, || programs.enqueue(stream, step))?;
        self.next_step += 1;
        self.programs.verify(stream, step)
    }

    /// Returns the metrics of the oldest step in flight if it is complete; with `wait`, waits for
    /// it. Returns `None` if no step is complete, or none is in flight.
    ///
    /// # Errors
    /// [`Error::NotFinite`] for a step whose loss or norm is not finite; that step and all later
    /// ones have not changed the model. Or if the device fails.
    pub fn finished(&mut self, wait: bool) -> Result<Option<StepMetrics>> {
        let queue = &mut self.queue;
        let taken = match &self.group {
            Some(group) => {
                let taken = group.waiting("a step", || queue.take(wait));
                // The metrics of an aborted step are meaningless.
                group.require_healthy()?;
                taken
            }
            None => queue.take(wait),
        };
        let Some((metrics, from_ranks)) = taken? else { return Ok(None) };
        let StepMetrics { step, loss, grad_norm: norm, .. } = metrics;
        if !(loss.is_finite() && norm.is_finite()) {
            let (rank, kept) = (from_ranks.not_finite, Kept::Nothing);
            return Err(Error::NotFinite { step, loss, norm, rank, kept });
        }
        if from_ranks.stop {
            // No rank can be further ahead than this.
            self.stop_before.get_or_insert(step + IN_FLIGHT as u32);
        }
        self.losses.push(loss);
        Ok(Some(metrics))
    }

    /// Runs one step and waits for it and for all steps in flight.
    ///
    /// # Errors
    /// The errors of [`Trainer::enqueue`] and [`Trainer::finished`].
    pub fn step(&mut self, batch: &Batch) -> Result<StepMetrics> {
        self.enqueue(batch)?;
        let mut last = None;
        while let Some(metrics) = self.finished(true)? {
            last = Some(metrics);
        }
        Ok(last.expect("a step was enqueued"))
    }

    /// Profiles the operations of a step on `batch`, see [`retrograph_runtime::profile`]. No step
    /// may be in flight. The state of the model is unchanged.
    ///
    /// # Errors
    /// If a token is not in the vocabulary, a graph with events cannot be built, or the device
    /// fails.
    pub fn profile(&mut self, batch: &Batch, replays: usize) -> Result<Profile> {
        self.require_vocab(batch)?;
        let (programs, number) = (self.programs.replayed_mut(), self.next_step);
        let (program, controls) = programs.set_prebuilt(input(number, batch))?.expect(PREBUILT);
        Ok(program.profile(&self.stream, controls, replays)?)
    }

    /// Downloads the gradients of the last step before clipping, by parameter name. Empty unless
    /// the caller keeps the gradients.
    ///
    /// # Errors
    /// If the device fails.
    pub fn gradients(&self) -> Result<Vec<(String, Vec<f32>)>> {
        let (kept, buffers) = (&self.step.gradients, &self.workload().gradients);
        let mut all = Vec::new();
        for held in self.step.trained().filter(|_| !kept.is_empty()) {
            let grad =
                held.trained.as_ref().expect("only trained parameters are listed").grad.f32();
            let at = kept.iter().position(|whole| whole.buffer() == grad.buffer());
            let values = buffers[at.expect("every gradient is kept")].download(&self.stream)?;
            let bytes = grad.byte_range();
            let values = values[bytes.start / 4..bytes.end / 4].to_vec();
            all.push((held.parameter.name.clone(), values));
        }
        Ok(all)
    }

    /// Returns the header of a checkpoint after the finished steps.
    pub(crate) fn header(&self, text: &str) -> Result<Header> {
        let mut header = Header::new(self.config, text, self.losses.clone());
        header.held_out.clone_from(&self.held_out);
        header.ranks = self.step.options.ranks.world_size;
        header.micro_batch = self.step.options.micro_batch;
        header.preference = self.step.options.preference;
        header.interleave = self.step.micro_batching.interleaved();
        let digest = self.base.as_ref().map(ModelDirectory::digest).transpose()?;
        header.base = digest.map(str::to_owned);
        Ok(header)
    }

    /// Ends training: frees everything but the trained model.
    pub fn into_model(self) -> TrainedModel {
        let Self { config, programs, stream, modules, cache, .. } = self;
        let state = programs.into_workload().state.without_moments();
        TrainedModel { config, state, stream, modules, cache }
    }
}

/// The input of a step that does not want to stop.
fn input(number: u32, batch: &Batch) -> StepInput<'_> {
    StepInput { number, batch, stop: false }
}
