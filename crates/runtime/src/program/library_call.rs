//! Library calls bound to device addresses, enqueued eagerly or into a capture.

use std::sync::Arc;

use retrograph_driver::{Owner, Result, Stream};

use super::bindings::Bindings;
use super::error::BuildError;
use super::memory::Memory;
use crate::library::{Collective, Communicator, Cublas, DeviceRange, GemmProblem, LibraryScope};
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
    Collectives(Communicator, Arc<[Collective]>),
}

impl BoundLibraryCall {
    pub(super) fn new(
        operation: &Operation,
        call: &LibraryCall,
        bindings: &Bindings,
        memory: &Memory,
    ) -> Result<Self, BuildError> {
        let name = || operation.name().to_owned();
        let work = match call.work() {
            LibraryWork::Closure(enqueue) => Work::Closure(Arc::clone(enqueue)),
            LibraryWork::Gemm(problem) => match bindings.cublas_handle() {
                Some(cublas) => Work::Gemm(cublas.clone(), *problem),
                None => return Err(BuildError::NoCublas { operation: name() }),
            },
            LibraryWork::Collectives(work) => match bindings.held_communicator() {
                Some(held) if held.ranks() == work.ranks => {
                    Work::Collectives(held.clone(), Arc::clone(&work.collectives))
                }
                Some(held) => {
                    let (ranks, held) = (work.ranks, held.ranks());
                    return Err(BuildError::OtherRanks { operation: name(), ranks, held });
                }
                None => return Err(BuildError::NoCommunicator { operation: name() }),
            },
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
            Work::Collectives(communicator, collectives) => {
                communicator.enqueue(collectives, &scope)?;
            }
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
            Work::Gemm(..) | Work::Closure(_) | Work::Collectives(..) => None,
        }
    }

    /// Keeps the library handle alive.
    pub(super) fn owner(&self) -> Option<Owner> {
        match &self.work {
            // The program's sequence keeps the closure, and nodes do not call it.
            Work::Closure(_) => None,
            Work::Gemm(cublas, _) => Some(cublas.owner()),
            Work::Collectives(communicator, _) => Some(communicator.owner()),
        }
    }

    /// Keeps the code of the caller alive.
    pub(super) fn code_owner(&self) -> Option<Owner> {
        match &self.work {
            Work::Closure(enqueue) => Some(Arc::new(Arc::clone(enqueue))),
            Work::Gemm(..) | Work::Collectives(..) => None,
        }
    }

    /// Whether it is a group of collectives.
    pub(super) fn is_collective(&self) -> bool {
        matches!(self.work, Work::Collectives(..))
    }

    /// Returns the product, if cuBLAS runs it: cuBLAS loads kernels at the first product of each
    /// kind.
    pub(super) fn product(&self) -> Option<&GemmProblem> {
        match &self.work {
            Work::Closure(_) | Work::Collectives(..) => None,
            Work::Gemm(_, problem) => Some(problem),
        }
    }
}
