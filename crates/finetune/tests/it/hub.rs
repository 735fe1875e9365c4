//! Model directories, written here with random weights: they round-trip, and errors name
//! unsupported fields.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use half::{bf16, f16};
use retrograph_finetune::checkpoint::CheckpointDirectory;
use retrograph_finetune::parameters::inventory;
use retrograph_finetune::{
    Error, HubError, Mode, ModelConfig, ModelDirectory, Plan, RopeScaling, Source, TrainerOptions,
    TrainingConfig,
};
use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::device::device;
use crate::golden::{batch, close, config, weights};
use crate::models::LORA;
use crate::reference::{Reference, Weights};
use crate::small_tokenizer;

/// Tensors by name: dtype, shape and bytes.
pub(crate) type Stored = BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>;

/// The configuration of the golden model as a `config.json` of Qwen2.
pub(crate) fn qwen2() -> Value {
    json!({
        "model_type": "qwen2", "vocab_size": 256, "hidden_size": 24, "num_hidden_layers": 2,
        "intermediate_size": 40, "num_attention_heads": 4, "num_key_value_heads": 2,
        "rms_norm_eps": 0.03, "rope_theta": 10000.0, "tie_word_embeddings": true,
        "hidden_act": "silu", "max_position_embeddings": 64,
    })
}

pub(crate) fn with(mut value: Value, changes: Value) -> Value {
    let changes = changes.as_object().unwrap().clone();
    value.as_object_mut().unwrap().extend(changes);
    value
}

fn qwen3() -> Value {
    let parts = json!({ "model_type": "qwen3", "head_dim": 10, "tie_word_embeddings": false });
    with(qwen2(), parts)
}

fn llama3() -> Value {
    let scaling = json!({
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 27,
    });
    with(qwen2(), json!({ "model_type": "llama", "rope_theta": 20.0, "rope_scaling": scaling }))
}

/// The bytes of `values` as `dtype`.
fn bytes(values: &[f32], dtype: Dtype) -> Vec<u8> {
    let one = |&value: &f32| match dtype {
        Dtype::F32 => value.to_le_bytes().to_vec(),
        Dtype::F16 => f16::from_f32(value).to_le_bytes().to_vec(),
        _ => bf16::from_f32(value).to_le_bytes().to_vec(),
    };
    values.iter().flat_map(one).collect()
}

/// The tensors of a model with the weights of the golden script.
pub(crate) fn tensors(model: &ModelConfig, dtype: Dtype) -> Stored {
    let mut stored = Stored::new();
    for parameter in inventory(model, Mode::Full) {
        let shape = parameter.stored_shape();
        let row_bytes = bytes(&vec![0.0; shape[1..].iter().product()], dtype).len();
        let empty = || (dtype, shape.clone(), vec![0; shape[0] * row_bytes]);
        let (_, _, data) = stored.entry(parameter.stored_name()).or_insert_with(empty);
        for (row, own) in bytes(&weights(&parameter), dtype).chunks(row_bytes).enumerate() {
            data[parameter.stored_row(row) * row_bytes..][..row_bytes].copy_from_slice(own);
        }
    }
    stored
}

fn write(path: &Path, tensors: &Stored) {
    let views = tensors.iter().map(|(name, (dtype, shape, data))| {
        (name, TensorView::new(*dtype, shape.clone(), data).unwrap())
    });
    fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
}

/// A directory of one file.
pub(crate) fn directory(config: &Value, tensors: &Stored) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    write(&folder.path().join("model.safetensors"), tensors);
    folder
}

/// A directory of two files and their index.
fn sharded(config: &Value, tensors: &Stored) -> TempDir {
    let folder = directory(config, &Stored::new());
    fs::remove_file(folder.path().join("model.safetensors")).unwrap();
    let mut map = BTreeMap::new();
    for number in [0, 1] {
        let name = format!("model-0000{}-of-00002.safetensors", number + 1);
        let half = tensors.iter().skip(number).step_by(2);
        let half: Stored = half.map(|(name, stored)| (name.clone(), stored.clone())).collect();
        write(&folder.path().join(&name), &half);
        map.extend(half.into_keys().map(|tensor| (tensor, name.clone())));
    }
    let index = json!({ "metadata": { "total_size": 0 }, "weight_map": map }).to_string();
    fs::write(folder.path().join("model.safetensors.index.json"), index).unwrap();
    folder
}

