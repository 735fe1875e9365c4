//! Exported models: merged adapters, trained weights, types, shards, and refused exports.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use retrograph_finetune::export::{MAX_SHARD_BYTES, Written, write_model};
use retrograph_finetune::parameters::Parameter;
use retrograph_finetune::state::frozen_values;
use retrograph_finetune::{
    Adapter, Device, Error, ExportError, FileError, GenerationPlan, GeneratorOptions,
    InferenceConfig, LoraConfig, Mode, ModelDirectory, ModelOutput, ModelWeights, Plan, Precision,
    Request, Sampling, Source, Trainer, TrainerOptions, WeightType,
};
use safetensors::tensor::{Dtype, SafeTensors};

use crate::device::{device, simulated};
use crate::golden::tensors;
use crate::models::{config, text, train, trainer};

/// Tokens of the prompt of the golden values.
const PROMPT: usize = 5;
const MODELS: [&str; 15] = [
    "qwen2",
    "qwen3",
    "llama2",
    "llama3",
    "phi3",
    "phi4",
    "smollm3",
    "biases",
    "saved",
    "tied",
    "gemma2",
    "gemma3",
    "by_layer",
    "dora",
    "dora_fused",
];

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/models").join(name)
}

fn output<'a>(folder: &'a Path, base: Option<&'a ModelDirectory>) -> ModelOutput<'a> {
    ModelOutput { folder, base, dtype: None, max_shard_bytes: MAX_SHARD_BYTES, facts: &[] }
}

/// Merges `adapter` into `base`.
fn merge(base: &ModelDirectory, adapter: &Path, output: ModelOutput<'_>) -> Result<Written, Error> {
    let mut adapter = Adapter::open(adapter)?;
    let mode = Mode::Lora(adapter.lora());
    let values = &mut |parameter: &Parameter| match parameter.trainable {
        true => Ok(adapter.values(parameter)?),
        false => frozen_values(Some(base), 0, parameter),
    };
    let mut weights = ModelWeights::new(base.config(), mode, values);
    write_model(&mut weights, output, &mut |_| true)
}

/// The tensors of all safetensors files in a folder: dtype and bytes.
fn stored(folder: &Path) -> BTreeMap<String, (Dtype, Vec<u8>)> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "safetensors")
            && !path.ends_with("golden.safetensors")
        {
            let bytes = std::fs::read(path).unwrap();
            let tensors = SafeTensors::deserialize(&bytes).unwrap();
            let found = tensors.tensors().into_iter();
            all.extend(found.map(|(name, it)| (name, (it.dtype(), it.data().to_vec()))));
        }
    }
    all
}

fn greedy(device: &Device, folder: &Path, prompt: &[u32]) -> Vec<u32> {
    let base = ModelDirectory::open(folder).unwrap();
    let config = InferenceConfig::frozen(*base.config(), Precision::F32);
    let plan = GenerationPlan::new(&config, GeneratorOptions::new(PROMPT + 64)).unwrap();
    let plan = plan.with_base(base).unwrap();
    let mut generator = plan.start(&device.modules(), Source::Seed, &mut |_| ()).unwrap();
    let tokens = generator.tokens(&Request::new(prompt, Sampling::greedy())).unwrap();
    tokens.collect::<Result<_, _>>().unwrap()
}

/// `transformers` and PEFT find the same likeliest tokens with the adapter.
#[test]
fn a_merged_model_computes_the_same_as_base_and_adapter() {
    let device = device();
    for name in MODELS {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("merged");
        let base = ModelDirectory::open(&golden(name)).unwrap();
        let merged = ModelOutput {
            dtype: Some(WeightType::F32),
            max_shard_bytes: 20_000,
            ..output(&place, Some(&base))
        };
        let written = merge(&base, &golden(name).join("adapter"), merged).unwrap();
        assert!(written.files > 1, "{name}: {written:?}");
        let expected: Vec<u32> =
            tensors(&golden(name).join("golden.safetensors"))["adapter.greedy"]
                .iter()
                .map(|&token| token as u32)
                .collect();
        assert_eq!(greedy(&device, &place, &expected[..PROMPT]), expected[PROMPT..], "{name}");
    }
}

