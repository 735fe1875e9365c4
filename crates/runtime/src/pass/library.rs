//! Library calls as operations: the declared accesses, and the code that enqueues the work.

use std::fmt;
use std::sync::Arc;

use retrograph_driver::Result;
use retrograph_kernels::{Access, Element};

use super::access::BufferAccess;
use super::buffer::Slice;
use crate::library::{GemmProblem, LibraryScope};

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

    /// Declares elements that are read.
    pub fn reads<T: Element>(self, slice: Slice<T>) -> Self {
        self.accesses(slice, Access::Read)
    }

    /// Declares elements that are all written, and not read before.
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
            _ => false,
        }
    }
}

impl fmt::Debug for LibraryWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closure(_) => f.write_str("code of the caller"),
            Self::Gemm(problem) => problem.fmt(f),
        }
    }
}
