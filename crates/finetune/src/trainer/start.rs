//! From a configuration to a trainer: describe, warm, check the memory, upload, build.

use retrograph_runtime::{
    BuildOptions, Context, DeviceBuffer, ModuleCache, Policy, Progress, Report, Requirements,
    Reuse, Stream, WarmModules,
};

use super::lane::{Lane, Site};
use super::metrics::MetricsQueue;
use super::shorter::Shorter;
use super::{MemoryNeed, Trainer, TrainerOptions};
use crate::config::TrainingConfig;
use crate::data::Lengths;
use crate::error::Result;
use crate::hub::ModelDirectory;
use crate::model::{GradientHome, LossPass, StepPass};
use crate::parameters::Parameter;
use crate::state::{ModelState, RotaryTables, Source, load_state, trained};

/// What happens while a trainer starts, in this order.
#[derive(Debug)]
pub enum Stage<'a> {
    /// An image became warm.
    Warming(&'a Progress<'a>),
    /// All images are warm.
    Warm(&'a WarmModules),
    /// The run fits into the memory of the device, of which so many bytes are free.
    Fits(&'a MemoryNeed, usize),
    /// A parameter is on the device.
    Uploading {
        /// Bytes on the device.
        done: usize,
        /// All bytes.
        total: usize,
        /// The parameter.
        name: &'a str,
    },
    /// The step is built.
    Built(&'a Report),
}

/// A run as described, before any device is involved.
#[derive(Debug)]
pub struct Plan {
    config: TrainingConfig,
    options: TrainerOptions,
    step: StepPass,
    need: MemoryNeed,
    base: Option<ModelDirectory>,
    held_out: Option<LossPass>,
    lengths: Lengths,
    /// What the programs of shorter sequences launch.
    launched_shorter: Requirements,
    /// What the trained model launches.
    after_training: Requirements,
}

impl Plan {
    /// Describes the run of `config`.
    ///
    /// # Errors
    /// When the configuration is not valid.
    pub fn new(config: &TrainingConfig, options: TrainerOptions) -> Result<Self> {
        let step = StepPass::new(config, options.step)?;
        let lengths = Lengths::new(config.seq, options.lengths);
        let (mut launched_shorter, mut largest) = (Requirements::default(), None);
        for seq in lengths.all().filter(|seq| *seq < config.seq) {
            let step = StepPass::new(&TrainingConfig { seq, ..*config }, options.step)?;
            launched_shorter = launched_shorter.union(&step.pass.requirements());
            largest = Some(step);
        }
        let need = MemoryNeed::of((&step, largest.as_ref()), &options);
        let (config, base, held_out) = (*config, None, None);
        let plan = Self {
            config,
            options,
            step,
            need,
            base,
            held_out,
            lengths,
            launched_shorter,
            after_training: Requirements::default(),
        };
        Ok(plan.with_code())
    }

    /// Takes into account the code of all kernels.
    fn with_code(self) -> Self {
        Self { need: self.need.with_code(&self.requirements()), ..self }
    }

    /// Takes the weights that the run starts from, and those that it leaves as they are, from
    /// `base`.
    ///
    /// # Errors
    /// When `base` is a model of other dimensions, or its context is shorter than a sequence.
    pub fn with_base(self, base: ModelDirectory) -> Result<Self> {
        base.require_seq(self.config.seq)?;
        base.require_config(&self.config.model)?;
        Ok(Self { base: Some(base), ..self })
    }

    /// Takes into account that the run measures what is held out: kernels and memory for that.
    ///
    /// # Errors
    /// When the forward pass cannot be described.
    pub fn with_held_out(self) -> Result<Self> {
        let pass = LossPass::new(&self.config)?;
        let need = self.need.with_held_out(&pass);
        Ok(Self { need, held_out: Some(pass), ..self }.with_code())
    }

    /// Takes into account kernels that the trained model launches, so that they are warm before
    /// weights fill the memory.
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

    /// Returns what must be warm: for the steps, for held-out data, and after training.
    pub fn requirements(&self) -> Requirements {
        let requirements = self.step.pass.requirements().union(&self.after_training);
        let requirements = requirements.union(&self.launched_shorter);
        match &self.held_out {
            Some(held_out) => requirements.union(&held_out.pass.requirements()),
            None => requirements,
        }
    }

    /// How much device memory the run takes.
    pub fn memory(&self) -> &MemoryNeed {
        &self.need
    }

    /// Starts the run on the device of `cache`: nothing is uploaded before all kernels are warm and
    /// the run is known to fit. With [`Source::State`] the memory is not checked: the state is
    /// there already, and building the step checks the rest.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) before anything is uploaded, a checkpoint
    /// that does not fit, or when the device fails.
    pub fn start(
        self,
        cache: &ModuleCache,
        source: Source<'_>,
        on: &mut dyn FnMut(Stage<'_>),
    ) -> Result<Trainer> {
        let context = cache.context();
        let (free_before, _) = context.memory()?;
        let modules = self.warm(cache, on)?;
        let already_there = matches!(source, Source::State(_));
        if !already_there {
            self.need.require(context)?;
            on(Stage::Fits(&self.need, context.memory()?.0));
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
        let origin = (self.base.as_ref(), self.config.seed);
        let progress = &mut |done, total, name: &str| on(Stage::Uploading { done, total, name });
        let (losses, state) = load_state((&stream, &parameters), origin, source, progress)?;
        let rotary = RotaryTables::new(&stream, &self.config.model, self.config.seq)?;
        let site = Site { stream: &stream, modules: &modules, step: &self.step, rotary: &rotary };
        let shadow = self.shadow(site, &state)?;
        let lane = Lane::new(site, state, self.gradients(context)?, self.build_options())?;
        let lane = lane.with_shorter(self.shorter(site, self.build_options())?);
        on(Stage::Built(lane.program().report()));
        Ok(Trainer {
            queue: MetricsQueue::new(context, lane.metrics.clone())?,
            controls: self.step.pass.controls(),
            next_step: losses.len() as u32,
            losses,
            held_out,
            config: self.config,
            base: self.base,
            step: self.step,
            lane,
            shadow,
            stream,
            modules,
            cache: cache.clone(),
            verified: 0,
            need: self.need,
            free_before,
        })
    }

    fn warm(&self, cache: &ModuleCache, on: &mut dyn FnMut(Stage<'_>)) -> Result<WarmModules> {
        let modules =
            cache.prewarm(&self.requirements(), |progress| on(Stage::Warming(progress)))?;
        on(Stage::Warm(&modules));
        Ok(modules)
    }

    fn gradients(&self, context: &Context) -> Result<Vec<(String, DeviceBuffer<f32>)>> {
        if self.options.step.gradients == GradientHome::Transient {
            return Ok(Vec::new());
        }
        let buffer = |parameter: &Parameter| {
            Ok((parameter.name.clone(), DeviceBuffer::uninit(context, parameter.len())?))
        };
        self.step.trained().map(|held| buffer(&held.parameter)).collect()
    }

    /// With verification, whatever a step reads without having written it must show.
    fn build_options(&self) -> BuildOptions {
        let nan_transients = self.options.build.nan_transients || self.options.verify;
        let mut build = BuildOptions { nan_transients, ..self.options.build };
        if self.options.step.saves_memory() {
            // Otherwise what could run side by side would have memory of its own.
            build.reuse = build.reuse.or(Some(Reuse::Full));
        }
        build
    }

    /// The eager program on copies, if the run is verified.
    fn shadow(&self, site: Site<'_>, state: &ModelState) -> Result<Option<Lane>> {
        if !self.options.verify {
            return Ok(None);
        }
        let options = BuildOptions { policy: Policy::Eager, ..self.build_options() };
        let gradients = self.gradients(site.stream.context())?;
        let lane = Lane::new(site, state.duplicate(site.stream)?, gradients, options)?;
        Ok(Some(lane.with_shorter(self.shorter(site, options)?)))
    }

    /// The programs of shorter sequences, if the run may have some.
    fn shorter(&self, site: Site<'_>, build: BuildOptions) -> Result<Option<Shorter>> {
        if self.lengths.all().count() == 1 {
            return Ok(None);
        }
        let of = (&self.config, self.lengths);
        Shorter::new(site.modules, of, self.options.step, build).map(Some)
    }
}
