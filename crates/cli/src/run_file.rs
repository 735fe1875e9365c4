//! The configuration file of a run, with its resolved values.

use retrograph_finetune::{
    DType, DpoConfig, F32Products, LoraConfig, LoraLayers, LrSchedule, Mode, OptimizerConfig,
    Quantization,
};
use toml::Value;

use crate::config_file::single;
use crate::run_config::RunConfig;

/// Resolved flags.
type Values = Vec<(&'static str, Value)>;

impl RunConfig {
    /// Returns the text of the file that repeats this run.
    pub(crate) fn file(&self) -> String {
        let config = &self.training;
        let step = &self.options.step;
        let sequences = step.micro_batch.map_or(config.batch, |size| size * step.ranks.world_size);
        // A preference has two sequences.
        let batch = if step.preference.is_some() { sequences / 2 } else { sequences };
        let mut values = vec![
            ("steps", Value::Integer(i64::from(self.until))),
            ("batch", integer(batch)),
            ("grad-accumulation", integer(config.batch / sequences.max(1))),
            ("seq", integer(config.seq)),
            (
                "seed",
                i64::try_from(config.seed).map_or(text(config.seed.to_string()), Value::Integer),
            ),
            ("dtype", text(config.precision.dtype.to_string())),
        ];
        match step.preference {
            None => values.push(("packing", Value::Boolean(self.data.training.is_packed()))),
            Some(DpoConfig { beta, label_smoothing }) => values.extend([
                ("dpo-beta", single(beta)),
                ("dpo-label-smoothing", single(label_smoothing)),
            ]),
        }
        if let Some(Quantization::Nf4 { double }) = config.precision.quantize {
            values.push(("quantize", text("nf4")));
            values.push(("double-quant", Value::Boolean(double)));
        }
        if config.precision.gradients == DType::Bf16 {
            values.push(("gradient-dtype", text("bf16")));
        }
        if config.precision.f32_products != F32Products::default() {
            values.push(("f32-products", text(config.precision.f32_products.to_string())));
        }
        values.extend(optimizer(&config.optimizer));
        match config.mode {
            Mode::Full | Mode::Frozen => values.push(("mode", text("full"))),
            Mode::Lora(config) => values.extend(lora(&config)),
        }
        self.given.file(&values)
    }
}

fn optimizer(config: &OptimizerConfig) -> Values {
    let steps = |steps: u32| Value::Integer(i64::from(steps));
    let mut values = vec![
        ("schedule-steps", steps(config.total_steps)),
        ("warmup", steps(config.warmup_steps)),
        ("lr", Value::Float(config.peak_lr)),
        ("weight-decay", single(config.weight_decay)),
        ("beta1", Value::Float(config.beta1)),
        ("beta2", Value::Float(config.beta2)),
        ("eps", single(config.eps)),
        ("clip", single(config.max_norm)),
    ];
    let min_lr = ("min-lr", Value::Float(config.min_lr));
    match config.schedule {
        LrSchedule::Cosine => values.extend([("schedule", text("cosine")), min_lr]),
        LrSchedule::Linear => values.extend([("schedule", text("linear")), min_lr]),
        LrSchedule::Constant => values.push(("schedule", text("constant"))),
        LrSchedule::Wsd { decay_steps } => {
            values.extend([("schedule", text("wsd")), min_lr, ("decay-steps", steps(decay_steps))]);
        }
    }
    values
}

fn lora(config: &LoraConfig) -> Values {
    let mut values = vec![
        ("mode", text("lora")),
        ("rank", integer(config.rank)),
        ("alpha", single(config.alpha)),
        ("lora-targets", text(config.targets.to_string())),
        ("rslora", Value::Boolean(config.rslora)),
        ("dora", Value::Boolean(config.dora)),
        ("lora-dropout", single(config.dropout)),
        ("train-norms", Value::Boolean(config.norms)),
        ("train-embeddings", Value::Boolean(config.embeddings)),
        ("train-head", Value::Boolean(config.head)),
    ];
    if config.layers != LoraLayers::ALL {
        values.push(("lora-layers", text(config.layers.to_string())));
    }
    let list = |list: Vec<String>| Value::Array(list.into_iter().map(Value::String).collect());
    let ranks = config.patterns.ranks().map(|(pattern, rank)| format!("{pattern}={rank}"));
    let alphas = config.patterns.alphas().map(|(pattern, alpha)| format!("{pattern}={alpha}"));
    let lists = [("rank-pattern", ranks.collect()), ("alpha-pattern", alphas.collect())];
    let given = lists.into_iter().filter(|(_, patterns): &(_, Vec<String>)| !patterns.is_empty());
    values.extend(given.map(|(name, patterns)| (name, list(patterns))));
    values
}

fn integer(number: usize) -> Value {
    Value::Integer(number as i64)
}

fn text(text: impl Into<String>) -> Value {
    Value::String(text.into())
}
