//! The kernels of `retrograph-kernels` among the requirements of a pass.

use retrograph_kernels::{Kernel, Launch, Problem, images};
use retrograph_ptx::SmTarget;

use super::buffer::BufferId;

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

    /// Adds every entry point of `kernel`.
    pub(super) fn add_whole(&mut self, kernel: &'static Kernel) {
        self.add(Embedded::Whole(kernel));
    }

    /// Adds the requirements of `other`.
    pub(super) fn extend(&mut self, other: &Self) {
        other.0.iter().for_each(|embedded| self.add(*embedded));
    }

    /// The kernels.
    pub(super) fn kernels(&self) -> impl Iterator<Item = &'static Kernel> {
        self.0.iter().map(|embedded| embedded.kernel())
    }

    /// The entry points that are launched on `target`, with their kernels.
    pub(super) fn entries(
        &self,
        target: SmTarget,
    ) -> impl Iterator<Item = (&'static Kernel, &'static str)> {
        self.0.iter().flat_map(move |embedded| embedded.entries(target))
    }

    fn add(&mut self, embedded: Embedded) {
        if !self.0.contains(&embedded) {
            self.0.push(embedded);
        }
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
