//! GGUF files, read by another library: tensors, dimensions, tokenizer, adapters.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use gguf_rs_lib::format::{GGUFTensorType, MetadataValue};
use gguf_rs_lib::reader::{GGUFFileReader, open_gguf_file};
use half::{bf16, f16};
use retrograph_finetune::config::SlidingWindow;
use retrograph_finetune::export::{
    GgufOutput, MAX_SHARD_BYTES, write_gguf, write_gguf_adapter, write_model,
};
use retrograph_finetune::parameters::{Init, Parameter, inventory};
use retrograph_finetune::{
    Adapter, Error, ExportError, LoraConfig, Mode, ModelConfig, ModelDirectory, ModelOutput,
    ModelWeights, Preset, RopeScaling, WeightType, init,
};
use safetensors::SafeTensors;
use serde_json::{Value, json};

use crate::small_tokenizer::{self, added_tokens};

pub(crate) type Reader = GGUFFileReader<BufReader<File>>;

/// A model whose rows are blocks of Q8_0.
fn model(vocab: usize) -> ModelConfig {
    let tiny = Preset::Tiny.model();
    ModelConfig { vocab, hidden: 32, intermediate: 64, heads: 4, kv_heads: 2, ..tiny }
}

fn llama(vocab: usize) -> ModelConfig {
    let scaling = RopeScaling::Llama3 {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_max_position_embeddings: 32.0,
    };
    let (qkv_bias, rope_scaling) = (false, Some(scaling));
    ModelConfig { qkv_bias, rope_scaling, tie_word_embeddings: false, ..model(vocab) }
}

/// A model with rows of 48 elements, which are not whole blocks of Q8_0.
fn qwen3(vocab: usize) -> ModelConfig {
    ModelConfig { qkv_bias: false, qk_norm: true, head_dim: Some(12), ..model(vocab) }
}

/// Values that differ in every element of every tensor, norms and biases included.
fn values(parameter: &Parameter) -> Vec<f32> {
    let start = Init::Normal(0.3);
    init::initial_values(&Parameter { init: start, ..parameter.clone() }, 7)
}

pub(crate) fn write(config: &ModelConfig, output: GgufOutput<'_>) -> Result<Reader, Error> {
    let values = &mut |parameter: &Parameter| Ok(values(parameter));
    let mut weights = ModelWeights::new(config, Mode::Frozen, values);
    let written = write_gguf(&mut weights, output, &mut |_| true)?;
    let reader = open_gguf_file(output.path).unwrap();
    assert_eq!(reader.tensor_count(), written.tensors);
    Ok(reader)
}

/// Dimensions, innermost first, type, and elements.
pub(crate) fn tensor(reader: &mut Reader, name: &str) -> (Vec<u64>, GGUFTensorType, Vec<f64>) {
    let info = reader.get_tensor_info(name).unwrap_or_else(|| panic!("no tensor {name}"));
    let (shape, kind) = (info.shape.dims().to_vec(), info.tensor_type);
    let data = reader.load_tensor_data(name).unwrap().unwrap();
    let two = |bytes: &[u8]| [bytes[0], bytes[1]];
    let bytes = data.as_slice();
    let values: Vec<f64> = match kind {
        GGUFTensorType::F32 => {
            bytes.as_chunks::<4>().0.iter().map(|&four| f32::from_le_bytes(four).into()).collect()
        }
        GGUFTensorType::F16 => {
            bytes.chunks(2).map(|pair| f16::from_le_bytes(two(pair)).into()).collect()
        }
        GGUFTensorType::BF16 => {
            bytes.chunks(2).map(|pair| bf16::from_le_bytes(two(pair)).into()).collect()
        }
        GGUFTensorType::Q8_0 => bytes
            .chunks(34)
            .flat_map(|block| {
                let scale = f16::from_le_bytes(two(block)).to_f64();
                block[2..].iter().map(move |&code| f64::from(code as i8) * scale)
            })
            .collect(),
        other => panic!("{name} is {other:?}"),
    };
    assert_eq!(values.len() as u64, shape.iter().product::<u64>(), "{name}");
    (shape, kind, values)
}

