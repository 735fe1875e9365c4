//! SHA-256 digests as text.

use sha2::{Digest, Sha256};

/// Lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// SHA-256 of numbers, each as four bytes with the lowest first.
pub(crate) fn digest_of_words<'a>(numbers: impl IntoIterator<Item = &'a [u32]>) -> String {
    let mut hash = Sha256::new();
    for part in numbers {
        part.iter().for_each(|number| hash.update(number.to_le_bytes()));
    }
    hex(&hash.finalize())
}
