//! Vector files: results of hardware in base64.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::inputs::{checksum, inputs};
use super::instance::Instance;
use crate::arena::word;

/// The recorded results of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Number of cases.
    pub cases: usize,
    /// The checksum of the inputs.
    pub inputs: u32,
    /// The results, little-endian, in base 64 without padding.
    pub results: String,
}

/// The vectors of one opcode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VectorFile {
    /// Driver, GPU and date.
    pub head: Vec<String>,
    /// By the name of the instance.
    pub vectors: BTreeMap<String, Recorded>,
}

impl VectorFile {
    /// Reads a file. Malformed lines are skipped.
    pub fn parse(text: &str) -> Self {
        let mut file = Self::default();
        for line in text.lines() {
            match line.strip_prefix("# ") {
                Some(head) => file.head.push(head.to_owned()),
                None => file.vectors.extend(entry(line)),
            }
        }
        file
    }

    /// The text of the file.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for line in &self.head {
            let _ = writeln!(text, "# {line}");
        }
        for (name, one) in &self.vectors {
            let _ = writeln!(text, "{name} {} {:08x} {}", one.cases, one.inputs, one.results);
        }
        text
    }
}

fn entry(line: &str) -> Option<(String, Recorded)> {
    let mut words = line.split(' ');
    let name = words.next()?.to_owned();
    let cases = words.next()?.parse().ok()?;
    let inputs = u32::from_str_radix(words.next()?, 16).ok()?;
    Some((name, Recorded { cases, inputs, results: words.next()?.to_owned() }))
}

impl Recorded {
    /// The results of an instance, as words, in the form of the file.
    pub fn of(instance: &Instance, words: &[u64]) -> Self {
        let mut bytes = Vec::new();
        for (word, of) in words.iter().zip(instance.results.iter().cycle()) {
            bytes.extend_from_slice(&word.to_le_bytes()[..Instance::width(*of)]);
        }
        let results = letters(&bytes);
        let inputs = checksum(&inputs(instance));
        Self { cases: instance.cases, inputs, results }
    }

    /// Whether this was recorded with the current inputs of the instance.
    pub fn is_of(&self, instance: &Instance) -> bool {
        self.cases == instance.cases && self.inputs == checksum(&inputs(instance))
    }

    /// The results as words, case by case.
    pub fn words(&self, instance: &Instance) -> Vec<u64> {
        let bytes = bytes(&self.results);
        let mut rest = bytes.as_slice();
        let mut words = Vec::new();
        for of in instance.results.iter().cycle() {
            let Some((first, others)) = rest.split_at_checked(Instance::width(*of)) else { break };
            words.push(word(first));
            rest = others;
        }
        words
    }
}

const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Encodes bytes in base64: three bytes as four letters.
fn letters(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let mut group = [0; 3];
        group[..chunk.len()].copy_from_slice(chunk);
        let group = u32::from_be_bytes([0, group[0], group[1], group[2]]);
        for at in 0..=chunk.len() as u32 {
            text.push(char::from(LETTERS[(group >> (18 - 6 * at) & 63) as usize]));
        }
    }
    text
}

/// Decodes base64; other characters count as zeros.
fn bytes(text: &str) -> Vec<u8> {
    let number = |letter: &u8| LETTERS.iter().position(|other| other == letter).unwrap_or(0) as u32;
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for chunk in text.as_bytes().chunks(4) {
        let mut group = 0;
        for (at, letter) in chunk.iter().enumerate() {
            group |= number(letter) << (18 - 6 * at as u32);
        }
        bytes.extend_from_slice(&group.to_be_bytes()[1..chunk.len().max(1)]);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_round_trip_through_base64() {
        for count in 0..70u8 {
            let all: Vec<u8> = (0..count).map(|byte| byte.wrapping_mul(37) ^ 0xa5).collect();
            assert_eq!(bytes(&letters(&all)), all);
        }
        assert_eq!(letters(b"Man"), "TWFu");
    }
}
