//! Reading data, and splitting it into training data and held-out data.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::corpus::{Corpus, CorpusWriter};
use super::order::{generator, shuffled};
use super::token_cache::{self, Build, CacheUse, Form, TokenCache};
use super::{
    Data, DataError, Example, Examples, JsonlLimits, Layout, Lengths, Progress, TextData, jsonl,
    text,
};
use crate::error::Result;
use crate::tokenizer::Tokenizer;

/// Purpose of the random numbers that choose held-out examples.
const HOLDOUT: u64 = 0x686f_6c64_6f75_7400;

/// Options of reading and splitting data.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct SplitOptions {
    /// Tokens per sequence, and the lengths to which the sequences of a step are padded.
    pub lengths: Lengths,
    /// Whether examples are packed; by default, unless there are several lengths.
    pub packing: Option<bool>,
    /// The held-out fraction: at least 0 and below 1.
    pub holdout: f64,
    /// The seed that selects held-out examples.
    pub seed: u64,
}

/// Training data and held-out data.
#[derive(Debug)]
pub struct Split {
    /// Training data.
    pub training: Data,
    /// Held-out data, if there is any.
    pub held_out: Option<Data>,
    /// The file of the tokens, if they are in a cache.
    pub cache: Option<CacheUse>,
}

/// A file of data, and how it is read.
#[derive(Clone, Copy, Debug)]
pub struct DataFile<'a> {
    /// The file.
    pub path: &'a Path,
    /// Converts text to tokens.
    pub tokenizer: &'a Tokenizer,
    /// Stores the tokens, which then need not fit in memory. The path must then name a regular
    /// file.
    pub cache: Option<&'a TokenCache>,
}

impl<'a> DataFile<'a> {
    /// Returns a file whose tokens are in memory.
    pub fn new(path: &'a Path, tokenizer: &'a Tokenizer) -> Self {
        Self { path, tokenizer, cache: None }
    }

    fn limits(&self) -> JsonlLimits {
        match self.cache {
            Some(_) => JsonlLimits::WITH_CACHE,
            None => JsonlLimits::MAXIMUM,
        }
    }

    /// Returns the tokens of an earlier run from the cache, or else those that `build` writes.
    fn corpus(&self, form: Form, build: Build<'_>) -> Result<(Arc<Corpus>, Option<CacheUse>)> {
        if let Some(cache) = self.cache {
            let (corpus, used) = cache.corpus(self.path, self.tokenizer, form, build)?;
            return Ok((Arc::new(corpus), Some(used)));
        }
        let mut writer = CorpusWriter::in_memory();
        build(&mut writer)?;
        Ok((Arc::new(writer.into_memory()), None))
    }

    /// Returns the error of writing tokens.
    fn failed(&self) -> impl FnOnce(io::Error) -> DataError {
        token_cache::failed(self.cache.map_or(self.path, TokenCache::path))
    }
}

impl SplitOptions {
    /// Returns options that hold nothing out, with the default packing of `lengths`.
    pub fn new(lengths: Lengths) -> Self {
        Self { lengths, packing: None, holdout: 0.0, seed: 0 }
    }

    /// Reads one text. The end of the text is held out.
    ///
    /// # Errors
    /// The errors of [`TextData::read`]; [`DataError::Holdout`]; with a cache, [`DataError::Cache`]
    /// and [`DataError::Changed`].
    pub fn text(&self, file: DataFile<'_>, on: Progress<'_>) -> Result<Split> {
        let (text, cache) = match file.cache {
            None => (TextData::read(file.path, file.tokenizer)?, None),
            Some(_) => {
                let (corpus, used) = file.corpus(Form::Text, &mut |writer| {
                    let take =
                        &mut |tokens: Vec<u32>| Ok(writer.push(&tokens).map_err(file.failed())?);
                    text::tokens_of(file.path, file.tokenizer, take, on)
                })?;
                (TextData::of(corpus, Some(file.path)), used)
            }
        };
        // The first token is not predicted.
        let Some(len) = self.held(file.path, text.len(), "tokens", 2)? else {
            return Ok(Split { training: text.into(), held_out: None, cache });
        };
        let (training, held_out) = text.split_off(len);
        Ok(Split { training: training.into(), held_out: Some(held_out.into()), cache })
    }