pub(crate) fn error(folder: &TempDir) -> HubError {
    match ModelDirectory::open(folder.path()) {
        Err(Error::Model(error)) => error,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("the directory was accepted"),
    }
}

/// Opens, trains one step of `mode`, and compares the loss with the reference, whose
/// weights are rounded to `dtype`.
pub(crate) fn trains(json: &Value, folder: &TempDir, mode: Mode, dtype: Dtype) {
    let directory = ModelDirectory::open(folder.path()).unwrap();
    let config = TrainingConfig { model: *directory.config(), ..config(mode) };
    let plan = Plan::new(&config, TrainerOptions::default()).unwrap();
    let plan = plan.with_base(directory.clone()).unwrap();
    let mut trainer = plan.start(&device().modules(), Source::Seed, &mut |_| ()).unwrap();
    let mut all = Weights::new();
    for parameter in inventory(&config.model, Mode::Full) {
        let found = trainer.state().values(trainer.stream(), &parameter.name).unwrap().unwrap();
        let stored = bytes(&weights(&parameter), dtype);
        assert_eq!(bytes(&found, dtype), stored, "{}", parameter.name);
        all.insert(parameter.name, found.into_iter().map(f64::from).collect());
    }
    let batch = batch(&config, 0);
    let metrics = trainer.step(&batch).unwrap();
    // Low-rank updates start at zero, so the reference does not need them.
    let loss = Reference { config: &config, weights: &all }.loss(&batch);
    close(&format!("the loss of {json}"), f64::from(metrics.loss), loss);
}

#[test]
fn qwen2_in_bf16_is_trained_from_its_file() {
    let folder = directory(&qwen2(), &tensors(&config(LORA).model, Dtype::BF16));
    trains(&qwen2(), &folder, LORA, Dtype::BF16);
}

#[test]
fn qwen3_in_f16_is_trained_from_two_files() {
    let model = ModelConfig {
        head_dim: Some(10),
        qkv_bias: false,
        qk_norm: true,
        tie_word_embeddings: false,
        ..config(LORA).model
    };
    let tensors = tensors(&model, Dtype::F16);
    let folder = sharded(&qwen3(), &tensors);
    let opened = ModelDirectory::open(folder.path()).unwrap();
    assert_eq!(*opened.config(), model);
    assert_eq!(opened.files().count(), 2);
    trains(&qwen3(), &folder, Mode::Full, Dtype::F16);
    // The digest is of the tensors, however they are divided.
    let single = ModelDirectory::open(directory(&qwen3(), &tensors).path()).unwrap();
    assert_eq!(opened.digest().unwrap(), single.digest().unwrap());
}

#[test]
fn llama_3_in_f32_is_trained_with_its_scaled_frequencies() {
    let scaling = RopeScaling::Llama3 {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_max_position_embeddings: 27.0,
    };
    let model = ModelConfig {
        qkv_bias: false,
        rope_theta: 20.0,
        rope_scaling: Some(scaling),
        ..config(LORA).model
    };
    let mut stored = tensors(&model, Dtype::F32);
    // Some programs store it, although it follows from the token table.
    let table = stored["model.embed_tokens.weight"].clone();
    stored.insert("lm_head.weight".to_owned(), table);
    let folder = directory(&llama3(), &stored);
    assert_eq!(*ModelDirectory::open(folder.path()).unwrap().config(), model);
    trains(&llama3(), &folder, LORA, Dtype::F32);
}

