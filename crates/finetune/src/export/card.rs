//! The model card `README.md`.

use std::path::Path;

use crate::hub::ModelDirectory;

/// The card of a model.
pub(super) const CARD: &str = "README.md";
/// Number of leading bytes of a base model's card that are searched for its license.
const SEARCHED_BYTES: usize = 64 << 10;

/// Returns the card of a model named `title`, with one list item for each of `facts`.
pub(super) fn text(title: &str, base: Option<&ModelDirectory>, facts: &[String]) -> String {
    let mut card = "---\nlibrary_name: transformers\npipeline_tag: text-generation\n".to_owned();
    for line in base.map(|base| license(base.path())).unwrap_or_default() {
        card.push_str(&format!("{line}\n"));
    }
    card.push_str(&format!("tags:\n- retrograph\n---\n\n# {title}\n\n"));
    if let Some(name) = base.and_then(|base| base.path().file_name()) {
        card.push_str(&format!("- base model: `{}`\n", name.to_string_lossy()));
    }
    facts.iter().for_each(|fact| card.push_str(&format!("- {fact}\n")));
    let version = env!("CARGO_PKG_VERSION");
    card.push_str(&format!("\nWritten by retrograph {version}.\n"));
    card
}

/// Returns the lines about the license in the card of the model in `folder`.
fn license(folder: &Path) -> Vec<String> {
    let Ok(bytes) = crate::json_file::read_json(&folder.join(CARD)) else { return Vec::new() };
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(SEARCHED_BYTES)]);
    let mut lines = text.lines();
    if lines.next() != Some("---") {
        return Vec::new();
    }
    let scalar = |line: &&str| {
        line.split_once(": ")
            .is_some_and(|(key, _)| ["license", "license_name", "license_link"].contains(&key))
    };
    lines.take_while(|line| *line != "---").filter(scalar).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_license_of_the_base_model_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        assert!(license(folder.path()).is_empty());
        let card =
            "---\nlanguage: en\nlicense: apache-2.0\nlicense_link: https://x\n---\nlicense: no";
        std::fs::write(folder.path().join(CARD), card).unwrap();
        assert_eq!(license(folder.path()), ["license: apache-2.0", "license_link: https://x"]);
        std::fs::write(folder.path().join(CARD), "license: mit").unwrap();
        assert!(license(folder.path()).is_empty());
    }
}
