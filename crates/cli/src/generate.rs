//! `retrograph generate`.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::atomic::Ordering;

use retrograph_finetune::report::median;
use retrograph_finetune::{
    DType, Device, Error, Generated, GenerationConfig, GenerationPlan, Generator, InferenceConfig,
    ModelDirectory, Sampling, Stage, StopReason, TextRequest, Tokenizer, TrainingConfig,
};
use serde_json::json;

use crate::args::{GenerateArguments, InferenceArguments};
use crate::data::NO_TOKENIZER;
use crate::engine::sampling_defaults;
use crate::error::CliError;
use crate::file::write;
use crate::outputs::{self, Output};
use crate::screen::{self, Startup, fact};
use crate::trained::{Chosen, Trained, untrained};
use crate::{Outcome, interrupt};

/// Maximum bytes of a prompt. No model has a context for this many.
const MAX_PROMPT_BYTES: u64 = 256 << 20;

/// The settings of a generation, resolved and checked before a device is opened.
struct GenerateConfig {
    plan: GenerationPlan,
    trained: Trained,
    tokenizer: Tokenizer,
    prompt: Vec<u32>,
    sampling: Sampling,
    /// Tokens that end the text.
    ends: Vec<u32>,
}

impl GenerateConfig {
    fn resolve(arguments: &GenerateArguments) -> Result<Self, CliError> {
        require_output(arguments)?;
        let model = arguments.model.as_deref().map(ModelDirectory::open).transpose()?;
        let tokenizer = model.as_ref().map_or_else(|| Ok(Tokenizer::bytes()), |m| m.tokenizer())?;
        if model.is_some() && tokenizer.is_bytes() && !arguments.quiet {
            fact("tokenizer", NO_TOKENIZER);
        }
        let defaults = match &model {
            Some(model) => sampling_defaults(model.path(), &tokenizer)?,
            None => GenerationConfig::default(),
        };
        let sampling = arguments.sampling.resolve(&defaults);
        sampling.validate()?;
        let ends = if arguments.ignore_eos { Vec::new() } else { defaults.eos };
        let prompt = prompt(arguments, &tokenizer)?;
        let checkpoint = Chosen::of(arguments.checkpoint.as_ref(), arguments.best);
        let precision = arguments.inference.precision.precision(DType::F32);
        let config = untrained(model.as_ref(), precision);
        let adapter = arguments.adapter.as_deref();
        let (config, trained) = Trained::open(config, model.as_ref(), checkpoint, adapter)?;
        let plan = plan(arguments, config, model, prompt.len())?;
        Ok(Self { plan, trained, tokenizer, prompt, sampling, ends })
    }
}

/// Generates text with the settings of the arguments.
pub(crate) fn run(arguments: &GenerateArguments) -> Result<Outcome, CliError> {
    let config = GenerateConfig::resolve(arguments)?;
    let GenerateConfig { plan, mut trained, tokenizer, prompt, sampling, ends } = config;
    let (max_tokens, stops) = (arguments.max_tokens, &arguments.stop);
    let request = TextRequest { prompt, max_tokens, sampling, eos: &ends, stop_strings: stops };
    let InferenceArguments { device: choice, cache, .. } = &arguments.inference;
    let device = Device::open(*choice)?;
    if !arguments.quiet {
        trained.show();
        screen::device(&device);
        fact("sampling", described(sampling));
    }
    let modules = cache.modules(&device, *choice)?;
    let mut startup = Startup::new();
    let mut generator = plan.start(&modules, trained.source(), &mut |stage: Stage<'_>| {
        if !arguments.quiet {
            startup.show(&stage);
        }
    })?;
    let generated = stream(&mut generator, &tokenizer, &request)?;
    let ended = told(generated.stop_reason, &tokenizer);
    if !arguments.quiet {
        summary(&generator, &generated, &device, &ended);
    }
    if let Some(path) = &arguments.json {
        let result = result(&generator, &generated, &device, &request, &ended);
        write("the result", path, &format!("{result:#}\n"))?;
    }
    Ok(if generated.stop_reason == StopReason::Callback {
        Outcome::Interrupted
    } else {
        Outcome::Done
    })
}

/// Checks that the result can be written, before anything is read.
fn require_output(arguments: &GenerateArguments) -> Result<(), CliError> {
    let output = arguments.json.as_deref();
    let begins = r#"{"cache_dtype":"#;
    let output = output.map(|path| Output { what: "the result", path, begins });
    let GenerateArguments { model, adapter, checkpoint, prompt_file, .. } = arguments;
    let folders = [model, adapter, checkpoint].into_iter().flatten();
    let inputs = folders.flat_map(|folder| outputs::files_in(folder));
    let inputs: Vec<_> = inputs.chain(prompt_file.iter().cloned()).collect();
    outputs::require(output.as_slice(), &inputs)
}

