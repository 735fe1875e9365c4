//! From a configuration to a trainer: describe, warm, check the memory, upload, build.

use retrograph_runtime::{
    BuildOptions, Context, DeviceBuffer, ModuleCache, Policy, Progress, Report, Requirements,
    Reuse, Stream, WarmModules,
};

use super::lane::{Lane, RotaryTables, Site};
use super::metrics::MetricsQueue;
use super::shorter::Shorter;
use super::upload::Chunk;
use super::{MemoryNeed, ModelState, Trainer, TrainerOptions};
use crate::adapter::Adapter;
use crate::checkpoint::{Checkpoint, StatePart};
use crate::config::TrainingConfig;
use crate::data::Lengths;
use crate::error::{Error, Result};
use crate::generate::{GenerationPlan, GeneratorOptions};
use crate::hub::ModelDirectory;
use crate::init;
use crate::model::{GradientHome, LossPass, StepPass};
use crate::parameters::Parameter;

/// Where the weights come from.
pub enum Source<'a> {
    /// The seed of the configuration, but for what the model of [`Plan::with_base`] has.
    Seed,
    /// As [`Source::Seed`] for what is frozen, a checkpoint for the rest.
    Checkpoint(&'a mut Checkpoint),
    /// As [`Source::Seed`] for what is frozen, an adapter for the rest.
    Adapter(&'a mut Adapter),
    /// The caller.
    Values(&'a mut dyn FnMut(&Parameter) -> Result<Vec<f32>>),
    /// A model that is on the device already.
    State(ModelState),
}

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
    writing: GenerationPlan,
    need: MemoryNeed,
    base: Option<ModelDirectory>,
    held_out: Option<LossPass>,
    lengths: Lengths,
    /// What the programs of shorter sequences launch.
    launched_shorter: Requirements,
}

impl Plan {
    /// Describes the run of `config`.
    ///
    /// # Errors
    /// When the configuration is not valid.
    pub fn new(config: &TrainingConfig, options: TrainerOptions) -> Result<Self> {
        let step = StepPass::new(config, options.step)?;
        // The model may be asked to write when it is trained.
        let writing = GenerationPlan::new(&config.into(), GeneratorOptions::new(config.seq + 1))?;
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
            writing,
            need,
            base,
            held_out,
            lengths,
            launched_shorter,
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

    /// The pass of one step.
    pub fn step_pass(&self) -> &StepPass {
        &self.step
    }

    /// What must be warm: for the steps, and for the text that the model may write at the end.
    pub fn requirements(&self) -> Requirements {
        let requirements = self.step.pass.requirements().union(self.writing.requirements());
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
        let (losses, state) = load_state((&stream, &parameters), origin, source, on)?;
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

/// The losses so far, and the state of `parameters` on the device. What `source` leaves to the seed
/// comes from the model, where there is one, and has it. A checkpoint was checked by
/// [`Checkpoint::require`].
pub(crate) fn load_state(
    (stream, parameters): (&Stream, &[Parameter]),
    (base, seed): (Option<&ModelDirectory>, u64),
    source: Source<'_>,
    on: &mut dyn FnMut(Stage<'_>),
) -> Result<(Vec<f32>, ModelState)> {
    let progress = &mut |done, total, name: &str| on(Stage::Uploading { done, total, name });
    let initial = |parameter: &Parameter, first, chunk: Chunk<'_>| {
        match base.filter(|base| base.has(&parameter.name)) {
            Some(base) => return base.fill(&parameter.name, first, chunk),
            None => chunk.fill(|values| init::fill(values, first, parameter, seed)),
        }
        Ok(())
    };
    match source {
        Source::Seed => {
            let state = ModelState::from_values(stream, parameters, initial, progress)?;
            Ok((Vec::new(), state))
        }
        Source::Checkpoint(checkpoint) => {
            let mut whole = Vec::new();
            let fill = |parameter: &Parameter, first: usize, chunk: Chunk<'_>| {
                let name = StatePart::Parameter.tensor_name(&parameter.name);
                if !checkpoint.has(&name) {
                    return initial(parameter, first, chunk);
                }
                if first == 0 {
                    whole = checkpoint.tensor(&name)?;
                }
                chunk.fill(|values| values.copy_from_slice(&whole[first..][..values.len()]));
                Ok(())
            };
            let state = ModelState::from_values(stream, parameters, fill, progress)?;
            state.load_moments(stream, checkpoint)?;
            Ok((checkpoint.header().losses.clone(), state))
        }
        Source::Adapter(adapter) => {
            adapter.require(parameters)?;
            let mut whole = Vec::new();
            let fill = |parameter: &Parameter, first: usize, chunk: Chunk<'_>| {
                if !parameter.trainable {
                    return initial(parameter, first, chunk);
                }
                if first == 0 {
                    whole = adapter.values(parameter)?;
                }
                chunk.fill(|values| values.copy_from_slice(&whole[first..][..values.len()]));
                Ok(())
            };
            let state = ModelState::from_values(stream, parameters, fill, progress)?;
            Ok((Vec::new(), state))
        }
        Source::Values(values) => {
            let mut whole = Vec::new();
            let fill = |parameter: &Parameter, first: usize, chunk: Chunk<'_>| {
                if first == 0 {
                    whole = values(parameter)?;
                    require_length(parameter, whole.len())?;
                }
                chunk.fill(|values| values.copy_from_slice(&whole[first..][..values.len()]));
                Ok(())
            };
            let state = ModelState::from_values(stream, parameters, fill, progress)?;
            Ok((Vec::new(), state))
        }
        Source::State(state) => Ok((Vec::new(), state)),
    }
}

/// The parameters that are trained.
pub(crate) fn trained(parameters: &[Parameter]) -> Vec<&Parameter> {
    parameters.iter().filter(|parameter| parameter.trainable).collect()
}

/// Checks that the caller gave as many values as a parameter has elements.
fn require_length(parameter: &Parameter, found: usize) -> Result<()> {
    let expected = parameter.len();
    if found == expected {
        return Ok(());
    }
    let what = "the values of a parameter";
    Err(Error::Device(retrograph_runtime::Error::LengthMismatch { what, expected, found }))
}