/// The rows of a Hugging Face matrix in the order of llama.cpp: its converter reshapes them to
/// `[heads, 2, half, width]` and swaps the middle dimensions.
fn permuted(values: &[f32], heads: usize) -> Vec<f32> {
    let half = values.len() / heads / 2;
    let rows = |head: usize, width: usize| {
        let head = &values[head * 2 * half..][..2 * half];
        let pairs = (0..half / width).flat_map(move |i| {
            let row = |j: usize| &head[j * half + i * width..][..width];
            [row(0), row(1)]
        });
        pairs.flatten().copied().collect::<Vec<_>>()
    };
    let width = 32;
    (0..heads).flat_map(|head| rows(head, width)).collect()
}

/// Names as the converter of llama.cpp writes them, for a few tensors of each kind.
const NAMES: [(&str, &str); 8] = [
    ("token_embd.weight", "model.embed_tokens.weight"),
    ("output_norm.weight", "model.norm.weight"),
    ("blk.1.attn_norm.weight", "model.layers.1.input_layernorm.weight"),
    ("blk.0.ffn_norm.weight", "model.layers.0.post_attention_layernorm.weight"),
    ("blk.1.attn_v.weight", "model.layers.1.self_attn.v_proj.weight"),
    ("blk.0.attn_output.weight", "model.layers.0.self_attn.o_proj.weight"),
    ("blk.0.ffn_gate.weight", "model.layers.0.mlp.gate_proj.weight"),
    ("blk.1.ffn_down.weight", "model.layers.1.mlp.down_proj.weight"),
];

#[test]
fn tensors_have_names_shapes_and_values_in_every_type() {
    let folder = tempfile::tempdir().unwrap();
    for (name, config) in [("llama", llama(256)), ("qwen2", model(256)), ("qwen3", qwen3(256))] {
        let parameters = inventory(&config, Mode::Full);
        let given: BTreeMap<&str, &Parameter> =
            parameters.iter().map(|one| (one.name.as_str(), one)).collect();
        for &dtype in WeightType::ALL {
            let path = folder.path().join(format!("{name}-{dtype}.gguf"));
            let output = GgufOutput { path: &path, base: None, dtype: Some(dtype) };
            let mut reader = write(&config, output).unwrap();
            let factors = usize::from(name == "llama");
            assert_eq!(reader.tensor_count(), parameters.len() + factors);
            let mut names = NAMES.to_vec();
            match name {
                "llama" => names.push(("output.weight", "lm_head.weight")),
                "qwen2" => {
                    names.push(("blk.0.attn_k.bias", "model.layers.0.self_attn.k_proj.bias"))
                }
                _ => names
                    .push(("blk.0.attn_q_norm.weight", "model.layers.0.self_attn.q_norm.weight")),
            }
            let rotated = ["q", "k"].map(|one| {
                let from = format!("model.layers.1.self_attn.{one}_proj.weight");
                (format!("blk.1.attn_{one}.weight"), from)
            });
            names.extend(rotated.iter().map(|(to, from)| (to.as_str(), from.as_str())));
            for (to, from) in names {
                let parameter = given[from];
                let (shape, kind, found) = tensor(&mut reader, to);
                let expected: Vec<u64> =
                    parameter.shape.iter().rev().map(|&size| size as u64).collect();
                assert_eq!(shape, expected, "{to}");
                let matrix = shape.len() == 2;
                let whole = shape[0].is_multiple_of(32);
                let stored = match dtype {
                    _ if !matrix => GGUFTensorType::F32,
                    WeightType::F32 => GGUFTensorType::F32,
                    WeightType::Bf16 => GGUFTensorType::BF16,
                    WeightType::Q8_0 if whole => GGUFTensorType::Q8_0,
                    _ => GGUFTensorType::F16,
                };
                assert_eq!(kind, stored, "{to}");
                let mut expected = values(parameter);
                if name == "llama" && (to.contains("attn_q") || to.contains("attn_k")) {
                    expected = permuted(&expected, parameter.shape[0] / config.head_dim());
                }
                require_close(to, kind, &found, &expected);
            }
        }
    }
}

