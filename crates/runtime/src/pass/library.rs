//! Library calls as operations: the declared accesses, and the code that enqueues the work.

use std::fmt;
use std::sync::Arc;

use retrograph_driver::Result;
use retrograph_kernel_abi::{Access, Element};

use super::access::BufferAccess;
use super::buffer::Slice;
use crate::library::{Collective, GemmProblem, LibraryScope, Ranks};

type Enqueue = dyn Fn(&LibraryScope<'_>) -> Result<()> + Send + Sync;

/// Work that a library enqueues, with the ranges that it accesses, in the order of
/// [`LibraryScope::range`].
#[derive(Clone, Debug, PartialEq)]
pub struct LibraryCall {
    name: String,
    accesses: Vec<BufferAccess>,
    work: LibraryWork,
}

/// The code that enqueues the work.
#[derive(Clone)]
pub(crate) enum LibraryWork {
    /// A closure of the caller.
    Closure(Arc<Enqueue>),
    /// The cuBLAS handle that is bound when a program is built.
    Gemm(GemmProblem),
    /// The communicator that is bound when a program is built.
    Collectives(CollectiveWork),
}

/// Collectives that are enqueued together.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CollectiveWork {
    pub(crate) ranks: Ranks,
    pub(crate) collectives: Arc<[Collective]>,
    /// Bytes of all elements.
    pub(crate) bytes: usize,
}

impl LibraryCall {
    /// The operation `name`. `enqueue` is called once per eager step and once per built graph, so
    /// it must enqueue the same work every time, and must not wait or allocate.
    pub fn new<F>(name: impl Into<String>, enqueue: F) -> Self
    where
        F: Fn(&LibraryScope<'_>) -> Result<()> + Send + Sync + 'static,
    {
        let work = LibraryWork::Closure(Arc::new(enqueue));
        Self { name: name.into(), accesses: Vec::new(), work }
    }

    pub(crate) fn gemm(problem: GemmProblem) -> Self {
        let work = LibraryWork::Gemm(problem);
        Self { name: "cublas_gemm".to_owned(), accesses: Vec::new(), work }
    }

    /// Returns an empty group of collectives.
    pub(super) fn collectives(ranks: Ranks) -> Self {
        let work = CollectiveWork { ranks, collectives: Arc::default(), bytes: 0 };
        let work = LibraryWork::Collectives(work);
        Self { name: "no_collective".to_owned(), accesses: Vec::new(), work }
    }

    /// The call for these collectives, named after them.
    pub(super) fn with_collectives(mut self, collectives: Vec<Collective>, bytes: usize) -> Self {
        if let LibraryWork::Collectives(work) = &mut self.work {
            let mut names: Vec<_> = collectives.iter().map(|one| one.kind.name()).collect();
            names.dedup();
            self.name = names.join("_");
            work.collectives = collectives.into();
            work.bytes = bytes;
        }
        self
    }

    /// The bytes of the elements that collectives exchange, not the bytes that cross links. `None`
    /// for other calls.
    pub fn collective_bytes(&self) -> Option<usize> {
        match &self.work {
            LibraryWork::Collectives(work) => Some(work.bytes),
            _ => None,
        }
    }

    /// Declares elements that are read.
    pub fn reads<T: Element>(self, slice: Slice<T>) -> Self {
        self.accesses(slice, Access::Read)
    }

    /// Declares elements that are all written, without being read before.
    pub fn writes<T: Element>(self, slice: Slice<T>) -> Self {
        self.accesses(slice, Access::Write)
    }

    /// Declares elements that are updated in place.
    pub fn updates<T: Element>(self, slice: Slice<T>) -> Self {
        self.accesses(slice, Access::ReadWrite)
    }

    fn accesses<T: Element>(mut self, slice: Slice<T>, access: Access) -> Self {
        self.accesses.push(BufferAccess::new(slice, access));
        self
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The declared ranges.
    pub fn declared(&self) -> &[BufferAccess] {
        &self.accesses
    }

    pub(crate) fn work(&self) -> &LibraryWork {
        &self.work
    }
}

impl PartialEq for LibraryWork {
    /// Closures are equal only to themselves.
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Closure(one), Self::Closure(other)) => Arc::ptr_eq(one, other),
            (Self::Gemm(one), Self::Gemm(other)) => one == other,
            (Self::Collectives(one), Self::Collectives(other)) => one == other,
            _ => false,
        }
    }
}

impl fmt::Debug for LibraryWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closure(_) => f.write_str("code of the caller"),
            Self::Gemm(problem) => problem.fmt(f),
            Self::Collectives(work) => work.fmt(f),
        }
    }
}
