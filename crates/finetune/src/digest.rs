//! SHA-256 digests as text.

use sha2::{Digest, Sha256};

/// Returns lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the SHA-256 digest of little-endian words.
pub(crate) fn digest_of_words(numbers: impl IntoIterator<Item: AsRef<[u32]>>) -> String {
    let mut hash = Sha256::new();
    for part in numbers {
        part.as_ref().iter().for_each(|number| hash.update(number.to_le_bytes()));
    }
    hex(&hash.finalize())
}
