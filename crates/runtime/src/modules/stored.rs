//! Stored code: in a bundle, or in the cache on disk.

use retrograph_bundle::BundleError;

use super::cache::ModuleCache;
use super::disk::{CodeKey, DiskError};
use super::image::Wanted;

/// The verified code of an image in the bundles, read into `space`.
pub(super) fn in_bundles<'s>(
    cache: &ModuleCache,
    wanted: &Wanted<'_>,
    space: &'s mut Vec<u8>,
) -> Result<Option<&'s [u8]>, BundleError> {
    let (bundles, device) = (&cache.options().bundles, cache.context().device_target());
    let found = bundles.iter().find_map(|one| Some((one, one.find(&wanted.digest, device)?)));
    found.map(|(bundle, listed)| bundle.read_code(listed, space)).transpose()
}

/// The verified code of an image in the cache on disk, read into `space`.
pub(super) fn on_disk<'s>(
    cache: &ModuleCache,
    wanted: &Wanted<'_>,
    space: &'s mut Vec<u8>,
) -> Result<Option<&'s [u8]>, DiskError> {
    let Some(disk) = &cache.options().disk else { return Ok(None) };
    disk.get(&key(cache, wanted), space)
}

/// The key of the code of an image.
pub(super) fn key<'k>(cache: &'k ModuleCache, wanted: &'k Wanted<'_>) -> CodeKey<'k> {
    CodeKey { context: cache.context(), image: wanted.digest, name: &wanted.name }
}
