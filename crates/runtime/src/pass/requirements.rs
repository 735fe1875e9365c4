//! Requirements: the kernels and images to prewarm for a pass.

use retrograph_kernel_abi::step_parameters::FETCH_STEP_PARAMETERS;
#[cfg(feature = "kernels")]
use retrograph_kernels::Kernel;
#[cfg(feature = "kernels")]
use retrograph_ptx::SmTarget;

use super::custom::CustomImage;
#[cfg(feature = "kernels")]
use super::kernel_requirements::KernelRequirements;
use super::operation::{Operation, OperationKind};

/// The kernels and custom images that a pass launches, in the order of first use. Only the entry
/// points that its launches choose for an SM target are looked up: a lookup costs about half as
/// much as loading an image.
#[derive(Clone, Debug, Default)]
pub struct Requirements {
    #[cfg(feature = "kernels")]
    kernels: KernelRequirements,
    custom: Vec<CustomRequirement>,
    /// Whether a pass has controls.
    fetches_parameters: bool,
}

/// A custom image and the entry points that are launched from it.
#[derive(Clone, Debug)]
pub struct CustomRequirement {
    /// The image.
    pub image: CustomImage,
    /// The entry points, each once.
    pub entries: Vec<String>,
}

impl Requirements {
    pub(crate) fn of(operations: &[Operation]) -> Self {
        let mut requirements = Self::default();
        for operation in operations {
            match &operation.kind {
                #[cfg(feature = "kernels")]
                OperationKind::Launch(launch) => {
                    requirements.kernels.add_launch(launch);
                }
                OperationKind::Custom(launch) => {
                    requirements.add_custom(&launch.image, &launch.entry);
                }
                OperationKind::FetchStepParameters => requirements.fetches_parameters = true,
                OperationKind::Copy { .. }
                | OperationKind::Fill { .. }
                | OperationKind::Library(_) => {}
            }
        }
        requirements
    }

    fn add_custom(&mut self, image: &CustomImage, entry: &str) {
        // Equal codes are one image, whatever their names.
        let found = self.custom.iter_mut().find(|held| held.image.code == image.code);
        match found {
            Some(held) if held.entries.iter().any(|known| known == entry) => {}
            Some(held) => held.entries.push(entry.to_owned()),
            None => {
                let entries = vec![entry.to_owned()];
                self.custom.push(CustomRequirement { image: image.clone(), entries });
            }
        }
    }

    /// Adds an entry point of a custom image, for launches without a pass.
    pub fn insert_custom(&mut self, image: &CustomImage, entry: &str) {
        self.add_custom(image, entry);
    }

    /// The names of the images that hold the kernels, each once.
    pub fn images(&self) -> Vec<&'static str> {
        let fetch = self.fetches_parameters.then_some(FETCH_STEP_PARAMETERS.image);
        #[cfg(feature = "kernels")]
        let kernels = self.kernels.kernels().map(|kernel| kernel.image);
        #[cfg(not(feature = "kernels"))]
        let kernels = [];
        each_once(fetch.into_iter().chain(kernels))
    }

    /// Whether the kernel that fetches step parameters is required, since a pass has controls.
    pub(crate) fn fetches_parameters(&self) -> bool {
        self.fetches_parameters
    }

    /// The custom images with their entry points.
    pub fn custom(&self) -> &[CustomRequirement] {
        &self.custom
    }

    /// The union of both, to prewarm several passes.
    pub fn union(mut self, other: &Self) -> Self {
        #[cfg(feature = "kernels")]
        self.kernels.extend(&other.kernels);
        self.fetches_parameters |= other.fetches_parameters;
        for custom in &other.custom {
            for entry in &custom.entries {
                self.add_custom(&custom.image, entry);
            }
        }
        self
    }
}

/// With the feature `kernels`.
#[cfg(feature = "kernels")]
impl Requirements {
    /// Adds a kernel with all its entry points, for launches without a pass.
    pub fn insert(&mut self, kernel: &'static Kernel) {
        self.kernels.add_whole(kernel);
    }

    /// The kernels of `retrograph-kernels`, each once.
    pub fn kernels(&self) -> Vec<&'static Kernel> {
        each_once(self.kernels.kernels())
    }

    /// The entry points of these kernels that are launched on `target`, each once.
    pub fn entries(&self, target: SmTarget) -> Vec<(&'static Kernel, &'static str)> {
        each_once(self.kernels.entries(target))
    }
}

/// Returns the items in the order of first occurrence.
fn each_once<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut once = Vec::new();
    for one in all {
        if !once.contains(&one) {
            once.push(one);
        }
    }
    once
}
