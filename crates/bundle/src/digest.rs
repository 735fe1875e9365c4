//! Digests of PTX and machine code, which identify images.

use sha2::{Digest as _, Sha256};

/// A SHA-256.
pub type Digest = [u8; 32];

/// The SHA-256 of `code`.
pub fn digest_of(code: impl AsRef<[u8]>) -> Digest {
    Sha256::digest(code).into()
}
