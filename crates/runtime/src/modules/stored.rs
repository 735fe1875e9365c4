//! Stored code: in a bundle, or in the cache on disk.

use retrograph_bundle::{Bundle, IndexEntry};

use super::cache::ModuleCache;
use super::disk::{CodeKey, DiskError};
use super::image::Wanted;

/// The bundles that list an image for the device, in their order, with its entry.
pub(super) fn in_bundles<'c>(
    cache: &'c ModuleCache,
    wanted: &Wanted<'_>,
) -> impl Iterator<Item = (&'c Bundle, &'c IndexEntry)> + use<'c> {
    let (digest, device) = (wanted.digest, cache.context().device_target());
    let bundles = cache.options().bundles.iter();
    bundles.filter_map(move |bundle| Some((bundle, bundle.find(&digest, device)?)))
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