/// Half a unit in the last place of a type; for Q8_0, half the scale of each block.
fn require_close(name: &str, kind: GGUFTensorType, found: &[f64], expected: &[f32]) {
    for (block, expected) in found.chunks(32).zip(expected.chunks(32)) {
        let most = expected.iter().map(|x| f64::from(x.abs())).fold(0.0, f64::max);
        for (found, &expected) in block.iter().zip(expected) {
            let expected = f64::from(expected);
            let allowed = match kind {
                GGUFTensorType::F32 => 0.0,
                GGUFTensorType::F16 => (expected.abs() * 2f64.powi(-11)).max(2f64.powi(-25)),
                GGUFTensorType::BF16 => expected.abs() * 2f64.powi(-8),
                // The scale itself is rounded to f16.
                _ => most / 127.0 / 2.0 * (1.0 + 2f64.powi(-10)),
            };
            assert!((found - expected).abs() <= allowed, "{name}: {found}, not {expected}");
        }
    }
}

/// The fused tensors of Phi-3 have the rows of the Hugging Face file, and partly rotated heads keep
/// their order.
#[test]
fn fused_projections_have_the_rows_of_their_files() {
    let folder = tempfile::tempdir().unwrap();
    for (name, rotary, window) in [("phi3", 8.0, 6.0), ("phi4", 6.0, 2048.0)] {
        let base = ModelDirectory::open(&golden(name)).unwrap();
        // With bytes as tokens; the test models have no tokenizer.
        let config = ModelConfig { vocab: 256, ..*base.config() };
        let values = &mut |parameter: &Parameter| {
            let mut values = vec![0.0; parameter.len()];
            if parameter.shape[0] != config.vocab {
                base.read(parameter, &mut values)?;
            }
            Ok(values)
        };
        let mut weights = ModelWeights::new(&config, Mode::Frozen, values);
        let path = folder.path().join(name);
        let dtype = Some(WeightType::F32);
        let output = GgufOutput { path: &path, base: None, dtype };
        write_gguf(&mut weights, output, &mut |_| true).unwrap();
        let mut reader = open_gguf_file(&path).unwrap();
        assert_eq!(reader.metadata().get_string("general.architecture"), Some("phi3"));
        let bytes = std::fs::read(golden(name).join("model.safetensors")).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        for (to, from) in [
            ("blk.1.attn_qkv.weight", "model.layers.1.self_attn.qkv_proj.weight"),
            ("blk.0.attn_output.weight", "model.layers.0.self_attn.o_proj.weight"),
            ("blk.0.ffn_up.weight", "model.layers.0.mlp.gate_up_proj.weight"),
            ("blk.1.ffn_down.weight", "model.layers.1.mlp.down_proj.weight"),
        ] {
            let tensor_of_file = file.tensor(from).unwrap();
            let pairs = tensor_of_file.data().chunks(2);
            let expected: Vec<f64> =
                pairs.map(|pair| bf16::from_le_bytes([pair[0], pair[1]]).into()).collect();
            let (shape, _, found) = tensor(&mut reader, to);
            let sizes: Vec<u64> =
                tensor_of_file.shape().iter().rev().map(|&size| size as u64).collect();
            assert!(shape == sizes && found == expected, "{name}: {to}");
        }
        let Some(RopeScaling::LongRope(long)) = base.config().rope_scaling else {
            panic!("{name}")
        };
        for (to, factors) in [("short", long.short_factor), ("long", long.long_factor)] {
            let (_, _, found) = tensor(&mut reader, &format!("rope_factors_{to}.weight"));
            let expected = Vec::from(factors);
            assert!(found.iter().copied().eq(expected.into_iter().map(f64::from)), "{name}: {to}");
        }
        for (key, value) in [
            ("rope.dimension_count", rotary),
            ("rope.scaling.original_context_length", long.original_max_position_embeddings),
            ("rope.scaling.attn_factor", f64::from(long.attention_factor as f32)),
            ("context_length", window),
        ] {
            assert_eq!(number(&reader, &format!("phi3.{key}")), value, "{name}: {key}");
        }
    }
}

