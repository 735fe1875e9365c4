//! The layers with LoRA updates.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::config::{ModelConfig, UnknownChoice};

/// Bits per word of the set.
const BITS: usize = u64::BITS as usize;
/// Number of words of the set.
const WORDS: usize = ModelConfig::MAX_LAYERS / BITS;

/// Layers with LoRA updates, counted from 0: all, or a set that is written as `0-7,12`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct LoraLayers(Option<[u64; WORDS]>);

impl LoraLayers {
    /// Every layer.
    pub const ALL: Self = Self(None);

    /// Returns the set of `layers`; `None` if one is not below [`ModelConfig::MAX_LAYERS`].
    pub fn of(layers: impl IntoIterator<Item = usize>) -> Option<Self> {
        let mut words = [0; WORDS];
        for layer in layers {
            *words.get_mut(layer / BITS)? |= 1 << (layer % BITS);
        }
        Some(Self(Some(words)))
    }

    /// Whether `layer` has updates.
    pub fn has(self, layer: usize) -> bool {
        let word = |words: [u64; WORDS]| words.get(layer / BITS).copied().unwrap_or(0);
        self.0.is_none_or(|words| word(words) >> (layer % BITS) & 1 == 1)
    }

    /// The layers of the set, in order; `None` for all layers.
    pub fn listed(self) -> Option<Vec<usize>> {
        let list = || (0..ModelConfig::MAX_LAYERS).filter(|layer| self.has(*layer)).collect();
        self.0.map(|_| list())
    }
}

impl fmt::Display for LoraLayers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(layers) = self.listed() else { return f.write_str("all") };
        let run = |run: &[usize]| match *run {
            [first, .., last] => format!("{first}-{last}"),
            _ => run.iter().map(usize::to_string).collect(),
        };
        let runs = layers.chunk_by(|left, right| left + 1 == *right);
        f.write_str(&runs.map(run).collect::<Vec<_>>().join(","))
    }
}

impl fmt::Debug for LoraLayers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for LoraLayers {
    type Err = UnknownChoice;

    fn from_str(text: &str) -> Result<Self, UnknownChoice> {
        if text == "all" {
            return Ok(Self::ALL);
        }
        let choices = format!("numbers and ranges below {}, or all", ModelConfig::MAX_LAYERS);
        let refuse = |part: &str| UnknownChoice::new(part, "a list of layers", choices.clone());
        let mut layers = Vec::new();
        for part in text.split(',').map(str::trim) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let ends: (Result<usize, _>, Result<usize, _>) = (first.parse(), last.parse());
            match ends {
                (Ok(first), Ok(last)) if first <= last && last < ModelConfig::MAX_LAYERS => {
                    layers.extend(first..=last);
                }
                _ => return Err(refuse(part)),
            }
        }
        Self::of(layers).ok_or_else(|| refuse(text))
    }
}

impl From<LoraLayers> for String {
    fn from(layers: LoraLayers) -> Self {
        layers.to_string()
    }
}

impl TryFrom<String> for LoraLayers {
    type Error = UnknownChoice;

    fn try_from(text: String) -> Result<Self, UnknownChoice> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_written_as_they_are_read() {
        for (text, written) in [("all", "all"), ("511,3, 0-2,7", "0-3,7,511"), ("5-5", "5")] {
            let layers: LoraLayers = text.parse().unwrap();
            assert_eq!(layers.to_string(), written);
            assert_eq!(written.parse(), Ok(layers));
        }
        let layers: LoraLayers = "0-1,64".parse().unwrap();
        assert_eq!(layers.listed(), Some(vec![0, 1, 64]));
        assert!(layers.has(64) && !layers.has(63) && !layers.has(1000));
        assert!(LoraLayers::ALL.has(1000) && LoraLayers::ALL.listed().is_none());
        for wrong in ["", "512", "3-1", "x", "1--2", "-1"] {
            assert!(wrong.parse::<LoraLayers>().is_err(), "{wrong}");
        }
        assert_eq!(LoraLayers::of([512]), None);
    }
}
