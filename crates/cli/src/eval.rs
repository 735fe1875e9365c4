//! `retrograph eval`.

use retrograph_finetune::parameters::Parameter;
use retrograph_finetune::{
    Device, Error, Evaluation, Evaluator, ModelDirectory, Split, Tokenizer, TrainingConfig,
};
use serde_json::json;

use crate::args::EvalArguments;
use crate::error::CliError;
use crate::file::write;
use crate::outputs::{self, Output};
use crate::screen::{self, fact};
use crate::trained::{Chosen, Trained, Weights};
use crate::{Outcome, data};

/// Checks that the result can be written, before anything is read.
fn require_output(arguments: &EvalArguments) -> Result<(), CliError> {
    let output = arguments.json.as_deref();
    let output = output.map(|path| Output { what: "the result", path, begins: r#"{"batch":"# });
    let data = [&arguments.data.text, &arguments.data.data].into_iter().flatten().cloned();
    let folders =
        [&arguments.base, &arguments.adapter, &arguments.checkpoint].into_iter().flatten();
    let inputs = data.chain(folders.flat_map(|folder| outputs::files_in(folder)));
    outputs::require(output.as_slice(), &inputs.collect::<Vec<_>>())
}

/// An evaluation, resolved from the arguments and checked before a device is opened.
struct EvalConfig {
    config: TrainingConfig,
    trained: Trained,
    base: Option<ModelDirectory>,
    tokenizer: Tokenizer,
    split: Split,
}

impl EvalConfig {
    fn resolve(arguments: &EvalArguments) -> Result<Self, CliError> {
        require_output(arguments)?;
        let base = arguments.base.as_deref().map(ModelDirectory::open).transpose()?;
        let tokenizer = data::tokenizer(base.as_ref())?;
        let config = arguments.config(base.as_ref());
        config.validate_sizes()?;
        let options = arguments.data.options(config.seq);
        let split = data::read(&arguments.data, &tokenizer, options, false)?;
        let checkpoint = Chosen::of(arguments.checkpoint.as_ref(), arguments.best);
        let adapter = arguments.adapter.as_deref();
        let (config, trained) = Trained::open(config, base.as_ref(), checkpoint, adapter)?;
        let config = arguments.sized(config, base.as_ref());
        trained.show();
        config.validate()?;
        if let Some(base) = &base {
            base.require_seq(config.seq).map_err(CliError::of_sequences)?;
        }
        data::require_vocab(&split, &config)?;
        split.training.in_order([config.batch, config.seq], 0)?;
        Ok(Self { config, trained, base, tokenizer, split })
    }
}

/// Measures the loss on a text or on examples.
pub(crate) fn run(arguments: &EvalArguments) -> Result<Outcome, CliError> {
    let EvalConfig { config, trained, base, tokenizer, split } = EvalConfig::resolve(arguments)?;
    let data = &split.training;
    let device = Device::open(arguments.device)?;
    screen::device(&device);
    screen::model(&config);
    data::show(&split, &tokenizer, &config);
    let modules = arguments.cache.modules(&device, arguments.device)?;
    let mut values = Weights { trained, base, seed: config.seed };
    let given = &mut |parameter: &Parameter| values.of(parameter);
    let evaluation = match Evaluator::new(&modules, &config, given)?.evaluate(data) {
        Err(Error::EvaluationNotFinite { loss }) => {
            return Err(explain(&mut values, loss, &config)?);
        }
        evaluation => evaluation?,
    };
    let Evaluation { loss, tokens, .. } = evaluation;
    let perplexity = evaluation.perplexity();
    let unit = data::unit(&tokenizer);
    fact(
        "loss",
        format!("{loss:.4} nats per {unit}, perplexity {perplexity:.3}, {tokens} {unit}s"),
    );
    if let Some(path) = &arguments.json {
        let (simulated, sha256) = (device.simulated, data.fingerprint());
        let result = json!({
            "loss": loss, "perplexity": perplexity, "tokens": tokens, "data_sha256": sha256,
            "batch": config.batch, "seq": config.seq, "simulated": simulated,
        });
        write("the result", path, &format!("{result:#}\n"))?;
    }
    Ok(Outcome::Done)
}

/// Explains a `loss` that is not finite by the first weight that is not finite, if there is one.
fn explain(weights: &mut Weights, loss: f64, config: &TrainingConfig) -> Result<CliError, Error> {
    for parameter in config.parameters() {
        let values = weights.of(&parameter)?;
        if let Some(index) = values.iter().position(|value| !value.is_finite()) {
            let (tensor, value) = (parameter.name, values[index]);
            return Ok(CliError::WeightNotFinite { loss, tensor, index, value });
        }
    }
    Ok(CliError::LossNotFinite { loss, vocab: config.model.vocab })
}
