//! Differences that are meant, each with its reason.

use crate::compare::Difference;

/// Differences that are no mistakes.
pub struct Exception {
    /// A part of the name of who disagrees.
    pub source: &'static str,
    /// What the item is about: all of `value of X`, or `X`.
    pub item: &'static str,
    /// Why it is right that they differ.
    pub reason: &'static str,
}

/// All of them. One that excuses nothing is itself a mistake.
pub const EXCEPTIONS: &[Exception] = &[
    Exception {
        source: "cuda.h 12.9",
        item: "CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER",
        reason: "a code since CUDA 13.0",
    },
    Exception {
        source: "cuda-driver-sys",
        item: "size of CUDA_KERNEL_NODE_PARAMS",
        reason: "CUDA 12.0 appended two fields, for the `_v2` functions that driver-sys calls",
    },
];

impl Exception {
    /// Whether this exception excuses the difference.
    pub fn excuses(&self, difference: &Difference) -> bool {
        let about = difference.item.split_once(" of ").map(|(_, about)| about);
        let item = difference.item == self.item || about == Some(self.item);
        item && difference.source.contains(self.source)
    }
}

/// The differences that nothing excuses, and the exceptions that excuse nothing.
pub fn apply(differences: Vec<Difference>) -> (Vec<Difference>, Vec<&'static Exception>) {
    let idle = EXCEPTIONS
        .iter()
        .filter(|exception| !differences.iter().any(|difference| exception.excuses(difference)));
    let idle = idle.collect();
    let excused = |difference: &Difference| EXCEPTIONS.iter().any(|e| e.excuses(difference));
    let left = differences.into_iter().filter(|difference| !excused(difference)).collect();
    (left, idle)
}
