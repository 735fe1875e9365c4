//! GGUF files of Gemma, read by another library.

use gguf_rs_lib::reader::open_gguf_file;
use half::bf16;
use retrograph_finetune::config::SlidingWindow;
use retrograph_finetune::export::{GgufOutput, write_gguf, write_gguf_adapter};
use retrograph_finetune::parameters::{Parameter, inventory};
use retrograph_finetune::{
    Adapter, Mode, ModelConfig, ModelDirectory, ModelWeights, RopeScaling, WeightType,
};
use safetensors::SafeTensors;
use serde_json::json;

use crate::gguf::{
    Reader, directory, golden, number, sentence_piece, tensor, texts, trained_values, write,
};

/// The dimensions of a test model of `transformers` with bytes as tokens; it has no tokenizer.
fn config(name: &str) -> ModelConfig {
    ModelConfig { vocab: 256, ..*ModelDirectory::open(&golden(name)).unwrap().config() }
}

/// The file of a test model, with zeros as token table.
fn file(folder: &std::path::Path, name: &str) -> Reader {
    let (base, config) = (ModelDirectory::open(&golden(name)).unwrap(), config(name));
    let values = &mut |parameter: &Parameter| {
        let mut values = vec![0.0; parameter.len()];
        if parameter.shape[0] != config.vocab {
            base.read(parameter, &mut values)?;
        }
        Ok(values)
    };
    let path = folder.join(name);
    let output = GgufOutput { path: &path, base: None, dtype: Some(WeightType::F32) };
    let mut weights = ModelWeights::new(&config, Mode::Frozen, values);
    write_gguf(&mut weights, output, &mut |_| true).unwrap();
    open_gguf_file(&path).unwrap()
}

/// The tensors of a layer: the name in GGUF, the name in files, and what is added.
const TENSORS: [(&str, &str, f64); 9] = [
    ("attn_norm", "input_layernorm", 1.0),
    ("post_attention_norm", "post_attention_layernorm", 1.0),
    ("ffn_norm", "pre_feedforward_layernorm", 1.0),
    ("post_ffw_norm", "post_feedforward_layernorm", 1.0),
    ("attn_k", "self_attn.k_proj", 0.0),
    ("attn_v", "self_attn.v_proj", 0.0),
    ("attn_output", "self_attn.o_proj", 0.0),
    ("ffn_gate", "mlp.gate_proj", 0.0),
    ("ffn_down", "mlp.down_proj", 0.0),
];

/// Norms are stored as 1 + w. llama.cpp divides scores by the root of the head dimension, the
/// models by the roots of 12 and 10: the query projection or its norm has the missing factor.
#[test]
fn norms_are_sums_and_queries_have_the_scale_that_llama_cpp_lacks() {
    let folder = tempfile::tempdir().unwrap();
    let gemma3 = [
        ("attn_q_norm", "self_attn.q_norm", 1.0, (12f64 / 10.0).sqrt()),
        ("attn_k_norm", "self_attn.k_norm", 1.0, 1.0),
        ("attn_q", "self_attn.q_proj", 0.0, 1.0),
    ];
    let gemma2 = [("attn_q", "self_attn.q_proj", 0.0, (8f64 / 12.0).sqrt())];
    for (name, others) in [("gemma2", &gemma2[..]), ("gemma3", &gemma3)] {
        let mut reader = file(folder.path(), name);
        let bytes = std::fs::read(golden(name).join("model.safetensors")).unwrap();
        let stored = SafeTensors::deserialize(&bytes).unwrap();
        let mut check = |to: &str, from: &str, (added, factor): (f64, f64)| {
            let from = stored.tensor(from).unwrap();
            let pairs = from.data().chunks(2);
            let values = pairs.map(|pair| f64::from(bf16::from_le_bytes([pair[0], pair[1]])));
            let expected: Vec<f64> =
                values.map(|w| f64::from(((w + added) * factor) as f32)).collect();
            let (shape, _, found) = tensor(&mut reader, to);
            let sizes: Vec<u64> = from.shape().iter().rev().map(|&size| size as u64).collect();
            assert!(shape == sizes && found == expected, "{name}: {to}");
        };
        let all = TENSORS.iter().map(|&(to, from, added)| (to, from, added, 1.0));
        let all: Vec<_> = all.chain(others.iter().copied()).collect();
        for layer in [0, 1] {
            for &(to, from, added, factor) in &all {
                let from = format!("model.layers.{layer}.{from}.weight");
                check(&format!("blk.{layer}.{to}.weight"), &from, (added, factor));
            }
        }
        check("output_norm.weight", "model.norm.weight", (1.0, 1.0));
        assert_eq!(reader.tensor_count(), inventory(&config(name), Mode::Frozen).len());
    }
}

