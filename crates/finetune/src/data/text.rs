//! One text as tokens. Each step takes windows of it.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::batch::{Batch, require_known, tokens_in};
use super::corpus::{Corpus, CorpusWriter};
use super::order::{EpochOrder, below, generator};
use super::{IGNORED_TARGET, Progress};
use crate::digest::{FileDigest, digest_of_words, hex};
use crate::error::{Error, Result, named};
use crate::tokenizer::Tokenizer;

/// Purpose of the random numbers that place the windows of an epoch.
const WINDOWS: u64 = 0x6261_7463_6865_7300;
/// Purpose of the random numbers that order the windows.
const ORDER: u64 = 0x7769_6e64_6f77_7300;

/// Maximum tokens of a text. They take 4 GiB of memory.
pub const MAX_TEXT_TOKENS: usize = 1 << 30;

/// Bytes per read.
const PART: usize = 64 << 10;

/// A text as tokens.
#[derive(Clone, Debug)]
pub struct TextData {
    corpus: Arc<Corpus>,
    /// The file, if it is from one.
    path: Option<Arc<Path>>,
    /// The tokens of the text in the corpus.
    range: Range<usize>,
    fingerprint: String,
    order: EpochOrder,
}

impl TextData {
    /// Reads a file or a pipe of at most [`MAX_TEXT_TOKENS`] tokens.
    ///
    /// # Errors
    /// [`Error::ReadText`] if it cannot be read, [`Error::TextTooLong`] if it exceeds the limit,
    /// and the errors of [`Tokenizer::encode`].
    pub fn read(path: &Path, tokenizer: &Tokenizer) -> Result<Self> {
        let file = File::open(path).map_err(failed(path))?;
        // Pipes and devices have no length.
        let bytes = file.metadata().map_or(0, |found| found.len());
        if tokenizer.is_bytes() && bytes > MAX_TEXT_TOKENS as u64 {
            return Err(too_long(path, bytes, MAX_TEXT_TOKENS));
        }
        Self::read_within(MAX_TEXT_TOKENS, path, file, tokenizer)
    }

    /// Reads to the end. Fails if there are more than `limit` tokens.
    fn read_within(
        limit: usize,
        path: &Path,
        reader: impl Read,
        tokenizer: &Tokenizer,
    ) -> Result<Self> {
        let mut tokens = Vec::new();
        let mut take = |part: Vec<u32>| {
            tokens.extend(part);
            Ok(())
        };
        encode(limit, path, reader, tokenizer, &mut take)?;
        Ok(Self { path: Some(path.into()), ..Self::from_tokens(tokens) })
    }

