//! Fat binaries: PTX and machine code for several targets in one image.
//!
//! `fatbinary_section.h` of the toolkit declares the wrapper, to which programs of `nvcc` point.
//! The entries are not documented; their layout is known from the public project ZLUDA.

use std::ffi::c_void;
use std::io::Read as _;

use retrograph_ptx::SmTarget;

use super::images::LoadFailure;
use crate::argument::In;
use crate::config::Config;
use crate::refusal::Refusal;

/// The first bytes of a fat binary.
pub(super) const MAGIC: &[u8; 4] = &0xba55_ed50u32.to_le_bytes();
/// The first bytes of a wrapper.
pub(super) const WRAPPER_MAGIC: &[u8; 4] = &0x4662_43b1u32.to_le_bytes();

/// Bytes of the wrapper up to the end of the address of the fat binary.
const WRAPPER: usize = 16;
/// Bytes of the header of a fat binary.
const HEADER: usize = 16;
/// The kind of an entry with PTX.
const PTX: u64 = 1;
/// Flags of compressed entries.
const LZ4: u64 = 0x2000;
const ZSTD: u64 = 0x8000;
/// The maximum size of PTX, so that a damaged size does not exhaust the memory.
const LARGEST: u64 = 1 << 30;

/// Copies the fat binary to which a wrapper points.
pub(super) fn unwrapped(wrapper: In<c_void>) -> Result<Vec<u8>, LoadFailure> {
    let header = wrapper.bytes(WRAPPER).map_err(|_| damaged())?;
    let version = number(&header, 4, 4)?;
    if version != 1 {
        let message = format!("fat binaries of version {version} are not simulated");
        return Err(LoadFailure::new(Refusal::UNSUPPORTED, message));
    }
    let address = number(&header, 8, 8)? as usize;
    copied(In::pointed_to(std::ptr::with_exposed_provenance(address)))
}

/// Copies a fat binary from memory.
pub(super) fn copied(image: In<c_void>) -> Result<Vec<u8>, LoadFailure> {
    let header = image.bytes(HEADER).map_err(|_| damaged())?;
    let size = number(&header, 6, 2)?.checked_add(number(&header, 8, 8)?).ok_or_else(damaged)?;
    if !header.starts_with(MAGIC) || size > LARGEST {
        return Err(damaged());
    }
    image.bytes(size as usize).map_err(|_| damaged())
}

/// The PTX of a fat binary for the newest target that runs on the devices of a machine.
pub(super) fn ptx_for(fatbin: &[u8], config: &Config) -> Result<String, LoadFailure> {
    let (major, minor) = config.compute_capability;
    let (mut found, mut others) = (None, Vec::new());
    let mut rest = slice(fatbin, number(fatbin, 6, 2)?, None)?;
    while !rest.is_empty() {
        let (header, size) = (number(rest, 4, 4)?, number(rest, 8, 8)?);
        let payload = slice(rest, header, Some(size))?;
        if number(rest, 0, 2)? == PTX {
            let text = text(rest, payload)?;
            match target(&text).filter(|target| target.runs_on(major, minor)) {
                Some(target) if found.as_ref().is_none_or(|(best, _)| *best < target.number) => {
                    found = Some((target.number, text));
                }
                Some(_) => {}
                None => others.push(format!("PTX for sm_{}", number(rest, 28, 4)?)),
            }
        } else {
            others.push(format!("machine code for sm_{}", number(rest, 28, 4)?));
        }
        rest = slice(rest, header.saturating_add(size), None)?;
    }
    found.map(|(_, text)| text).ok_or_else(|| {
        let message = format!(
            "a fat binary without PTX for a device {major}.{minor} cannot be simulated; it has {}",
            others.join(", ")
        );
        LoadFailure::new(Refusal::UNSUPPORTED, message)
    })
}

/// The target of a PTX text.
fn target(text: &str) -> Option<SmTarget> {
    let line = text.lines().find_map(|line| line.trim().strip_prefix(".target"))?;
    line.split(',').next()?.trim().parse().ok()
}

/// The text of an entry.
fn text(entry: &[u8], payload: &[u8]) -> Result<String, LoadFailure> {
    let flags = number(entry, 40, 8)?;
    let compressed = || slice(payload, 0, Some(number(entry, 16, 4)?));
    let size = || number(entry, 56, 8).map(|size| size.min(LARGEST));
    let bytes = match (flags & LZ4 != 0, flags & ZSTD != 0) {
        (false, false) => payload.to_vec(),
        (true, false) => lz4(compressed()?, size()? as usize).ok_or_else(damaged)?,
        (_, true) => zstd(compressed()?, size()?)?,
    };
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(text).into_owned())
}

/// Decompresses a Zstandard frame (RFC 8878) of at most `size` bytes.
fn zstd(compressed: &[u8], size: u64) -> Result<Vec<u8>, LoadFailure> {
    let decoder = ruzstd::decoding::StreamingDecoder::new(compressed).map_err(|_| damaged())?;
    let mut bytes = Vec::new();
    decoder.take(size).read_to_end(&mut bytes).map_err(|_| damaged())?;
    Ok(bytes)
}

/// Decompresses a block of LZ4 to at most `size` bytes. A block is a list of sequences: literal
/// bytes, then a match, which repeats earlier output. Source: the block format of LZ4.
fn lz4(block: &[u8], size: usize) -> Option<Vec<u8>> {
    let mut input = block.iter().copied();
    let mut output = Vec::new();
    loop {
        let token = usize::from(input.next()?);
        let literals = lz4_length(&mut input, token >> 4)?;
        if literals > size - output.len() || literals > input.len() {
            return None;
        }
        output.extend(input.by_ref().take(literals));
        let Some(low) = input.next() else { return Some(output) };
        let distance = usize::from(u16::from_le_bytes([low, input.next()?]));
        let length = lz4_length(&mut input, token & 15)?.checked_add(4)?;
        let from = output.len().checked_sub(distance).filter(|_| distance > 0)?;
        if length > size - output.len() {
            return None;
        }
        // A match may overlap its own output.
        for index in from..from + length {
            output.push(output[index]);
        }
    }
}

/// A length that continues in further bytes if its four bits are all set.
fn lz4_length(input: &mut impl Iterator<Item = u8>, bits: usize) -> Option<usize> {
    let mut length = bits;
    let mut more = bits == 15;
    while more {
        let byte = input.next()?;
        length = length.checked_add(byte.into())?;
        more = byte == u8::MAX;
    }
    Some(length)
}

/// A little-endian number of `size` bytes at `at`.
fn number(bytes: &[u8], at: usize, size: usize) -> Result<u64, LoadFailure> {
    let bytes = bytes.get(at..at + size).ok_or_else(damaged)?;
    Ok(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// The bytes from `at` on, or `size` of them.
fn slice(bytes: &[u8], at: u64, size: Option<u64>) -> Result<&[u8], LoadFailure> {
    let rest = usize::try_from(at).ok().and_then(|at| bytes.get(at..)).ok_or_else(damaged)?;
    match size {
        None => Ok(rest),
        Some(size) => {
            usize::try_from(size).ok().and_then(|size| rest.get(..size)).ok_or_else(damaged)
        }
    }
}

fn damaged() -> LoadFailure {
    LoadFailure::new(Refusal::UNSUPPORTED, "a damaged fat binary cannot be simulated")
}
