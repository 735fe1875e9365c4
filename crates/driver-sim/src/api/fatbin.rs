//! Fat binaries: PTX and machine code for several targets in one image.
//!
//! `fatbinary_section.h` of the toolkit declares the wrapper, to which programs of `nvcc` point.
//! The entries are not documented; their layout is known from the public project ZLUDA.

use std::ffi::c_void;
use std::io::Read as _;

use retrograph_driver_sys::CUresult;
use retrograph_ptx::{ImageForm, Reach, SmTarget};

use super::images::LoadFailure;
use crate::argument::In;
use crate::config::Config;
use crate::refusal::{Refusal, Rule, refuse};

/// The first bytes of a fat binary.
pub(super) const MAGIC: &[u8; 4] = &0xba55_ed50u32.to_le_bytes();
/// The first bytes of a wrapper.
pub(super) const WRAPPER_MAGIC: &[u8; 4] = &0x4662_43b1u32.to_le_bytes();

/// The version of fat binaries that is known.
const VERSION: u64 = 1;
/// Bytes of the wrapper up to the end of the address of the fat binary.
const WRAPPER: usize = 16;
/// Bytes of the header of a fat binary.
const HEADER: usize = 16;
/// Bytes of the header of an entry up to the end of its target.
const ENTRY: u64 = 32;
/// The kinds of entries with PTX and with machine code.
const PTX: u64 = 1;
const CODE: u64 = 2;
/// Flags of entries for a target such as sm_90a, and for one such as sm_100f.
const ARCH_SPECIFIC: u64 = 0x10_0000;
const FAMILY_SPECIFIC: u64 = 0x20_0000;
/// Flags of compressed entries.
const LZ4: u64 = 0x2000;
const ZSTD: u64 = 0x8000;
/// The maximum size of an image in memory, so that a damaged size does not exhaust the memory.
const MAX_IMAGE: u64 = 1 << 30;
/// The maximum size of all PTX that is decompressed for one image. A Zstandard decoder holds a
/// window of up to 128 MiB in addition.
const MAX_TEXT: u64 = 1 << 28;
/// No image runs on the device.
pub(super) const NO_BINARY: Refusal =
    refuse(CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU, Rule::ModuleNoBinary);
/// The number of unusable entries that a message lists.
const MAX_LISTED: usize = 16;

/// Copies the fat binary to which a wrapper points.
pub(super) fn unwrapped(wrapper: In<c_void>) -> Result<Vec<u8>, LoadFailure> {
    let header = wrapper.bytes(WRAPPER).map_err(|_| damaged())?;
    check_version(number(&header, 4, 4)?)?;
    let address = number(&header, 8, 8)? as usize;
    copied(In::pointed_to(std::ptr::with_exposed_provenance(address)))
}

/// Copies a fat binary from memory.
pub(super) fn copied(image: In<c_void>) -> Result<Vec<u8>, LoadFailure> {
    let header = image.bytes(HEADER).map_err(|_| damaged())?;
    let size = number(&header, 6, 2)?.checked_add(number(&header, 8, 8)?).ok_or_else(damaged)?;
    if !header.starts_with(MAGIC) || size > MAX_IMAGE {
        return Err(damaged());
    }
    image.bytes(size as usize).map_err(|_| damaged())
}

/// An entry of a fat binary.
struct Entry<'a> {
    header: &'a [u8],
    payload: &'a [u8],
    kind: u64,
    /// The compute capability of its target, as two decimal digits or more.
    target: u64,
}

impl<'a> Entry<'a> {
    /// The first entry of some bytes, and the bytes after it.
    fn split(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), LoadFailure> {
        let header = number(bytes, 4, 4)?;
        // Otherwise, an entry of no bytes would be read forever.
        if header < ENTRY {
            return Err(damaged());
        }
        let (header, rest) = split(bytes, header)?;
        let (payload, rest) = split(rest, number(header, 8, 8)?)?;
        let (kind, target) = (number(header, 0, 2)?, number(header, 28, 4)?);
        Ok((Self { header, payload, kind, target }, rest))
    }

