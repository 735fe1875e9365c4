//! From files to what is learned from, and what is held out to be measured.

use std::path::Path;

use super::order::{generator, shuffled};
use super::{Data, DataError, Example, Examples, Layout, Lengths, Progress, TextData, read_jsonl};
use crate::error::Result;
use crate::tokenizer::Tokenizer;

/// Separates the choice of what is held out from other choices.
const HOLDOUT: u64 = 0x686f_6c64_6f75_7400;

/// How data is prepared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SplitOptions {
    /// Tokens of a sequence, and how far those of a step are filled up.
    pub lengths: Lengths,
    /// Whether examples lie behind each other; by default those that are text alone do.
    pub packing: Option<bool>,
    /// The fraction that is held out: 0 for nothing, below 1.
    pub holdout: f64,
    /// The seed of the choice of what is held out.
    pub seed: u64,
}

/// Data in two parts.
#[derive(Debug)]
pub struct Split {
    /// What is learned from.
    pub training: Data,
    /// What is measured.
    pub held_out: Option<Data>,
}

impl SplitOptions {
    /// Reads one text, of which the last part is held out.
    ///
    /// # Errors
    /// Those of [`TextData::read`]; [`DataError::Holdout`].
    pub fn text(&self, path: &Path, tokenizer: &Tokenizer) -> Result<Split> {
        let text = TextData::read(path, tokenizer)?;
        // One token is needed in front of those that are predicted.
        let Some(len) = self.held(text.len(), ("tokens", 2))? else {
            return Ok(Split { training: text.into(), held_out: None });
        };
        let (training, held_out) = text.split_off(len);
        Ok(Split { training: training.into(), held_out: Some(held_out.into()) })
    }

    /// Reads examples from lines of JSON, of which some, chosen by the seed, are held out.
    ///
    /// # Errors
    /// Those of [`read_jsonl`] and [`Examples::new`]; [`DataError::Holdout`].
    pub fn jsonl(&self, path: &Path, tokenizer: &Tokenizer, on: Progress<'_>) -> Result<Split> {
        let (examples, forms) = read_jsonl(path, tokenizer, on)?;
        let only_texts = forms.completions + forms.conversations == 0;
        let packing = self.packing.unwrap_or(only_texts);
        let layout = Layout { lengths: self.lengths, packing, pad: tokenizer.pad() };
        let lay_out = |examples| Examples::new(examples, layout).map(Data::from);
        let Some(held) = self.held(examples.len(), ("examples", 1))? else {
            return Ok(Split { training: lay_out(examples)?, held_out: None });
        };
        let (training, held_out) = self.choose(examples, held);
        Ok(Split { training: lay_out(training)?, held_out: Some(lay_out(held_out)?) })
    }

    /// How many of `all` are held out; `None` where nothing is to be.
    fn held(&self, all: usize, (what, least): (&'static str, usize)) -> Result<Option<usize>> {
        let fraction = self.holdout;
        if fraction == 0.0 {
            return Ok(None);
        }
        let held = ((all as f64 * fraction).round() as usize).max(least);
        if !(fraction > 0.0 && fraction < 1.0) || held + least > all {
            return Err(DataError::Holdout { fraction, all, what }.into());
        }
        Ok(Some(held))
    }

    /// The examples without those that are held out, and those, both in their order.
    fn choose(&self, examples: Vec<Example>, held: usize) -> (Vec<Example>, Vec<Example>) {
        let order = shuffled(generator(self.seed, HOLDOUT, 0), examples.len());
        let mut chosen = vec![false; examples.len()];
        order[..held].iter().for_each(|&place| chosen[place] = true);
        let (held_out, training): (Vec<_>, Vec<_>) =
            examples.into_iter().zip(chosen).partition(|(_, held)| *held);
        let examples =
            |pairs: Vec<(Example, bool)>| pairs.into_iter().map(|(one, _)| one).collect();
        (examples(training), examples(held_out))
    }
}
