//! The lines of a file, parsed by several threads, with results in the order of the file.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use serde::de::IgnoredAny;
use sha2::{Digest, Sha256};

use super::DataError;
use crate::error::{Error, Result};

/// Limits of a file of examples. They bound the memory that reading takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JsonlLimits {
    /// Maximum bytes of a line.
    pub line: usize,
    /// Maximum lines. Each takes about 100 bytes of memory besides its tokens.
    pub lines: usize,
    /// Maximum tokens of all examples. Each takes up to 9 bytes of memory.
    pub tokens: usize,
}

impl JsonlLimits {
    /// Limits of [`read_jsonl`].
    pub const MAXIMUM: Self = Self { line: 64 << 20, lines: 1 << 25, tokens: 1 << 30 };
    /// Limits with a [`TokenCache`](super::TokenCache), which takes the tokens; a line takes about
    /// 40 bytes of memory.
    pub const WITH_CACHE: Self = Self { lines: 1 << 31, tokens: 1 << 40, ..Self::MAXIMUM };
}

/// Bytes of lines that a thread parses at a time, unless one line has more.
const CHUNK: usize = 64 << 10;
/// Chunks that may be parsed before an earlier one, for each thread.
const AHEAD: usize = 4;
/// Maximum threads.
const THREADS: usize = 32;

/// A file that is read line by line.
pub(super) struct Lines<'a> {
    reader: BufReader<Hashed>,
    path: &'a Path,
    limits: JsonlLimits,
    /// The number of the current line, counted from 1.
    number: usize,
    /// Bytes read so far.
    done: usize,
    /// Whether a line that is not empty was read.
    started: bool,
}

/// A file whose content is hashed while it is read.
struct Hashed {
    file: File,
    hash: Sha256,
}

impl Read for Hashed {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        let len = self.file.read(bytes)?;
        self.hash.update(&bytes[..len]);
        Ok(len)
    }
}

/// What a chunk of lines became.
pub(super) struct Chunk<T> {
    /// The number of each line that is not empty, and its result.
    pub(super) lines: Vec<(usize, Result<T, String>)>,
    /// Bytes of the file up to the end of the chunk.
    pub(super) done: usize,
    /// Why nothing after these lines can be used.
    pub(super) failure: Option<Error>,
}

/// Parses lines on one thread. The inner error is the reason why a line cannot be used; the outer
/// error concerns all lines.
pub(super) trait ParseLines: Send {
    type Line: Send;

    fn parse(&mut self, line: &[u8]) -> Result<Result<Self::Line, String>>;
}

impl<'a> Lines<'a> {
    /// Opens a file of at most `limits`.
    pub(super) fn open(path: &'a Path, limits: JsonlLimits) -> Result<Self, DataError> {
        let file = File::open(path).map_err(DataError::read(path))?;
        let reader = BufReader::with_capacity(CHUNK, Hashed { file, hash: Sha256::new() });
        Ok(Self { reader, path, limits, number: 0, done: 0, started: false })
    }

    /// The size of the file.
    pub(super) fn bytes(&self) -> usize {
        self.reader.get_ref().file.metadata().map_or(0, |file| file.len()) as usize
    }

    /// Parses all lines by `parser` and its copies in other threads. `take` takes the chunks in
    /// order and ends the reading by an error. Returns the parsers and SHA-256 of the file.
    pub(super) fn parse<P: ParseLines>(
        self,
        parser: impl Fn() -> P,
        take: &mut dyn FnMut(Chunk<P::Line>) -> Result<()>,
    ) -> Result<(Vec<P>, [u8; 32])> {
        let chunks = self.bytes().div_ceil(CHUNK).max(1);
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let threads = cores.min(THREADS).min(chunks);
        let queue = Queue::new(self, AHEAD * threads);
        let parsers = thread::scope(|scope| {
            let (sender, receiver) = channel();
            let workers: Vec<_> = (0..threads)
                .map(|_| {
                    let (queue, sender, parser) = (&queue, sender.clone(), parser());
                    scope.spawn(move || work(queue, parser, &sender))
                })
                .collect();
            drop(sender);
            let _stop = StopAtEnd(&queue);
            let (mut next, mut waiting) = (0, BTreeMap::new());
            for (number, chunk) in receiver {
                waiting.insert(number, chunk);
                while let Some(chunk) = waiting.remove(&next) {
                    next += 1;
                    queue.finish(next);
                    take(chunk)?;
                }
            }
            let join = |worker: thread::ScopedJoinHandle<'_, P>| {
                worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            Ok::<_, Error>(workers.into_iter().map(join).collect())
        })?;
        let lines = queue.state.into_inner().unwrap_or_else(PoisonError::into_inner).lines;
        Ok((parsers, lines.reader.into_inner().hash.finalize().into()))
    }

    /// Reads the next lines. Returns false after the last.
    fn chunk(&mut self, text: &mut Text) -> bool {
        text.bytes.clear();
        text.lines.clear();
        while text.bytes.len() < CHUNK {
            let start = text.bytes.len();
            match self.next(&mut text.bytes) {
                Ok(true) => text.lines.push((self.number, start..text.bytes.len())),
                Ok(false) => break,
                Err(error) => {
                    text.failure = Some(error);
                    break;
                }
            }
        }
        text.done = self.done;
        text.failure.is_some() || !text.lines.is_empty()
    }

