//! What tells one image from another.

use std::borrow::Cow;
use std::fmt;

use retrograph_kernels::{SmTarget, images};
use sha2::{Digest, Sha256};

use crate::pass::CustomImage;

/// An image on one device: an embedded one by its name, one of the caller's own by its content.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ImageKey {
    /// An image of `retrograph-kernels`.
    Embedded(&'static str),
    /// PTX of the caller's own.
    Custom {
        /// SHA-256 of the text. The name does not count: the same text is the same image.
        hash: [u8; 32],
    },
}

impl From<&'static str> for ImageKey {
    fn from(name: &'static str) -> Self {
        Self::Embedded(name)
    }
}

impl From<&CustomImage> for ImageKey {
    fn from(image: &CustomImage) -> Self {
        Self::Custom { hash: Sha256::digest(image.ptx.as_bytes()).into() }
    }
}

impl fmt::Display for ImageKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Embedded(name) => f.write_str(name),
            Self::Custom { hash } => {
                f.write_str("custom image ")?;
                hash[..6].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}

/// One image to load and the entry points that are wanted from it.
#[derive(Clone, Debug)]
pub(super) struct Wanted<'a> {
    pub(super) key: ImageKey,
    /// The name for people.
    pub(super) name: String,
    /// The text of a custom image.
    pub(super) text: Option<&'a str>,
    pub(super) entries: Vec<Cow<'a, str>>,
}

impl Wanted<'_> {
    /// The PTX for `target`, if there is one.
    pub(super) fn ptx(&self, target: SmTarget) -> Option<&str> {
        match self.key {
            ImageKey::Embedded(name) => images::ptx(name, target),
            ImageKey::Custom { .. } => self.text,
        }
    }
}