#[test]
fn base_and_scaling_may_stand_together_as_newer_versions_write_them() {
    let both = with(llama3()["rope_scaling"].clone(), json!({ "rope_theta": 20.0 }));
    let mut newer = with(llama3(), json!({ "rope_parameters": both }));
    newer.as_object_mut().unwrap().retain(|key, _| key != "rope_scaling" && key != "rope_theta");
    let old = ModelConfig { qkv_bias: false, ..config(LORA).model };
    let stored = tensors(&old, Dtype::BF16);
    let [old, newer] = [llama3(), newer]
        .map(|json| *ModelDirectory::open(directory(&json, &stored).path()).unwrap().config());
    assert_eq!(old, newer);
}

#[test]
fn phi3_is_trained_from_its_fused_projections() {
    let (head_dim, rotary_dim, qkv_bias) = (Some(8), Some(4), false);
    let model = ModelConfig { head_dim, rotary_dim, qkv_bias, fused: true, ..config(LORA).model };
    let json = json!({
        "model_type": "phi3", "head_dim": 8, "partial_rotary_factor": 0.5, "sliding_window": null,
    });
    let json = with(qwen2(), json);
    for (mode, dtype) in [(LORA, Dtype::BF16), (Mode::Full, Dtype::F16)] {
        let folder = directory(&json, &tensors(&model, dtype));
        assert_eq!(*ModelDirectory::open(folder.path()).unwrap().config(), model);
        trains(&json, &folder, mode, dtype);
    }
}

#[test]
fn unsupported_options_are_refused_by_field() {
    let stored = tensors(&config(LORA).model, Dtype::BF16);
    for (field, value) in [
        ("model_type", json!("gemma3")),
        ("hidden_act", json!("gelu")),
        ("model_type", json!("gemma")),
        ("mlp_bias", json!(true)),
        ("layer_types", json!(["full_attention", "sliding_attention"])),
        ("partial_rotary_factor", json!(0.5)),
        ("quantization_config", json!({ "bits": 4 })),
        ("rope_scaling", json!({ "rope_type": "proportional", "factor": 4.0 })),
    ] {
        let found = error(&directory(&with(qwen2(), json!({ field: value })), &stored));
        let HubError::Unsupported { field: named, .. } = found else { panic!("{found}") };
        assert!(named == field || (field, named) == ("rope_scaling", "rope_type"), "{named}");
    }
    let of = |kind: &str, changes: Value| {
        let config = with(with(qwen2(), json!({ "model_type": kind })), changes);
        error(&directory(&config, &stored)).to_string()
    };
    for (kind, changes, named) in [
        ("mistral", json!({ "attention_bias": true }), "attention_bias is true"),
        ("phi3", json!({ "attention_bias": true }), "attention_bias is true"),
        ("qwen3", json!({ "mlp_bias": true }), "mlp_bias is true"),
        ("phi3", json!({ "partial_rotary_factor": 1.5 }), "partial_rotary_factor is 1.5"),
        ("smollm3", json!({ "no_rope_layers": [0, 1] }), "no_rope_layers is [0, 1]"),
        ("smollm3", json!({ "use_sliding_window": true }), "use_sliding_window is true"),
        ("gemma2", json!({ "hidden_activation": "silu" }), "gelu_pytorch_tanh"),
        ("gemma3_text", json!({ "use_bidirectional_attention": true }), "use_bidirectional"),
        (
            "gemma3_text",
            json!({ "rope_parameters": { "sliding_attention": { "rope_type": "linear" } } }),
            "sliding_attention is linear",
        ),
        ("gemma3_text", json!({ "attention_bias": true }), "attention_bias is true"),
        ("gemma3", json!({}), "gemma3_text"),
        ("phi3", json!({ "rope_scaling": { "type": "su" } }), "original_max_position_embeddings"),
    ] {
        let found = of(kind, changes);
        assert!(found.contains(named), "{found}");
    }
}

