//! What the parts of the model share while the pass is built: the pass, the buffers, the names.

use std::collections::HashMap;

use retrograph_kernels::ops::{Add, DType, TensorView};
use retrograph_kernels::{Element, KernelError, Launch};
use retrograph_runtime::{BufferId, Pass, Slice};

use super::activation::Activation;
use super::cached::Cache;
use super::options::{Division, GradientHome};
use super::value::Value;
use crate::config::TrainingConfig;
use crate::error::Result;
use crate::parameters::Parameter;

/// The buffers of a parameter that is trained.
#[derive(Clone, Copy, Debug)]
pub struct TrainableBuffers {
    /// The gradient of this step.
    pub grad: Slice<f32>,
    /// The first moment.
    pub first: Slice<f32>,
    /// The second moment.
    pub second: Slice<f32>,
}

/// A parameter and its buffers in a pass.
#[derive(Clone, Debug)]
pub struct ParameterBuffers {
    /// Name, shape and role.
    pub parameter: Parameter,
    /// The values.
    pub value: Value,
    /// Gradient and moments, where the parameter is trained in this pass.
    pub trained: Option<TrainableBuffers>,
}

/// A weight as the parts of the model see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weight {
    pub(super) value: Value,
    /// Where the gradient goes; `None` for a weight that is not trained.
    pub(super) grad: Option<Slice<f32>>,
}

impl Weight {
    /// The values of a weight that is f32 in every precision: a norm, a bias, or one that is
    /// trained.
    pub(super) fn floats(&self) -> Slice<f32> {
        self.value.floats()
    }
}

/// A gradient that is being collected.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gradient {
    /// Where it is collected as f32; written as bf16, too, where that is there.
    pub(super) to: Activation,
    /// Whether something is in it already, to which the next contribution is added.
    pub(super) accumulate: bool,
}

/// A pass under construction.
#[derive(Debug)]
pub(super) struct Builder {
    pub(super) pass: Pass,
    pub(super) config: TrainingConfig,
    pub(super) parameters: Vec<ParameterBuffers>,
    /// The keys and values of the tokens before, in a pass that generates text.
    pub(super) cache: Option<Cache>,
    /// The weights that are read behind those of the next product of one row.
    pub(super) upcoming: Option<TensorView<BufferId>>,
    by_name: HashMap<String, usize>,
    scope: String,
    /// What the names of all scopes begin with: the micro-batch, and whether it is done again.
    prefix: String,
    /// The micro-batch. Each but the first adds to what those before have left in the gradients.
    micro_batch: usize,
    /// Micro-batches that run side by side.
    interleaved: u32,
    /// The step, in a pass that trains: what is left out at random is drawn by it.
    step: Option<Slice<u32>>,
}

/// What an operation that leaves out elements at random needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Randomness {
    pub(super) step: Slice<u32>,
    pub(super) seed: u64,
    /// What tells the places and micro-batches of a step apart.
    pub(super) stream: u32,
}

impl Builder {
    /// A pass that declares the parameters of `config`; `gradients` says where gradients lie, and
    /// is `None` for a pass that does not train.
    pub(super) fn new(
        name: &str,
        config: &TrainingConfig,
        gradients: Option<GradientHome>,
    ) -> Self {
        let mut pass = Pass::new(name);
        let mut parameters = Vec::new();
        let mut map = None;
        for parameter in config.parameters() {
            let value = Value::declare(&mut pass, &parameter, &mut map);
            let trained = gradients.filter(|_| parameter.trainable);
            let trained = trained.map(|home| declare_trained(&mut pass, &parameter, home));
            parameters.push(ParameterBuffers { parameter, value, trained });
        }
        let names = parameters.iter().map(|held| held.parameter.name.clone());
        let by_name = names.enumerate().map(|(index, name)| (name, index)).collect();
        let (scope, prefix, config) = (String::new(), String::new(), *config);
        let (cache, upcoming, step) = (None, None, None);
        Self {
            pass,
            config,
            parameters,
            cache,
            upcoming,
            by_name,
            scope,
            prefix,
            micro_batch: 0,
            interleaved: 1,
            step,
        }
    }

    /// The weight `name`, which the inventory must have.
    pub(super) fn weight(&self, name: &str) -> Weight {
        self.weight_if_any(name).unwrap_or_else(|| panic!("the inventory has no `{name}`"))
    }