#[test]
fn windows_and_caps_are_in_the_metadata() {
    let folder = tempfile::tempdir().unwrap();
    let reader = file(folder.path(), "gemma2");
    assert_eq!(reader.metadata().get_string("general.architecture"), Some("gemma2"));
    for (key, value) in [
        ("context_length", 2048.0),
        ("attention.key_length", 8.0),
        ("attention.sliding_window", 4.0),
        ("attention.sliding_window_pattern", 2.0),
        ("attn_logit_softcapping", 2.0),
        ("final_logit_softcapping", 6.0),
        ("rope.freq_base", 1e4),
        ("rope.freq_base_swa", 1e4),
    ] {
        assert_eq!(number(&reader, &format!("gemma2.{key}")), value, "{key}");
    }
    let reader = file(folder.path(), "gemma3");
    assert_eq!(reader.metadata().get_string("general.architecture"), Some("gemma3"));
    for (key, value) in [
        ("attention.sliding_window", 4.0),
        ("attention.sliding_window_pattern", 3.0),
        ("rope.freq_base", 100.0),
        ("rope.freq_base_swa", 20.0),
        ("rope.scaling.factor", 2.0),
    ] {
        assert_eq!(number(&reader, &format!("gemma3.{key}")), value, "{key}");
    }
    assert!(reader.metadata().get("gemma3.attn_logit_softcapping").is_none());
    assert!(reader.metadata().get("gemma3.final_logit_softcapping").is_none());

    let files = tempfile::tempdir().unwrap();
    let of = |name: &str, change: &dyn Fn(&mut ModelConfig)| {
        let mut config = config(name);
        change(&mut config);
        let path = files.path().join(std::fs::read_dir(files.path()).unwrap().count().to_string());
        write(&config, GgufOutput { path: &path, base: None, dtype: None }).unwrap()
    };
    // A window in all layers, and none in any layer.
    let every = SlidingWindow::new(4, 0);
    let reader = of("gemma2", &|config| config.sliding_window = Some(every));
    assert_eq!(number(&reader, "gemma2.attention.sliding_window_pattern"), 0.0);
    let reader = of("gemma2", &|config| config.sliding_window = None);
    assert_eq!(number(&reader, "gemma2.attention.sliding_window"), 2048.0);
    let reader = of("gemma3", &|config| config.sliding_window = None);
    assert!(reader.metadata().get("gemma3.attention.sliding_window").is_none());
    // The largest models divide scores by the root of hidden / heads, also in llama.cpp.
    for (name, layers) in [("gemma2", 46), ("gemma3", 62)] {
        let scale = |layers| {
            let change = |config: &mut ModelConfig| config.layers = layers;
            let tensors = ["blk.0.attn_q.weight", "blk.0.attn_q_norm.weight"];
            tensor(&mut of(name, &change), tensors[usize::from(name == "gemma3")]).2[0]
        };
        let head = config(name).head_dim() as f64;
        let (found, expected) = (scale(layers) / scale(3), (8.0 / head).sqrt());
        assert!((found - expected).abs() < 1e-6, "{name}: {found}");
    }
}

