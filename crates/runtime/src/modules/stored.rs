//! Code that was compiled before. It is found, read and verified by a thread of its own, while the
//! driver loads what came before it: each takes about as long as the other.

use std::sync::mpsc;
use std::thread;

use super::bundle::BundleError;
use super::cache::ModuleCache;
use super::disk::CodeKey;
use super::image::Wanted;
use super::report::{Source, Warning};

/// Images that are verified before their turn.
const AHEAD: usize = 4;

/// What is stored of an image.
#[derive(Default)]
pub(super) struct Stored {
    /// The code, verified, and where it is from.
    pub(super) code: Option<(Vec<u8>, Source)>,
    pub(super) warnings: Vec<Warning>,
}

/// Gives `take` what is stored of each image, in order. Stops when `take` fails.
pub(super) fn each<E>(
    cache: &ModuleCache,
    wanted: &[&Wanted<'_>],
    mut take: impl FnMut(usize, Result<Stored, BundleError>) -> Result<(), E>,
) -> Result<(), E> {
    let options = cache.options();
    if options.bundles.is_empty() && options.disk.is_none() {
        return (0..wanted.len()).try_for_each(|at| take(at, Ok(Stored::default())));
    }
    let (send, receive) = mpsc::sync_channel(AHEAD);
    thread::scope(|scope| {
        scope.spawn(move || {
            // The receiver is gone when something failed.
            wanted.iter().map(|wanted| stored(cache, wanted)).try_for_each(|found| send.send(found))
        });
        // The receiver goes first, so that nobody waits for room in it.
        receive.into_iter().enumerate().try_for_each(|(at, found)| take(at, found))
    })
}

fn stored(cache: &ModuleCache, wanted: &Wanted<'_>) -> Result<Stored, BundleError> {
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
