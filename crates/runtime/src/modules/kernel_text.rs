//! The texts of `retrograph-kernels`.

use std::borrow::Cow;

use retrograph_bundle::Digest;
use retrograph_kernels::images;
use retrograph_ptx::SmTarget;

/// The PTX of an image, or of one entry point of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct KernelText {
    pub(super) image: &'static str,
    /// The entry point to which the image is cut.
    pub(super) entry: Option<&'static str>,
    pub(super) target: SmTarget,
}

impl KernelText {
    /// Returns the text, which may decompress it.
    pub(super) fn ptx<'a>(self) -> Cow<'a, str> {
        let ptx = match self.entry {
            None => images::ptx(self.image, self.target).map(Cow::Borrowed),
            Some(entry) => images::entry_ptx(self.image, entry, self.target).map(Cow::Owned),
        };
        ptx.expect("an image with a digest has a text")
    }

    /// The digest of the text, or `None` if there is no such image or entry point for the target.
    pub(super) fn digest(self) -> Option<Digest> {
        match self.entry {
            None => images::digest(self.image, self.target),
            Some(entry) => images::entry_digest(self.image, entry, self.target),
        }
    }
}