    /// Returns a text whose tokens are bytes.
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        Self::from_tokens(bytes.into_iter().map(u32::from).collect())
    }

    /// Returns a text of the given tokens.
    pub fn from_tokens(tokens: Vec<u32>) -> Self {
        let mut writer = CorpusWriter::in_memory();
        writer.push(&tokens).expect("memory takes all words");
        Self::of(Arc::new(writer.into_memory()), None)
    }

    /// Returns the text whose tokens are the words of `corpus`, from the file `path`.
    pub(super) fn of(corpus: Arc<Corpus>, path: Option<&Path>) -> Self {
        let (range, fingerprint) = (0..corpus.words().len(), hex(corpus.digest()));
        let (path, order) = (path.map(Arc::from), EpochOrder::new(ORDER));
        Self { corpus, path, range, fingerprint, order }
    }

    fn tokens(&self) -> &[u32] {
        &self.corpus.words()[self.range.clone()]
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Whether there are no tokens.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// SHA-256 of the tokens as little-endian 32-bit words, in hexadecimal.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Returns the first tokens, at most `len`.
    pub fn first(&self, len: usize) -> Vec<u32> {
        self.tokens()[..len.min(self.len())].to_vec()
    }

    /// Splits off the last `len` tokens.
    pub(super) fn split_off(self, len: usize) -> (Self, Self) {
        let middle = self.range.end - len.min(self.len());
        let part = |range: Range<usize>| {
            let corpus = Arc::clone(&self.corpus);
            let fingerprint = digest_of_words([&corpus.words()[range.clone()]]);
            let (path, order) = (self.path.clone(), EpochOrder::new(ORDER));
            Self { corpus, path, range, fingerprint, order }
        };
        (part(self.range.start..middle), part(middle..self.range.end))
    }

    /// Checks that the text has a sequence of `seq` tokens and its last target.
    ///
    /// # Errors
    /// [`Error::TextTooShort`] if it is shorter.
    pub fn require(&self, seq: usize) -> Result<()> {
        if self.len() > seq {
            return Ok(());
        }
        let path = self.path.as_deref().map(Path::to_owned);
        let needed = seq.saturating_add(1);
        Err(Error::TextTooShort { path, tokens: self.len(), seq, needed })
    }

    /// Checks that all tokens are in a vocabulary of `vocab` tokens.
    ///
    /// # Errors
    /// [`DataError::OutsideVocabulary`](super::DataError::OutsideVocabulary) with the first one
    /// that is not.
    pub fn require_vocab(&self, vocab: usize) -> Result<()> {
        if self.corpus.is_within(vocab) {
            return Ok(());
        }
        let part = || format!("the text{}", named(self.path.as_deref()));
        require_known(self.tokens(), vocab, part)
    }

    /// Returns the number of whole windows of `seq` tokens: the sequences of an epoch.
    pub fn sequences(&self, seq: usize) -> usize {
        self.len().saturating_sub(1) / seq.max(1)
    }

    /// Returns the batch of `step`, counted from 0. An epoch has each whole window of the text
    /// once, in an order that depends on `seed` and the epoch. Windows of an epoch are consecutive;
    /// the offset of the first also depends on `seed` and the epoch, so that all tokens have loss
    /// over time.
    ///
    /// # Errors
    /// [`Error::TextTooShort`] if the text is shorter than a sequence, and
    /// [`DataError::Shape`](super::DataError::Shape).
    pub fn batch(&self, [batch, seq]: [usize; 2], seed: u64, step: u32) -> Result<Batch> {
        let rows = tokens_in([batch, seq])?;
        self.require(seq)?;
        self.corpus.require_length()?;
        let windows = self.sequences(seq);
        let slack = self.len() - 1 - windows * seq;
        let mut tokens = Vec::with_capacity(rows);
        let mut targets = Vec::with_capacity(rows);
        let first = u64::from(step) * batch as u64;
        for number in first..first + batch as u64 {
            let (epoch, at) = (number / windows as u64, (number % windows as u64) as usize);
            let offset = below(&mut generator(seed, WINDOWS, epoch), slack + 1);
            let place = self.order.place(seed, epoch, at, windows);
            let start = offset + place * seq;
            let window = &self.tokens()[start..][..seq + 1];
            tokens.extend_from_slice(&window[..seq]);
            targets.extend_from_slice(&window[1..]);
        }
        Ok(Batch { tokens, targets, positions: None })
    }

    /// Returns batch `index` of consecutive windows. The last one is padded. `None` after the end.
    ///
    /// # Errors
    /// [`Error::TextTooShort`] for a text of fewer than two tokens, and
    /// [`DataError::Shape`](super::DataError::Shape).
    pub fn in_order(&self, shape: [usize; 2], index: usize) -> Result<Option<Batch>> {
        self.require(1)?;
        self.corpus.require_length()?;
        // Consecutive windows make one piece of text per batch.
        let (rows, predicted) = (tokens_in(shape)?, self.len() - 1);
        let start = index.checked_mul(rows).filter(|start| *start < predicted);
        let Some(start) = start else { return Ok(None) };
        let end = predicted.min(start + rows);
        let piece = |from: usize, to: usize, padding: u32| {
            let mut tokens = self.tokens()[from..to].to_vec();
            tokens.resize(rows, padding);
            tokens
        };
        let (tokens, targets) = (piece(start, end, 0), piece(start + 1, end + 1, IGNORED_TARGET));
        Ok(Some(Batch { tokens, targets, positions: None }))
    }
}

