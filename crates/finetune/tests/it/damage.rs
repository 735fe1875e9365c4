//! Damaged files, made from the fuzz seeds by random changes: none may crash the program, take
//! long, or cause an endless message.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use retrograph_finetune::data::read_jsonl;
use retrograph_finetune::{ChatTemplate, Conversation, Tokenizer};
use serde_json::{Value, json};

/// The time per target, and the time limit of one input.
const ALL: Duration = Duration::from_secs(2);
const ONE: Duration = Duration::from_secs(30);

struct Damage(ChaCha8Rng);

impl Damage {
    fn below(&mut self, limit: usize) -> usize {
        self.0.next_u32() as usize % limit.max(1)
    }

    fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }

    /// Replaces, nests, repeats or drops a part of the value.
    fn json(&mut self, value: &mut Value) {
        let inside = self.below(4) > 0;
        match value {
            Value::Array(items) if inside && !items.is_empty() => {
                let index = self.below(items.len());
                return self.json(&mut items[index]);
            }
            Value::Object(fields) if inside && !fields.is_empty() => {
                let index = self.below(fields.len());
                return self.json(fields.values_mut().nth(index).unwrap());
            }
            _ => (),
        }
        let old = value.take();
        *value = match (self.below(8), old) {
            (0, old) => (0..self.below(200)).fold(old, |inner, _| json!([inner])),
            (1, Value::Array(mut items)) => {
                items.extend(items.clone());
                items.into()
            }
            (2, Value::Array(mut items)) => {
                items.pop();
                items.into()
            }
            (3, Value::Object(mut fields)) => {
                let name = fields.keys().nth(self.below(fields.len())).cloned();
                name.map(|name| fields.remove(&name));
                fields.into()
            }
            (4, Value::String(text)) => text.repeat(1 + self.below(2000)).into(),
            (5, Value::String(text)) => text.chars().skip(1).collect::<String>().into(),
            (6, _) => self.one(&[
                json!(-1),
                json!(u64::MAX),
                json!(u32::MAX),
                json!(i64::MIN),
                json!(1e300),
                json!(0),
                json!(0.5),
                json!(4_294_967_296_u64),
            ]),
            (7, _) => self.one(&[
                json!(""),
                json!("\u{0}"),
                json!("(a+)+$"),
                json!("\u{f8ff}"),
                json!("é".repeat(999)),
                json!("AAAA"),
                json!("BAAAAAAAAAAA"),
                json!("x{1000}{1000}"),
                json!("(?=a)*"),
            ]),
            _ => self.one(&[json!(null), json!(true), json!([]), json!({}), json!("the")]),
        };
    }

    /// Changes a text without regard to its syntax.
    fn text(&mut self, text: &mut Vec<u8>) {
        let at = self.below(text.len());
        match self.below(5) {
            0 => text.truncate(at),
            1 => text.insert(at, self.0.next_u32() as u8),
            2 => {
                let end = (at + self.below(40)).min(text.len());
                let piece = text[at..end].repeat(1 + self.below(300));
                text.splice(at..end, piece);
            }
            3 => {
                let end = (at + self.below(40)).min(text.len());
                text.drain(at..end);
            }
            _ => {
                let piece = self.one(&[
                    "{%",
                    "%}",
                    "{{",
                    "}}",
                    " * 99999",
                    " ~ ",
                    "[",
                    "(",
                    "99999999999",
                    "not ",
                    "|list",
                    "|join('xx')",
                    "|tojson",
                    "range(99999)",
                    "{% set n.a = n %}",
                    "\\",
                    "|indent(9)",
                    "{% for x in messages %}",
                    "{% endfor %}",
                    "\"",
                    "\n",
                    ": [",
                ]);
                text.splice(at..at, piece.bytes());
            }
        }
    }
}

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// Tries damaged seeds for some seconds. `run` returns the message of the error, if any.
fn tried(target: &str, mut run: impl FnMut(&[u8]) -> Option<String>) {
    let (seeds, start) = (seeds(target), Instant::now());
    let mut number = 0;
    while start.elapsed() < ALL || number < 50 {
        let mut damage = Damage(ChaCha8Rng::seed_from_u64(number));
        let mut text = damage.one(&seeds);
        for _ in 0..=damage.below(3) {
            match serde_json::from_slice::<Value>(&text) {
                Ok(mut value) if damage.below(5) > 0 => {
                    damage.json(&mut value);
                    text = value.to_string().into_bytes();
                }
                _ => damage.text(&mut text),
            }
        }
        let begun = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| run(&text)));
        let message = outcome.unwrap_or_else(|_| panic!("{target} {number} panics"));
        let length = message.map_or(0, |message| message.len());
        assert!(length < 40_000, "{target} {number}: a message of {length} bytes");
        assert!(begun.elapsed() < ONE, "{target} {number} takes {:?}", begun.elapsed());
        number += 1;
    }
}

#[test]
fn damaged_tokenizers_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    tried("tokenizer", |text| {
        fs::write(folder.path().join("tokenizer.json"), text).unwrap();
        let tokenizer = match Tokenizer::open(folder.path()) {
            Ok(tokenizer) => tokenizer,
            Err(error) => return Some(error.to_string()),
        };
        let tokens = match tokenizer.encode("The cat, 123 <s> e\u{301}日本 \n\n  'll ▁") {
            Ok(tokens) => tokens,
            Err(error) => return Some(error.to_string()),
        };
        assert!(tokenizer.decode(&tokens).len() < 1 << 20);
        None
    });
}

#[test]
fn damaged_templates_are_errors() {
    let function = json!({ "name": "f", "arguments": { "x": [1, 2.5, null] } });
    let conversation: Conversation = serde_json::from_value(json!({ "messages": [
        { "role": "user", "content": " the cat\n" },
        { "role": "assistant", "content": "a</think>b", "tool_calls": [{ "function": function }] },
    ] }))
    .unwrap();
    tried("chat_template", |text| {
        let text = String::from_utf8_lossy(text);
        let template = match ChatTemplate::parse("chat_template.jinja".as_ref(), &text) {
            Ok(template) => template,
            Err(error) => return Some(error.to_string()),
        };
        template.render(&conversation, 2, true).err().map(|error| error.to_string())
    });
}

#[test]
fn damaged_lines_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let [tokenizer, template] = ["tokenizer", "chat_template"].map(seeds);
    fs::write(folder.path().join("tokenizer.json"), &tokenizer[0]).unwrap();
    fs::write(folder.path().join("chat_template.jinja"), &template[0]).unwrap();
    let tokenizer = Tokenizer::open(folder.path()).unwrap();
    let path = folder.path().join("data.jsonl");
    tried("jsonl", |text| {
        fs::write(&path, text).unwrap();
        let found = read_jsonl(&path, &tokenizer, &mut |_, _| ());
        found.err().map(|error| error.to_string())
    });
}
