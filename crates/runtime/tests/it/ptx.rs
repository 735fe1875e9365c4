//! The PTX images of the tests, prewarmed.

use retrograph_runtime::{Context, CustomImage, Function, ModuleCache, Requirements, WarmModules};

pub(crate) use crate::support::ptx::{BROKEN, SCALE, STORE};

/// PTX as an image.
pub(crate) fn image(name: &str, ptx: &str) -> CustomImage {
    CustomImage::ptx(name, ptx)
}

/// One entry point of one image.
pub(crate) fn requirements(image: &CustomImage, entry: &str) -> Requirements {
    let mut requirements = Requirements::default();
    requirements.insert_custom(image, entry);
    requirements
}

/// The warm modules with one entry point of one image, and the function.
pub(crate) fn warm(context: &Context, ptx: &str, entry: &str) -> (WarmModules, Function) {
    let image = image(entry, ptx);
    let cache = ModuleCache::new(context);
    let modules = cache.prewarm(&requirements(&image, entry), |_| ()).unwrap();
    let function = modules.function(&image, entry).unwrap();
    (modules, function)
}
