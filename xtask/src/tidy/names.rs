//! Retired names: words that identifiers and file names must not contain, from `retired_names.tsv`.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use anyhow::Context;
use proc_macro2::{Span, TokenStream, TokenTree};

use crate::workspace;

/// A word, or several joined by `_`, its replacement, and the paths in which it keeps its ordinary
/// meaning.
struct Retired {
    word: String,
    instead: String,
    allowed_in: Vec<String>,
}

/// The list of retired names.
pub(super) struct RetiredNames(Vec<Retired>);

impl RetiredNames {
    /// Reads the committed list.
    pub(super) fn load() -> anyhow::Result<Self> {
        let path = workspace::root().join("xtask/retired_names.tsv");
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let names = Self::parse(&text);
        anyhow::ensure!(!names.0.is_empty(), "{} lists no names", path.display());
        Ok(names)
    }

    fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let row = |line: &str| {
            let mut columns = line.split('\t');
            let mut column = || columns.next().unwrap_or_default().to_owned();
            let (word, instead, paths) = (column(), column(), column());
            let allowed_in = paths.split_whitespace().map(str::to_owned).collect();
            Retired { word, instead, allowed_in }
        };
        Self(lines.map(row).collect())
    }

    /// Reports retired words in the path and the identifiers of a Rust file. Comments, strings and
    /// macro-generated names are not checked.
    pub(super) fn check(&self, path: &Path, text: &str, complaints: &mut Vec<String>) {
        let name = path.display().to_string();
        let applies = |it: &&Retired| !it.allowed_in.iter().any(|path| name.starts_with(path));
        let list: Vec<_> = self.0.iter().filter(applies).collect();
        // Most identifiers occur many times in a file.
        let mut clean = HashSet::new();
        let mut found = |identifier: &str, line: Option<usize>| {
            if clean.contains(identifier) {
                return;
            }
            let (parts, before) = (words(identifier), complaints.len());
            for Retired { word, instead, .. } in &list {
                if contains(&parts, word) {
                    let at = line.map_or(String::new(), |line| format!(":{line}"));
                    let what = format!("`{identifier}` contains the retired name `{word}`");
                    complaints.push(format!("{name}{at}: {what}; use {instead}"));
                }
            }
            if complaints.len() == before {
                clean.insert(identifier.to_owned());
            }
        };
        for component in path.components() {
            let component = component.as_os_str().to_string_lossy();
            found(component.trim_end_matches(".rs"), None);
        }
        if let Ok(tokens) = text.parse::<TokenStream>() {
            identifiers(tokens, &mut |identifier, span| {
                found(identifier, Some(span.start().line));
            });
        }
    }
}

/// Whether `parts` contain the words of `name` in a row, the last one possibly in the plural.
fn contains(parts: &[String], name: &str) -> bool {
    let words: Vec<_> = name.split('_').collect();
    parts.windows(words.len()).any(|window| {
        let joined = window.join("_");
        joined == name || joined.strip_suffix('s') == Some(name)
    })
}

/// Visits every identifier.
fn identifiers(tokens: TokenStream, on: &mut dyn FnMut(&str, Span)) {
    for token in tokens {
        match token {
            TokenTree::Ident(identifier) => on(&identifier.to_string(), identifier.span()),
            TokenTree::Group(group) => identifiers(group.stream(), on),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

/// Splits an identifier in snake case, camel case or kebab case into lower-case words.
fn words(identifier: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = '_';
    for character in identifier.chars() {
        let starts = character.is_uppercase() && !before.is_uppercase();
        if starts || !character.is_alphanumeric() {
            words.push(String::new());
        }
        if character.is_alphanumeric() {
            words.last_mut().expect("never empty").extend(character.to_lowercase());
        }
        before = character;
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(path: &str, text: &str) -> Vec<String> {
        let names = RetiredNames::parse("# comment\npanel\tsmem tile\tvendor/\n");
        let mut complaints = Vec::new();
        names.check(Path::new(path), text, &mut complaints);
        complaints
    }

    #[test]
    fn retired_words_are_found_in_identifiers_and_paths_only() {
        let text = "// a panel\nfn load_panels() { let s = \"panel\"; }\nstruct PanelLoader;\n";
        let found = complaints("src/gemm.rs", text);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("src/gemm.rs:2: `load_panels`"), "{found:?}");
        assert!(found[1].contains("`PanelLoader`") && found[1].contains("smem tile"), "{found:?}");
        assert_eq!(complaints("src/panel.rs", "").len(), 1);
    }

    #[test]
    fn names_of_several_words_are_found_in_a_row_only() {
        let names = RetiredNames::parse("wait_copy\twait_group\n");
        let mut complaints = Vec::new();
        let text = "fn k_wait_copy() {} fn wait_copys() {} fn wait_a_copy() {} fn copy_wait() {}";
        names.check(Path::new("src/a.rs"), text, &mut complaints);
        assert_eq!(complaints.len(), 2, "{complaints:?}");
    }

    #[test]
    fn other_words_and_allowed_paths_pass() {
        assert_eq!(complaints("src/gemm.rs", "fn japanel() {}"), [""; 0]);
        assert_eq!(complaints("vendor/gemm.rs", "fn panel() {}"), [""; 0]);
    }

    #[test]
    fn identifiers_are_split_into_words() {
        assert_eq!(words("SmemTile2"), ["smem", "tile2"]);
        assert_eq!(words("MAX_LINES"), ["max", "lines"]);
        assert_eq!(words("driver-sys"), ["driver", "sys"]);
    }
}