/// Encodes a text. `take` receives its tokens in order, in chunks. Fails if there are more than
/// `limit`.
pub(super) fn encode(
    limit: usize,
    path: &Path,
    mut reader: impl Read,
    tokenizer: &Tokenizer,
    take: Take<'_>,
) -> Result<()> {
    let (mut encoder, mut part) = (tokenizer.encoder(), vec![0; PART]);
    let (mut bytes, mut taken) = (0, 0);
    let unusable = |source| Error::EncodeText { path: path.to_owned(), source: Box::new(source) };
    while taken + encoder.tokens() <= limit {
        match reader.read(&mut part) {
            Ok(0) => return take(encoder.finish().map_err(unusable)?),
            Ok(len) => {
                bytes += len as u64;
                encoder.push(&part[..len]).map_err(unusable)?;
                if encoder.tokens() >= PART {
                    let complete = encoder.take();
                    taken += complete.len();
                    take(complete)?;
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => (),
            Err(source) => return Err(failed(path)(source)),
        }
    }
    Err(too_long(path, bytes, limit))
}

/// Passes the tokens of a file to `take`, without a limit. Returns SHA-256 of the file.
///
/// # Errors
/// As [`TextData::read`].
pub(super) fn tokens_of(
    path: &Path,
    tokenizer: &Tokenizer,
    take: Take<'_>,
    on: Progress<'_>,
) -> Result<FileDigest> {
    let file = File::open(path).map_err(failed(path))?;
    let bytes = file.metadata().map_or(0, |found| found.len()) as usize;
    let (mut hash, mut done) = (Sha256::new(), 0);
    let reader = Seen { file, hash: &mut hash, done: &mut done, on: &mut |done| on(done, bytes) };
    encode(usize::MAX, path, reader, tokenizer, take)?;
    Ok(FileDigest::Known(hash.finalize().into()))
}

/// A file that is hashed and counted while it is read.
struct Seen<'a> {
    file: File,
    hash: &'a mut Sha256,
    done: &'a mut usize,
    on: &'a mut dyn FnMut(usize),
}

impl Read for Seen<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        let len = self.file.read(bytes)?;
        self.hash.update(&bytes[..len]);
        *self.done += len;
        (self.on)(*self.done);
        Ok(len)
    }
}

/// Receives the next tokens of a text.
pub(super) type Take<'a> = &'a mut dyn FnMut(Vec<u32>) -> Result<()>;

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = PathBuf::from(path);
    move |source| Error::ReadText { path, source }
}