#[test]
fn a_model_without_changes_keeps_its_bytes() {
    for name in MODELS {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("copy");
        let base = ModelDirectory::open(&golden(name)).unwrap();
        let values = &mut |parameter: &Parameter| frozen_values(Some(&base), 0, parameter);
        let mut weights = ModelWeights::new(base.config(), Mode::Frozen, values);
        let output = output(&place, Some(&base));
        let written = write_model(&mut weights, output, &mut |_| true).unwrap();
        assert_eq!(stored(&place), stored(&golden(name)), "{name}");
        assert_eq!((written.files, written.tensors), (1, stored(&place).len()));
        assert!(!place.join("model.safetensors.index.json").exists());
        assert_eq!(ModelDirectory::open(&place).unwrap().config(), base.config());
        let again = write_model(&mut weights, output, &mut |_| true).unwrap_err();
        assert!(matches!(again, Error::File(FileError::Occupied { .. })), "{again}");
    }
}

#[test]
fn shards_are_listed_in_an_index_and_have_at_most_the_given_size() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("out");
    let base = ModelDirectory::open(&golden("llama2")).unwrap();
    let values = &mut |parameter: &Parameter| frozen_values(Some(&base), 0, parameter);
    let mut weights = ModelWeights::new(base.config(), Mode::Frozen, values);
    let output = ModelOutput { max_shard_bytes: 10_000, ..output(&place, Some(&base)) };
    let mut told = Vec::new();
    let on = &mut |progress: retrograph_finetune::export::Progress<'_>| {
        told.push((progress.done, progress.total));
        true
    };
    let written = write_model(&mut weights, output, on).unwrap();
    assert_eq!(told.last(), Some(&(written.bytes, written.bytes)));
    assert!(told.is_sorted() && told.len() == written.tensors + 1);
    let text = std::fs::read_to_string(place.join("model.safetensors.index.json")).unwrap();
    let index: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(index["metadata"]["total_size"], written.bytes);
    let map = index["weight_map"].as_object().unwrap();
    assert_eq!(map.len(), written.tensors);
    for number in 1..=written.files {
        let name = format!("model-{number:05}-of-{:05}.safetensors", written.files);
        let bytes = std::fs::read(place.join(&name)).unwrap();
        let found = SafeTensors::deserialize(&bytes).unwrap();
        let size: usize = found.tensors().iter().map(|(_, it)| it.data().len()).sum();
        assert!(size <= 10_000, "{name} has {size} bytes");
        assert!(found.names().iter().all(|tensor| map[*tensor] == name.as_str()));
    }
}

/// Trains all weights and writes them.
fn trained(device: &Device) -> Trainer {
    let mut trainer = trainer(device, &config(Mode::Full, 6), TrainerOptions::default());
    train(&mut trainer, 4);
    trainer
}

#[test]
fn a_trained_model_without_a_base_is_a_model_directory() {
    let (device, folder) = (device(), tempfile::tempdir().unwrap());
    let mut first = trained(&device);
    let place = folder.path().join("model");
    let facts = ["trained: a little".to_owned()];
    let output = ModelOutput { facts: &facts, ..output(&place, None) };
    first.export_model(output, &mut |_| true).unwrap();
    let base = ModelDirectory::open(&place).unwrap();
    let model = retrograph_finetune::ModelConfig { head_dim: Some(4), ..first.config().model };
    assert_eq!(*base.config(), model);
    let tokenizer = base.tokenizer().unwrap();
    assert_eq!(tokenizer.encode("né").unwrap(), [110, 195, 169]);
    let card = std::fs::read_to_string(place.join("README.md")).unwrap();
    assert!(card.contains("# model") && card.contains("- trained: a little"), "{card}");

    let config = retrograph_finetune::TrainingConfig { model, ..*first.config() };
    let plan = Plan::new(&config, TrainerOptions::default()).unwrap().with_base(base).unwrap();
    let mut second = plan.start(&device.modules(), Source::Seed, &mut |_| ()).unwrap();
    let batch = text().batch([config.batch, config.seq], config.seed, 77).unwrap();
    let loss = |trainer: &mut Trainer| trainer.step(&batch).unwrap().loss;
    assert_eq!(loss(&mut first).to_bits(), loss(&mut second).to_bits());
}

