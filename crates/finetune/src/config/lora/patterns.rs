//! Ranks and alphas of individual modules, by patterns of their names.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use regex::Regex;
use serde::{Deserialize, Serialize};

use super::module::LoraModule;

/// Maximum rank.
pub(super) const MAX_RANK: usize = 1 << 16;

/// Ranks and alphas of modules whose names match patterns. Other modules have the values of
/// [`LoraConfig`](crate::LoraConfig).
///
/// A pattern is a regular expression that matches the end of a name such as
/// `model.layers.3.mlp.up_proj`, from a dot or from the start of the name: `up_proj`,
/// `layers.3.mlp.up_proj` or `layers\.[0-5]\..*_proj`. The first pattern that matches counts, as in
/// PEFT's `rank_pattern` and `alpha_pattern`. Expressions have the syntax of the crate `regex`,
/// which has no lookaround.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(into = "Lists", try_from = "Lists")]
pub struct LoraPatterns {
    ranks: Rules,
    alphas: Rules,
}

/// Error for a pattern that is not a regular expression, or whose value is out of range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the pattern `{pattern}` {reason}")]
pub struct PatternError {
    /// The pattern.
    pub pattern: String,
    /// Why it cannot be used.
    pub reason: String,
}

impl LoraPatterns {
    /// No patterns.
    pub const NONE: Self = Self { ranks: Rules(&[]), alphas: Rules(&[]) };

    /// Returns the patterns, each with its value, in the order in which they are tried. Equal lists
    /// are interned for the rest of the process.
    ///
    /// # Errors
    /// [`PatternError`] for a pattern that is not a regular expression, for a rank that is not from
    /// 1 to [`MAX_RANK`](crate::LoraConfig::MAX_RANK), and for an alpha that is not finite.
    pub fn new(
        ranks: impl IntoIterator<Item = (String, usize)>,
        alphas: impl IntoIterator<Item = (String, f32)>,
    ) -> Result<Self, PatternError> {
        let (mut rank_rules, mut alpha_rules) = (Vec::new(), Vec::new());
        for (pattern, rank) in ranks {
            let known = (1..=MAX_RANK).contains(&rank);
            let rule = format!("has the rank {rank}; give one from 1 to {MAX_RANK}");
            rank_rules.push(Rule::new(pattern, rank as f64, known, rule)?);
        }
        for (pattern, alpha) in alphas {
            let rule = format!("has the alpha {alpha}; give a finite one");
            alpha_rules.push(Rule::new(pattern, alpha.into(), alpha.is_finite(), rule)?);
        }
        Ok(Self { ranks: Rules::new(rank_rules), alphas: Rules::new(alpha_rules) })
    }

    /// Returns the ranks of these patterns with the alphas of `other`.
    pub fn with_alphas(self, other: Self) -> Self {
        Self { alphas: other.alphas, ..self }
    }

    /// The patterns of ranks, in the order in which they are tried.
    pub fn ranks(&self) -> impl Iterator<Item = (&'static str, usize)> {
        self.ranks.0.iter().map(|rule| (rule.pattern.as_str(), rule.value as usize))
    }

    /// The patterns of alphas, in the order in which they are tried.
    pub fn alphas(&self) -> impl Iterator<Item = (&'static str, f32)> {
        self.alphas.0.iter().map(|rule| (rule.pattern.as_str(), rule.value as f32))
    }

    /// Returns rank and alpha of a module, if patterns set them.
    pub(super) fn of(&self, module: LoraModule) -> (Option<usize>, Option<f32>) {
        if *self == Self::NONE {
            return (None, None);
        }
        let name = module.to_string();
        let [rank, alpha] = [self.ranks, self.alphas].map(|rules| rules.value(&name));
        (rank.map(|rank| rank as usize), alpha.map(|alpha| alpha as f32))
    }

    /// Returns the first pattern that matches none of the `modules`.
    pub(super) fn unused(&self, modules: &[LoraModule]) -> Option<&'static str> {
        let names: Vec<String> = modules.iter().map(LoraModule::to_string).collect();
        let mut all = self.ranks.0.iter().chain(self.alphas.0);
        let unused = all.find(|rule| !names.iter().any(|name| rule.matches(name)));
        unused.map(|rule| rule.pattern.as_str())
    }
}

/// Patterns with values, interned for the rest of the process, so that configurations are `Copy`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Rules(&'static [Rule]);

impl Rules {
    /// Interns a list.
    fn new(rules: Vec<Rule>) -> Self {
        static KNOWN: Mutex<Vec<&'static [Rule]>> = Mutex::new(Vec::new());
        if rules.is_empty() {
            return Self::default();
        }
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(same) = known.iter().find(|known| **known == rules) {
            return Self(same);
        }
        let kept: &'static [Rule] = Vec::leak(rules);
        known.push(kept);
        Self(kept)
    }

    fn value(self, name: &str) -> Option<f64> {
        self.0.iter().find(|rule| rule.matches(name)).map(|rule| rule.value)
    }
}

#[derive(Clone)]
struct Rule {
    pattern: String,
    /// `None` for a plain name.
    expression: Option<Regex>,
    value: f64,
}

