//! What must be warm before a pass can be built: known from the pass alone.

use retrograph_kernels::{Kernel, SmTarget};

use super::operation::{CustomImage, Operation, OperationKind};

/// The kernels and custom images that the operations of a pass launch, each named once, in the
/// order of their first use.
#[derive(Clone, Debug, Default)]
pub struct Requirements {
    kernels: Vec<&'static Kernel>,
    entries: Vec<Required>,
    custom: Vec<CustomRequirement>,
}

/// A launch of a kernel, kept so that the entry point can be found once the SM target is known.
#[derive(Clone, Debug)]
struct Required {
    kernel: &'static Kernel,
    problem: retrograph_kernels::Problem,
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
                OperationKind::Launch(launch) => {
                    requirements.add_launch(launch.kernel, launch.problem);
                }
                OperationKind::Custom(launch) => {
                    requirements.add_custom(&launch.image, &launch.entry);
                }
                OperationKind::Copy { .. }
                | OperationKind::Fill { .. }
                | OperationKind::Library(_) => {}
            }
        }
        requirements
    }

    fn add_launch(&mut self, kernel: &'static Kernel, problem: retrograph_kernels::Problem) {
        self.insert(kernel);
        let known = |held: &Required| held.kernel == kernel && held.problem == problem;
        if !self.entries.iter().any(known) {
            self.entries.push(Required { kernel, problem });
        }
    }

    fn add_custom(&mut self, image: &CustomImage, entry: &str) {
        // Equal texts are one image to the driver, whatever they are called.
        let found = self.custom.iter_mut().find(|held| held.image.ptx == image.ptx);
        match found {
            Some(held) if held.entries.iter().any(|known| known == entry) => {}
            Some(held) => held.entries.push(entry.to_owned()),
            None => {
                let entries = vec![entry.to_owned()];
                self.custom.push(CustomRequirement { image: image.clone(), entries });
            }
        }
    }

    /// Adds a kernel with all its entry points, for those who launch it without a pass.
    pub fn insert(&mut self, kernel: &'static Kernel) {
        if !self.kernels.contains(&kernel) {
            self.kernels.push(kernel);
        }
    }

    /// Adds an entry point of a custom image, for those who launch it without a pass.
    pub fn insert_custom(&mut self, image: &CustomImage, entry: &str) {
        self.add_custom(image, entry);
    }

    /// The kernels, each once.
    pub fn kernels(&self) -> &[&'static Kernel] {
        &self.kernels
    }

    /// The names of the images that hold the kernels, each once.
    pub fn images(&self) -> Vec<&'static str> {
        let mut images = Vec::new();
        for kernel in &self.kernels {
            if !images.contains(&kernel.image) {
                images.push(kernel.image);
            }
        }
        images
    }

    /// The entry points that are launched on `target`, with their kernels, each once.
    pub fn entries(&self, target: SmTarget) -> Vec<(&'static Kernel, &'static str)> {
        let mut entries = Vec::new();
        for required in &self.entries {
            let dispatch = (required.kernel.dispatch)(&required.problem, target);
            let entry = (required.kernel, dispatch.entry);
            if !entries.contains(&entry) {
                entries.push(entry);
            }
        }
        entries
    }

    /// The custom images with their entry points.
    pub fn custom(&self) -> &[CustomRequirement] {
        &self.custom
    }

    /// What either needs, for programs that build several passes.
    pub fn union(mut self, other: &Self) -> Self {
        for kernel in &other.kernels {
            self.insert(kernel);
        }
        for required in &other.entries {
            self.add_launch(required.kernel, required.problem);
        }
        for custom in &other.custom {
            for entry in &custom.entries {
                self.add_custom(&custom.image, entry);
            }
        }
        self
    }
}
