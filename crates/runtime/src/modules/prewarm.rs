//! Loading everything that a pass needs, before its first step.

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use retrograph_kernels::SmTarget;

use super::cache::ModuleCache;
use super::function::Function;
use super::image::{ImageKey, Wanted};
use super::load::{LoadFailure, load};
use super::warm::{ImageReport, PrewarmReport, WarmModules};
use crate::error::Error;
use crate::pass::Requirements;

/// How far prewarming is, told after each image.
#[derive(Clone, Debug)]
pub struct Progress<'a> {
    /// Images that are warm.
    pub done: usize,
    /// Images in all.
    pub total: usize,
    /// The name of the image.
    pub image: &'a str,
    /// How long it took; next to nothing when it was warm before.
    pub elapsed: Duration,
    /// The most registers of a thread over the image's entry points.
    pub registers: u32,
    /// The most local memory of a thread in bytes; more than 0 mostly means spilled registers.
    pub local_bytes: u32,
    /// The most static shared memory of a block in bytes.
    pub shared_bytes: u32,
}

/// Why a pass could not be warmed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrewarmError {
    /// There is no image of this name for the device.
    #[error("there is no image `{image}` for {target}")]
    NoImage {
        /// The image.
        image: String,
        /// The SM target of the device.
        target: SmTarget,
    },
    /// The driver refused an image.
    #[error("the image `{image}` could not be loaded: {error}\n{log}")]
    Load {
        /// The image.
        image: String,
        /// What the driver returned.
        #[source]
        error: Error,
        /// What its compiler said.
        log: String,
    },
    /// An image lacks an entry point.
    #[error("the image `{image}` gives no function `{entry}`: {error}")]
    Entry {
        /// The image.
        image: String,
        /// The entry point.
        entry: String,
        /// What the driver returned.
        #[source]
        error: Error,
    },
    /// The device could not be asked.
    #[error(transparent)]
    Device(#[from] Error),
}

impl ModuleCache {
    /// Loads every image that `requirements` name and looks up each of its entry points, so that no
    /// later launch compiles anything. Images that are loaded stay as they are.
    ///
    /// Call this before weights fill the memory: the driver needs device memory for code, and
    /// [`WarmModules::report`] says how much is left.
    ///
    /// # Errors
    /// [`PrewarmError`] names the image, and has the compiler's log.
    pub fn prewarm<F>(
        &self,
        requirements: &Requirements,
        mut progress: F,
    ) -> Result<WarmModules, PrewarmError>
    where
        F: FnMut(&Progress<'_>),
    {
        self.context().bind_outside_capture("prewarming")?;
        let (free_before, _) = self.context().memory()?;
        let wanted = wanted(requirements);
        let mut functions = HashMap::new();
        let mut images = Vec::new();
        for image in &wanted {
            let (found, report) = self.warm_image(image)?;
            functions.insert(image.key.clone(), found);
            progress(&Progress {
                done: images.len() + 1,
                total: wanted.len(),
                image: &report.image,
                elapsed: report.elapsed,
                registers: report.registers,
                local_bytes: report.local_bytes,
                shared_bytes: report.shared_bytes,
            });
            images.push(report);
        }
        let (free_after, total_bytes) = self.context().memory()?;
        let report = PrewarmReport { images, free_before, free_after, total_bytes };
        Ok(WarmModules::new(self, functions, report))
    }

    fn warm_image(
        &self,
        wanted: &Wanted<'_>,
    ) -> Result<(HashMap<String, Function>, ImageReport), PrewarmError> {
        let started = Instant::now();
        let image = || wanted.name.clone();
        let target = self.context().target();
        let Some(ptx) = wanted.ptx(target) else {
            return Err(PrewarmError::NoImage { image: image(), target });
        };
        let module = self.get_or_load(&wanted.key, || load(self.context(), ptx)).map_err(
            |LoadFailure { error, log }| PrewarmError::Load { image: image(), error, log },
        )?;
        let mut functions = HashMap::new();
        for entry in &wanted.entries {
            let function = module.function(entry).map_err(|error| {
                let (image, entry) = (image(), entry.clone().into_owned());
                PrewarmError::Entry { image, entry, error }
            })?;
            functions.insert(entry.clone().into_owned(), function);
        }
        let report = ImageReport::of(image(), started.elapsed(), functions.values());
        Ok((functions, report))
    }
}

/// The images of all kernels with all entry points that dispatch may choose, then the custom ones.
fn wanted(requirements: &Requirements) -> Vec<Wanted<'_>> {
    let embedded = requirements.images().into_iter().map(|image| {
        let kernels = requirements.kernels().iter().filter(|kernel| kernel.image == image);
        let mut entries: Vec<Cow<'_, str>> =
            kernels.flat_map(|kernel| kernel.entries).map(|entry| Cow::Borrowed(*entry)).collect();
        entries.sort_unstable();
        entries.dedup();
        Wanted { key: ImageKey::Embedded(image), name: image.to_owned(), text: None, entries }
    });
    let mut wanted: Vec<_> = embedded.collect();
    for custom in requirements.custom() {
        let key = ImageKey::from(&custom.image);
        let entries = custom.entries.iter().map(|entry| Cow::Borrowed(entry.as_str()));
        // Two names for the same text are one image.
        match wanted.iter_mut().find(|held| held.key == key) {
            Some(held) => held.entries.extend(entries),
            None => wanted.push(Wanted {
                key,
                name: custom.image.name.clone(),
                text: Some(&custom.image.ptx),
                entries: entries.collect(),
            }),
        }
    }
    wanted
}
