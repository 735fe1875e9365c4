//! Images of `retrograph-kernels`.
//!
//! Unless a bundle has its code, an image is cut to one entry point, so only launched entry points
//! are compiled, each as its own module: another entry point of the image costs one more
//! compilation.

use std::borrow::Cow;
use std::collections::HashSet;

use retrograph_bundle::Digest;
use retrograph_kernel_abi::step_parameters::FETCH_STEP_PARAMETERS;
use retrograph_kernels::{Kernel, images};
use retrograph_ptx::SmTarget;

use super::cache::ModuleCache;
use super::error::PrewarmError;
use super::image::{Code, ImageKey, ModuleKey, Wanted, WantedEntry};
use super::target::image_target;
use crate::pass::Requirements;

/// The PTX of an image, or of one entry point of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct KernelText {
    image: &'static str,
    /// The entry point to which the image is cut.
    entry: Option<&'static str>,
    target: SmTarget,
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
    fn digest(self) -> Option<Digest> {
        match self.entry {
            None => images::digest(self.image, self.target),
            Some(entry) => images::entry_digest(self.image, entry, self.target),
        }
    }

    /// The module with `entries`, which are entry points of the text.
    ///
    /// # Errors
    /// [`PrewarmError::NoImage`].
    fn wanted<'a>(
        self,
        entries: &[(&'static Kernel, &'static str)],
    ) -> Result<Wanted<'a>, PrewarmError> {
        let Self { image, entry, target } = self;
        let name = entry.unwrap_or(image).to_owned();
        let Some(digest) = self.digest() else {
            return Err(PrewarmError::NoImage { image: name, target });
        };
        let of =
            |&(kernel, entry): &(&Kernel, _)| WantedEntry::of_parameters(kernel.parameters, entry);
        let entries = entries.iter().map(of).collect();
        let key = ModuleKey { image: ImageKey::Embedded(image), entry };
        Ok(Wanted { key, name, code: Code::Kernel(self), digest, entries })
    }
}

/// Returns the modules of all required kernels. Only images in a bundle are whole.
///
/// # Errors
/// [`PrewarmError::NoImage`] or [`PrewarmError::UnsupportedDevice`].
pub(super) fn required<'a>(
    requirements: &Requirements,
    cache: &ModuleCache,
) -> Result<Vec<Wanted<'a>>, PrewarmError> {
    let mut images = requirements.images();
    // The caller loads this image.
    images.retain(|it| !requirements.fetches_parameters() || *it != FETCH_STEP_PARAMETERS.image);
    if images.is_empty() {
        return Ok(Vec::new());
    }
    let (context, bundles) = (cache.context(), &cache.options().bundles);
    let (target, device) = (image_target(context)?, context.device_target());
    let mut entries = requirements.entries(target);
    // Kernels may share an entry point.
    let mut seen = HashSet::new();
    entries.retain(|(kernel, entry)| seen.insert((kernel.image, *entry)));
    let mut all = Vec::new();
    for image in images {
        let of_image = |(kernel, _): &&(&Kernel, &str)| kernel.image == image;
        let entries: Vec<_> = entries.iter().filter(of_image).copied().collect();
        let whole = KernelText { image, entry: None, target }.wanted(&entries)?;
        if bundles.iter().any(|bundle| bundle.find(&whole.digest, device).is_some()) {
            all.push(whole);
            continue;
        }
        for (kernel, entry) in entries {
            let text = KernelText { image, entry: Some(entry), target };
            all.push(text.wanted(&[(kernel, entry)])?);
        }
    }
    Ok(all)
}