/// Phi-3 with LongRoPE as its first files have it, and the context of dynamic scaling.
#[test]
fn scalings_by_length_are_read_with_their_contexts() {
    let lists = json!({
        "type": "su", "short_factor": [1.0, 1.5], "long_factor": [2.0, 8],
    });
    let phi = json!({
        "model_type": "phi3", "partial_rotary_factor": 0.5, "max_position_embeddings": 4096,
        "original_max_position_embeddings": 64, "rope_scaling": lists, "head_dim": 8,
    });
    let model = ModelConfig {
        qkv_bias: false,
        fused: true,
        head_dim: Some(8),
        rotary_dim: Some(4),
        ..config(LORA).model
    };
    let folder = directory(&with(qwen2(), phi), &tensors(&model, Dtype::F32));
    let opened = ModelDirectory::open(folder.path()).unwrap();
    let Some(RopeScaling::LongRope(long)) = opened.config().rope_scaling else { panic!() };
    assert_eq!(
        (long.short_factor.as_slice(), long.long_factor.as_slice()),
        (&[1.0, 1.5][..], &[2.0, 8.0][..])
    );
    assert!((long.attention_factor - 2f64.sqrt()).abs() < 1e-15);
    assert_eq!(long.original_max_position_embeddings, 64.0);
    assert_eq!(ModelConfig { rope_scaling: None, ..*opened.config() }, model);

    let dynamic = json!({
        "model_type": "llama", "max_position_embeddings": 64,
        "rope_scaling": { "rope_type": "dynamic", "factor": 3.0 },
    });
    let plain = ModelConfig { qkv_bias: false, ..config(LORA).model };
    let folder = directory(&with(qwen2(), dynamic), &tensors(&plain, Dtype::F32));
    let opened = ModelDirectory::open(folder.path()).unwrap();
    assert_eq!(opened.max_position_embeddings(), Some(192));
    opened.require_seq(192).unwrap();
    assert!(opened.require_seq(193).is_err());
}

#[test]
fn biases_are_those_that_the_class_has() {
    for (kind, changes, expected) in [
        ("qwen2", json!({}), [true, false, false]),
        ("llama", json!({ "attention_bias": true }), [true, true, false]),
        ("llama", json!({ "mlp_bias": true }), [false, false, true]),
        ("qwen3", json!({ "attention_bias": true, "head_dim": 6 }), [true, true, false]),
        ("smollm3", json!({ "attention_bias": true, "mlp_bias": true }), [true; 3]),
    ] {
        let [qkv_bias, o_bias, mlp_bias] = expected;
        let qk_norm = kind == "qwen3";
        let model = ModelConfig { qkv_bias, o_bias, mlp_bias, qk_norm, ..config(LORA).model };
        let config = with(with(qwen2(), json!({ "model_type": kind })), changes);
        let opened = ModelDirectory::open(directory(&config, &tensors(&model, Dtype::F32)).path());
        let found = *opened.unwrap().config();
        assert_eq!([found.qkv_bias, found.o_bias, found.mlp_bias], expected, "{kind}");
    }
}

/// `transformers` has written the kind of scaling under two names, and sometimes under both.
#[test]
fn the_kind_of_scaling_has_two_names() {
    let model = ModelConfig { qkv_bias: false, ..config(LORA).model };
    let stored = tensors(&model, Dtype::BF16);
    let scaling = || llama3()["rope_scaling"].clone();
    let mut older = scaling();
    let kind = older.as_object_mut().unwrap().remove("rope_type").unwrap();
    let older = with(older, json!({ "type": kind }));
    let both = with(scaling(), json!({ "type": kind }));
    let read = |scaling: Value| {
        let folder = directory(&with(llama3(), json!({ "rope_scaling": scaling })), &stored);
        ModelDirectory::open(folder.path()).unwrap().config().rope_scaling
    };
    let expected = read(scaling());
    assert!(expected.is_some());
    assert_eq!([read(older), read(both)], [expected; 2]);
}

