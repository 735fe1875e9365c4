//! Builds a bundle: every image is assembled for every target, written, read back and compared.

use std::num::NonZero;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use retrograph_ptx::{CannotRun, ImageForm, SmTarget};

use crate::assembler::{AssembleError, Assembler};
use crate::bundle::{Bundle, BundleError};
use crate::digest::digest_of;
use crate::index::BundleEntry;

/// PTX to assemble into a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleImage {
    /// The name, for messages.
    pub name: String,
    /// The text, which programs must pass to the module cache unchanged.
    pub ptx: String,
    /// The targets to assemble for.
    pub targets: Vec<SmTarget>,
}

/// A failure to build a bundle.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BundleBuildError {
    /// An image does not run on devices of a target; nothing was assembled.
    #[error("the image `{image}` cannot be assembled for a target: {source}")]
    WrongTarget {
        /// The image.
        image: String,
        /// Both targets and a remedy.
        #[source]
        source: CannotRun,
    },
    /// The assembler cannot be used, or is not `ptxas`.
    #[error("the assembler cannot be used: {0}")]
    Assembler(#[source] AssembleError),
    /// An image cannot be assembled.
    #[error("the image `{image}` cannot be assembled for {target}: {source}")]
    Assemble {
        /// The image.
        image: String,
        /// The target.
        target: SmTarget,
        /// The assembler's messages.
        #[source]
        source: AssembleError,
    },
    /// The file cannot be written, or reads back differently.
    #[error(transparent)]
    Bundle(#[from] BundleError),
}

impl Bundle {
    /// Assembles every image for each of its targets, with one process per core, and writes the
    /// code to a bundle at `path` as [`Bundle::write_verified`] does.
    ///
    /// The same images, targets and assembler give the same bytes.
    ///
    /// # Errors
    /// [`BundleBuildError`], for the first image and target that failed; no file is then written.
    pub fn build(
        path: impl AsRef<Path>,
        images: &[BundleImage],
        assembler: &Assembler,
    ) -> Result<Self, BundleBuildError> {
        for BundleImage { name, ptx, targets } in images {
            let Some(named) = SmTarget::named_in(ptx) else { continue };
            let fits = |target: &SmTarget| named.require(ImageForm::Ptx, *target);
            let wrong = |source| BundleBuildError::WrongTarget { image: name.clone(), source };
            targets.iter().try_for_each(fits).map_err(wrong)?;
        }
        let jobs: Vec<(&BundleImage, SmTarget)> = images
            .iter()
            .flat_map(|image| image.targets.iter().map(move |target| (image, *target)))
            .collect();
        // Without a job, no assembler is needed.
        let maker = match jobs.is_empty() {
            true => String::new(),
            false => assembler.version().map_err(BundleBuildError::Assembler)?,
        };
        let entries = assemble_all(&jobs, assembler, &maker)?;
        Ok(Self::write_verified(path, &entries)?)
    }
}

/// The code of all jobs, in their order. No job starts after one has failed. Jobs start in their
/// order, so the first failure is the same each time.
fn assemble_all(
    jobs: &[(&BundleImage, SmTarget)],
    assembler: &Assembler,
    maker: &str,
) -> Result<Vec<BundleEntry>, BundleBuildError> {
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let results = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get).min(jobs.len());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !failed.load(Ordering::Relaxed) {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some((image, target)) = jobs.get(index) else { return };
                    let result = assemble(image, *target, assembler, maker);
                    failed.fetch_or(result.is_err(), Ordering::Relaxed);
                    results.lock().expect("no holder of the lock panics").push((index, result));
                }
            });
        }
    });
    let mut results = results.into_inner().expect("no holder of the lock panics");
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

fn assemble(
    image: &BundleImage,
    target: SmTarget,
    assembler: &Assembler,
    maker: &str,
) -> Result<BundleEntry, BundleBuildError> {
    let name = image.name.clone();
    match assembler.assemble(&image.ptx, target) {
        Ok(code) => {
            let (image, maker) = (digest_of(&image.ptx), maker.to_owned());
            Ok(BundleEntry { name, image, target, producer: maker, code })
        }
        Err(source) => Err(BundleBuildError::Assemble { image: name, target, source }),
    }
}
