//! Every module of a context, each loaded once.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Condvar, Mutex};

use super::function::Module;
use super::image::ImageKey;
use super::load::LoadFailure;
use crate::context::Context;

/// The modules of one context. Clones share them.
#[derive(Clone)]
pub struct ModuleCache {
    inner: Arc<Inner>,
}

struct Inner {
    context: Context,
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

impl ModuleCache {
    /// A cache without modules.
    pub fn new(context: &Context) -> Self {
        let inner = Inner {
            context: context.clone(),
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

    /// The module of `key`, loaded by `load` unless it is there. Of several threads that ask at the
    /// same time one loads, without holding the lock, and the others wait for its outcome; when it
    /// fails the next one tries.
    pub(super) fn get_or_load<F>(&self, key: &ImageKey, load: F) -> Result<Arc<Module>, LoadFailure>
    where
        F: FnOnce() -> Result<Module, LoadFailure>,
    {
        if let Some(module) = self.wait_or_claim(key) {
            return Ok(module);
        }
        let mut claim = Claim { cache: self, key, loaded: None };
        let module = Arc::new(load()?);
        claim.loaded = Some(module.clone());
        Ok(module)
    }

    /// Returns the module, or marks it as being loaded by this thread.
    fn wait_or_claim(&self, key: &ImageKey) -> Option<Arc<Module>> {
        let mut slots = self.inner.slots.lock();
        loop {
            match slots.get(key) {
                Some(Slot::Loaded(module)) => return Some(module.clone()),
                Some(Slot::Loading) => self.inner.ended.wait(&mut slots),
                None => {
                    slots.insert(key.clone(), Slot::Loading);
                    return None;
                }
            }
        }
    }
}

/// The right to load an image, which ends well or not, a panic included.
struct Claim<'a> {
    cache: &'a ModuleCache,
    key: &'a ImageKey,
    loaded: Option<Arc<Module>>,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut slots = self.cache.inner.slots.lock();
        match self.loaded.take() {
            Some(module) => slots.insert(self.key.clone(), Slot::Loaded(module)),
            None => slots.remove(self.key),
        };
        self.cache.inner.ended.notify_all();
    }
}

impl std::fmt::Debug for ModuleCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ModuleCache({} modules)", self.loaded())
    }
}
