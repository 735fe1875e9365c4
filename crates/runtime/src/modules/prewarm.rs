//! Loading everything that a pass needs, before its first step.

use retrograph_driver::nvtx;

use super::cache::ModuleCache;
use super::error::PrewarmError;
use super::image::Wanted;
use super::progress::Progress;
use super::report::PrewarmReport;
use super::session::Session;
use super::target::image_target;
use super::warm::WarmModules;
use crate::pass::Requirements;

impl ModuleCache {
    /// Loads every image that `requirements` name and looks up the entry points that are launched
    /// on this device, so that no later launch compiles anything. Images that are loaded stay as
    /// they are. The others are taken from bundles, from disk, or compiled, as the options of the
    /// cache say.
    ///
    /// Call this before weights fill the memory: the driver needs device memory for code, and
    /// [`WarmModules::report`] says how much is left.
    ///
    /// # Errors
    /// [`PrewarmError`] names the image, and has the compiler's log. What is wrong with the cache
    /// on disk, or with processes that compile, is a warning in the report.
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
        let (free_before, _) = self.context().memory()?;
        let wanted = Wanted::all(requirements, self.context())?;
        let mut session = Session::new(self, wanted.len(), &mut progress);
        self.flights().settle(wanted.iter().collect(), &mut session)?;
        let (functions, images, warnings) = session.into_parts();
        let (free_after, total_bytes) = self.context().memory()?;
        let report = PrewarmReport { images, warnings, free_before, free_after, total_bytes };
        let target = image_target(self.context())?;
        Ok(WarmModules::new(self, target, (functions, report)))
    }
}