#[test]
fn a_configuration_that_lacks_something_names_it() {
    let stored = tensors(&config(LORA).model, Dtype::BF16);
    for field in ["hidden_size", "num_key_value_heads"] {
        let mut less = qwen2();
        less.as_object_mut().unwrap().remove(field);
        let found = error(&directory(&less, &stored)).to_string();
        assert!(found.contains(field) && found.contains("config.json"), "{found}");
    }
    let scaling = json!({ "rope_scaling": { "rope_type": "llama3", "factor": 8.0 } });
    let found = error(&directory(&with(llama3(), scaling), &stored)).to_string();
    assert!(found.contains("low_freq_factor"), "{found}");
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(error(&folder), HubError::Read { path, .. } if path.ends_with("config.json")));
}

#[test]
fn every_tensor_that_is_wrong_is_named() {
    let all = tensors(&config(LORA).model, Dtype::BF16);
    let name = "model.layers.1.mlp.up_proj.weight";

    let mut stored = all.clone();
    stored.remove(name);
    let found = error(&directory(&qwen2(), &stored));
    assert!(matches!(&found, HubError::Missing { tensor, .. } if tensor == name), "{found}");

    let mut stored = all.clone();
    stored.insert("model.layers.2.mlp.up_proj.weight".to_owned(), all[name].clone());
    let found = error(&directory(&qwen2(), &stored));
    assert!(matches!(&found, HubError::Extra { tensor, .. } if tensor.contains("layers.2")));

    let mut stored = all.clone();
    stored.get_mut(name).unwrap().1.reverse();
    let found = error(&directory(&qwen2(), &stored));
    let HubError::Shape { tensor, found, expected, .. } = found else { panic!("{found}") };
    assert_eq!((tensor.as_str(), found, expected), (name, vec![24, 40], vec![40, 24]));

    let mut stored = all.clone();
    stored.get_mut(name).unwrap().0 = Dtype::I16;
    let found = error(&directory(&qwen2(), &stored));
    assert!(matches!(&found, HubError::ElementType { tensor, .. } if tensor == name), "{found}");

    // A model whose configuration says that it is not tied must have a head.
    let untied = with(qwen2(), json!({ "tie_word_embeddings": false }));
    let found = error(&directory(&untied, &all)).to_string();
    assert!(found.contains("lm_head.weight") && found.contains("[256, 24]"), "{found}");
}

#[test]
fn a_truncated_file_is_named_at_every_length() {
    let folder = directory(&qwen2(), &tensors(&config(LORA).model, Dtype::BF16));
    let path = folder.path().join("model.safetensors");
    let whole = fs::read(&path).unwrap();
    for length in [0, 7, 8, 100, whole.len() / 2, whole.len() - 1] {
        fs::write(&path, &whole[..length]).unwrap();
        let found = error(&folder);
        assert!(matches!(&found, HubError::Damaged { path: named, .. } if *named == path));
    }
    fs::write(&path, [&whole[..], &[0]].concat()).unwrap();
    assert!(matches!(error(&folder), HubError::Damaged { .. }));
    fs::remove_file(&path).unwrap();
    assert!(matches!(error(&folder), HubError::Read { .. }));
}

#[test]
fn an_index_is_held_to_its_files() {
    let all = tensors(&config(LORA).model, Dtype::BF16);
    let folder = sharded(&qwen2(), &all);
    let second = folder.path().join("model-00002-of-00002.safetensors");
    // The second file also has tensors of the first.
    write(&second, &all);
    assert!(matches!(error(&folder), HubError::Twice { second: path, .. } if path == second));
    write(&second, &Stored::new());
    assert!(matches!(error(&folder), HubError::Missing { path, .. } if path == second));
    fs::remove_file(&second).unwrap();
    assert!(matches!(error(&folder), HubError::Read { path, .. } if path == second));
    let index = folder.path().join("model.safetensors.index.json");
    fs::write(&index, json!({ "weight_map": { "x": "../other.safetensors" } }).to_string())
        .unwrap();
    assert!(error(&folder).to_string().contains("../other.safetensors"));
}