#[test]
fn every_fourth_layer_of_smollm3_is_without_rope() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    let output = GgufOutput { path: &path, base: None, dtype: None };
    let smollm3 = |interval| ModelConfig {
        qkv_bias: false,
        no_rope_interval: Some(interval),
        layers: 5,
        ..model(256)
    };
    let error = write(&smollm3(3), output).err().unwrap().to_string();
    assert!(error.contains("at an interval of 3"), "{error}");
    let biased = ModelConfig { qkv_bias: true, o_bias: true, ..smollm3(4) };
    let error = write(&biased, output).err().unwrap().to_string();
    assert!(error.contains("biases of SmolLM3"), "{error}");
    let config = smollm3(4);
    let mut reader = write(&config, output).unwrap();
    assert_eq!(reader.metadata().get_string("general.architecture"), Some("smollm3"));
    let (_, _, found) = tensor(&mut reader, "blk.3.attn_k.weight");
    let parameters = inventory(&config, Mode::Full);
    let name = "model.layers.3.self_attn.k_proj.weight";
    let given = parameters.iter().find(|one| one.name == name).unwrap();
    let expected = permuted(&values(given), config.kv_heads);
    assert!(found.into_iter().eq(expected.into_iter().map(f64::from)));
}

pub(crate) fn number(reader: &Reader, key: &str) -> f64 {
    let value = reader.metadata().get(key).unwrap_or_else(|| panic!("no {key}"));
    value.as_f64().or(value.as_u64().map(|value| value as f64)).unwrap()
}

#[test]
fn dimensions_and_rope_are_in_the_metadata() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("small.gguf");
    let output = GgufOutput { path: &path, base: None, dtype: None };
    let config = llama(256);
    let mut reader = write(&config, output).unwrap();
    let metadata = reader.metadata();
    assert_eq!(metadata.get_string("general.architecture"), Some("llama"));
    assert_eq!(metadata.get_string("general.type"), Some("model"));
    assert_eq!(metadata.get_string("general.name"), Some("small"));
    for (key, value) in [
        ("general.file_type", 0.0),
        ("llama.vocab_size", 256.0),
        ("llama.embedding_length", 32.0),
        ("llama.block_count", 2.0),
        ("llama.feed_forward_length", 64.0),
        ("llama.attention.head_count", 4.0),
        ("llama.attention.head_count_kv", 2.0),
        ("llama.attention.key_length", 8.0),
        ("llama.attention.value_length", 8.0),
        ("llama.rope.dimension_count", 8.0),
        ("llama.rope.freq_base", 1e4),
        ("llama.attention.layer_norm_rms_epsilon", f64::from(1e-6f32)),
    ] {
        assert_eq!(number(&reader, key), value, "{key}");
    }
    // llama.cpp divides each frequency by its factor.
    let (_, _, factors) = tensor(&mut reader, "rope_freqs.weight");
    let plain = ModelConfig { rope_scaling: None, ..config }.rope_frequencies(1);
    for ((factor, plain), scaled) in factors.iter().zip(plain).zip(config.rope_frequencies(1)) {
        assert!((plain / factor / scaled - 1.0).abs() < 1e-6, "{factor}");
    }
    assert_eq!((factors[0], factors[3]), (1.0, 8.0));

    // llama.cpp has no sliding window, which has no effect in a context of its size.
    let windowed = SlidingWindow::new(40, 0);
    let windowed = ModelConfig { sliding_window: Some(windowed), ..config };
    let second = folder.path().join("windowed.gguf");
    let reader = write(&windowed, GgufOutput { path: &second, ..output }).unwrap();
    assert_eq!(number(&reader, "llama.context_length"), 40.0);
    std::fs::remove_file(second).unwrap();

    let error = write(&llama(256), output).err().unwrap();
    assert!(matches!(error, Error::Export(ExportError::Exists { .. })), "{error}");
    let scaled = ModelConfig { rope_scaling: llama(256).rope_scaling, ..model(256) };
    let output = GgufOutput { path: &folder.path().join("other"), ..output };
    assert!(write(&scaled, output).err().unwrap().to_string().contains("RoPE scaling"));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

