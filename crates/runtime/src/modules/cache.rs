//! The module cache of a context: each module is loaded once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use retrograph_bundle::Bundle;
use retrograph_driver::{Context, Module};

use super::compiler::CompileOptions;
use super::disk::CacheDir;
use super::flight::Flights;
use super::image::ModuleKey;

/// The sources of images that are not in memory. By default, the driver compiles them in this
/// process.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CacheOptions {
    /// Bundles, tried first, in this order.
    pub bundles: Vec<Bundle>,
    /// The cache on disk, tried next; compiled images are added to it.
    pub disk: Option<CacheDir>,
    /// How other images are compiled.
    pub compile: CompileOptions,
}

/// The modules of one context. Clones share them.
#[derive(Clone)]
pub struct ModuleCache {
    inner: Arc<Inner>,
}

struct Inner {
    context: Context,
    options: CacheOptions,
    flights: Arc<Flights<ModuleKey, Module>>,
    jit_after_warm: Arc<AtomicUsize>,
}

impl ModuleCache {
    /// Returns an empty cache; the driver compiles images on demand.
    pub fn new(context: &Context) -> Self {
        Self::with(context, CacheOptions::default())
    }

    /// Returns an empty cache that loads images from bundles and from disk, or compiles them in
    /// several processes.
    ///
    /// ```
    /// # #[cfg(feature = "sim")] {
    /// use retrograph_runtime::modules::{CacheDir, CacheOptions};
    /// use retrograph_runtime::{Context, DeviceIndex, Driver, ModuleCache};
    ///
    /// let context = Context::new(&Driver::simulated(Default::default())?, DeviceIndex(0))?;
    /// let mut options = CacheOptions::default();
    /// options.disk = Some(CacheDir::at(std::env::temp_dir().join("retrograph example")));
    /// let cache = ModuleCache::with(&context, options);
    /// # drop(cache);
    /// # }
    /// # Ok::<(), retrograph_runtime::Error>(())
    /// ```
    pub fn with(context: &Context, options: CacheOptions) -> Self {
        let inner = Inner {
            context: context.clone(),
            options,
            flights: Arc::default(),
            jit_after_warm: Arc::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// The context.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// The sources of images.
    pub fn options(&self) -> &CacheOptions {
        &self.inner.options
    }

    /// The number of loaded modules.
    pub fn loaded(&self) -> usize {
        self.inner.flights.made()
    }

    /// Returns the number of requests for functions that were not prewarmed. If it is not 0, the
    /// requirements were incomplete.
    pub fn jit_after_warm(&self) -> usize {
        self.inner.jit_after_warm.load(Ordering::Relaxed)
    }

    pub(super) fn misses(&self) -> &Arc<AtomicUsize> {
        &self.inner.jit_after_warm
    }

    /// The loaded modules, and those being loaded.
    pub(super) fn flights(&self) -> &Arc<Flights<ModuleKey, Module>> {
        &self.inner.flights
    }
}

impl std::fmt::Debug for ModuleCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ModuleCache({} modules)", self.loaded())
    }
}