    /// The weight `name`, where the inventory has it.
    pub(super) fn weight_if_any(&self, name: &str) -> Option<Weight> {
        let held = &self.parameters[*self.by_name.get(name)?];
        let grad = held.trained.map(|buffers| buffers.grad);
        Some(Weight { value: held.value, grad })
    }

    /// Names what follows: operations, and the transients of [`Builder::transient`].
    pub(super) fn scope(&mut self, scope: impl Into<String>) {
        self.scope = format!("{}{}", self.prefix, scope.into());
        self.pass.set_scope(self.scope.clone());
    }

    /// Puts `prefix` in front of the names of all scopes that follow, and gives back what was
    /// there.
    pub(super) fn prefix(&mut self, prefix: String) -> String {
        std::mem::replace(&mut self.prefix, prefix)
    }

    /// Says that the pass describes the micro-batches of `division` one after another.
    pub(super) fn divide(&mut self, division: Division) {
        self.interleaved = division.interleaved() as u32;
    }

    /// How many launches run beside one that has `others` like it in its own micro-batch.
    pub(super) fn beside(&self, others: u32) -> u32 {
        (others + 1) * self.interleaved - 1
    }

    /// What follows belongs to the next micro-batch.
    pub(super) fn next_micro_batch(&mut self) {
        self.micro_batch += 1;
    }

    /// Whether gradients are added to, instead of being overwritten.
    pub(super) fn accumulates(&self) -> bool {
        self.micro_batch > 0
    }

    /// Says that the pass trains, and where the step is.
    pub(super) fn train(&mut self, step: Slice<u32>) {
        self.step = Some(step);
    }

    /// What is drawn at random for the weight `name`; `None` in a pass that does not train. The
    /// same in the forward pass, in the backward pass, and where a layer is computed again.
    pub(super) fn randomness(&self, name: &str) -> Option<Randomness> {
        let place = *self.by_name.get(name)? + self.micro_batch * self.parameters.len();
        let (step, stream, seed) = (self.step?, place as u32, self.config.seed);
        Some(Randomness { step, seed, stream })
    }

    /// Appends a launch that writes the gradient of a weight and cannot add to one by itself.
    pub(super) fn gradient(
        &mut self,
        grad: Slice<f32>,
        launch: impl FnOnce(Slice<f32>) -> Result<Launch<BufferId>, KernelError>,
    ) -> Result<()> {
        if !self.accumulates() {
            return self.launch(launch(grad));
        }
        let share = self.transient("share", grad.len());
        let before = self.transient("before", grad.len());
        self.launch(launch(share))?;
        self.pass.copy(grad, before)?;
        self.launch(Add { a: before, b: share, out: grad }.launch())
    }

    /// A transient named after the scope.
    pub(super) fn transient(&mut self, name: &str, len: usize) -> Slice<f32> {
        self.transient_of(name, len)
    }

    /// The same of any type.
    pub(super) fn transient_of<T: Element>(&mut self, name: &str, len: usize) -> Slice<T> {
        let scope = &self.scope;
        self.pass.transient(format!("{scope}/{name}"), len)
    }

    /// Appends a launch, or fails with what its constructor found.
    pub(super) fn launch(&mut self, launch: Result<Launch<BufferId>, KernelError>) -> Result<()> {
        self.pass.launch(launch?)?;
        Ok(())
    }

    /// Appends `a + b` into a buffer of its own.
    pub(super) fn sum(&mut self, a: Slice<f32>, b: Slice<f32>) -> Result<Slice<f32>> {
        let out = self.transient("sum", a.len());
        self.launch(Add { a, b, out }.launch())?;
        Ok(out)
    }

    /// The type of the factors of products.
    pub(super) fn compute(&self) -> DType {
        self.config.precision.dtype.compute()
    }

    /// Tokens of a micro-batch, or of the step where it is not divided.
    pub(super) fn rows(&self) -> usize {
        self.config.rows()
    }
}

fn declare_trained(pass: &mut Pass, parameter: &Parameter, home: GradientHome) -> TrainableBuffers {
    let (name, len) = (&parameter.name, parameter.len());
    let grad = match home {
        GradientHome::Transient => pass.transient(format!("grad.{name}"), len),
        GradientHome::External => pass.external(format!("grad.{name}"), len),
    };
    let first = pass.external(format!("first.{name}"), len);
    let second = pass.external(format!("second.{name}"), len);
    TrainableBuffers { grad, first, second }
}
