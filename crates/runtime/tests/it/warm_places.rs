//! Shared helpers of the tests of bundles, of the disk cache and of compiler processes.

use std::path::{Path, PathBuf};

use retrograph_runtime::modules::{CacheDir, CacheOptions, CompileOptions, PrewarmReport, Source};
use retrograph_runtime::{ModuleCache, PrewarmError, Requirements, WarmModules};

use crate::device::Device;
use crate::ptx::{SCALE, STORE, image};
use crate::support::with;

/// Options with a cache on disk.
pub(crate) fn on_disk(path: &Path) -> CacheOptions {
    with(CacheOptions::default(), |it| it.disk = Some(CacheDir::at(path)))
}

/// Options with compiler processes.
pub(crate) fn with_workers(warming: CompileOptions) -> CacheOptions {
    with(CacheOptions::default(), |it| it.compile = warming)
}

/// The files of a cache on disk.
pub(crate) fn files(path: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> =
        std::fs::read_dir(path).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    files
}

/// Two images of the tests' own.
pub(crate) fn two() -> Requirements {
    let mut requirements = Requirements::default();
    requirements.insert_custom(&image("scale", SCALE), "scale");
    requirements.insert_custom(&image("store", STORE), "store");
    requirements
}

/// Warms [`two`] in a new cache.
pub(crate) fn warm_two(
    device: &Device,
    options: CacheOptions,
) -> Result<WarmModules, PrewarmError> {
    ModuleCache::with(&device.context, options).prewarm(&two(), |_| ())
}

/// The number of images from each source, as text.
pub(crate) fn sources(device: &Device, options: CacheOptions) -> String {
    warm_two(device, options).unwrap().report().sources()
}

/// Fails unless both images work: each has its function, and the warnings name `expected`.
pub(crate) fn assert_warm(warm: &WarmModules, source: Source, expected: &[&str]) {
    let report: &PrewarmReport = warm.report();
    assert_eq!(report.count(source), report.images.len(), "{report:?}");
    let warnings: Vec<String> = report.warnings.iter().map(ToString::to_string).collect();
    let warnings = warnings.join("\n");
    for word in expected {
        assert!(warnings.contains(word), "`{word}` is not in: {warnings}");
    }
    assert_eq!(warnings.is_empty(), expected.is_empty(), "{warnings}");
    warm.function(&image("scale", SCALE), "scale").unwrap();
    warm.function(&image("store", STORE), "store").unwrap();
}
