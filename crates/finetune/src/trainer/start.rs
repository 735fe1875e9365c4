//! The start of a trainer: plan, warm the kernels, check the memory, upload, build.

use retrograph_runtime::{
    BuildOptions, Context, DeviceBuffer, ModuleCache, Policy, Program, Requirements, Reuse, Stream,
    WarmModules,
};

use super::metrics::MetricsQueue;
use super::workload::TrainingWorkload;
use super::{MemoryNeed, Trainer, TrainerOptions};
use crate::config::TrainingConfig;
use crate::data::Lengths;
use crate::error::Result;
use crate::group::{GroupError, ProcessGroup};
use crate::hub::ModelDirectory;
use crate::model::{LossPass, MetricsLayout, StepPass};
use crate::parameters::{Parameter, Sharding};
use crate::programs::Programs;
use crate::stage::Stage;
use crate::state::{
    InitialValues, ModelState, Placement, RotaryTables, Source, load_state, trained,
};
use crate::verify::Verified;

/// The plan of a run. Needs no device.
#[derive(Debug)]
pub struct Plan {
    config: TrainingConfig,
    options: TrainerOptions,
    step: StepPass,
    need: MemoryNeed,
    base: Option<ModelDirectory>,
    held_out: Option<LossPass>,
    group: Option<ProcessGroup>,
    lengths: Lengths,
    /// The kernels of the programs of shorter sequences.
    launched_shorter: Requirements,
    /// The kernels of the trained model.
    after_training: Requirements,
}

impl Plan {
    /// Plans the run of `config`.
    ///
    /// # Errors
    /// If the configuration is not valid.
    pub fn new(config: &TrainingConfig, options: TrainerOptions) -> Result<Self> {
        let step = StepPass::new(config, options.step)?;
        let lengths = Lengths::new(config.seq, options.lengths);
        let (mut launched_shorter, mut largest) = (Requirements::default(), None);
        for seq in lengths.all().filter(|seq| *seq < config.seq) {
            let step = StepPass::new(&TrainingConfig { seq, ..*config }, options.step)?;
            launched_shorter = launched_shorter.union(&step.pass.requirements());
            largest = Some(step);
        }
        let need = MemoryNeed::of(&step, largest.as_ref(), &options);
        let (config, base, held_out, group) = (*config, None, None, None);
        let plan = Self {
            config,
            options,
            step,
            need,
            base,
            held_out,
            group,
            lengths,
            launched_shorter,
            after_training: Requirements::default(),
        };
        Ok(plan.with_code())
    }

