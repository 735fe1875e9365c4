//! Requirements: the kernels and images to prewarm for a pass.

use retrograph_kernels::ops::FETCH_STEP_PARAMETERS;
use retrograph_kernels::{Kernel, Problem, SmTarget, images};

use super::operation::{CustomImage, Operation, OperationKind};

/// The kernels and custom images that a pass launches, in the order of first use. Only the entry
/// points that its launches choose for an SM target are looked up: a lookup costs about half as
/// much as loading an image.
#[derive(Clone, Debug, Default)]
pub struct Requirements {
    embedded: Vec<Embedded>,
    custom: Vec<CustomRequirement>,
}

/// A required part of an embedded image.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Embedded {
    /// The entry point for this problem.
    Launch(&'static Kernel, Problem),
    /// Every entry point that the SM target has.
    Whole(&'static Kernel),
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
                    requirements.add(Embedded::Launch(launch.kernel(), *launch.problem()));
                }
                OperationKind::Custom(launch) => {
                    requirements.add_custom(&launch.image, &launch.entry);
                }
                OperationKind::FetchStepParameters => requirements.insert(&FETCH_STEP_PARAMETERS),
                OperationKind::Copy { .. }
                | OperationKind::Fill { .. }
                | OperationKind::Library(_) => {}
            }
        }
        requirements
    }

    fn add(&mut self, embedded: Embedded) {
        if !self.embedded.contains(&embedded) {
            self.embedded.push(embedded);
        }
    }

    fn add_custom(&mut self, image: &CustomImage, entry: &str) {
        // Equal texts are one image, whatever their names.
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

    /// Adds a kernel with all its entry points, for launches without a pass.
    pub fn insert(&mut self, kernel: &'static Kernel) {
        self.add(Embedded::Whole(kernel));
    }

    /// Adds an entry point of a custom image, for launches without a pass.
    pub fn insert_custom(&mut self, image: &CustomImage, entry: &str) {
        self.add_custom(image, entry);
    }

    /// The kernels, each once.
    pub fn kernels(&self) -> Vec<&'static Kernel> {
        each_once(self.embedded.iter().map(|embedded| embedded.kernel()))
    }

    /// The names of the images that hold the kernels, each once.
    pub fn images(&self) -> Vec<&'static str> {
        each_once(self.embedded.iter().map(|embedded| embedded.kernel().image))
    }

    /// The entry points that are launched on `target`, with their kernels, each once.
    pub fn entries(&self, target: SmTarget) -> Vec<(&'static Kernel, &'static str)> {
        each_once(self.embedded.iter().flat_map(|embedded| embedded.entries(target)))
    }

    /// The custom images with their entry points.
    pub fn custom(&self) -> &[CustomRequirement] {
        &self.custom
    }

    /// The union of both, to prewarm several passes.
    pub fn union(mut self, other: &Self) -> Self {
        other.embedded.iter().for_each(|embedded| self.add(*embedded));
        for custom in &other.custom {
            for entry in &custom.entries {
                self.add_custom(&custom.image, entry);
            }
        }
        self
    }
}

impl Embedded {
    fn kernel(self) -> &'static Kernel {
        match self {
            Self::Launch(kernel, _) | Self::Whole(kernel) => kernel,
        }
    }

    fn entries(self, target: SmTarget) -> Vec<(&'static Kernel, &'static str)> {
        match self {
            Self::Launch(kernel, problem) => {
                let dispatch = (kernel.dispatch)(&problem, target);
                dispatch.into_iter().map(|dispatch| (kernel, dispatch.entry)).collect()
            }
            Self::Whole(kernel) => {
                let entries = kernel.entries.iter().copied();
                let there = entries.filter(|entry| images::has_entry(kernel.image, entry, target));
                there.map(|entry| (kernel, entry)).collect()
            }
        }
    }
}

/// In the order of first occurrence.
fn each_once<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut once = Vec::new();
    for one in all {
        if !once.contains(&one) {
            once.push(one);
        }
    }
    once
}