#[test]
fn a_gemma_that_llama_cpp_does_not_read_is_refused() {
    let refused = |name: &str, change: &dyn Fn(&mut ModelConfig)| {
        let folder = tempfile::tempdir().unwrap();
        let mut config = config(name);
        change(&mut config);
        let path = folder.path().join("m.gguf");
        let output = GgufOutput { path: &path, base: None, dtype: None };
        let error = write(&config, output).err().unwrap().to_string();
        assert!(!path.exists() && error.contains("Hugging Face directory"), "{error}");
        error
    };
    let error = refused("gemma2", &|config| config.tie_word_embeddings = false);
    assert!(error.contains("output projection of Gemma 2"), "{error}");
    for change in [
        |config: &mut ModelConfig| config.attention_softcap = None,
        |config: &mut ModelConfig| config.logit_softcap = None,
    ] {
        let error = refused("gemma2", &change);
        assert!(error.contains("Gemma 2 without soft-capping"), "{error}");
    }
    let error = refused("gemma3", &|config| config.attention_softcap = Some(2.0));
    assert!(error.contains("scores of Gemma 3"), "{error}");
    let error = refused("gemma3", &|config| config.local_rope_theta = None);
    assert!(error.contains("RoPE scaling in layers of Gemma 3"), "{error}");
    let later = SlidingWindow::new(4, 1);
    let error = refused("gemma2", &|config| config.sliding_window = Some(later));
    assert!(error.contains("later layers of Gemma"), "{error}");
    let scaling = RopeScaling::Llama3 {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_max_position_embeddings: 32.0,
    };
    let error = refused("gemma3", &|config| config.rope_scaling = Some(scaling));
    assert!(error.contains("scaling of the architecture gemma3"), "{error}");
}

/// Gemma's tokenizer is a SentencePiece tokenizer that also splits at spaces, although the
/// normalizer leaves none.
#[test]
fn the_tokenizer_of_gemma_is_one_of_sentence_piece() {
    let folder = tempfile::tempdir().unwrap();
    let mut tokenizer = sentence_piece();
    let space = json!({ "String": " " });
    tokenizer["normalizer"] = json!({ "type": "Replace", "pattern": space, "content": "▁" });
    tokenizer["pre_tokenizer"] = json!({
        "type": "Split", "pattern": space, "behavior": "MergedWithPrevious", "invert": false,
    });
    tokenizer["model"]["vocab"]["<unk>"] = 2.into();
    tokenizer["model"]["vocab"]["</s>"] = 0.into();
    tokenizer["added_tokens"][0]["id"] = 2.into();
    tokenizer["added_tokens"][2]["id"] = 0.into();
    let settings = json!({ "bos_token": "<s>", "eos_token": "</s>", "add_bos_token": true });
    let base = directory(folder.path(), &tokenizer, &settings);
    let path = folder.path().join("m.gguf");
    let output = GgufOutput { path: &path, base: Some(&base), dtype: None };
    let reader = write(base.config(), output).unwrap();
    assert_eq!(reader.metadata().get_string("tokenizer.ggml.model"), Some("llama"));
    assert_eq!(reader.metadata().get_bool("tokenizer.ggml.add_space_prefix"), Some(false));
    assert_eq!(texts(&reader, "tokenizer.ggml.tokens")[..3], ["</s>", "<s>", "<unk>"]);
    let ids = ["unknown", "bos", "eos"];
    let found = ids.map(|id| number(&reader, &format!("tokenizer.ggml.{id}_token_id")));
    assert_eq!(found, [2.0, 1.0, 0.0]);
}

#[test]
fn adapters_of_gemma_2_have_the_scale_of_queries_in_b() {
    let folder = tempfile::tempdir().unwrap();
    for (name, factor) in [("gemma2", (8f64 / 12.0).sqrt()), ("gemma3", 1.0)] {
        let base = ModelDirectory::open(&golden(name)).unwrap();
        let mut adapter = Adapter::open(&golden(name).join("adapter")).unwrap();
        let mode = Mode::Lora(adapter.lora());
        let given = trained_values(&base, &mut adapter);
        let values = &mut |parameter: &Parameter| Ok(given[&parameter.name].clone());
        let path = folder.path().join(name);
        let output = GgufOutput { path: &path, base: Some(&base), dtype: None };
        let mut weights = ModelWeights::new(base.config(), mode, values);
        write_gguf_adapter(&mut weights, output, &mut |_| true).unwrap();
        let mut reader = open_gguf_file(&path).unwrap();
        assert_eq!(reader.metadata().get_string("general.architecture"), Some(name));
        assert_eq!(reader.tensor_count(), given.len());
        for (part, factor) in [("q_proj.lora_A", 1.0), ("q_proj.lora_B", factor)] {
            let to =
                format!("blk.1.attn_q.weight.lora_{}", if part.ends_with('A') { "a" } else { "b" });
            let (_, _, found) = tensor(&mut reader, &to);
            let given = &given[&format!("model.layers.1.self_attn.{part}.weight")];
            let expected = given.iter().map(|&x| f64::from((f64::from(x) * factor) as f32));
            assert!(found.into_iter().eq(expected), "{name}: {to}");
        }
    }
}