    /// Returns this plan, or, if it needs more than `free` bytes, a plan without two-part f16
    /// copies, and reports that.
    pub(crate) fn fitting(self, free: usize, on: &mut dyn FnMut(Stage<'_>)) -> Result<Self> {
        let precision = self.config.precision.without_two_term_copies();
        let planned = |plan: &Self| plan.need.least() + plan.need.driver.total();
        if precision == self.config.precision || planned(&self) <= free {
            return Ok(self);
        }
        let plan = Self::new(&TrainingConfig { precision, ..self.config }, self.options)?;
        let plan = if self.held_out.is_some() { plan.with_held_out()? } else { plan };
        let (base, group) = (self.base.clone(), self.group.clone());
        let after_training = self.after_training.clone();
        let plan = Self { base, group, after_training, ..plan }.with_code();
        // With few layers, copies need less memory than weights that each step splits.
        if planned(&plan) >= planned(&self) {
            return Ok(self);
        }
        on(Stage::WithoutCopies { bytes: self.need.parameters - plan.need.parameters });
        Ok(plan)
    }

    /// Adds the code of all kernels to the planned memory.
    fn with_code(self) -> Self {
        Self { need: self.need.with_code(&self.requirements()), ..self }
    }

    /// Takes the initial weights from `base`.
    ///
    /// # Errors
    /// If `base` is a model of other dimensions, or its context is shorter than a sequence.
    pub fn with_base(self, base: ModelDirectory) -> Result<Self> {
        base.require_seq(self.config.seq)?;
        base.require_config(&self.config.model)?;
        Ok(Self { base: Some(base), ..self })
    }

    /// Trains with the other processes of `group`, whose ranks are those of the options. The group
    /// must be [connected](ProcessGroup::connect) before the start.
    pub fn with_group(self, group: ProcessGroup) -> Self {
        Self { group: Some(group), ..self }
    }

    /// Adds the kernels and the memory for losses on held-out data.
    ///
    /// # Errors
    /// If the forward pass cannot be described.
    pub fn with_held_out(self) -> Result<Self> {
        let options = &self.options.step;
        let pass = LossPass::new(&options.of_rank(&self.config)?, options.preference)?;
        let need = self.need.with_held_out(&pass);
        Ok(Self { need, held_out: Some(pass), ..self }.with_code())
    }

    /// Adds kernels that the trained model launches. They are then warmed before training.
    pub fn with_requirements(self, requirements: &Requirements) -> Self {
        let after_training = self.after_training.union(requirements);
        Self { after_training, ..self }.with_code()
    }

    /// The configuration.
    pub fn config(&self) -> &TrainingConfig {
        &self.config
    }

    /// The pass of one step.
    pub fn step_pass(&self) -> &StepPass {
        &self.step
    }

    /// Returns the kernels that must be warm: for steps, for held-out data, and after training.
    pub fn requirements(&self) -> Requirements {
        let requirements = self.step.pass.requirements().union(&self.after_training);
        let requirements = requirements.union(&self.launched_shorter);
        match &self.held_out {
            Some(held_out) => requirements.union(&held_out.pass.requirements()),
            None => requirements,
        }
    }

    /// The device memory of the run.
    pub fn memory(&self) -> &MemoryNeed {
        &self.need
    }

    /// Starts the run on the device of `cache`. Warms all kernels and checks the memory before it
    /// uploads anything. The memory is not checked with [`Source::State`], which is already
    /// uploaded. A run that does not fit with two-part f16 copies has no copies.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) before anything is uploaded; if a
    /// checkpoint does not fit the run; or if the device fails.
    pub fn start(
        self,
        cache: &ModuleCache,
        source: Source<'_>,
        on: &mut dyn FnMut(Stage<'_>),
    ) -> Result<Trainer> {
        self.require_group()?;
        let (free_before, _) = cache.context().mem_get_info()?;
        let plan = match source {
            Source::State(_) => self,
            _ => self.fitting(free_before, on)?,
        };
        plan.start_as_planned(cache, free_before, source, on)
    }

    fn start_as_planned(
        self,
        cache: &ModuleCache,
        free_before: usize,
        source: Source<'_>,
        on: &mut dyn FnMut(Stage<'_>),
    ) -> Result<Trainer> {
        let context = cache.context();
        let modules = self.warm(cache, on)?;
        if !matches!(source, Source::State(_)) {
            self.need.require(context)?;
            on(Stage::Fits(&self.need, context.mem_get_info()?.0));
        }
        let stream = Stream::new(context)?;
        let parameters: Vec<Parameter> =
            self.step.parameters.iter().map(|held| held.parameter.clone()).collect();
        let held_out = match &source {
            Source::Checkpoint(checkpoint) => {
                checkpoint.require(&trained(&parameters))?;
                checkpoint.header().held_out.clone()
            }
            _ => Vec::new(),
        };
        let initial = InitialValues { base: self.base.as_ref(), seed: self.config.seed };
        let progress = &mut |done, total, name: &str| on(Stage::Uploading { done, total, name });
        let step = &self.options.step;
        let sharding = Sharding::new(self.config.mode, step.ranks, step.shard_from);
        let group = self.group.as_ref().filter(|group| group.ranks().world_size > 1);
        let communicator = group.map(ProcessGroup::communicator).transpose()?;
        let placement = Placement { sharding, communicator };
        let (losses, state) =
            load_state(&stream, &parameters, placement, initial, source, progress)?;
        let rotary = RotaryTables::new(&stream, &self.config.model, self.config.seq)?;
        let eager = self.eager(&stream, &modules, &rotary, &state)?;
        let replayed = self.programs(&stream, &modules, &rotary, state, self.build_options())?;
        let metrics = replayed.workload().metrics.clone();
        let layout = MetricsLayout::new(&self.options.step);
        let trainer = Trainer {
            queue: MetricsQueue::new(context, metrics, layout)?,
            group: self.group,
            stop: false,
            stop_before: None,
            programs: Verified::new(replayed, eager),
            next_step: losses.len() as u32,
            losses,
            held_out,
            config: self.config,
            base: self.base,
            step: self.step,
            stream,
            modules,
            cache: cache.clone(),
            need: self.need,
            free_before,
        };
        on(Stage::Built(trainer.report()));
        Ok(trainer)
    }

    fn warm(&self, cache: &ModuleCache, on: &mut dyn FnMut(Stage<'_>)) -> Result<WarmModules> {
        let modules =
            cache.prewarm(&self.requirements(), |progress| on(Stage::Warming(progress)))?;
        on(Stage::Warm(&modules));
        Ok(modules)
    }

    /// Checks that there is a group if and only if there are several ranks, and that it has these
    /// ranks.
    fn require_group(&self) -> Result<()> {
        let ranks = self.options.step.ranks;
        match &self.group {
            Some(group) if group.ranks() == ranks => Ok(()),
            None if ranks.world_size == 1 => Ok(()),
            _ => Err(GroupError::NotConnected { count: ranks.world_size }.into()),
        }
    }

    fn gradients(&self, context: &Context) -> Result<Vec<DeviceBuffer<f32>>> {
        let kept = self.step.gradients.iter();
        kept.map(|gradient| Ok(DeviceBuffer::uninit(context, gradient.len())?)).collect()
    }

    /// With verification, transients start as NaN, so that a read before a write changes the
    /// results.
    fn build_options(&self) -> BuildOptions {
        let mut build = self.options.build;
        build.nan_transients |= self.options.verify;
        if self.options.step.saves_memory() {
            // Otherwise operations that can run concurrently would not share memory.
            build.reuse = build.reuse.or(Some(Reuse::Full));
        }
        build
    }

    /// Builds the program of whole sequences over `state`.
    fn programs(
        &self,
        stream: &Stream,
        modules: &WarmModules,
        rotary: &RotaryTables,
        state: ModelState,
        build: BuildOptions,
    ) -> Result<Programs<1, TrainingWorkload>> {
        let context = stream.context();
        let (gradients, group) = (self.gradients(context)?, self.group.clone());
        let (config, options) = (&self.config, &self.options);
        let workload = TrainingWorkload::new(context, config, options, state, gradients, group)?;
        let (bindings, handles) = (workload.bindings(&self.step, rotary)?, self.step.controls());
        let sizes = [TrainingWorkload::sizes(self.lengths)?];
        let programs = Programs::new(workload, modules, sizes, build);
        let pass = &self.step.pass;
        let program = Program::build(stream, modules, pass, &bindings, build)?;
        Ok(programs.with_prebuilt([self.config.seq], program, handles, pass.controls()))
    }

    /// Returns eager programs over a copy of `state`, if the run is verified.
    fn eager(
        &self,
        stream: &Stream,
        modules: &WarmModules,
        rotary: &RotaryTables,
        state: &ModelState,
    ) -> Result<Option<Programs<1, TrainingWorkload>>> {
        if !self.options.verify {
            return Ok(None);
        }
        let mut build = self.build_options();
        build.policy = Policy::Eager;
        self.programs(stream, modules, rotary, state.duplicate(stream)?, build).map(Some)
    }
}
