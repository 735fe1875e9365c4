//! Library calls bound to device addresses, enqueued eagerly or into a capture.

use std::sync::Arc;

use retrograph_driver::{Owner, Result, Stream};

use super::bindings::Bindings;
use super::error::BuildError;
use super::memory::Memory;
use crate::library::{Cublas, DeviceRange, GemmProblem, LibraryScope};
use crate::pass::{LibraryCall, LibraryWork, Operation};

type Enqueue = dyn Fn(&LibraryScope<'_>) -> Result<()> + Send + Sync;

/// A library call with bound ranges.
pub(super) struct BoundLibraryCall {
    work: Work,
    ranges: Vec<DeviceRange>,
}

enum Work {
    Closure(Arc<Enqueue>),
    Gemm(Cublas, GemmProblem),
}

impl BoundLibraryCall {
    pub(super) fn new(
        operation: &Operation,
        call: &LibraryCall,
        bindings: &Bindings,
        memory: &Memory,
    ) -> Result<Self, BuildError> {
        let work = match (call.work(), bindings.cublas_handle()) {
            (LibraryWork::Closure(enqueue), _) => Work::Closure(Arc::clone(enqueue)),
            (LibraryWork::Gemm(problem), Some(cublas)) => Work::Gemm(cublas.clone(), *problem),
            (LibraryWork::Gemm(_), None) => {
                return Err(BuildError::NoCublas { operation: operation.name().to_owned() });
            }
        };
        let range =
            |range| DeviceRange { address: memory.address(range), bytes: range.bytes.len() };
        Ok(Self { work, ranges: call.declared().iter().map(range).collect() })
    }

    /// Enqueues the call on `stream`.
    ///
    /// # Safety
    /// As [`super::command::Command::enqueue`].
    pub(super) unsafe fn enqueue(&self, stream: &Stream) -> Result<()> {
        stream.bind_to_enqueue()?;
        let scope = LibraryScope::new(stream, &self.ranges);
        match &self.work {
            Work::Closure(enqueue) => enqueue(&scope)?,
            Work::Gemm(cublas, problem) => cublas.gemm(problem, &scope)?,
        }
        // The library may have made another context current, and may hide a failure.
        stream.bind_to_enqueue()
    }

    /// Moves the declared range at position `at`.
    pub(super) fn move_range(&mut self, at: usize, address: u64) {
        self.ranges[at].address = address;
    }

    /// Replaces the handle of a product, and returns the previous one.
    pub(super) fn use_handle(&mut self, cublas: &Cublas) -> Option<Cublas> {
        match &mut self.work {
            Work::Gemm(held, _) if !held.is(cublas) => {
                Some(std::mem::replace(held, cublas.clone()))
            }
            Work::Gemm(..) | Work::Closure(_) => None,
        }
    }

    /// Keeps the library handle alive.
    pub(super) fn owner(&self) -> Option<Owner> {
        match &self.work {
            // The program's sequence keeps the closure, and nodes do not call it.
            Work::Closure(_) => None,
            Work::Gemm(cublas, _) => Some(cublas.owner()),
        }
    }

    /// The product, if cuBLAS runs it: cuBLAS loads kernels at the first product of each kind.
    pub(super) fn product(&self) -> Option<&GemmProblem> {
        match &self.work {
            Work::Closure(_) => None,
            Work::Gemm(_, problem) => Some(problem),
        }
    }
}
