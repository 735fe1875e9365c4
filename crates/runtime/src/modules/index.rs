//! The index of a bundle.

use retrograph_kernels::SmTarget;
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_128;

use super::digest::Digest;

/// The code of one image, to be written into a bundle.
#[derive(Clone, Debug)]
pub struct BundleEntry {
    /// The name of the image, for messages.
    pub name: String,
    /// The SHA-256 of the PTX.
    pub image: Digest,
    /// The target of the code.
    pub target: SmTarget,
    /// The compiler and target device; the cache on disk compares it.
    pub maker: String,
    /// The code.
    pub code: Vec<u8>,
}

/// An entry of the index.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Listed {
    pub(super) name: String,
    image: String,
    pub(super) target: String,
    pub(super) maker: String,
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) checksum: String,
    /// The parsed image and target.
    #[serde(skip)]
    pub(super) parsed: Option<(Digest, SmTarget)>,
}

impl Listed {
    /// Parses image and target, or returns `None`.
    pub(super) fn parse(&mut self) -> Option<()> {
        self.parsed = parse_hex(&self.image).zip(self.target.parse().ok());
        self.parsed.map(drop)
    }
}

/// The index of `entries`, whose code follows contiguously.
pub(super) fn write(entries: &[BundleEntry]) -> Vec<u8> {
    let mut offset = 0;
    let listed = entries.iter().map(|entry| {
        let length = entry.code.len() as u64;
        let listed = Listed {
            name: entry.name.clone(),
            image: hex(&entry.image),
            target: entry.target.to_string(),
            maker: entry.maker.clone(),
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
pub(super) fn checksum(code: &[u8]) -> String {
    hex(&XxHash3_128::oneshot(code).to_be_bytes())
}

/// Two digits for each byte.
pub(super) fn hex(bytes: &[u8]) -> String {
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