pub(crate) fn texts(reader: &Reader, key: &str) -> Vec<String> {
    let Some(MetadataValue::Array(values)) = reader.metadata().get(key) else { panic!("{key}") };
    values.iter().map(|value| value.as_str().unwrap().to_owned()).collect()
}

fn integers(reader: &Reader, key: &str) -> Vec<i64> {
    let Some(MetadataValue::Array(values)) = reader.metadata().get(key) else { panic!("{key}") };
    values.iter().map(|value| value.as_i64().unwrap()).collect()
}

/// A model directory with the given tokenizer.
pub(crate) fn directory(folder: &Path, tokenizer: &Value, settings: &Value) -> ModelDirectory {
    let place = folder.join("model");
    let values = &mut |parameter: &Parameter| Ok(values(parameter));
    let mut weights = ModelWeights::new(&model(280), Mode::Frozen, values);
    let output = ModelOutput {
        folder: &place,
        base: None,
        dtype: None,
        max_shard_bytes: MAX_SHARD_BYTES,
        facts: &[],
    };
    write_model(&mut weights, output, &mut |_| true).unwrap();
    small_tokenizer::write(&place, tokenizer, settings);
    ModelDirectory::open(&place).unwrap()
}

#[test]
fn the_tokenizer_and_its_chat_template_are_in_the_metadata() {
    let folder = tempfile::tempdir().unwrap();
    let special = ["<|im_start|>", "<|im_end|>", "<|pad|>"];
    let mut tokenizer = small_tokenizer::tokenizer(&special);
    tokenizer["added_tokens"][0]["special"] = false.into();
    let base = directory(folder.path(), &tokenizer, &small_tokenizer::chatml());
    let path = folder.path().join("m.gguf");
    let output = GgufOutput { path: &path, base: Some(&base), dtype: None };
    let reader = write(base.config(), output).unwrap();
    assert_eq!(reader.metadata().get_string("tokenizer.ggml.model"), Some("gpt2"));
    assert_eq!(reader.metadata().get_string("tokenizer.ggml.pre"), Some("gpt-2"));
    let tokens = texts(&reader, "tokenizer.ggml.tokens");
    let kinds = integers(&reader, "tokenizer.ggml.token_type");
    assert_eq!((tokens.len(), kinds.len()), (280, 280));
    let vocab = tokenizer["model"]["vocab"].as_object().unwrap();
    for (text, id) in vocab {
        let id = id.as_u64().unwrap() as usize;
        assert_eq!((&tokens[id], kinds[id]), (text, 1));
    }
    let plain = vocab.len();
    assert_eq!(tokens[plain..plain + 4], ["<|im_start|>", "<|im_end|>", "<|pad|>", "[PAD266]"]);
    assert_eq!(kinds[plain..plain + 4], [4, 3, 3, 5]);
    let merges = texts(&reader, "tokenizer.ggml.merges");
    assert_eq!((merges.len(), merges[3].as_str()), (7, "Ġ the"));
    let end = (plain + 1) as f64;
    for key in ["bos", "eos"] {
        assert_eq!(number(&reader, &format!("tokenizer.ggml.{key}_token_id")), end, "{key}");
    }
    assert_eq!(number(&reader, "tokenizer.ggml.padding_token_id"), end + 1.0);
    assert_eq!(reader.metadata().get_bool("tokenizer.ggml.add_bos_token"), Some(false));
    let template = small_tokenizer::chatml()["chat_template"].as_str().unwrap().to_owned();
    let found = reader.metadata().get_string("tokenizer.chat_template");
    assert_eq!(found, Some(template.as_str()));
}