impl Rule {
    fn new(pattern: String, value: f64, holds: bool, rule: String) -> Result<Self, PatternError> {
        if !holds {
            return Err(PatternError { pattern, reason: rule });
        }
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "._".contains(letter);
        if !pattern.is_empty() && pattern.chars().all(plain) {
            return Ok(Self { pattern, expression: None, value });
        }
        match Regex::new(&format!(r"^(?:.*\.)?(?:{pattern})$")) {
            Ok(expression) => Ok(Self { pattern, expression: Some(expression), value }),
            Err(error) => {
                let error = error.to_string();
                let last = error.lines().last().unwrap_or_default();
                let reason = format!("is not a regular expression that can be read: {last}");
                Err(PatternError { pattern, reason })
            }
        }
    }

    /// Whether the pattern matches the end of a name, from a dot or from its start. Dots in a plain
    /// name match only dots.
    fn matches(&self, name: &str) -> bool {
        match &self.expression {
            Some(expression) => expression.is_match(name),
            None => name
                .strip_suffix(&self.pattern)
                .is_some_and(|before| before.is_empty() || before.ends_with('.')),
        }
    }
}

impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        self.pattern == other.pattern && self.value == other.value
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.pattern, self.value)
    }
}

/// The patterns as checkpoints store them.
#[derive(Serialize, Deserialize)]
struct Lists {
    #[serde(default)]
    ranks: Vec<(String, usize)>,
    #[serde(default)]
    alphas: Vec<(String, f32)>,
}

impl From<LoraPatterns> for Lists {
    fn from(patterns: LoraPatterns) -> Self {
        let ranks = patterns.ranks().map(|(pattern, rank)| (pattern.to_owned(), rank)).collect();
        let alphas = patterns.alphas().map(|(pattern, alpha)| (pattern.to_owned(), alpha));
        Self { ranks, alphas: alphas.collect() }
    }
}

impl TryFrom<Lists> for LoraPatterns {
    type Error = PatternError;

    fn try_from(lists: Lists) -> Result<Self, PatternError> {
        Self::new(lists.ranks, lists.alphas)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Projection;

    fn rank(patterns: &[(&str, usize)], layer: usize, projection: Projection) -> Option<usize> {
        let ranks = patterns.iter().map(|(pattern, rank)| ((*pattern).to_owned(), *rank));
        let patterns = LoraPatterns::new(ranks, []).unwrap();
        patterns.of(LoraModule { layer, projection, fused: false }).0
    }

    /// The results of PEFT's `get_pattern_key`.
    #[test]
    fn patterns_match_the_end_of_a_name_from_a_dot_on() {
        for (pattern, matching) in [
            ("q_proj", vec![(0, Projection::Q), (1, Projection::Q), (11, Projection::Q)]),
            ("proj", vec![]),
            ("1.self_attn.q_proj", vec![(1, Projection::Q)]),
            ("layers.1.self_attn.q_proj", vec![(1, Projection::Q)]),
            ("model.layers.1.self_attn.q_proj", vec![(1, Projection::Q)]),
            (r"layers\.\d\..*", vec![(0, Projection::Q), (1, Projection::Q), (1, Projection::Up)]),
            ("self_attn", vec![]),
            (
                "(q|up)_proj|x",
                vec![
                    (0, Projection::Q),
                    (1, Projection::Q),
                    (11, Projection::Q),
                    (1, Projection::Up),
                ],
            ),
            (".*1.*q_proj", vec![(1, Projection::Q), (11, Projection::Q)]),
        ] {
            let modules =
                [(0, Projection::Q), (1, Projection::Q), (11, Projection::Q), (1, Projection::Up)];
            for (layer, projection) in modules {
                let found = rank(&[(pattern, 3)], layer, projection);
                let expected = matching.contains(&(layer, projection)).then_some(3);
                assert_eq!(found, expected, "{pattern} of {projection:?} in layer {layer}");
            }
        }
    }

    #[test]
    fn the_first_pattern_counts() {
        let patterns = [("layers.1.self_attn.q_proj", 2), ("q_proj", 3)];
        assert_eq!(rank(&patterns, 1, Projection::Q), Some(2));
        assert_eq!(rank(&patterns, 0, Projection::Q), Some(3));
        let [first, second] = patterns;
        assert_eq!(rank(&[second, first], 1, Projection::Q), Some(3));
    }

    #[test]
    fn equal_lists_are_kept_once() {
        let list = |rank| LoraPatterns::new([("o_proj".to_owned(), rank)], []).unwrap();
        assert!(std::ptr::eq(list(5).ranks.0, list(5).ranks.0));
        assert_ne!(list(5), list(6));
    }

    #[test]
    fn patterns_are_stored_in_order_and_checked() {
        let ranks = [("up_proj", 7), (r"layers\.[01]\.mlp\..*", 2)];
        let ranks = ranks.map(|(pattern, rank)| (pattern.to_owned(), rank));
        let alphas = [("q_proj".to_owned(), 1.5)];
        let patterns = LoraPatterns::new(ranks, alphas).unwrap();
        let text = serde_json::to_string(&patterns).unwrap();
        assert_eq!(serde_json::from_str::<LoraPatterns>(&text).unwrap(), patterns);
        let one = |pattern: &str, rank| {
            LoraPatterns::new([(pattern.to_owned(), rank)], []).unwrap_err().to_string()
        };
        assert!(one("q_proj", 0).contains("rank 0"));
        assert!(one("(q_proj", 1).contains("`(q_proj` is not a regular expression"));
        assert!(one("(?!x)q_proj", 1).contains("look-around"));
        let alpha = LoraPatterns::new([], [("q_proj".to_owned(), f32::NAN)]).unwrap_err();
        assert!(alpha.to_string().contains("alpha NaN"), "{alpha}");
    }
}
