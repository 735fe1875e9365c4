//! Parsing of lines in several threads, with results in file order.

use std::collections::BTreeMap;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::DataError;
use crate::digest::FileDigest;
use crate::error::{Error, Result};

/// Bytes of lines that a thread parses at a time, unless a single line is longer.
pub(super) const CHUNK: usize = 64 << 10;
/// Number of chunks per thread that may be parsed before an earlier chunk is finished.
const AHEAD: usize = 4;
/// Maximum threads.
const THREADS: usize = 32;

/// A file that is read as lines, in order.
pub(super) trait LineSource: Send {
    /// The size of the file.
    fn bytes(&self) -> usize;

    /// Reads the next lines, about [`CHUNK`] bytes. Returns false after the last.
    fn chunk(&mut self, text: &mut Text) -> bool;

    /// Returns SHA-256 of the file. Call it after the last chunk.
    fn digest(self: Box<Self>) -> FileDigest;
}

/// Lines of text.
#[derive(Default)]
pub(super) struct Text {
    pub(super) bytes: Vec<u8>,
    /// The number and the range of each line.
    pub(super) lines: Vec<(usize, std::ops::Range<usize>)>,
    /// Bytes of the file up to the last line.
    pub(super) done: usize,
    /// Why nothing can be read after these lines.
    pub(super) failure: Option<DataError>,
}

impl Text {
    /// Replaces all lines by about [`CHUNK`] bytes of lines from `next`, which appends one line and
    /// returns its number, or `None` after the last. Returns false if there is nothing more.
    pub(super) fn fill(
        &mut self,
        mut next: impl FnMut(&mut Vec<u8>) -> Result<Option<usize>, DataError>,
    ) -> bool {
        self.bytes.clear();
        self.lines.clear();
        self.failure = None;
        while self.bytes.len() < CHUNK {
            let start = self.bytes.len();
            match next(&mut self.bytes) {
                Ok(Some(number)) => self.lines.push((number, start..self.bytes.len())),
                Ok(None) => break,
                Err(error) => {
                    self.failure = Some(error);
                    break;
                }
            }
        }
        self.failure.is_some() || !self.lines.is_empty()
    }
}

/// The results of a chunk of lines.
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

    /// The fields of the lines that can be used, for errors.
    const FORMS: &'static str;

    fn parse(&mut self, line: &[u8]) -> Result<Result<Self::Line, String>>;
}

/// Parses all lines of `source` with `parser` and its copies in other threads. `take` receives the
/// chunks in order; its error ends the reading. Also returns the parsers.
pub(super) fn parse<P: ParseLines>(
    source: Box<dyn LineSource + '_>,
    parser: impl Fn() -> P,
    take: &mut dyn FnMut(Chunk<P::Line>) -> Result<()>,
) -> Result<(Vec<P>, FileDigest)> {
    let chunks = source.bytes().div_ceil(CHUNK).max(1);
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let threads = cores.min(THREADS).min(chunks);
    let queue = Queue::new(source, AHEAD * threads);
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
    let state = queue.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok((parsers, state.source.digest()))
}

/// The lines that no thread has taken yet.
struct Queue<'a> {
    state: Mutex<State<'a>>,
    /// Notified when a chunk was finished or the threads must end.
    changed: Condvar,
    ahead: usize,
}

struct State<'a> {
    source: Box<dyn LineSource + 'a>,
    /// Chunks that were taken.
    taken: usize,
    /// Chunks whose results were used.
    finished: usize,
    stopped: bool,
}

impl<'a> Queue<'a> {
    fn new(source: Box<dyn LineSource + 'a>, ahead: usize) -> Self {
        let state = State { source, taken: 0, finished: 0, stopped: false };
        Self { state: Mutex::new(state), changed: Condvar::new(), ahead }
    }

    fn lock(&self) -> MutexGuard<'_, State<'a>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the next chunk and returns its number, unless the threads must end.
    fn take(&self, text: &mut Text) -> Option<usize> {
        let full =
            |state: &mut State<'_>| !state.stopped && state.taken >= state.finished + self.ahead;
        let state = self.changed.wait_while(self.lock(), full);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        if state.stopped || !state.source.chunk(text) {
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
        // Also stops the queue if this thread panics; other threads would wait for its results.
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
