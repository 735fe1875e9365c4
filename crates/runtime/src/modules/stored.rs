//! Code that was compiled before: in a bundle, or in the cache on disk.

use super::bundle::BundleError;
use super::cache::ModuleCache;
use super::disk::CodeKey;
use super::image::Wanted;
use super::report::{Source, Warning};

/// What is stored of an image.
#[derive(Default)]
pub(super) struct Stored {
    /// The code, verified, and where it is from.
    pub(super) code: Option<(Vec<u8>, Source)>,
    pub(super) warnings: Vec<Warning>,
}

/// What the bundles have of an image, or else the cache on disk.
pub(super) fn stored(cache: &ModuleCache, wanted: &Wanted<'_>) -> Result<Stored, BundleError> {
    let (bundles, device) = (&cache.options().bundles, cache.context().device_target());
    for bundle in bundles {
        if let Some(code) = bundle.code(&wanted.digest, device)? {
            return Ok(Stored { code: Some((code, Source::Bundle)), warnings: Vec::new() });
        }
    }
    let mut stored = on_disk(cache, wanted);
    if !bundles.is_empty() {
        stored.warnings.push(Warning::NotInBundle { image: wanted.name.clone(), device });
    }
    Ok(stored)
}

/// What the cache on disk has of an image.
pub(super) fn on_disk(cache: &ModuleCache, wanted: &Wanted<'_>) -> Stored {
    let Some(disk) = &cache.options().disk else { return Stored::default() };
    match disk.get(&key(cache, wanted)) {
        Ok(code) => Stored { code: code.map(|code| (code, Source::Disk)), warnings: Vec::new() },
        Err(error) => Stored { code: None, warnings: vec![Warning::Disk(error)] },
    }
}

/// What the code of an image is kept under.
pub(super) fn key<'k>(cache: &'k ModuleCache, wanted: &'k Wanted<'_>) -> CodeKey<'k> {
    CodeKey { context: cache.context(), image: wanted.digest, name: &wanted.name }
}