    /// Whether machine code runs on a device.
    fn code_runs_on(&self, device: SmTarget) -> Result<bool, LoadFailure> {
        let flags = number(self.header, 40, 8)?;
        let reach = match (flags & ARCH_SPECIFIC, flags & FAMILY_SPECIFIC) {
            (0, 0) => Reach::Forward,
            (0, _) => Reach::FamilySpecific,
            _ => Reach::ArchSpecific,
        };
        let target = u32::try_from(self.target).map(|number| SmTarget { number, reach });
        Ok(target.is_ok_and(|target| target.require(ImageForm::Cubin, device).is_ok()))
    }

    /// The text of PTX. Decompressed bytes are taken from a budget.
    fn text(&self, budget: &mut u64) -> Result<String, LoadFailure> {
        let flags = number(self.header, 40, 8)?;
        if flags & (LZ4 | ZSTD) == 0 {
            return Ok(text_of(self.payload));
        }
        let (compressed, _) = split(self.payload, number(self.header, 16, 4)?)?;
        let size = number(self.header, 56, 8)?.min(*budget);
        let bytes = match flags & ZSTD {
            0 => lz4(compressed, size as usize),
            _ => zstd(compressed, size),
        };
        let bytes = bytes.ok_or_else(damaged)?;
        *budget -= bytes.len() as u64;
        Ok(text_of(&bytes))
    }
}

/// The PTX of a fat binary for the newest target that runs on the devices of a machine. Of several
/// for one number, it is the most specific one, as recorded on an H200.
pub(super) fn ptx_for(fatbin: &[u8], config: &Config) -> Result<String, LoadFailure> {
    let (major, minor) = config.compute_capability;
    let device = SmTarget::of_device(major, minor);
    check_version(number(fatbin, 4, 2)?)?;
    let header = number(fatbin, 6, 2)?;
    if header < HEADER as u64 {
        return Err(damaged());
    }
    let (_, images) = split(fatbin, header)?;
    let (mut rest, _) = split(images, number(fatbin, 8, 8)?)?;
    let (mut found, mut budget) = (None::<(SmTarget, String)>, MAX_TEXT);
    // Whether a real driver may find code for the device.
    let (mut others, mut may_run) = (Vec::new(), rest.is_empty());
    while !rest.is_empty() {
        let (entry, after) = Entry::split(rest)?;
        rest = after;
        let other = if entry.kind != PTX {
            may_run |= entry.kind != CODE || entry.code_runs_on(device)?;
            format!("machine code for sm_{}", entry.target)
        } else if found.as_ref().is_some_and(|(best, _)| entry.target < u64::from(best.number)) {
            continue;
        } else {
            let text = entry.text(&mut budget)?;
            match target(&text) {
                Some(target) if target.runs_on(major, minor) => {
                    if found.as_ref().is_none_or(|(best, _)| rank(*best) < rank(target)) {
                        found = Some((target, text));
                    }
                    continue;
                }
                target => {
                    may_run |= target.is_none();
                    format!("PTX for sm_{}", entry.target)
                }
            }
        };
        if others.len() < MAX_LISTED && !others.contains(&other) {
            others.push(other);
        }
    }
    found.map(|(_, text)| text).ok_or_else(|| {
        let others = others.join(", ");
        let (refusal, message) = match may_run {
            true => (Refusal::UNSUPPORTED, "cannot be simulated"),
            false => (NO_BINARY, "does not run on it"),
        };
        let message = format!(
            "a fat binary without PTX for a device {major}.{minor} {message}; it has {others}"
        );
        LoadFailure::new(refusal, message)
    })
}

/// The order in which the driver prefers PTX.
fn rank(target: SmTarget) -> (u32, u32) {
    let reach = match target.reach {
        Reach::Forward => 0,
        Reach::FamilySpecific => 1,
        Reach::ArchSpecific => 2,
    };
    (target.number, reach)
}