#[test]
fn weights_beyond_the_range_of_a_type_are_named_and_nothing_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let base = ModelDirectory::open(&golden("qwen2")).unwrap();
    let refused = |dtype, value: f32| {
        let values = &mut |parameter: &Parameter| {
            let mut values = frozen_values(Some(&base), 0, parameter)?;
            if parameter.name == "model.layers.1.mlp.up_proj.weight" {
                values[33] = value;
            }
            Ok(values)
        };
        let mut weights = ModelWeights::new(base.config(), Mode::Frozen, values);
        let place = folder.path().join("out");
        let output = ModelOutput { dtype: Some(dtype), ..output(&place, Some(&base)) };
        let written = write_model(&mut weights, output, &mut |_| true);
        if written.is_ok() {
            std::fs::remove_dir_all(place).unwrap();
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        written.map_err(|error| error.to_string())
    };
    let error = refused(WeightType::F16, -65520.0).unwrap_err();
    assert!(error.contains("element 33 of `model.layers.1.mlp.up_proj.weight`"), "{error}");
    assert!(error.contains("-65520") && error.contains("f16"), "{error}");
    refused(WeightType::F16, 65519.0).unwrap();
    refused(WeightType::Bf16, 65520.0).unwrap();
    assert!(refused(WeightType::Bf16, f32::MAX).unwrap_err().contains("bf16"));
    refused(WeightType::F32, f32::MAX).unwrap();
    assert!(refused(WeightType::F32, f32::NAN).unwrap_err().contains("NaN"));
}

#[test]
fn a_stopped_export_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("out");
    let trainer = trained(&simulated(Default::default()));
    let mut calls = 0;
    let stopped = trainer.export_model(output(&place, None), &mut |_| {
        calls += 1;
        calls < 4
    });
    assert!(matches!(stopped, Err(Error::Export(ExportError::Stopped))));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// The merged model of a run is the model that the run trained.
#[test]
fn a_lora_run_writes_a_model_with_its_updates() {
    let (device, folder) = (device(), tempfile::tempdir().unwrap());
    let lora = LoraConfig { rslora: true, norms: true, ..LoraConfig::new(3, 4.0) };
    let mut tuned = trainer(&device, &config(Mode::Lora(lora), 6), TrainerOptions::default());
    train(&mut tuned, 4);
    let place = folder.path().join("model");
    tuned.export_model(output(&place, None), &mut |_| true).unwrap();
    let base = ModelDirectory::open(&place).unwrap();
    let mut config = *tuned.config();
    (config.model, config.mode) = (*base.config(), Mode::Full);
    let batch = text().batch([config.batch, config.seq], config.seed, 77).unwrap();
    let plan = Plan::new(&config, TrainerOptions::default()).unwrap();
    let plain = plan.start(&device.modules(), Source::Seed, &mut |_| ());
    let plan = Plan::new(&config, TrainerOptions::default()).unwrap().with_base(base).unwrap();
    let whole = plan.start(&device.modules(), Source::Seed, &mut |_| ());
    let loss = |trainer: &mut Trainer| trainer.step(&batch).unwrap().loss;
    let [tuned, whole, plain] = [&mut tuned, &mut whole.unwrap(), &mut plain.unwrap()].map(loss);
    assert!((tuned - whole).abs() < 2e-6 * tuned, "{tuned} and {whole}");
    assert!((tuned - plain).abs() > 1e-3 * tuned, "training changed nothing: {plain}");
}
