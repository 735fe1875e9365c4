//! Compares results on model directories and adapters that Hugging Face libraries saved with the
//! results of these libraries in float64; `golden/make_models.py` made both.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use retrograph_finetune::model::{ForwardPass, GradientOwner, StepOptions};
use retrograph_finetune::{
    Adapter, Batch, Device, GenerationPlan, GeneratorOptions, LrSchedule, Mode, ModelDirectory,
    OptimizerConfig, Plan, Precision, Request, Sampling, Source, Trainer, TrainerOptions,
    TrainingConfig,
};
use retrograph_runtime::{Bindings, DeviceBuffer, Policy, Program};

use crate::device::device;
use crate::golden::{TOLERANCE, close, distance, tensors};
use crate::split::launches;

const BATCH: usize = 2;
const SEQ: usize = 11;
const STEPS: u32 = 30;
/// Relative, for the norms of the gradients of all steps. The errors of earlier steps accumulate in
/// the parameters, which changes gradients by more than losses.
const NORM_TOLERANCE: f64 = 1e-3;
/// Tokens of a prompt, followed by the most likely tokens.
const PROMPT: usize = 5;

type Golden = BTreeMap<String, Vec<f64>>;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/models").join(name)
}

/// The configuration of the script.
fn config(base: &ModelDirectory, mode: Mode) -> TrainingConfig {
    let optimizer = OptimizerConfig {
        peak_lr: 0.004,
        min_lr: 0.0004,
        warmup_steps: 3,
        total_steps: STEPS,
        schedule: LrSchedule::Cosine,
        beta1: 0.9,
        beta2: 0.95,
        eps: 1e-8,
        weight_decay: 0.1,
        max_norm: 0.25,
    };
    let (model, precision) = (*base.config(), Precision::F32);
    TrainingConfig { model, mode, precision, batch: BATCH, seq: SEQ, optimizer, seed: 0 }
}

fn start(device: &Device, name: &str, adapted: bool, keep_gradients: bool) -> Trainer {
    let base = ModelDirectory::open(&folder(name)).unwrap();
    let mut adapter = adapted.then(|| Adapter::open(&folder(name).join("adapter")).unwrap());
    let mode = adapter.as_ref().map_or(Mode::Full, |adapter| Mode::Lora(adapter.lora()));
    let mut config = config(&base, mode);
    let mut options = TrainerOptions::default();
    if keep_gradients {
        // The kernels at the end of the step then leave the gradients in place.
        config.optimizer.max_norm = f32::MAX;
        options.step = GradientOwner::External.into();
    }
    let plan = Plan::new(&config, options).unwrap().with_base(base).unwrap();
    let source = adapter.as_mut().map_or(Source::Seed, Source::Adapter);
    plan.start(&device.modules(), source, &mut |_| ()).unwrap()
}

/// Starts training the adapter of a model with batches of `batch` sequences, as the script does.
pub(crate) fn adapted(name: &str, batch: usize, options: TrainerOptions) -> Trainer {
    let base = ModelDirectory::open(&folder(name)).unwrap();
    let mut adapter = Adapter::open(&folder(name).join("adapter")).unwrap();
    let mut config = TrainingConfig { batch, ..config(&base, Mode::Lora(adapter.lora())) };
    if options.step.gradients == GradientOwner::External {
        config.optimizer.max_norm = f32::MAX;
    }
    let plan = Plan::new(&config, options).unwrap().with_base(base).unwrap();
    plan.start(&device().modules(), Source::Adapter(&mut adapter), &mut |_| ()).unwrap()
}

fn integers(values: &[f64]) -> Vec<u32> {
    values.iter().map(|&value| value as u32).collect()
}

fn batch(golden: &Golden, step: usize) -> Batch {
    let rows = BATCH * SEQ;
    let part = |name: &str| integers(&golden[name][step * rows..][..rows]);
    Batch { tokens: part("tokens"), targets: part("targets"), positions: None }
}

