//! Text for the fields in which two values of one type differ.

use serde::Serialize;
use serde_json::Value;

/// Returns the fields in which `left` and `right` differ, with the values of each side, such as
/// `{hidden: 16}`. Values without fields are written whole.
pub(super) fn of(left: &impl Serialize, right: &impl Serialize) -> (String, String) {
    let value = |side: Result<Value, _>| side.unwrap_or_default();
    let (left, right) = (value(serde_json::to_value(left)), value(serde_json::to_value(right)));
    let mut fields = Vec::new();
    collect("", &left, &right, &mut fields);
    let has_fields = left.is_object() && right.is_object();
    let join = |sides: Vec<String>| match has_fields {
        true => format!("{{{}}}", sides.join(", ")),
        false => sides.concat(),
    };
    let (left, right) = fields.into_iter().unzip();
    (join(left), join(right))
}

fn collect(name: &str, left: &Value, right: &Value, fields: &mut Vec<(String, String)>) {
    if left == right {
        return;
    }
    if let (Value::Object(left), Value::Object(right)) = (left, right) {
        let only_left = left.keys();
        let names = only_left.chain(right.keys().filter(|name| !left.contains_key(*name)));
        for name in names {
            let side = |map: &serde_json::Map<_, _>| map.get(name).cloned().unwrap_or_default();
            collect(name, &side(left), &side(right), fields);
        }
        return;
    }
    let label = if name.is_empty() { String::new() } else { format!("{name}: ") };
    fields.push((format!("{label}{}", words(left)), format!("{label}{}", words(right))));
}

/// Returns a value as text without quotes. A variant with fields is written as its name, and an f32
/// with its shortest decimal form.
fn words(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "none".to_owned(),
        Value::Object(variant) => variant.keys().cloned().collect::<Vec<_>>().join(" "),
        other => match other.as_f64().map(|value| (value, value as f32)) {
            Some((value, short)) if other.is_f64() && f64::from(short) == value => {
                format!("{short:?}")
            }
            _ => other.to_string(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{LoraConfig, Mode, ModelConfig, Preset};

    #[test]
    fn only_the_fields_that_differ_are_named() {
        let tiny = Preset::Tiny.model();
        let other = ModelConfig { hidden: 32, tie_word_embeddings: false, ..tiny };
        let (saved, asked) = of(&tiny, &other);
        assert_eq!(
            (saved.as_str(), asked.as_str()),
            ("{hidden: 64, tie_word_embeddings: true}", "{hidden: 32, tie_word_embeddings: false}")
        );
        let lora = |rank| Mode::Lora(LoraConfig::new(rank, 8.0));
        assert_eq!(of(&lora(4), &lora(8)), ("{rank: 4}".to_owned(), "{rank: 8}".to_owned()));
        assert_eq!(of(&Mode::Full, &lora(8)), ("full".to_owned(), "lora".to_owned()));
        assert_eq!(of(&0.1_f32, &0.2_f64), ("0.1".to_owned(), "0.2".to_owned()));
        assert_eq!(of(&1, &2), ("1".to_owned(), "2".to_owned()));
        assert_eq!(of(&None::<usize>, &Some(2)), ("none".to_owned(), "2".to_owned()));
    }
}
