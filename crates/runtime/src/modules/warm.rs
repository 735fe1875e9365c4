//! The prewarmed modules, the only source of functions.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use retrograph_driver::{Context, Error, Function, Result};
use retrograph_ptx::SmTarget;

use super::cache::ModuleCache;
use super::image::ImageKey;
use super::report::PrewarmReport;

/// A function that was not prewarmed. Compiling it now would stall the step; add it to the
/// prewarmed requirements.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{kernel}` of image `{image}` is not warm, and compiling it now would stall the step; add the \
     pass that launches it to the requirements that are prewarmed"
)]
pub struct JitAfterWarm {
    /// The image.
    pub image: String,
    /// The entry point.
    pub kernel: String,
}

/// The prewarmed modules. Clones share them.
#[derive(Clone)]
pub struct WarmModules {
    context: Context,
    target: SmTarget,
    functions: Arc<HashMap<ImageKey, HashMap<String, Function>>>,
    report: Arc<PrewarmReport>,
    misses: Arc<AtomicUsize>,
}

impl WarmModules {
    pub(super) fn new(
        cache: &ModuleCache,
        target: SmTarget,
        functions: HashMap<ImageKey, HashMap<String, Function>>,
        report: PrewarmReport,
    ) -> Self {
        let (functions, report) = (Arc::new(functions), Arc::new(report));
        let misses = cache.misses().clone();
        Self { context: cache.context().clone(), target, functions, report, misses }
    }

    /// The function `entry` of an image: an embedded one by name, or a [`crate::CustomImage`].
    ///
    /// # Errors
    /// [`JitAfterWarm`] if it was not among the requirements.
    pub fn function(
        &self,
        image: impl Into<ImageKey>,
        entry: &str,
    ) -> Result<Function, JitAfterWarm> {
        let image = image.into();
        let found = self.functions.get(&image).and_then(|functions| functions.get(entry));
        found.cloned().ok_or_else(|| {
            self.misses.fetch_add(1, Ordering::Relaxed);
            JitAfterWarm { image: image.to_string(), kernel: entry.to_owned() }
        })
    }

    /// The context.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The SM target of the images of `retrograph-kernels`. On a device that is older than all of
    /// them, `sm_50`: it runs only images of the caller.
    pub fn target(&self) -> SmTarget {
        self.target
    }

    /// The report of prewarming.
    pub fn report(&self) -> &PrewarmReport {
        &self.report
    }

    /// Number of warm functions.
    pub fn len(&self) -> usize {
        self.functions.values().map(HashMap::len).sum()
    }

    /// Whether nothing is warm.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Checks that `planned` more bytes fit in free device memory, to refuse an impossible plan
    /// before anything is uploaded.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], or a failed driver call.
    pub fn check_memory(&self, planned: usize) -> Result<()> {
        let (free, total) = self.context.mem_get_info()?;
        if planned <= free {
            return Ok(());
        }
        Err(Error::OutOfMemory { requested: planned, free, total })
    }
}

impl std::fmt::Debug for WarmModules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WarmModules({} functions)", self.len())
    }
}