/// The logits of each sequence of `tokens`, by the forward pass alone.
fn logits(device: &Device, trainer: &Trainer, tokens: &[u32], seq: usize) -> Vec<f32> {
    let config = TrainingConfig { seq, ..*trainer.config() };
    let (forward, stream) = (ForwardPass::new(&config).unwrap(), trainer.stream());
    let modules = device.modules().prewarm(&forward.pass.requirements(), |_| ()).unwrap();
    let (cos, sin) = config.model.rope_tables(seq);
    let [cos, sin] = [cos, sin].map(|table| DeviceBuffer::from_slice(stream, &table).unwrap());
    let out = DeviceBuffer::zeroed(stream.context(), seq * config.model.vocab).unwrap();
    let mut bindings = Bindings::new();
    trainer.state().bind(&mut bindings, &forward.parameters);
    bindings.bind(forward.cos, &cos).bind(forward.sin, &sin).bind(forward.logits, &out);
    let pass = &forward.pass;
    let mut program = Program::build(stream, &modules, pass, &bindings, Policy::Auto).unwrap();
    let one = |tokens: &[u32]| {
        let mut controls = pass.controls();
        controls.set_array(forward.tokens, tokens).unwrap();
        forward.sequences.set(&mut controls, None).unwrap();
        program.step(stream, &controls).unwrap();
        out.download(stream).unwrap()
    };
    tokens.chunks(seq).flat_map(one).collect()
}

/// The gradients of the tensors in files. A fused matrix has the rows of its parts. All parts share
/// its A, so their gradients are added.
fn stored_gradients(trainer: &mut Trainer) -> BTreeMap<String, Vec<f32>> {
    let gradients: BTreeMap<_, _> = trainer.gradients().unwrap().into_iter().collect();
    let mut stored: BTreeMap<String, Vec<f32>> = BTreeMap::new();
    for parameter in trainer.state().trained_parameters() {
        let (gradient, name) = (&gradients[&parameter.name], parameter.stored_name());
        let shared = name.ends_with("lora_A.weight");
        let rows = if shared { parameter.shape[0] } else { parameter.stored_shape()[0] };
        let width = parameter.len() / parameter.shape[0];
        let whole = stored.entry(name).or_insert_with(|| vec![0.0; rows * width]);
        for (row, values) in gradient.chunks(width).enumerate() {
            let row = if shared { row } else { parameter.stored_row(row) };
            let sums = whole[row * width..][..width].iter_mut();
            sums.zip(values).for_each(|(sum, value)| *sum += value);
        }
    }
    stored
}

/// Loss, gradients of everything that is trained, and logits.
fn one_step_matches(name: &str, adapted: bool) {
    let (device, golden) = (device(), golden(name));
    let prefix = if adapted { "adapter." } else { "" };
    let mut trainer = start(&device, name, adapted, true);
    let batch = batch(&golden, 0);
    let found = logits(&device, &trainer, &batch.tokens, SEQ);
    let error = distance(&found, &golden[&format!("{prefix}logits")]);
    assert!(error <= TOLERANCE, "the logits are off by {error:.2e}");
    let metrics = trainer.step(&batch).unwrap();
    close("loss", f64::from(metrics.loss), golden[&format!("{prefix}loss")][0]);
    let gradients = stored_gradients(&mut trainer);
    let kind = format!("{prefix}grad.");
    assert_eq!(gradients.len(), golden.keys().filter(|name| name.starts_with(&kind)).count());
    for (name, gradient) in gradients {
        let error = distance(&gradient, &golden[&format!("{kind}{name}")]);
        assert!(error <= TOLERANCE, "the gradient of {name} is off by {error:.2e}");
    }
}

/// The tokens that a generator appends to `prompt`, one by one with its KV cache.
fn generated(device: &Device, name: &str, adapted: bool, prompt: &[u32]) -> Vec<u32> {
    let base = ModelDirectory::open(&folder(name)).unwrap();
    let mut adapter = adapted.then(|| Adapter::open(&folder(name).join("adapter")).unwrap());
    let mode = adapter.as_ref().map_or(Mode::Full, |adapter| Mode::Lora(adapter.lora()));
    let mut options = GeneratorOptions::new(PROMPT + 64);
    options.verify = true;
    let plan = GenerationPlan::new(&(&config(&base, mode)).into(), options).unwrap();
    let plan = plan.with_base(base).unwrap();
    let source = adapter.as_mut().map_or(Source::Seed, Source::Adapter);
    let mut generator = plan.start(&device.modules(), source, &mut |_| ()).unwrap();
    let tokens = generator.tokens(&Request::new(prompt, Sampling::greedy())).unwrap();
    tokens.collect::<Result<_, _>>().unwrap()
}

