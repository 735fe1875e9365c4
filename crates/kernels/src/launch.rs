//! What a launch is before any device is known: the kernel, its problem and its arguments.
//!
//! A [`Launch`] names a kernel and the shape of the problem. Which entry point, grid, block and
//! shared memory follow is decided by [`Launch::dispatch`] once the SM target is known, so that a
//! pass can be described, counted and planned without a device.

use std::ops::Range;

use retrograph_ptx::SmTarget;

use crate::view::{Element, View};

/// How a launch touches a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Only read.
    Read,
    /// Every byte of the range is written, and none is read before that.
    Write,
    /// Read and written, or written in part.
    ReadWrite,
    /// Only read, and perhaps before what comes in front of the launch has ended, where the launch
    /// is let start early. Whoever lets it makes sure that nothing in front writes the range.
    ReadAhead,
}

impl Access {
    /// Whether the launch may read what was there before it.
    pub fn reads(self) -> bool {
        self != Self::Write
    }

    /// Whether the launch may change the buffer.
    pub fn writes(self) -> bool {
        matches!(self, Self::Write | Self::ReadWrite)
    }
}

/// A pointer argument: a byte range of a buffer and how it is touched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferArgument<B> {
    /// The buffer.
    pub buffer: B,
    /// The bytes of the buffer that may be touched; the pointer is its start.
    pub bytes: Range<usize>,
    /// How they are touched.
    pub access: Access,
}

impl<B: Copy> BufferArgument<B> {
    /// The argument that touches `view` by `access`.
    pub fn new<T: Element>(view: View<B, T>, access: Access) -> Self {
        Self { buffer: view.buffer(), bytes: view.byte_range(), access }
    }
}

/// One eight-byte cell of a table argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell<B> {
    /// The device address of a range.
    Address(BufferArgument<B>),
    /// A number, stored as eight little-endian bytes.
    Word(u64),
}

/// One kernel argument, in the order of the kernel's parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Argument<B> {
    /// A 64-bit pointer to a range.
    Buffer(BufferArgument<B>),
    /// A pointer that is null: an optional operand that is absent.
    Null,
    /// A 32-bit unsigned integer.
    U32(u32),
    /// A 64-bit unsigned integer.
    U64(u64),
    /// A 32-bit float, compared by its bits.
    F32(u32),
    /// A pointer to a read-only table of cells in device memory, for kernels over lists of tensors.
    /// Whoever launches writes the table before the first launch and keeps it alive.
    Table(Vec<Cell<B>>),
}

impl<B: Copy> Argument<B> {
    /// A view that is only read.
    pub fn read<T: Element>(view: View<B, T>) -> Self {
        Self::Buffer(BufferArgument::new(view, Access::Read))
    }

    /// A view that is written whole.
    pub fn write<T: Element>(view: View<B, T>) -> Self {
        Self::Buffer(BufferArgument::new(view, Access::Write))
    }

    /// A view that is updated in place.
    pub fn update<T: Element>(view: View<B, T>) -> Self {
        Self::Buffer(BufferArgument::new(view, Access::ReadWrite))
    }

    /// The same argument, but that what it reads may be read ahead: see [`Access::ReadAhead`].
    pub fn ahead(mut self) -> Self {
        if let Self::Buffer(argument) = &mut self
            && argument.access == Access::Read
        {
            argument.access = Access::ReadAhead;
        }
        self
    }

    /// A constant float.
    pub fn f32(value: f32) -> Self {
        Self::F32(value.to_bits())
    }

    /// The buffer ranges that this argument touches.
    pub fn buffers(&self) -> impl Iterator<Item = &BufferArgument<B>> {
        let (single, cells) = match self {
            Self::Buffer(argument) => (Some(argument), [].as_slice()),
            Self::Table(cells) => (None, cells.as_slice()),
            _ => (None, [].as_slice()),
        };
        single.into_iter().chain(cells.iter().filter_map(|cell| match cell {
            Cell::Address(argument) => Some(argument),
            Cell::Word(_) => None,
        }))
    }
}

/// The type of a kernel parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterKind {
    /// A 64-bit device pointer (`.u64` in PTX), which may be null where the kernel says so.
    Pointer,
    /// `.u32`.
    U32,
    /// `.u64`.
    U64,
    /// `.f32`.
    F32,
}

impl ParameterKind {
    /// The size in bytes.
    pub fn bytes(self) -> usize {
        match self {
            Self::Pointer | Self::U64 => 8,
            Self::U32 | Self::F32 => 4,
        }
    }
}

/// One parameter of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// The name in the PTX source.
    pub name: &'static str,
    /// The type.
    pub kind: ParameterKind,
}

/// The sizes of a problem, in the order that the kernel's documentation gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Problem {
    /// The sizes; unused ones are 0.
    pub sizes: [u32; 8],
    /// How many launches like this one run beside it where the device has room, which geometry may
    /// take into account; see [`Launch::beside`].
    pub beside: u32,
}

impl<const N: usize> From<[u32; N]> for Problem {
    fn from(given: [u32; N]) -> Self {
        let mut sizes = [0; 8];
        sizes[..N].copy_from_slice(&given);
        Self { sizes, beside: 0 }
    }
}

/// What is launched for a problem on an SM target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dispatch {
    /// The entry point in the kernel's image.
    pub entry: &'static str,
    /// Blocks in x, y, z. A zero anywhere means that there is nothing to launch.
    pub grid: [u32; 3],
    /// Threads per block in x, y, z.
    pub block: [u32; 3],
    /// Dynamic shared memory in bytes.
    pub shared_bytes: u32,
}

impl Dispatch {
    /// Whether the problem is empty, so that nothing must be launched.
    pub fn is_empty(&self) -> bool {
        self.grid.contains(&0)
    }
}

/// A kernel: the image that holds its entry points, its parameters, and its launch geometry.
pub struct Kernel {
    /// The name, unique among kernels.
    pub name: &'static str,
    /// The image that holds its entry points; see [`crate::images`].
    pub image: &'static str,
    /// The parameters, the same for every entry point of the kernel.
    pub parameters: &'static [Parameter],
    /// Every entry point that `dispatch` can choose, on one target or another.
    pub entries: &'static [&'static str],
    /// Chooses entry point, grid, block and shared memory.
    pub dispatch: fn(&Problem, SmTarget) -> Dispatch,
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Kernel({})", self.name)
    }
}

impl PartialEq for Kernel {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// One launch: a kernel, the sizes of its problem and its arguments.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch<B> {
    /// The kernel.
    pub kernel: &'static Kernel,
    /// The sizes of the problem.
    pub problem: Problem,
    /// The arguments, one for each of the kernel's parameters.
    pub arguments: Vec<Argument<B>>,
}

impl<B> Launch<B> {
    /// Entry point and geometry on `target`.
    pub fn dispatch(&self, target: SmTarget) -> Dispatch {
        (self.kernel.dispatch)(&self.problem, target)
    }

    /// Says that `count` launches like this one are meant to run beside it, as they may in a graph.
    /// A product then takes tiles with which all of them together are done soonest, where it would
    /// take those with which it alone is. The result has the same bits.
    pub fn beside(mut self, count: u32) -> Self {
        self.problem.beside = count;
        self
    }
}
