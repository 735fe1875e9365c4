//! The lines of a file of JSON Lines.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use serde::de::IgnoredAny;
use sha2::{Digest, Sha256};

use super::DataError;
use super::parallel::{CHUNK, LineSource, Text};
use crate::digest::FileDigest;

/// Limits of a file of examples, which bound the memory for reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JsonlLimits {
    /// Maximum bytes of a line.
    pub line: usize,
    /// Maximum lines. Each takes about 100 bytes of memory in addition to its tokens.
    pub lines: usize,
    /// Maximum tokens of all examples. Each takes up to 9 bytes of memory.
    pub tokens: usize,
}

impl JsonlLimits {
    /// Limits of [`read_jsonl`](super::read_jsonl).
    pub const MAXIMUM: Self = Self { line: 64 << 20, lines: 1 << 25, tokens: 1 << 30 };
    /// Limits with a [`TokenCache`](super::TokenCache), which stores the tokens; a line takes about
    /// 40 bytes of memory.
    pub const WITH_CACHE: Self = Self { lines: 1 << 31, tokens: 1 << 40, ..Self::MAXIMUM };
}

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

impl<'a> Lines<'a> {
    /// Reads `file`, which is at `path`, within `limits`.
    pub(super) fn new(path: &'a Path, file: File, limits: JsonlLimits) -> Self {
        let reader = BufReader::with_capacity(CHUNK, Hashed { file, hash: Sha256::new() });
        Self { reader, path, limits, number: 0, done: 0, started: false }
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

    /// Fails if the file is one array: its first line begins an array that continues on other
    /// lines, or is a complete array without other lines.
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

impl LineSource for Lines<'_> {
    fn bytes(&self) -> usize {
        self.reader.get_ref().file.metadata().map_or(0, |file| file.len()) as usize
    }

    fn chunk(&mut self, text: &mut Text) -> bool {
        let more = text.fill(|bytes| Ok(self.next(bytes)?.then_some(self.number)));
        text.done = self.done;
        more
    }

    fn digest(self: Box<Self>) -> FileDigest {
        FileDigest::Known(self.reader.into_inner().hash.finalize().into())
    }
}