fn check_version(version: u64) -> Result<(), LoadFailure> {
    if version == VERSION {
        return Ok(());
    }
    let message = format!("fat binaries of version {version} are not simulated");
    Err(LoadFailure::new(Refusal::UNSUPPORTED, message))
}

/// The target of a PTX text.
fn target(text: &str) -> Option<SmTarget> {
    let line = text.lines().find_map(|line| line.trim().strip_prefix(".target"))?;
    line.split(',').next()?.trim().parse().ok()
}

/// The text up to the first zero byte.
fn text_of(bytes: &[u8]) -> String {
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

/// Decompresses a Zstandard frame (RFC 8878) of at most `size` bytes.
fn zstd(compressed: &[u8], size: u64) -> Option<Vec<u8>> {
    let decoder = ruzstd::decoding::StreamingDecoder::new(compressed).ok()?;
    let mut bytes = Vec::new();
    // One byte more shows that the frame is longer.
    decoder.take(size + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= size).then_some(bytes)
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

/// The first `size` bytes, and the bytes after them.
fn split(bytes: &[u8], size: u64) -> Result<(&[u8], &[u8]), LoadFailure> {
    let parts = usize::try_from(size).ok().and_then(|size| bytes.split_at_checked(size));
    parts.ok_or_else(damaged)
}

fn damaged() -> LoadFailure {
    LoadFailure::new(Refusal::UNSUPPORTED, "a damaged fat binary cannot be simulated")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &[u8] = b".version 8.0\n.target sm_90\n.address_size 64\n";

    fn entry(kind: u16, target: u32, flags: u64, payload: &[u8], size: u64) -> Vec<u8> {
        let mut entry = [0; 64];
        entry[..2].copy_from_slice(&kind.to_le_bytes());
        entry[4] = 64;
        entry[8..16].copy_from_slice(&(payload.len() as u64).to_le_bytes());
        entry[16..20].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        entry[28..32].copy_from_slice(&target.to_le_bytes());
        entry[40..48].copy_from_slice(&flags.to_le_bytes());
        entry[56..].copy_from_slice(&size.to_le_bytes());
        [&entry[..], payload].concat()
    }

    fn fatbin(entries: &[Vec<u8>]) -> Vec<u8> {
        let entries = entries.concat();
        let size = (entries.len() as u64).to_le_bytes();
        [MAGIC, &[1, 0, 16, 0][..], &size, &entries].concat()
    }

    /// A Zstandard frame with a window of 1 MiB and blocks of 128 KiB of zeros.
    fn zeros(blocks: usize) -> Vec<u8> {
        let header = |last: u32| ((128u32 << 10) << 3 | 1 << 1 | last).to_le_bytes();
        let block = |last| [&header(u32::from(last))[..3], &[0]].concat();
        let blocks = (1..=blocks).flat_map(|at| block(at == blocks));
        [0x28, 0xb5, 0x2f, 0xfd, 0, 10 << 3].into_iter().chain(blocks).collect()
    }

    /// Text as literal bytes, without matches.
    fn lz4_of(text: &[u8]) -> Vec<u8> {
        [&[0xf0, (text.len() - 15) as u8], text].concat()
    }

    fn zstd_of(text: &[u8]) -> Vec<u8> {
        let block = (text.len() as u32) << 3 | 1;
        let magic = [0x28, 0xb5, 0x2f, 0xfd, 0x20, text.len() as u8];
        [&magic, &block.to_le_bytes()[..3], text].concat()
    }

    /// One entry of each kind.
    fn every_kind() -> Vec<u8> {
        let size = TEXT.len() as u64;
        fatbin(&[
            entry(2, 90, 0, b"\x7fELF", 0),
            entry(1, 70, 0, TEXT, 0),
            entry(1, 80, LZ4, &lz4_of(TEXT), size),
            entry(1, 90, ZSTD, &zstd_of(TEXT), size),
        ])
    }

    fn taken(fatbin: &[u8]) -> Result<String, LoadFailure> {
        ptx_for(fatbin, &Config::default())
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_result(
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
            keeps_headers in any::<bool>(),
        ) {
            let mut image = bytes;
            if keeps_headers {
                image = fatbin(&[entry(1, 90, LZ4, &image, 1 << 40)]);
            }
            let _ = taken(&image);
        }

        #[test]
        fn a_damaged_image_has_a_result(
            damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
            length in any::<prop::sample::Index>(),
            is_truncated in any::<bool>(),
        ) {
            let mut image = every_kind();
            for (at, byte) in damage {
                let at = at.index(image.len());
                image[at] = byte;
            }
            if is_truncated {
                image.truncate(length.index(image.len()));
            }
            let _ = taken(&image);
        }

        #[test]
        fn decompression_stops_at_the_size(
            block in proptest::collection::vec(any::<u8>(), 0..200),
            rest in proptest::collection::vec(any::<u8>(), 0..200),
            size in 0usize..1000,
        ) {
            let frame = [&zstd_of(TEXT)[..6], &rest].concat();
            for bytes in [lz4(&block, size), zstd(&block, size as u64), zstd(&frame, size as u64)] {
                prop_assert!(bytes.is_none_or(|bytes| bytes.len() <= size));
            }
        }
    }

    #[test]
    fn an_image_that_was_cut_off_is_damaged_at_every_length() {
        let whole = every_kind();
        assert!(taken(&whole).is_ok_and(|text| text.as_bytes() == TEXT));
        for length in 0..whole.len() {
            assert!(taken(&whole[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn an_entry_without_bytes_ends_the_image() {
        assert!(taken(&fatbin(&[vec![0; 64]])).is_err());
        let short = |header: u8| {
            let mut entry = entry(1, 90, 0, TEXT, 0);
            entry[4] = header;
            taken(&fatbin(&[entry]))
        };
        assert!(short(64).is_ok() && short(31).is_err() && short(0).is_err());
    }

    #[test]
    fn bytes_after_the_size_of_an_image_are_no_entries() {
        let mut image = every_kind();
        image.extend([0; 100]);
        assert!(taken(&image).is_ok());
        image[6] = 15;
        assert!(taken(&image).is_err(), "the size of the header");
    }

    #[test]
    fn all_entries_share_the_maximum_of_decompressed_bytes() {
        let (bytes, mut budget) = (entry(1, 90, ZSTD, &zeros(1), u64::MAX), 300 << 10);
        let (entry, _) = Entry::split(&bytes).unwrap_or_else(|_| panic!("a whole entry"));
        for expected in [true, true, false] {
            assert_eq!(entry.text(&mut budget).is_ok(), expected);
        }
        assert_eq!(budget, 44 << 10);
        let frame = zeros(64);
        assert_eq!(zstd(&frame, 8 << 20).map(|bytes| bytes.len()), Some(8 << 20));
        assert_eq!(zstd(&frame, (8 << 20) - 1).map(|bytes| bytes.len()), None);
        // 255 bytes of the block repeat one byte 65044 times.
        let bomb = [&[0x1f, 7, 1, 0][..], &[0xff; 255], &[0, 0]].concat();
        assert_eq!(lz4(&bomb, 1 << 20).map(|bytes| bytes.len()), Some(1 + 255 * 255 + 19));
        assert_eq!(lz4(&bomb, 1 << 15).map(|bytes| bytes.len()), None);
    }

    #[test]
    fn many_entries_have_a_short_message() {
        let entries: Vec<_> = (0..10_000).map(|target| entry(2, target, 0, &[], 0)).collect();
        let message = taken(&fatbin(&entries)).unwrap_or_else(|failure| failure.message);
        assert!(message.contains("machine code for sm_15") && message.len() < 1000, "{message}");
    }
}
