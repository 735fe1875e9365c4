//! The loss of a model on data, such as data that was held out of training.
//!
//! A text is split into consecutive windows of one sequence, so that each token except the first is
//! predicted exactly once. Packing does not change the loss of an example. Padding does not count.
//! Losses are added in f64 in the order of the sequences: the same model and sizes give the same
//! bits.

use retrograph_runtime::{
    Bindings, DeviceBuffer, ModuleCache, Policy, Program, Ranks, Stream, WarmModules,
};

use crate::config::{TrainingConfig, require_rank};
use crate::data::Data;
use crate::error::{Error, Result};
use crate::model::LossPass;
use crate::parameters::Parameter;
use crate::state::{InitialValues, Placement, RotaryTables, Source, load_state};
use crate::trainer::Trainer;

/// The loss of a model on data.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Evaluation {
    /// The mean cross-entropy of the predicted tokens, in nats; with preferences, the mean loss of
    /// the pairs.
    pub loss: f64,
    /// Predicted tokens; with preferences, pairs.
    pub tokens: usize,
}

impl Evaluation {
    /// Returns the perplexity, `exp(loss)`.
    pub fn perplexity(&self) -> f64 {
        self.loss.exp()
    }
}

/// A model on a device, ready to be evaluated.
#[derive(Debug)]
pub struct Evaluator {
    config: TrainingConfig,
    pass: LossPass,
    losses: DeviceBuffer<f32>,
    program: Program,
    stream: Stream,
}

impl Evaluator {
    /// Warms the kernels, uploads the parameters of `config` with the given `values`, and builds
    /// the program.
    ///
    /// # Errors
    /// The error of `values`, or if the device has too little memory or fails.
    pub fn new(
        cache: &ModuleCache,
        config: &TrainingConfig,
        values: &mut dyn FnMut(&Parameter) -> Result<Vec<f32>>,
    ) -> Result<Self> {
        let pass = LossPass::new(config, None)?;
        let modules = cache.prewarm(&pass.pass.requirements(), |_| ())?;
        let stream = Stream::new(cache.context())?;
        let mut bindings = Bindings::new();
        let parameters: Vec<Parameter> =
            pass.parameters.iter().map(|held| held.parameter.clone()).collect();
        let source = Source::Values(values);
        let (_, state) = load_state(
            &stream,
            &parameters,
            Placement::ALONE,
            InitialValues { base: None, seed: config.seed },
            source,
            &mut |_, _, _| (),
        )?;
        state.without_moments().bind(&mut bindings, &pass.parameters);
        Self::build(stream, &modules, config, pass, bindings)
    }

    /// Returns an evaluator that shares the weights of a trainer, and always sees the current ones.
    /// The trainer must have been planned [with held-out data](crate::Plan::with_held_out). With
    /// several ranks, [`Evaluator::evaluate_part`] computes the batches of one.
    ///
    /// # Errors
    /// If the kernels are not warm, or the device has too little memory or fails.
    pub fn of(trainer: &Trainer) -> Result<Self> {
        let options = &trainer.step_pass().options;
        let config = &options.of_rank(trainer.config())?;
        let pass = LossPass::new(config, options.preference)?;
        let mut bindings = Bindings::new();
        trainer.state().bind(&mut bindings, &pass.parameters);
        Self::build(trainer.stream().clone(), trainer.modules(), config, pass, bindings)
    }

    fn build(
        stream: Stream,
        modules: &WarmModules,
        config: &TrainingConfig,
        pass: LossPass,
        mut bindings: Bindings,
    ) -> Result<Self> {
        let losses = DeviceBuffer::zeroed(stream.context(), pass.losses.len())?;
        let rotary = RotaryTables::new(&stream, &config.model, config.seq)?;
        bindings.bind(pass.cos, &rotary.cos).bind(pass.sin, &rotary.sin);
        bindings.bind(pass.losses, &losses);
        let program = Program::build(&stream, modules, &pass.pass, &bindings, Policy::Auto)?;
        Ok(Self { config: *config, pass, losses, program, stream })
    }

    /// Computes the loss on all of `data`.
    ///
    /// # Errors
    /// The errors of [`Evaluator::evaluate_part`], and [`Error::EvaluationNotFinite`].
    pub fn evaluate(&mut self, data: &Data) -> Result<Evaluation> {
        let (sum, tokens) = self.evaluate_part(data, Ranks::ONE)?;
        let loss = sum / tokens as f64;
        if !loss.is_finite() {
            return Err(Error::EvaluationNotFinite { loss });
        }
        Ok(Evaluation { loss, tokens })
    }

    /// Computes the sum of the losses and the number of predicted tokens of the batches of one
    /// rank: every `ranks.world_size`-th batch.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`] for a rank that does not exist, the errors of
    /// [`Data::require_vocab`] and [`Data::in_order`], or if the device fails.
    pub fn evaluate_part(&mut self, data: &Data, ranks: Ranks) -> Result<(f64, usize)> {
        require_rank(ranks)?;
        data.require_vocab(self.config.model.vocab)?;
        let shape = [self.config.batch, self.config.seq];
        let mut controls = self.pass.pass.controls();
        let (mut sum, mut tokens) = (0.0, 0);
        let pairs = self.pass.losses.len() < self.config.rows();
        for index in (ranks.rank..).step_by(ranks.world_size) {
            let Some(batch) = data.in_order(shape, index)? else { break };
            controls.set_array(self.pass.tokens, &batch.tokens)?;
            self.pass.targets.set(&mut controls, &batch.targets, batch.counted())?;
            self.pass.sequences.set(&mut controls, batch.positions.as_deref())?;
            self.program.step(&self.stream, &controls)?;
            // Ignored targets have loss 0.
            let losses = self.losses.download(&self.stream)?;
            // The last batch may have fewer pairs.
            let counted = if pairs { batch.sequences(shape[1]) / 2 } else { losses.len() };
            sum += losses[..counted].iter().copied().map(f64::from).sum::<f64>();
            tokens += if pairs { counted } else { batch.counted() as usize };
        }
        Ok((sum, tokens))
    }
}
