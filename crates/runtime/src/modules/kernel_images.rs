//! The modules of required kernels of `retrograph-kernels`.
//!
//! Unless a bundle has its code, an image is cut to one entry point, so only launched entry points
//! are compiled, each as its own module: another entry point of the image costs one more
//! compilation.

use std::collections::HashSet;

use retrograph_kernel_abi::step_parameters::FETCH_STEP_PARAMETERS;
use retrograph_kernels::Kernel;

use super::cache::ModuleCache;
use super::error::PrewarmError;
use super::image::{Code, ImageKey, ModuleKey, Wanted, WantedEntry};
use super::kernel_text::KernelText;
use super::target::image_target;
use crate::pass::Requirements;

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
        let whole = wanted(KernelText { image, entry: None, target }, &entries)?;
        if bundles.iter().any(|bundle| bundle.find(&whole.digest, device).is_some()) {
            all.push(whole);
            continue;
        }
        for (kernel, entry) in entries {
            let text = KernelText { image, entry: Some(entry), target };
            all.push(wanted(text, &[(kernel, entry)])?);
        }
    }
    Ok(all)
}

/// The module of `text` with `entries`, which are entry points of it.
///
/// # Errors
/// [`PrewarmError::NoImage`].
fn wanted<'a>(
    text: KernelText,
    entries: &[(&'static Kernel, &'static str)],
) -> Result<Wanted<'a>, PrewarmError> {
    let KernelText { image, entry, target } = text;
    let name = entry.unwrap_or(image).to_owned();
    let Some(digest) = text.digest() else {
        return Err(PrewarmError::NoImage { image: name, target });
    };
    let entries =
        entries.iter().map(|(kernel, entry)| WantedEntry::of_parameters(kernel.parameters, entry));
    let key = ModuleKey { image: ImageKey::Embedded(image), entry };
    Ok(Wanted { key, name, code: Code::Kernel(text), digest, entries: entries.collect() })
}