fn too_long(path: &Path, bytes: u64, limit: usize) -> Error {
    Error::TextTooLong { path: PathBuf::from(path), bytes, limit }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::DataError;

    #[test]
    fn an_endless_text_is_refused() {
        let (path, endless) = ("pipe".as_ref(), std::io::repeat(b'a'));
        let error = TextData::read_within(1 << 20, path, endless, &Tokenizer::bytes()).unwrap_err();
        assert!(
            matches!(error, Error::TextTooLong { bytes: 1_048_576..2_000_000, .. }),
            "{error:?}"
        );
        let (path, whole) = ("file".as_ref(), b"four".as_slice());
        assert_eq!(TextData::read_within(4, path, whole, &Tokenizer::bytes()).unwrap().len(), 4);
    }

    fn data(len: usize) -> TextData {
        TextData::from_bytes((0..len).map(|i| (i % 251) as u8).collect())
    }

    #[test]
    fn targets_are_the_tokens_shifted_by_one() {
        let batch = data(1000).batch([3, 16], 1, 0).unwrap();
        for (tokens, targets) in batch.tokens.chunks(16).zip(batch.targets.chunks(16)) {
            assert_eq!(tokens[1..], targets[..15]);
        }
        assert_eq!(batch.counted(), 48);
    }

    #[test]
    fn an_epoch_has_each_window_once_in_its_own_order() {
        // Five windows of 16 and four tokens more.
        let text = data(85);
        assert_eq!(text.sequences(16), 5);
        let epoch = |epoch: u32| {
            let steps = (5 * epoch..5 * epoch + 5).map(|step| text.batch([1, 16], 7, step));
            steps.map(|batch| batch.unwrap().tokens).collect::<Vec<_>>()
        };
        let mut orders = std::collections::BTreeSet::new();
        let mut offsets = std::collections::BTreeSet::new();
        for number in 0..20 {
            let windows = epoch(number);
            let starts: Vec<u32> = windows.iter().map(|window| window[0]).collect();
            let mut sorted = starts.clone();
            sorted.sort_unstable();
            let first = sorted[0];
            assert!(sorted.iter().enumerate().all(|(at, start)| *start == first + 16 * at as u32));
            offsets.insert(first);
            orders.insert(starts.iter().map(|start| start - first).collect::<Vec<_>>());
        }
        assert!(offsets.into_iter().eq(0..5), "all tokens have loss");
        assert!(orders.len() > 10, "{orders:?}");
        // A batch of two epochs has the end of one and the start of the next.
        let batch = text.batch([3, 16], 7, 1).unwrap();
        let ends = [epoch(0)[3..].concat(), epoch(1)[0].clone()].concat();
        assert_eq!(batch.tokens, ends);
    }

    #[test]
    fn a_batch_depends_only_on_seed_and_step() {
        let data = data(5000);
        let at = |seed, step| data.batch([2, 32], seed, step).unwrap();
        assert_eq!(at(1, 5), at(1, 5));
        assert_ne!(at(1, 5), at(1, 6));
        assert_ne!(at(1, 5), at(2, 5));
    }

    #[test]
    fn the_shortest_text_has_one_window_and_a_shorter_one_is_an_error() {
        let batch = data(17).batch([4, 16], 9, 3).unwrap();
        assert!(batch.tokens.chunks(16).all(|row| row[0] == 0));
        let error = data(16).batch([4, 16], 9, 3).unwrap_err();
        assert!(matches!(error, Error::TextTooShort { tokens: 16, needed: 17, .. }));
    }

    #[test]
    fn in_order_every_token_except_the_first_is_a_target_once() {
        let text = data(24);
        let mut targets = Vec::new();
        for index in 0.. {
            let Some(batch) = text.in_order([2, 5], index).unwrap() else { break };
            assert_eq!((batch.tokens.len(), batch.targets.len()), (10, 10));
            targets.extend(batch.targets.into_iter().filter(|target| *target != IGNORED_TARGET));
        }
        assert!(targets.into_iter().eq(1..24));
        assert!(matches!(data(1).in_order([1, 1], 0), Err(Error::TextTooShort { .. })));
    }

    #[test]
    fn a_batch_without_tokens_or_with_too_many_is_refused() {
        let text = data(24);
        for shape in [[0, 8], [2, 0], [usize::MAX, 8], [2, usize::MAX], [1 << 31, 2]] {
            let [batch, in_order] =
                [text.batch(shape, 0, 0).map(Some), text.in_order(shape, usize::MAX)];
            for found in [batch, in_order] {
                let error = found.unwrap_err();
                let Error::Data(DataError::Shape { batch, seq }) = error else { panic!("{error}") };
                assert_eq!([batch, seq], shape);
            }
        }
        assert_eq!(text.in_order([2, 8], usize::MAX).unwrap(), None);
        let error = text.require(usize::MAX).unwrap_err();
        assert!(matches!(error, Error::TextTooShort { tokens: 24, .. }), "{error}");
    }
}
