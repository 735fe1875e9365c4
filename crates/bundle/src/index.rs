//! The index of a bundle.

use retrograph_ptx::SmTarget;
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_128;

use crate::digest::Digest;

/// The code of one image, to be written into a bundle.
#[derive(Clone, Debug)]
pub struct BundleEntry {
    /// The name of the image, for messages.
    pub name: String,
    /// The SHA-256 of the PTX.
    pub image: Digest,
    /// The target of the code.
    pub target: SmTarget,
    /// The compiler and target device; the disk cache compares it.
    pub producer: String,
    /// The code.
    pub code: Vec<u8>,
}

/// An entry of the index of an open bundle.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct IndexEntry {
    pub(crate) name: String,
    image: String,
    pub(crate) target: String,
    #[serde(rename = "maker")]
    pub(crate) producer: String,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) checksum: String,
    /// The parsed image and target.
    #[serde(skip)]
    pub(crate) parsed: Option<(Digest, SmTarget)>,
}

impl IndexEntry {
    /// The name of the image, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The compiler and target device, as in [`BundleEntry::producer`].
    pub fn producer(&self) -> &str {
        &self.producer
    }

    /// Parses image and target, or returns `None`.
    pub(crate) fn parse(&mut self) -> Option<()> {
        self.parsed = parse_hex(&self.image).zip(self.target.parse().ok());
        self.parsed.map(drop)
    }
}

/// The index of `entries`, whose code follows contiguously.
pub(crate) fn write(entries: &[BundleEntry]) -> Vec<u8> {
    let mut offset = 0;
    let listed = entries.iter().map(|entry| {
        let length = entry.code.len() as u64;
        let listed = IndexEntry {
            name: entry.name.clone(),
            image: hex(&entry.image),
            target: entry.target.to_string(),
            producer: entry.producer.clone(),
            offset,
            length,
            checksum: checksum(&entry.code),
            parsed: None,
        };
        offset += length;
        listed
    });
    let listed: Vec<_> = listed.collect();
    serde_json::to_vec(&listed).expect("texts and numbers are JSON")
}

/// The checksum of code: its XXH3, which is faster than reading it.
pub(crate) fn checksum(code: &[u8]) -> String {
    hex(&XxHash3_128::oneshot(code).to_be_bytes())
}

/// Formats two hexadecimal digits per byte.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn parse_hex(text: &str) -> Option<Digest> {
    let mut digest = [0; 32];
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (index, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).ok()?;
    }
    Some(digest)
}

#[cfg(test)]
mod tests {
    use sha2::{Digest as _, Sha256};

    use super::*;

    #[test]
    fn digests_are_written_and_read() {
        let digest: Digest = Sha256::digest("retrograph").into();
        assert_eq!(parse_hex(&hex(&digest)), Some(digest));
        assert_eq!(parse_hex("12"), None);
        assert_eq!(parse_hex(&"ä".repeat(32)), None);
        assert_eq!(parse_hex(&"+1".repeat(32)), None, "a sign is no digit");
    }
}
