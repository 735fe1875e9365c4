//! Every module of a context, each loaded once.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Condvar, Mutex};

use super::bundle::Bundle;
use super::compiler::Warming;
use super::disk::CacheDir;
use super::function::Module;
use super::image::ImageKey;
use crate::context::Context;

/// Where a cache takes images from that are not in memory. By default they are compiled by the
/// driver in this process.
#[derive(Clone, Debug, Default)]
pub struct CacheOptions {
    /// Bundles, asked first and in this order.
    pub bundles: Vec<Bundle>,
    /// The cache on disk, asked next; what had to be compiled is kept in it.
    pub disk: Option<CacheDir>,
    /// How the rest is compiled.
    pub warming: Warming,
}

/// The modules of one context. Clones share them.
#[derive(Clone)]
pub struct ModuleCache {
    inner: Arc<Inner>,
}

struct Inner {
    context: Context,
    options: CacheOptions,
    slots: Mutex<HashMap<ImageKey, Slot>>,
    /// Told whenever a load ends, well or not.
    ended: Condvar,
    jit_after_warm: Arc<AtomicUsize>,
}

enum Slot {
    /// A thread is loading the image; others wait for it.
    Loading,
    Loaded(Arc<Module>),
}

/// What a thread that wants an image is told.
pub(super) enum Turn {
    Loaded(Arc<Module>),
    /// It is the one that loads.
    Mine(Claim),
    /// Another thread loads.
    Busy,
}

impl ModuleCache {
    /// A cache without modules, which has the driver compile what it is asked for.
    pub fn new(context: &Context) -> Self {
        Self::with(context, CacheOptions::default())
    }

    /// A cache without modules that takes images from bundles and from disk, or has them compiled
    /// by several processes.
    ///
    /// ```
    /// # #[cfg(feature = "sim")] {
    /// use retrograph_runtime::modules::{CacheDir, CacheOptions};
    /// use retrograph_runtime::{Context, DeviceIndex, Driver, ModuleCache};
    ///
    /// let context = Context::new(&Driver::simulated(Default::default())?, DeviceIndex(0))?;
    /// let disk = Some(CacheDir::at(std::env::temp_dir().join("retrograph example")));
    /// let cache = ModuleCache::with(&context, CacheOptions { disk, ..Default::default() });
    /// # drop(cache);
    /// # }
    /// # Ok::<(), retrograph_runtime::Error>(())
    /// ```
    pub fn with(context: &Context, options: CacheOptions) -> Self {
        let inner = Inner {
            context: context.clone(),
            options,
            slots: Mutex::default(),
            ended: Condvar::new(),
            jit_after_warm: Arc::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// The context.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// Where images are taken from.
    pub fn options(&self) -> &CacheOptions {
        &self.inner.options
    }

    /// The number of loaded modules.
    pub fn loaded(&self) -> usize {
        let slots = self.inner.slots.lock();
        slots.values().filter(|slot| matches!(slot, Slot::Loaded(_))).count()
    }

    /// How often a function was asked for that was not warm. Anything but 0 after training means
    /// that the requirements did not name all the work.
    pub fn jit_after_warm(&self) -> usize {
        self.inner.jit_after_warm.load(Ordering::Relaxed)
    }

    pub(super) fn misses(&self) -> &Arc<AtomicUsize> {
        &self.inner.jit_after_warm
    }

    /// The module of `key`, or the right to load it unless another thread has that. Nobody waits
    /// here, so that one thread may hold the right to several images.
    pub(super) fn turn(&self, key: &ImageKey) -> Turn {
        let mut slots = self.inner.slots.lock();
        match slots.get(key) {
            Some(Slot::Loaded(module)) => Turn::Loaded(module.clone()),
            Some(Slot::Loading) => Turn::Busy,
            None => {
                slots.insert(key.clone(), Slot::Loading);
                Turn::Mine(Claim { cache: self.clone(), key: key.clone(), loaded: None })
            }
        }
    }

    /// Waits until no thread loads `key`. The caller holds no claim, for another thread might wait
    /// for that one.
    pub(super) fn wait(&self, key: &ImageKey) {
        let mut slots = self.inner.slots.lock();
        while matches!(slots.get(key), Some(Slot::Loading)) {
            self.inner.ended.wait(&mut slots);
        }
    }
}

/// The right to load an image, which ends well or not, a panic included. The lock is not held
/// meanwhile.
pub(super) struct Claim {
    cache: ModuleCache,
    key: ImageKey,
    loaded: Option<Arc<Module>>,
}

impl Claim {
    /// Shares the module with all who want the image.
    pub(super) fn fulfil(mut self, module: Module) -> Arc<Module> {
        self.loaded.insert(Arc::new(module)).clone()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let inner = &self.cache.inner;
        let mut slots = inner.slots.lock();
        match self.loaded.take() {
            Some(module) => slots.insert(self.key.clone(), Slot::Loaded(module)),
            None => slots.remove(&self.key),
        };
        inner.ended.notify_all();
    }
}

impl std::fmt::Debug for ModuleCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ModuleCache({} modules)", self.loaded())
    }
}