#[test]
fn a_resumed_run_needs_the_model_that_it_started_from() {
    let json = qwen2();
    let mut stored = tensors(&config(LORA).model, Dtype::BF16);
    let folder = directory(&json, &stored);
    let open = |folder: &TempDir| ModelDirectory::open(folder.path()).unwrap();
    let config = TrainingConfig { model: *open(&folder).config(), ..config(LORA) };
    let plan = || {
        let plan = Plan::new(&config, TrainerOptions::default()).unwrap();
        plan.with_base(open(&folder)).unwrap()
    };
    let device = device();
    let mut whole = plan().start(&device.modules(), Source::Seed, &mut |_| ()).unwrap();
    whole.step(&batch(&config, 0)).unwrap();
    let kept = tempfile::tempdir().unwrap();
    let kept = CheckpointDirectory::create(&kept.path().join("run")).unwrap();
    whole.save(&kept, "text").unwrap();
    let expected = whole.step(&batch(&config, 1)).unwrap();

    let mut checkpoint = kept.open_latest().unwrap();
    checkpoint.header().require_base(Some(&open(&folder))).unwrap();
    checkpoint.header().require_base(None).unwrap_err();
    stored.get_mut("model.norm.weight").unwrap().2[0] ^= 1;
    let other = directory(&json, &stored);
    checkpoint.header().require_base(Some(&open(&other))).unwrap_err();

    let source = Source::Checkpoint(&mut checkpoint);
    let mut resumed = plan().start(&device.modules(), source, &mut |_| ()).unwrap();
    let found = resumed.step(&batch(&config, 1)).unwrap();
    assert_eq!(
        (found.loss.to_bits(), found.grad_norm.to_bits()),
        (expected.loss.to_bits(), expected.grad_norm.to_bits(),)
    );
}

#[test]
fn a_plan_refuses_a_base_of_other_dimensions_or_a_shorter_context() {
    let folder = directory(&qwen2(), &tensors(&config(LORA).model, Dtype::BF16));
    let base = ModelDirectory::open(folder.path()).unwrap();
    let plan = |config: TrainingConfig| Plan::new(&config, TrainerOptions::default()).unwrap();
    let long = TrainingConfig { seq: 65, ..config(LORA) };
    let found = plan(long).with_base(base.clone()).unwrap_err();
    assert!(matches!(found, Error::Model(HubError::TooLong { seq: 65, positions: 64 })), "{found}");
    let mut wide = config(LORA);
    wide.model.intermediate = 48;
    let found = plan(wide).with_base(base).unwrap_err();
    assert!(matches!(found, Error::InvalidConfig { field: "model", .. }), "{found}");
}

/// A configuration alone needs no weights. Errors name the file, and its field in its own terms.
#[test]
fn a_config_file_is_read_without_weights_and_its_errors_name_its_fields() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.json");
    fs::write(&path, qwen2().to_string()).unwrap();
    assert_eq!(ModelConfig::read(&path).unwrap(), config(LORA).model);
    let error = |text: &str| {
        fs::write(&path, text).unwrap();
        let error = ModelConfig::read(&path).unwrap_err().to_string();
        assert!(error.contains("config.json"), "{error}");
        error
    };
    for (changes, expected) in [
        (json!({ "num_hidden_layers": 0 }), "num_hidden_layers is 0, but it must be from 1"),
        (json!({ "num_attention_heads": 0 }), "num_attention_heads is 0"),
        (json!({ "max_position_embeddings": 0 }), "max_position_embeddings is 0"),
        (
            json!({ "hidden_size": "24" }),
            "hidden_size: invalid type: string \"24\", expected a whole",
        ),
        (json!({ "rope_scaling": "linear" }), "rope_scaling: invalid type: string \"linear\""),
    ] {
        let error = error(&with(qwen2(), changes).to_string());
        assert!(error.contains(expected), "{error}");
    }
    // A list of all values in the order of the fields is not a model.
    for (text, expected) in [("[1, 2]", "it is not an object"), ("", "it is empty")] {
        assert!(error(text).contains(expected));
    }
    fs::remove_file(&path).unwrap();
    let error = ModelConfig::read(&path).unwrap_err().to_string();
    assert!(error.contains("give the config.json of a model"), "{error}");
    let error = ModelDirectory::open(&folder.path().join("absent")).unwrap_err();
    assert!(matches!(error, Error::Model(HubError::NoDirectory { .. })), "{error}");
}

