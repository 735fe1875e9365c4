//! Tokenizers for tests, as the JSON of `tokenizer.json`: bytes, some words merged from them, and
//! special tokens after them.

use std::fs;
use std::path::Path;

use serde_json::{Map, Value, json};

/// Merges in the order in which they are made; `Ġ` is a space.
const MERGES: [[&str; 2]; 7] =
    [["a", "t"], ["t", "h"], ["th", "e"], ["Ġ", "the"], ["e", "r"], ["Ġ", "c"], ["Ġc", "at"]];

/// Tokens that are not special: bytes and merges.
pub(crate) const PLAIN: u32 = 256 + MERGES.len() as u32;

/// The character for each byte in byte-level tokenizers, in order.
fn alphabet() -> Vec<char> {
    let printed = ['!'..='~', '¡'..='¬', '®'..='ÿ'];
    let rest = 256 - printed.iter().flat_map(|range| range.clone()).count() as u32;
    let others = (256..256 + rest).filter_map(char::from_u32);
    printed.into_iter().flatten().chain(others).collect()
}

/// Special tokens with the numbers from `first` on.
pub(crate) fn added_tokens(special: &[&str], first: u32) -> Vec<Value> {
    let added = special.iter().zip(first..).map(|(token, id)| {
        json!({
            "id": id, "content": token, "special": true, "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false,
        })
    });
    added.collect()
}

/// A byte-level tokenizer with the given special tokens, which have the numbers from [`PLAIN`] on.
pub(crate) fn tokenizer(special: &[&str]) -> Value {
    let merged = MERGES.iter().map(|[left, right]| format!("{left}{right}"));
    let words = alphabet().into_iter().map(String::from).chain(merged);
    let vocab: Map<String, Value> = words.zip(0..).map(|(word, id)| (word, id.into())).collect();
    json!({
        "version": "1.0",
        "added_tokens": added_tokens(special, PLAIN),
        "pre_tokenizer": {
            "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true,
        },
        "decoder": {
            "type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true,
        },
        "model": { "type": "BPE", "vocab": vocab, "merges": MERGES },
    })
}

/// Writes `tokenizer` and `settings` as `tokenizer_config.json`.
pub(crate) fn write(folder: &Path, tokenizer: &Value, settings: &Value) {
    fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    fs::write(folder.join("tokenizer_config.json"), settings.to_string()).unwrap();
}

/// Tokenizer settings of a ChatML model.
pub(crate) fn chatml() -> Value {
    let template = "{% for message in messages %}\
        {{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}\
        {% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
    json!({
        "eos_token": "<|im_end|>", "pad_token": { "content": "<|pad|>" }, "bos_token": null,
        "chat_template": template,
    })
}

/// Special tokens of Llama 3.
pub(crate) const LLAMA3: [&str; 4] =
    ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"];

/// Tokenizer settings of Llama 3.
pub(crate) fn llama3() -> Value {
    let template = "{{- bos_token }}\n\
        {%- if messages[0]['role'] == 'system' %}\n\
        {%- set system_message = messages[0]['content'].strip() %}\n\
        {%- set messages = messages[1:] %}\n\
        {%- else %}\n{%- set system_message = '' %}\n{%- endif %}\n\
        {{- '<|start_header_id|>system<|end_header_id|>\\n\\n' }}\n\
        {{- 'Today Date: ' + strftime_now('%d %b %Y') + '\\n\\n' }}\n\
        {{- system_message + '<|eot_id|>' }}\n\
        {%- for message in messages %}\n\
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}\n\
        {{- message['content'] | trim + '<|eot_id|>' }}\n\
        {%- endfor %}\n\
        {%- if add_generation_prompt %}\n\
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}\n{%- endif %}";
    json!({
        "bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>", "chat_template": template,
    })
}
