//! Loads all kernels that a pass needs, before its first step.

use retrograph_driver::nvtx;

use super::cache::ModuleCache;
use super::error::PrewarmError;
use super::progress::Progress;
use super::report::PrewarmReport;
use super::required;
use super::session::Session;
use super::target::code_target;
use super::warm::WarmModules;
use crate::pass::Requirements;

impl ModuleCache {
    /// Loads every entry point that is launched on this device and not loaded yet, so that no later
    /// launch compiles code. Code comes from bundles, from disk, or from the compiler, according to
    /// the options of the cache. A bundle has whole images; from other sources, each entry point of
    /// an embedded image is its own module, and custom images are whole.
    ///
    /// Call this before weights fill the memory: code takes device memory. [`WarmModules::report`]
    /// has the memory left.
    ///
    /// # Errors
    /// [`PrewarmError`], with the image and the compiler's log. Problems with the cache on disk or
    /// with worker processes are warnings in the report.
    pub fn prewarm<F>(
        &self,
        requirements: &Requirements,
        mut progress: F,
    ) -> Result<WarmModules, PrewarmError>
    where
        F: FnMut(&Progress<'_>),
    {
        let _range = nvtx::range(c"retrograph: prewarm");
        self.context().bind_outside_capture("prewarming")?;
        let (free_before, _) = self.context().mem_get_info()?;
        let wanted = required::modules(requirements, self)?;
        let mut session = Session::new(self, wanted.len(), &mut progress);
        self.flights().settle(wanted.iter().collect(), &mut session)?;
        let (functions, images, warnings) = session.into_parts();
        let (free_after, total_bytes) = self.context().mem_get_info()?;
        let report = PrewarmReport { images, warnings, free_before, free_after, total_bytes };
        let target = code_target(self.context());
        Ok(WarmModules::new(self, target, functions, report))
    }
}