#[test]
fn a_tokenizer_must_fit_the_model() {
    let folder = directory(&qwen2(), &tensors(&config(LORA).model, Dtype::BF16));
    let open = || ModelDirectory::open(folder.path()).unwrap().tokenizer();
    // The model knows 256 tokens: bytes, but not the tokenizer's.
    assert!(open().unwrap().is_bytes());
    small_tokenizer::write(folder.path(), &small_tokenizer::tokenizer(&["<|end|>"]), &json!({}));
    let found = open().unwrap_err().to_string();
    for words in ["<|end|>", "263", "256", "use the tokenizer of this model"] {
        assert!(found.contains(words), "`{words}` is not in: {found}");
    }
}

/// A mapped file would end the process with a signal here.
#[test]
fn weights_that_become_shorter_while_they_are_in_use_are_named() {
    let plan = || Plan::new(&config(LORA), TrainerOptions::default()).unwrap();
    for dtype in [Dtype::F32, Dtype::BF16] {
        let folder = directory(&qwen2(), &tensors(&config(LORA).model, dtype));
        let opened = ModelDirectory::open(folder.path()).unwrap();
        let (started, path) = (plan(), folder.path().join("model.safetensors"));
        let started = started.with_base(opened.clone()).unwrap();
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(fs::metadata(&path).unwrap().len() / 2).unwrap();
        let all = inventory(&config(LORA).model, Mode::Full);
        let last = all.into_iter().max_by(|one, other| one.name.cmp(&other.name)).unwrap();
        let read = opened.read(&last, &mut vec![0.0; last.len()]).map(|_| ());
        let digest = opened.digest().map(|_| ());
        let upload = started.start(&device().modules(), Source::Seed, &mut |_| ()).map(|_| ());
        for error in [read, digest, upload] {
            let error = error.unwrap_err();
            assert!(matches!(error, Error::Model(HubError::ReadTensor { .. })), "{error}");
            let text = error.to_string();
            for words in ["model.safetensors", "the tensor `model.", "became shorter"] {
                assert!(text.contains(words), "`{words}` is not in: {text}");
            }
        }
    }
}

#[cfg(unix)]
#[test]
fn a_file_beyond_the_limit_of_json_is_refused_unread() {
    let folder = directory(&qwen2(), &tensors(&config(LORA).model, Dtype::F32));
    let tokenizer = small_tokenizer::tokenizer(&[]).to_string();
    fs::write(folder.path().join("tokenizer.json"), tokenizer).unwrap();
    for name in ["config.json", "tokenizer.json"] {
        let path = folder.path().join(name);
        let whole = fs::read(&path).unwrap();
        // The file takes no space on the disk.
        fs::OpenOptions::new().write(true).open(&path).unwrap().set_len((512 << 20) + 1).unwrap();
        let opened = ModelDirectory::open(folder.path());
        let error = opened.and_then(|model| model.tokenizer()).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains("more than 536870912 bytes"), "{error}");
        fs::write(&path, whole).unwrap();
    }
}

#[test]
fn a_pipe_in_place_of_a_file_of_a_model_does_not_block() {
    for name in ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"] {
        let folder = directory(&qwen2(), &tensors(&config(LORA).model, Dtype::F32));
        let path = folder.path().join(name);
        if name.starts_with("tokenizer") {
            fs::write(
                folder.path().join("tokenizer.json"),
                small_tokenizer::tokenizer(&[]).to_string(),
            )
            .unwrap();
        }
        if path.exists() {
            fs::remove_file(&path).unwrap();
        }
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let opened = ModelDirectory::open(folder.path());
        let error = opened.and_then(|model| model.tokenizer()).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains("not a regular file"), "{error}");
    }
}
