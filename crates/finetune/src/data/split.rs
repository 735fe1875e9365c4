//! Reading data, and splitting it into training data and held-out data.

use std::path::Path;

use super::order::{generator, shuffled};
use super::{
    Data, DataError, Examples, Layout, Lengths, Progress, TextData, read_jsonl, read_preferences,
};
use crate::error::Result;
use crate::tokenizer::Tokenizer;

/// Purpose of the random numbers that choose held-out examples.
const HOLDOUT: u64 = 0x686f_6c64_6f75_7400;

/// Options of reading and splitting data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SplitOptions {
    /// Tokens of a sequence, and the lengths to which the sequences of a step are padded.
    pub lengths: Lengths,
    /// Whether examples are packed; by default they are, unless sequences have several lengths.
    pub packing: Option<bool>,
    /// The held-out fraction: at least 0 and below 1.
    pub holdout: f64,
    /// The seed of the choice of held-out examples.
    pub seed: u64,
}

/// Data in two parts.
#[derive(Debug)]
pub struct Split {
    /// Training data.
    pub training: Data,
    /// Held-out data, if there is any.
    pub held_out: Option<Data>,
}

impl SplitOptions {
    /// Reads one text. Its last part is held out.
    ///
    /// # Errors
    /// The errors of [`TextData::read`]; [`DataError::Holdout`].
    pub fn text(&self, path: &Path, tokenizer: &Tokenizer) -> Result<Split> {
        let text = TextData::read(path, tokenizer)?;
        // The first token is not predicted.
        let Some(len) = self.held(text.len(), ("tokens", 2))? else {
            return Ok(Split { training: text.into(), held_out: None });
        };
        let (training, held_out) = text.split_off(len);
        Ok(Split { training: training.into(), held_out: Some(held_out.into()) })
    }

    /// Reads examples from JSON Lines. The seed chooses the held-out ones.
    ///
    /// # Errors
    /// The errors of [`read_jsonl`] and [`Examples::new`]; [`DataError::Holdout`].
    pub fn jsonl(&self, path: &Path, tokenizer: &Tokenizer, on: Progress<'_>) -> Result<Split> {
        let (examples, _) = read_jsonl(path, tokenizer, on)?;
        let packing = self.packing.unwrap_or(self.lengths.all().count() == 1);
        let layout = Layout { lengths: self.lengths, packing, pad: tokenizer.pad() };
        let lay_out = |examples| Examples::new(examples, layout).map(Data::from);
        let Some(held) = self.held(examples.len(), ("examples", 1))? else {
            return Ok(Split { training: lay_out(examples)?, held_out: None });
        };
        let (training, held_out) = self.choose(examples, held);
        Ok(Split { training: lay_out(training)?, held_out: Some(lay_out(held_out)?) })
    }

    /// Reads preferences from JSON Lines as pairs of padded sequences. The seed chooses the
    /// held-out pairs.
    ///
    /// # Errors
    /// The errors of [`read_preferences`] and [`Examples::pairs`]; [`DataError::Holdout`].
    pub fn preferences(
        &self,
        path: &Path,
        tokenizer: &Tokenizer,
        on: Progress<'_>,
    ) -> Result<Split> {
        let pairs = read_preferences(path, tokenizer, on)?;
        let layout = Layout { lengths: self.lengths, packing: false, pad: tokenizer.pad() };
        let lay_out = |pairs| Examples::pairs(pairs, layout).map(Data::from);
        let Some(held) = self.held(pairs.len(), ("pairs", 1))? else {
            return Ok(Split { training: lay_out(pairs)?, held_out: None });
        };
        let (training, held_out) = self.choose(pairs, held);
        Ok(Split { training: lay_out(training)?, held_out: Some(lay_out(held_out)?) })
    }

    /// Returns how many of `all` are held out; `None` for a fraction of 0.
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

    /// Splits the examples into training and held-out ones, both in their order.
    fn choose<T>(&self, examples: Vec<T>, held: usize) -> (Vec<T>, Vec<T>) {
        let order = shuffled(generator(self.seed, HOLDOUT, 0), examples.len());
        let mut chosen = vec![false; examples.len()];
        order[..held].iter().for_each(|&index| chosen[index] = true);
        let (held_out, training): (Vec<_>, Vec<_>) =
            examples.into_iter().zip(chosen).partition(|(_, held)| *held);
        let examples = |pairs: Vec<(T, bool)>| pairs.into_iter().map(|(one, _)| one).collect();
        (examples(training), examples(held_out))
    }
}
