//! `retrograph eval`.

use retrograph_finetune::checkpoint::{Checkpoint, CheckpointDirectory, StatePart};
use retrograph_finetune::init::initial_values;
use retrograph_finetune::parameters::{Parameter, inventory};
use retrograph_finetune::{
    Adapter, Device, Error, Evaluation, Evaluator, Mode, TextData, TrainingConfig,
};
use serde_json::json;

use crate::Outcome;
use crate::args::EvalArguments;
use crate::error::CliError;
use crate::file::write;
use crate::screen::{self, fact};

/// What the seed does not give.
enum Trained {
    Nothing,
    Checkpoint(Box<Checkpoint>),
    Adapter(Box<Adapter>),
}

impl Trained {
    fn values(&mut self, parameter: &Parameter, seed: u64) -> Result<Vec<f32>, Error> {
        let stored = match self {
            Self::Checkpoint(checkpoint) if parameter.trainable => {
                Some(checkpoint.tensor(&StatePart::Parameter.tensor_name(&parameter.name))?)
            }
            Self::Adapter(adapter) if parameter.trainable => Some(adapter.values(parameter)?),
            _ => None,
        };
        Ok(stored.unwrap_or_else(|| initial_values(parameter, seed)))
    }
}

/// Measures the loss of a text.
pub(crate) fn run(arguments: &EvalArguments) -> Result<Outcome, CliError> {
    let data = TextData::read(&arguments.text)?;
    let (config, mut trained) = resolve(arguments)?;
    config.validate()?;
    data.require(1)?;
    let device = Device::open(arguments.device)?;
    screen::device(&device);
    screen::model(&config, &data);
    let modules = arguments.cache.modules(&device, arguments.device)?;
    let values = &mut |parameter: &Parameter| trained.values(parameter, config.seed);
    let evaluation = Evaluator::new(&modules, &config, values)?.evaluate(&data)?;
    let Evaluation { loss, tokens } = evaluation;
    let perplexity = evaluation.perplexity();
    fact("loss", format!("{loss:.4} nats per token, perplexity {perplexity:.3}, {tokens} tokens"));
    if let Some(path) = &arguments.json {
        let (simulated, text) = (device.simulated, data.fingerprint());
        let result = json!({
            "loss": loss, "perplexity": perplexity, "tokens": tokens, "text_sha256": text,
            "batch": config.batch, "seq": config.seq, "simulated": simulated,
        });
        write("the result", path, &format!("{result:#}\n"))?;
    }
    Ok(Outcome::Done)
}

/// The model, from a checkpoint, from an adapter, or from the seed alone.
fn resolve(arguments: &EvalArguments) -> Result<(TrainingConfig, Trained), CliError> {
    let mut config = arguments.config();
    if let Some(path) = &arguments.checkpoint {
        let checkpoint = CheckpointDirectory::at(path).open_latest()?;
        // What is not in the checkpoint is from the seed here, never from a model's directory.
        checkpoint.header().require_base(None)?;
        config = arguments.sized(checkpoint.header().config);
        let parameters = inventory(&config.model, config.mode);
        let trained: Vec<&Parameter> = parameters.iter().filter(|one| one.trainable).collect();
        checkpoint.require(&trained)?;
        fact("checkpoint", checkpoint.path().display());
        return Ok((config, Trained::Checkpoint(Box::new(checkpoint))));
    }
    let Some(path) = &arguments.model.lora.adapter else { return Ok((config, Trained::Nothing)) };
    let adapter = Adapter::open(path).map_err(Error::from)?;
    screen::adapter(&adapter);
    config.mode = Mode::Lora(adapter.lora());
    adapter.require(&inventory(&config.model, config.mode)).map_err(Error::from)?;
    Ok((config, Trained::Adapter(Box::new(adapter))))
}
