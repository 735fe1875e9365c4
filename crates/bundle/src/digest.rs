//! Digests of PTX, which identify images.

use sha2::{Digest as _, Sha256};

/// A SHA-256.
pub type Digest = [u8; 32];

/// The SHA-256 of `ptx`.
pub fn digest_of(ptx: &str) -> Digest {
    Sha256::digest(ptx).into()
}