/// A tokenizer of SentencePiece: spaces are `▁`, unknown characters become bytes.
pub(crate) fn sentence_piece() -> Value {
    let special = ["<unk>", "<s>", "</s>"];
    let bytes = (0..256).map(|byte| format!("<0x{byte:02X}>"));
    let words = ["▁", "a", "b", "ab", "▁ab"].map(str::to_owned);
    let tokens = special.map(str::to_owned).into_iter().chain(bytes).chain(words);
    let vocab: serde_json::Map<String, Value> =
        tokens.zip(0..).map(|(text, id)| (text, id.into())).collect();
    json!({
        "version": "1.0",
        "added_tokens": added_tokens(&special, 0),
        "normalizer": { "type": "Sequence", "normalizers": [
            { "type": "Prepend", "prepend": "▁" },
            { "type": "Replace", "pattern": { "String": " " }, "content": "▁" },
        ] },
        "model": {
            "type": "BPE", "unk_token": "<unk>", "byte_fallback": true, "fuse_unk": true,
            "vocab": vocab, "merges": ["a b", "▁ ab"],
        },
    })
}

#[test]
fn merges_of_sentence_piece_become_scores() {
    let folder = tempfile::tempdir().unwrap();
    let settings = json!({ "bos_token": "<s>", "eos_token": "</s>", "add_bos_token": true });
    let base = directory(folder.path(), &sentence_piece(), &settings);
    let path = folder.path().join("m.gguf");
    let output = GgufOutput { path: &path, base: Some(&base), dtype: None };
    let reader = write(base.config(), output).unwrap();
    assert_eq!(reader.metadata().get_string("tokenizer.ggml.model"), Some("llama"));
    assert_eq!(reader.metadata().get_bool("tokenizer.ggml.add_space_prefix"), Some(true));
    assert_eq!(reader.metadata().get_bool("tokenizer.ggml.add_bos_token"), Some(true));
    let kinds = integers(&reader, "tokenizer.ggml.token_type");
    assert_eq!([0, 1, 3, 258, 259, 263, 264].map(|id: usize| kinds[id]), [2, 3, 6, 6, 1, 1, 5]);
    let key = "tokenizer.ggml.scores";
    let Some(MetadataValue::Array(scores)) = reader.metadata().get(key) else { panic!("{key}") };
    let score = |id: usize| scores.get(id).unwrap().as_f64().unwrap();
    assert_eq!([258, 260, 262, 263].map(score), [-3.0, -3.0, -1.0, -2.0]);
}

#[test]
fn a_tokenizer_that_llama_cpp_does_not_have_is_refused() {
    let refused = |change: &dyn Fn(&mut Value, &mut Value)| {
        let folder = tempfile::tempdir().unwrap();
        let mut tokenizer = small_tokenizer::tokenizer(&["<|im_start|>", "<|im_end|>", "<|pad|>"]);
        let mut settings = small_tokenizer::chatml();
        change(&mut tokenizer, &mut settings);
        let base = directory(folder.path(), &tokenizer, &settings);
        let path = folder.path().join("m.gguf");
        let output = GgufOutput { path: &path, base: Some(&base), dtype: None };
        let error = write(base.config(), output).err().unwrap().to_string();
        assert!(!path.exists());
        error
    };
    let error = refused(&|tokenizer, _| tokenizer["normalizer"] = json!({ "type": "Lowercase" }));
    assert!(error.contains("pre-tokenizer") && error.contains("Hugging Face directory"), "{error}");
    let error = refused(&|tokenizer, _| tokenizer["pre_tokenizer"]["use_regex"] = false.into());
    assert!(error.contains("pre-tokenizer"), "{error}");
    let error = refused(&|_, settings| settings["eos_token"] = Value::Null);
    assert!(error.contains("eos_token"), "{error}");
}