    /// Reads examples from JSON Lines. The seed selects the held-out examples.
    ///
    /// # Errors
    /// The errors of [`read_jsonl`](super::read_jsonl) and [`Examples::new`];
    /// [`DataError::Holdout`]; with a cache, [`DataError::Cache`] and [`DataError::Changed`].
    pub fn jsonl(&self, file: DataFile<'_>, on: Progress<'_>) -> Result<Split> {
        let (corpus, cache) = file.corpus(Form::Examples, &mut |writer| {
            let take = &mut |example: Example| Ok(example.write(writer).map_err(file.failed())?);
            let (path, tokenizer) = (file.path, file.tokenizer);
            jsonl::examples_of(path, tokenizer, file.limits(), take, on).map(|(_, digest)| digest)
        })?;
        let packing = self.packing.unwrap_or(self.lengths.all().count() == 1);
        let layout = Layout { lengths: self.lengths, packing, pad: file.tokenizer.pad() };
        let part =
            |numbers: &[usize]| Examples::of(Arc::clone(&corpus), numbers, layout).map(Data::from);
        self.split(file.path, corpus.examples(), "examples", &part, cache)
    }

    /// Reads preferences from JSON Lines as pairs of padded sequences. The seed selects the
    /// held-out pairs.
    ///
    /// # Errors
    /// The errors of [`read_preferences`](super::read_preferences);
    /// [`DataError::NoTokensWithLoss`]; [`DataError::Holdout`]; with a cache, [`DataError::Cache`]
    /// and [`DataError::Changed`].
    pub fn preferences(&self, file: DataFile<'_>, on: Progress<'_>) -> Result<Split> {
        let (corpus, cache) = file.corpus(Form::Pairs, &mut |writer| {
            let take = &mut |pair: [Example; 2]| {
                let written = pair.iter().try_for_each(|example| example.write(writer));
                Ok(written.map_err(file.failed())?)
            };
            jsonl::pairs_of(file.path, file.tokenizer, file.limits(), take, on)
        })?;
        let layout = Layout { lengths: self.lengths, packing: false, pad: file.tokenizer.pad() };
        let part = |numbers: &[usize]| {
            Examples::of_pairs(Arc::clone(&corpus), numbers, layout).map(Data::from)
        };
        self.split(file.path, corpus.examples() / 2, "pairs", &part, cache)
    }

    /// Calls `part` with the training and the held-out examples of the file `path`.
    fn split(
        &self,
        path: &Path,
        all: usize,
        what: &'static str,
        part: &dyn Fn(&[usize]) -> Result<Data, DataError>,
        cache: Option<CacheUse>,
    ) -> Result<Split> {
        let part = |numbers: &[usize]| part(numbers).map_err(|error| error.of_file(path));
        let Some(held) = self.held(path, all, what, 1)? else {
            let training = part(&(0..all).collect::<Vec<_>>())?;
            return Ok(Split { training, held_out: None, cache });
        };
        let (training, held_out) = self.choose(all, held);
        Ok(Split { training: part(&training)?, held_out: Some(part(&held_out)?), cache })
    }

    /// Returns how many of the `all` tokens or examples of `path` are held out, at least `least`;
    /// `None` for a fraction of 0.
    fn held(
        &self,
        path: &Path,
        all: usize,
        what: &'static str,
        least: usize,
    ) -> Result<Option<usize>> {
        let fraction = self.holdout;
        if fraction == 0.0 {
            return Ok(None);
        }
        let held = ((all as f64 * fraction).round() as usize).max(least);
        if !(fraction > 0.0 && fraction < 1.0) || held + least > all {
            let path = path.to_owned();
            return Err(DataError::Holdout { path, fraction, all, what }.into());
        }
        Ok(Some(held))
    }

    /// Splits the numbers of examples into training and held-out ones, both ascending.
    fn choose(&self, all: usize, held: usize) -> (Vec<usize>, Vec<usize>) {
        let order = shuffled(generator(self.seed, HOLDOUT, 0), all);
        let mut chosen = vec![false; all];
        order[..held].iter().for_each(|&index| chosen[index] = true);
        (0..all).partition(|&index| !chosen[index])
    }
}
