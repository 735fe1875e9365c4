//! The kernels of `retrograph-kernels` among the requirements of a pass.

use retrograph_kernels::{Kernel, Launch, Problem, images};
use retrograph_ptx::SmTarget;

use super::BufferId;
use super::requirements::{Requirements, each_once};

/// Required kernels, in the order of first use.
#[derive(Clone, Debug, Default)]
pub(super) struct KernelRequirements(Vec<Embedded>);

/// A required part of an embedded image.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Embedded {
    /// The entry point for this problem.
    Launch(&'static Kernel, Problem),
    /// Every entry point that the SM target has.
    Whole(&'static Kernel),
}

impl KernelRequirements {
    /// Adds the entry points that `launch` chooses.
    pub(super) fn add_launch(&mut self, launch: &Launch<BufferId>) {
        self.add(Embedded::Launch(launch.kernel(), *launch.problem()));
    }

    /// Adds the requirements of `other`.
    pub(super) fn extend(&mut self, other: &Self) {
        other.0.iter().for_each(|embedded| self.add(*embedded));
    }

    /// The images that hold the kernels.
    pub(super) fn images(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|embedded| embedded.kernel().image)
    }

    fn add(&mut self, embedded: Embedded) {
        if !self.0.contains(&embedded) {
            self.0.push(embedded);
        }
    }
}

/// With the feature `kernels`.
impl Requirements {
    /// Adds a kernel with all its entry points, for launches without a pass.
    pub fn insert(&mut self, kernel: &'static Kernel) {
        self.kernels.add(Embedded::Whole(kernel));
    }

    /// The kernels of `retrograph-kernels`, each once.
    pub fn kernels(&self) -> Vec<&'static Kernel> {
        each_once(self.kernels.0.iter().map(|embedded| embedded.kernel()))
    }

    /// The entry points of these kernels that are launched on `target`, each once.
    pub fn entries(&self, target: SmTarget) -> Vec<(&'static Kernel, &'static str)> {
        each_once(self.kernels.0.iter().flat_map(|embedded| embedded.entries(target)))
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
