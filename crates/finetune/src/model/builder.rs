//! A pass under construction, and the buffers of its parameters.

use std::collections::HashMap;
use std::ops::Range;

use retrograph_kernels::ops::{Add, Dropout, SplitMatrix, TensorView};
use retrograph_kernels::{Element, KernelError, Launch};
use retrograph_runtime::{BufferId, Pass, Slice};

use super::converted::{Converted, ConvertedWeights};
use super::dora::DoraNorms;
use super::exchange::{Exchange, GradientOptions, Rows};
use super::gradient::Gradient;
use super::sequences::Sequences;
use super::squares::GradientSquares;
use super::value::Value;
use crate::error::Result;
use crate::parameters::Parameter;

/// The training buffers of a parameter.
#[derive(Clone, Debug)]
pub struct TrainableBuffers {
    /// The gradient of this step.
    pub grad: Gradient,
    /// The elements that this rank updates, see [`Sharding`](crate::parameters::Sharding): all, if
    /// there is one rank.
    pub block: Range<usize>,
    /// The first moment of these elements.
    pub exp_avg: Slice<f32>,
    /// The second moment of these elements.
    pub exp_avg_sq: Slice<f32>,
}

/// A parameter and its buffers in a pass.
#[derive(Clone, Debug)]
pub struct ParameterBuffers {
    /// Name, shape and role.
    pub parameter: Parameter,
    /// The values.
    pub value: Value,
    /// Gradient and moments, if the pass trains the parameter.
    pub trained: Option<TrainableBuffers>,
}

/// A weight matrix.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weight {
    pub(super) value: TensorView<BufferId>,
    /// The f16 copy, if there is one.
    pub(super) f16: Option<SplitMatrix<BufferId>>,
    /// The gradient; `None` for a weight that is not trained.
    pub(super) grad: Option<Gradient>,
}

/// A weight that is f32 in every precision: a norm, a bias, or a LoRA matrix.
#[derive(Clone, Copy, Debug)]
pub(super) struct F32Weight {
    pub(super) value: Slice<f32>,
    /// The gradient; `None` for a weight that is not trained.
    pub(super) grad: Option<Slice<f32>>,
}

/// Dropout with the random stream of one weight.
#[derive(Clone, Copy, Debug)]
pub(super) struct DropoutSite {
    pub(super) probability: f32,
    training: Training,
    /// Index of the weight among the parameters.
    weight: usize,
}

/// Counter and seed of random numbers in a pass that trains.
#[derive(Clone, Copy, Debug)]
struct Training {
    step: Slice<u32>,
    seed: u64,
}

/// A pass under construction.
#[derive(Debug)]
pub(super) struct Builder {
    pub(super) pass: Pass,
    pub(super) parameters: Vec<ParameterBuffers>,
    by_name: HashMap<String, usize>,
    scope: String,
    /// The prefix of every scope: the micro-batch, and whether it is recomputed.
    prefix: String,
    /// Number of the micro-batch. Each except the first adds to the gradients.
    micro_batch: usize,
    /// Micro-batches of lower ranks.
    earlier_micro_batches: usize,
    /// The exchange of gradients.
    pub(super) exchange: Option<Exchange>,
    training: Option<Training>,
    /// The sequences of the micro-batch.
    pub(super) sequences: Sequences,
    converted: ConvertedWeights,
    /// The norms of DoRA layers.
    pub(super) dora_norms: DoraNorms,
    /// The partial sums that products write, if gradients are complete after one micro-batch of one
    /// rank.
    pub(super) squares: Option<GradientSquares>,
}