/// Returns the tokens of the prompt. Errors name the prompt file, if there is one.
fn prompt(arguments: &GenerateArguments, tokenizer: &Tokenizer) -> Result<Vec<u32>, CliError> {
    let text = prompt_text(arguments)?;
    let request = TextRequest::new(tokenizer, text, Sampling::greedy());
    let prompt = request.and_then(|request| match request.prompt.is_empty() {
        true => Err(Error::EmptyPrompt),
        false => Ok(request.prompt),
    });
    prompt.map_err(|error| match arguments.prompt_file.clone() {
        Some(path) => CliError::Prompt { path, error: Box::new(error) },
        None => error.into(),
    })
}

fn prompt_text(arguments: &GenerateArguments) -> Result<Vec<u8>, CliError> {
    match (&arguments.prompt, &arguments.prompt_file) {
        (Some(prompt), _) => Ok(prompt.clone().into_bytes()),
        (None, Some(path)) => read_prompt(path).map_err(|reason| CliError::Read {
            what: "the prompt",
            path: path.clone(),
            reason,
        }),
        (None, None) => Ok(Vec::new()),
    }
}

/// Reads a file or a pipe.
fn read_prompt(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_PROMPT_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_PROMPT_BYTES {
        let reason = format!("it has more than {MAX_PROMPT_BYTES} bytes");
        return Err(std::io::Error::new(std::io::ErrorKind::FileTooLarge, reason));
    }
    Ok(bytes)
}

/// Plans the generator. Its capacity fits the prompt and the generated tokens, up to the context of
/// the model.
fn plan(
    arguments: &GenerateArguments,
    config: TrainingConfig,
    model: Option<ModelDirectory>,
    prompt: usize,
) -> Result<GenerationPlan, CliError> {
    let wanted = prompt.saturating_add(arguments.max_tokens).max(prompt + 1).max(2);
    let positions =
        model.as_ref().and_then(ModelDirectory::max_position_embeddings).unwrap_or(usize::MAX);
    let max_length = arguments.max_length.unwrap_or(wanted.min(positions));
    let options = arguments.inference.options(max_length, arguments.verify);
    let plan = GenerationPlan::new(&InferenceConfig::from(&config), options)?;
    Ok(match model {
        Some(model) => plan.with_base(model)?,
        None => plan,
    })
}

/// Generates and prints the text until it ends or is interrupted.
fn stream(
    generator: &mut Generator,
    tokenizer: &Tokenizer,
    request: &TextRequest<'_>,
) -> Result<Generated, CliError> {
    let generated = generator.text(tokenizer, request, &mut |piece| {
        // After the first piece, an interrupt ends the text instead of the program.
        let stop = interrupt::defer();
        screen::piece(piece) && !stop.load(Ordering::Relaxed)
    });
    screen::piece("\n");
    Ok(generated?)
}

/// Describes the sampling parameters.
fn described(sampling: Sampling) -> String {
    let Sampling { temperature, top_k, top_p, repetition_penalty: penalty, seed } = sampling;
    let mut words = match temperature {
        0.0 => "greedy".to_owned(),
        _ => format!("temperature {temperature}, top-k {top_k}, top-p {top_p}, seed {seed}"),
    };
    if penalty != 1.0 {
        words.push_str(&format!(", repetition penalty {penalty}"));
    }
    words
}

/// Describes why the text ended.
fn told(ended: StopReason, tokenizer: &Tokenizer) -> String {
    match ended {
        StopReason::Token(token) => match tokenizer.decode(&[token]) {
            text if text.is_empty() => format!("token {token}"),
            text => format!("token {token}, {text:?}"),
        },
        StopReason::StopString => "a stop string".to_owned(),
        StopReason::MaxTokens => "the maximum number of tokens".to_owned(),
        StopReason::CacheFull => "the KV cache is full; --max-length sets its capacity".to_owned(),
        StopReason::Callback => "interrupted".to_owned(),
        other => format!("{other:?}"),
    }
}

fn summary(generator: &Generator, generated: &Generated, device: &Device, ended: &str) {
    fact("ended", format!("{ended}; {} tokens", generated.tokens.len()));
    if let Some(report) = generator.report() {
        let (nodes, depth) = (report.nodes, report.depth);
        fact("strategy", format!("{}: {}", report.strategy, report.reason));
        fact("step", format!("{} operations, {nodes} nodes, depth {depth}", report.operations));
    }
    if generator.verified_steps() > 0 {
        let steps = generator.verified_steps();
        fact("verified", format!("{steps} steps equal the eager step bit for bit"));
    }
    // Times of the simulated device are meaningless.
    if let Some(ms) = median(&generated.device_ms).filter(|_| !device.simulated) {
        fact("speed", format!("{ms:.3} ms per token, {:.1} tokens per second", 1e3 / ms));
    }
}

fn result(
    generator: &Generator,
    generated: &Generated,
    device: &Device,
    request: &TextRequest<'_>,
    ended: &str,
) -> serde_json::Value {
    let ms = median(&generated.device_ms).filter(|_| !device.simulated);
    json!({
        "prompt_tokens": request.prompt, "tokens": generated.tokens, "text": generated.text,
        "ended": ended, "ms_per_token_median": ms, "simulated": device.simulated,
        "strategy": generator.report().map(|report| report.strategy.to_string()),
        "cache_dtype": generator.cache_dtype().name(),
        "verified_steps": generator.verified_steps(),
        "jit_after_warm": generator.jit_after_warm(),
    })
}
