//! The loss of a model over a whole text, such as one that was held out of training.
//!
//! The text is cut into windows of a sequence, one behind the other, so that each token but the
//! first is predicted exactly once. The last window is filled up with tokens that do not count.
//! Losses are added in f64 in the order of the text: the same model and sizes give the same bits.

use retrograph_kernels::ops::IGNORED_TARGET;
use retrograph_runtime::{Bindings, DeviceBuffer, ModuleCache, Policy, Program, Stream};

use crate::config::TrainingConfig;
use crate::data::TextData;
use crate::error::Result;
use crate::model::LossPass;
use crate::parameters::Parameter;
use crate::trainer::RotaryTables;

/// What a text costs a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evaluation {
    /// The mean cross-entropy of the tokens that were predicted, in nats.
    pub loss: f64,
    /// How many tokens were predicted.
    pub tokens: usize,
}

impl Evaluation {
    /// The exponential of the loss.
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
    /// Warms the kernels, uploads the parameters of `config` with the given `values`, and builds.
    ///
    /// # Errors
    /// What `values` fails with, or when the device has too little memory or fails.
    pub fn new(
        cache: &ModuleCache,
        config: &TrainingConfig,
        values: &mut dyn FnMut(&Parameter) -> Result<Vec<f32>>,
    ) -> Result<Self> {
        let pass = LossPass::new(config)?;
        let modules = cache.prewarm(&pass.pass.requirements(), |_| ())?;
        let stream = Stream::new(cache.context())?;
        let losses = DeviceBuffer::zeroed(cache.context(), config.rows())?;
        let rotary = RotaryTables::new(&stream, config)?;
        let mut bindings = Bindings::new();
        for held in &pass.parameters {
            let values = values(&held.parameter)?;
            bindings.bind(held.value, &DeviceBuffer::from_slice(&stream, &values)?);
        }
        bindings.bind(pass.cos, &rotary.cos).bind(pass.sin, &rotary.sin);
        bindings.bind(pass.losses, &losses);
        let program = Program::build(&stream, &modules, &pass.pass, &bindings, Policy::Auto)?;
        Ok(Self { config: *config, pass, losses, program, stream })
    }

    /// The loss over all of `data`.
    ///
    /// # Errors
    /// [`Error::TextTooShort`](crate::Error::TextTooShort) for a text of less than two tokens, or
    /// when the device fails.
    pub fn evaluate(&mut self, data: &TextData) -> Result<Evaluation> {
        data.require(1)?;
        let (rows, predicted) = (self.config.rows(), data.len() - 1);
        let mut controls = self.pass.pass.controls();
        let mut sum = 0.0;
        // The windows of a batch lie one behind the other, so that their rows are a piece of text.
        for start in (0..predicted).step_by(rows) {
            let counted = rows.min(predicted - start);
            let piece = |from: usize, filling: u32| {
                let mut tokens = data.tokens(from..from + counted);
                tokens.resize(rows, filling);
                tokens
            };
            controls.set_array(self.pass.tokens, &piece(start, 0))?;
            controls.set_array(self.pass.targets, &piece(start + 1, IGNORED_TARGET))?;
            controls.set(self.pass.counted, counted as u32)?;
            self.program.step(&self.stream, &controls)?;
            let losses = self.losses.download(&self.stream)?;
            sum += losses.into_iter().map(f64::from).sum::<f64>();
        }
        Ok(Evaluation { loss: sum / predicted as f64, tokens: predicted })
    }
}