impl Builder {
    /// Starts a pass and declares `parameters`. `gradients` are the options of a training pass.
    pub(super) fn new(
        name: &str,
        parameters: Vec<Parameter>,
        gradients: Option<GradientOptions>,
    ) -> Self {
        let mut pass = Pass::new(name);
        let mut declared = Vec::new();
        let mut map = None;
        let exchange = gradients.map(|options| {
            let (exchange, grads) = Exchange::declare(&mut pass, &parameters, options);
            (exchange, grads, options)
        });
        for (number, parameter) in parameters.into_iter().enumerate() {
            let value = Value::declare(&mut pass, &parameter, &mut map);
            let trained = exchange.as_ref().and_then(|(_, grads, options)| {
                let grad = grads[number]?;
                let block = options.sharding.block(&parameter);
                let [first, second] = ["first", "second"].map(|moment| {
                    pass.external(format!("{moment}.{}", parameter.name), block.len())
                });
                Some(TrainableBuffers { grad, block, exp_avg: first, exp_avg_sq: second })
            });
            declared.push(ParameterBuffers { parameter, value, trained });
        }
        let names = declared.iter().map(|held| held.parameter.name.clone());
        let by_name = names.enumerate().map(|(index, name)| (name, index)).collect();
        Self {
            pass,
            parameters: declared,
            by_name,
            scope: String::new(),
            prefix: String::new(),
            micro_batch: 0,
            earlier_micro_batches: 0,
            exchange: exchange.map(|(exchange, ..)| exchange),
            training: None,
            sequences: Sequences::default(),
            converted: ConvertedWeights::default(),
            dora_norms: DoraNorms::default(),
            squares: None,
        }
    }

    /// Lets products write partial sums of the squares of whole gradients.
    pub(super) fn sum_squares(&mut self) {
        let gradient = |held: &ParameterBuffers| held.trained.as_ref().map(|it| it.grad);
        let trained: Vec<_> = self
            .parameters
            .iter()
            .filter_map(|held| Some((&held.parameter, gradient(held)?)))
            .collect();
        self.squares = Some(GradientSquares::declare(&mut self.pass, &trained));
    }

    /// Sets the counter and seed of dropout. Without them, dropout is off. Lower ranks have
    /// `earlier` micro-batches.
    pub(super) fn train(&mut self, step: Slice<u32>, seed: u64, earlier: usize) {
        self.training = Some(Training { step, seed });
        self.earlier_micro_batches = earlier;
    }

    /// Appends the exchange of complete gradients between ranks: of the parameters from the one
    /// with the name `from` on. The last exchange also gathers the blocks of `gathered`.
    ///
    /// # Panics
    /// If the inventory of parameters has no such name.
    pub(super) fn exchange_from(&mut self, from: &str, gathered: &[Slice<f32>]) -> Result<()> {
        let from = self.by_name[from];
        match &mut self.exchange {
            Some(exchange) => exchange.append(&mut self.pass, from, gathered),
            None => Ok(()),
        }
    }

    /// Returns the rows that this rank adds to the gradient of the token table. If that gradient
    /// has been exchanged already, these are the rows of all ranks.
    pub(super) fn rows_of_all_ranks(&mut self, rows: Rows) -> Result<Rows> {
        match &self.exchange {
            Some(exchange) => exchange.rows_of_all_ranks(&mut self.pass, rows),
            None => Ok(rows),
        }
    }

    /// Returns the matrix `name` in the form that products read.
    ///
    /// # Panics
    /// If the inventory of parameters has no such name.
    pub(super) fn weight(&self, name: &str) -> Weight {
        self.matrix(name, Value::operand)
    }

    /// Returns the converted weight of the matrix `w` with the rows and columns `shape`, as
    /// [`ConvertedWeights::get`] does.
    pub(super) fn converted(
        &mut self,
        w: TensorView<BufferId>,
        shape: [usize; 2],
        declare: impl FnOnce(&mut Pass, &str) -> TensorView<BufferId>,
    ) -> Converted {
        self.converted.get(&mut self.pass, w, shape, declare)
    }

    /// Returns the matrix `name` as a table of rows, never as a copy.
    ///
    /// # Panics
    /// If the inventory of parameters has no such name.
    pub(super) fn table(&self, name: &str) -> Weight {
        self.matrix(name, Value::stored)
    }

    fn matrix(&self, name: &str, view: fn(&Value) -> TensorView<BufferId>) -> Weight {
        let held = self.parameter(name);
        let grad = held.trained.as_ref().map(|buffers| buffers.grad);
        Weight { value: view(&held.value), f16: held.value.f16(), grad }
    }