/// Each of the likeliest tokens, after the golden ones, and after one another.
fn greedy_matches(name: &str, adapted: bool) {
    let (device, golden) = (device(), golden(name));
    let key = if adapted { "adapter.greedy" } else { "greedy" };
    let tokens = integers(&golden[key]);
    let trainer = start(&device, name, adapted, false);
    let vocab = trainer.config().model.vocab;
    let logits = logits(&device, &trainer, &tokens, tokens.len());
    let likeliest = |row: &[f32]| {
        (0..vocab as u32).max_by(|&a, &b| row[a as usize].total_cmp(&row[b as usize])).unwrap()
    };
    let found: Vec<u32> = logits.chunks(vocab).map(likeliest).collect();
    assert_eq!(found[PROMPT - 1..tokens.len() - 1], tokens[PROMPT..]);
    assert_eq!(tokens.len() - PROMPT, 64);
    assert_eq!(generated(&device, name, adapted, &tokens[..PROMPT]), tokens[PROMPT..]);
}

/// Training the adapter, or all weights of a model with fused projections: PEFT then trains one A
/// for all parts of a fused matrix.
fn training_matches(name: &str) {
    let (device, golden) = (device(), golden(name));
    let fused = ModelDirectory::open(&folder(name)).unwrap().config().fused;
    let mut trainer = start(&device, name, !fused, false);
    for step in 0..STEPS as usize {
        let metrics = trainer.step(&batch(&golden, step)).unwrap();
        close("loss", f64::from(metrics.loss), golden["losses"][step]);
        let (found, expected) = (f64::from(metrics.grad_norm), golden["norms"][step]);
        let error = (found - expected).abs() / expected;
        assert!(error <= NORM_TOLERANCE, "step {step}: norm {found}, expected {expected}");
    }
}

fn golden(name: &str) -> Golden {
    tensors(&folder(name).join("golden.safetensors"))
}

/// Golden values hold for both schemes, since no product of these models is large.
#[test]
fn steps_have_the_same_launches_in_split_f16_and_tf32x3() {
    for name in MODELS {
        let base = ModelDirectory::open(&folder(name)).unwrap();
        let adapter = Adapter::open(&folder(name).join("adapter")).unwrap();
        for mode in [Mode::Full, Mode::Lora(adapter.lora())] {
            let [split, tf32x3] = [Precision::F32, Precision::TF32X3].map(|precision| {
                let config = TrainingConfig { precision, ..config(&base, mode) };
                launches(&config, StepOptions::default())
            });
            assert_eq!(split, tf32x3, "{name} {mode:?}");
        }
    }
}

macro_rules! models {
    ($($name:ident)*) => {
        const MODELS: &[&str] = &[$(stringify!($name)),*];
        $(
        mod $name {
            #[test]
            fn base_model_matches() {
                super::one_step_matches(stringify!($name), false);
            }

            #[test]
            fn adapter_matches() {
                super::one_step_matches(stringify!($name), true);
            }

            #[test]
            fn likeliest_tokens_are_the_same() {
                // The frequencies of dynamic RoPE differ from token to token in `transformers`.
                if stringify!($name) != "dynamic" {
                    super::greedy_matches(stringify!($name), false);
                    super::greedy_matches(stringify!($name), true);
                }
            }

            #[test]
            fn training_matches() {
                super::training_matches(stringify!($name));
            }
        }
        )*
    };
}

models! {
    qwen2 qwen3 llama2 llama3 linear yarn phi3 phi4 smollm3 biases dynamic saved tied gemma2 gemma3
    by_layer dora dora_fused
}