    /// Appends the next line without a byte order mark. Returns false after the last.
    fn next(&mut self, text: &mut Vec<u8>) -> Result<bool, DataError> {
        let (limit, start) = (self.limits.line, text.len());
        let read = self.reader.by_ref().take(limit as u64 + 1).read_until(b'\n', text);
        self.done += read.map_err(DataError::read(self.path))?;
        self.number += 1;
        let line = &text[start..];
        if line.len() > limit {
            let (path, number) = (self.path.to_owned(), self.number);
            return Err(match line.trim_ascii_start().starts_with(b"[") {
                true if number == 1 => DataError::Array { path },
                _ => DataError::LongLine { path, line: number, limit },
            });
        }
        let (more, mark) = (!line.is_empty(), line.starts_with(b"\xef\xbb\xbf"));
        if more && self.number > self.limits.lines {
            let (path, limit, what) = (self.path.to_owned(), self.limits.lines, "lines");
            return Err(DataError::TooLarge { path, line: self.number, limit, what });
        }
        if self.number == 1 && mark {
            text.drain(start..start + 3);
        }
        self.require_lines(&text[start..])?;
        Ok(more)
    }

    /// Requires that the file is not one array: the first line begins an array that continues on
    /// other lines, or is a whole array without other lines.
    fn require_lines(&mut self, line: &[u8]) -> Result<(), DataError> {
        let first = line.trim_ascii();
        if self.started || first.is_empty() {
            return Ok(());
        }
        self.started = true;
        if first.starts_with(b"[") {
            let ended = self.reader.fill_buf().map_err(DataError::read(self.path))?.is_empty();
            let whole = serde_json::from_slice::<IgnoredAny>(first).is_ok();
            if whole == ended {
                return Err(DataError::Array { path: self.path.to_owned() });
            }
        }
        Ok(())
    }
}

/// Lines of text.
#[derive(Default)]
struct Text {
    bytes: Vec<u8>,
    lines: Vec<(usize, std::ops::Range<usize>)>,
    done: usize,
    failure: Option<DataError>,
}

/// The lines that no thread has taken yet.
struct Queue<'a> {
    state: Mutex<State<'a>>,
    /// A chunk was finished, or the threads shall end.
    changed: Condvar,
    ahead: usize,
}

struct State<'a> {
    lines: Lines<'a>,
    /// Chunks that were taken.
    taken: usize,
    /// Chunks whose results were used.
    finished: usize,
    stopped: bool,
}

impl<'a> Queue<'a> {
    fn new(lines: Lines<'a>, ahead: usize) -> Self {
        let state = State { lines, taken: 0, finished: 0, stopped: false };
        Self { state: Mutex::new(state), changed: Condvar::new(), ahead }
    }

    fn lock(&self) -> MutexGuard<'_, State<'a>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the next lines and returns their number, unless the threads shall end.
    fn take(&self, text: &mut Text) -> Option<usize> {
        let full =
            |state: &mut State<'_>| !state.stopped && state.taken >= state.finished + self.ahead;
        let state = self.changed.wait_while(self.lock(), full);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        if state.stopped || !state.lines.chunk(text) {
            return None;
        }
        // Nothing follows a failure.
        state.stopped = text.failure.is_some();
        state.taken += 1;
        Some(state.taken - 1)
    }

    fn finish(&self, finished: usize) {
        self.lock().finished = finished;
        self.changed.notify_all();
    }
}

/// Ends all threads of a queue when it is dropped.
struct StopAtEnd<'q, 'a>(&'q Queue<'a>);

impl Drop for StopAtEnd<'_, '_> {
    fn drop(&mut self) {
        self.0.lock().stopped = true;
        self.0.changed.notify_all();
    }
}

/// Parses lines until there are no more.
fn work<P: ParseLines>(
    queue: &Queue<'_>,
    mut parser: P,
    sender: &Sender<(usize, Chunk<P::Line>)>,
) -> P {
    let mut text = Text::default();
    while let Some(number) = queue.take(&mut text) {
        // Without the results of a thread that panics, others would wait.
        let stop = StopAtEnd(queue);
        let chunk = parsed(&mut parser, &mut text);
        std::mem::forget(stop);
        if sender.send((number, chunk)).is_err() {
            break;
        }
    }
    parser
}

fn parsed<P: ParseLines>(parser: &mut P, text: &mut Text) -> Chunk<P::Line> {
    let failure = text.failure.take().map(Error::from);
    let mut chunk = Chunk { lines: Vec::new(), done: text.done, failure };
    for (number, range) in &text.lines {
        let line = text.bytes[range.clone()].trim_ascii();
        if line.is_empty() {
            continue;
        }
        match parser.parse(line) {
            Ok(result) => chunk.lines.push((*number, result)),
            Err(error) => {
                chunk.failure = Some(error);
                break;
            }
        }
    }
    chunk
}