    /// Returns the weight `name`, which is f32 in every precision.
    ///
    /// # Panics
    /// If the inventory of parameters has no such name, or stores it in another dtype.
    pub(super) fn f32_weight(&self, name: &str) -> F32Weight {
        let held = self.parameter(name);
        let grad = held.trained.as_ref().map(|buffers| buffers.grad.f32());
        F32Weight { value: held.value.floats(), grad }
    }

    fn parameter(&self, name: &str) -> &ParameterBuffers {
        let index = self.by_name.get(name);
        &self.parameters[*index.unwrap_or_else(|| panic!("the inventory has no `{name}`"))]
    }

    /// Returns the dropout of the input of weight `name`; `None` if the pass does not train or the
    /// probability is 0.
    pub(super) fn dropout(&self, name: &str, probability: f32) -> Option<DropoutSite> {
        let weight = *self.by_name.get(name)?;
        let training = self.training.filter(|_| probability > 0.0)?;
        Some(DropoutSite { probability, training, weight })
    }

    /// Appends dropout of `x` to `out`. Within a step, each site has its own random sequence, in
    /// which micro-batches follow each other. So forward, backward and recomputed passes drop the
    /// same elements. The dropped elements do not depend on the number of micro-batches and ranks,
    /// if `x` has a multiple of 4 elements.
    pub(super) fn drop_out(
        &mut self,
        site: DropoutSite,
        [x, out]: [Slice<f32>; 2],
        accumulate: bool,
    ) -> Result<()> {
        let DropoutSite { probability, training: Training { step, seed }, weight } = site;
        let micro_batch = self.earlier_micro_batches + self.micro_batch;
        let first_group = (micro_batch * x.len().div_ceil(4)) as u32;
        let sequence = weight as u32;
        let dropout =
            Dropout { x, out, step, probability, seed, sequence, first_group, accumulate };
        self.launch(dropout.launch())
    }

    /// Names the operations and transients that follow.
    pub(super) fn scope(&mut self, scope: impl Into<String>) {
        self.scope = format!("{}{}", self.prefix, scope.into());
        self.pass.set_scope(self.scope.clone());
    }

    /// Enters `scope` if there is one; otherwise keeps the current scope.
    pub(super) fn enter(&mut self, scope: Option<&str>) {
        if let Some(scope) = scope {
            self.scope(scope);
        }
    }

    /// Replaces the prefix of all later scopes and returns the old one.
    pub(super) fn prefix(&mut self, prefix: String) -> String {
        std::mem::replace(&mut self.prefix, prefix)
    }

    /// Starts the next micro-batch.
    pub(super) fn next_micro_batch(&mut self) {
        self.micro_batch += 1;
    }

    /// Whether gradients are added to, instead of being overwritten.
    pub(super) fn accumulates(&self) -> bool {
        self.micro_batch > 0
    }

    /// Appends a launch that writes the gradient of a weight and cannot accumulate. If gradients
    /// accumulate, its result is added to a copy of the gradient.
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

    /// Declares an f32 transient named after the scope.
    pub(super) fn transient(&mut self, name: &str, len: usize) -> Slice<f32> {
        self.transient_of(name, len)
    }

    /// Declares a transient of any type named after the scope.
    pub(super) fn transient_of<T: Element>(&mut self, name: &str, len: usize) -> Slice<T> {
        let scope = &self.scope;
        self.pass.transient(format!("{scope}/{name}"), len)
    }

    /// Appends a launch, or fails with the error of its constructor.
    pub(super) fn launch(&mut self, launch: Result<Launch<BufferId>, KernelError>) -> Result<()> {
        self.pass.launch(launch?)?;
        Ok(())
    }

    /// Appends `a + b` into a new transient.
    pub(super) fn sum(&mut self, a: Slice<f32>, b: Slice<f32>) -> Result<Slice<f32>> {
        let out = self.transient("sum", a.len());
        self.launch(Add { a, b, out }.launch())?;
        Ok(out)
    }
}