/// The values of an adapter of `base`, by parameter.
pub(crate) fn trained_values(
    base: &ModelDirectory,
    adapter: &mut Adapter,
) -> BTreeMap<String, Vec<f32>> {
    inventory(base.config(), Mode::Lora(adapter.lora()))
        .iter()
        .filter(|one| one.trainable)
        .map(|one| (one.name.clone(), adapter.values(one).unwrap()))
        .collect()
}

pub(crate) fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/models").join(name)
}

#[test]
fn adapters_have_the_scale_and_the_order_of_llama_cpp() {
    let folder = tempfile::tempdir().unwrap();
    let base = ModelDirectory::open(&golden("llama3")).unwrap();
    let mut adapter = Adapter::open(&golden("llama3").join("adapter")).unwrap();
    let lora = adapter.lora();
    assert!(lora.rslora, "the scale is not alpha / rank");
    let mode = Mode::Lora(lora);
    let given = trained_values(&base, &mut adapter);
    let values = &mut |parameter: &Parameter| Ok(given[&parameter.name].clone());
    let path = folder.path().join("adapter.gguf");
    let output = GgufOutput { path: &path, base: Some(&base), dtype: None };
    let mut weights = ModelWeights::new(base.config(), mode, values);
    write_gguf_adapter(&mut weights, output, &mut |_| true).unwrap();
    let mut reader = open_gguf_file(&path).unwrap();
    assert_eq!(reader.metadata().get_string("general.type"), Some("adapter"));
    assert_eq!(reader.metadata().get_string("general.architecture"), Some("llama"));
    assert_eq!(reader.metadata().get_string("adapter.type"), Some("lora"));
    let alpha = number(&reader, "adapter.lora.alpha");
    assert!((alpha / lora.rank as f64 - f64::from(lora.scale())).abs() < 1e-6, "{alpha}");
    assert_eq!(reader.tensor_count(), given.len());
    let module = "model.layers.1.self_attn.q_proj";
    let (shape, _, a) = tensor(&mut reader, "blk.1.attn_q.weight.lora_a");
    assert_eq!(shape, [32, 3]);
    let same = |found: &[f64], expected: &[f32]| {
        found.iter().zip(expected).all(|(found, expected)| *found == f64::from(*expected))
    };
    assert!(same(&a, &given[&format!("{module}.lora_A.weight")]));
    let (shape, _, b) = tensor(&mut reader, "blk.1.attn_q.weight.lora_b");
    assert_eq!(shape, [3, 32]);
    let given = &given[&format!("{module}.lora_B.weight")];
    // Rows of 3: of the first head of 8, row 0, then row 4, then row 1.
    assert!(same(&b[..3], &given[..3]) && same(&b[3..6], &given[12..15]));
    assert!(same(&b[6..9], &given[3..6]) && same(&b[24..27], &given[24..27]));
}

#[test]
fn adapters_that_gguf_cannot_hold_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("adapter.gguf");
    let refused = |mode, dtype| {
        let values = &mut |parameter: &Parameter| Ok(values(parameter));
        let mut weights = ModelWeights::new(&model(256), mode, values);
        let output = GgufOutput { path: &path, base: None, dtype };
        write_gguf_adapter(&mut weights, output, &mut |_| true).unwrap_err().to_string()
    };
    let lora = LoraConfig::new(4, 8.0);
    let norms = Mode::Lora(LoraConfig { norms: true, ..lora });
    assert!(refused(norms, None).contains("trained norms"));
    let fused = ModelConfig { qkv_bias: false, fused: true, ..model(256) };
    let values = &mut |parameter: &Parameter| Ok(values(parameter));
    let mut weights = ModelWeights::new(&fused, Mode::Lora(lora), values);
    let output = GgufOutput { path: &path, base: None, dtype: None };
    let error = write_gguf_adapter(&mut weights, output, &mut |_| true).unwrap_err().to_string();
    assert!(error.contains("fused projections"), "{error}");
    assert!(refused(Mode::Full, None).contains("all weights"));
    assert!(refused(Mode::Lora(lora), Some(WeightType::Q8_0)).contains("q8_0"));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
