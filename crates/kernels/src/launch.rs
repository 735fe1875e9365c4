//! Launches: a kernel, its problem and its arguments, before any device is known.
//!
//! [`Launch::dispatch`] derives entry point, grid, block and shared memory once the SM target is
//! known. Until then a pass can be described, counted and planned without a device.

use std::marker::PhantomData;
use std::ops::Range;

use retrograph_kernel_abi::{Any, Arguments, Flags, Parameter, ParameterTypes, Signature};
use retrograph_ptx::SmTarget;

use crate::DType;
use crate::problem::Problem;
use crate::view::{Element, View};

/// How a launch accesses a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Only read.
    Read,
    /// Every byte of the range is written, and none is read before that.
    Write,
    /// Read and written, or written in part.
    ReadWrite,
    /// Only read, and possibly before `griddepcontrol.wait`: with programmatic dependent launch
    /// (PDL), the read may happen while earlier kernels still run. A caller that launches with PDL
    /// must make sure that none of them writes the range.
    ReadBeforeWait,
}

impl Access {
    /// Whether the launch may read what the buffer held before.
    pub fn reads(self) -> bool {
        self != Self::Write
    }

    /// Whether the launch may change the buffer.
    pub fn writes(self) -> bool {
        matches!(self, Self::Write | Self::ReadWrite)
    }
}

/// A pointer argument: a byte range of a buffer and how it is accessed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferArgument<B> {
    /// The buffer.
    pub buffer: B,
    /// The bytes of the buffer that may be accessed. The pointer is the start of the range.
    pub bytes: Range<usize>,
    /// How they are accessed.
    pub access: Access,
}

impl<B: Copy> BufferArgument<B> {
    /// The argument that accesses `view` by `access`.
    pub fn new<T: Element>(view: View<B, T>, access: Access) -> Self {
        Self { buffer: view.buffer(), bytes: view.byte_range(), access }
    }
}

/// A tensor map argument: planes of a row-major matrix, copied in boxes with the 128-byte swizzle.
///
/// The launch accesses the range through another argument, which declares the access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorMapArgument<B> {
    /// The buffer.
    pub buffer: B,
    /// The bytes of the buffer that the planes cover.
    pub bytes: Range<usize>,
    /// The element type: bf16 or f32.
    pub dtype: DType,
    /// Elements of a row, rows of a plane, and planes; none is 0.
    pub sizes: [u64; 3],
    /// Bytes from row to row and from plane to plane, multiples of 16.
    pub strides: [u64; 2],
    /// Elements and rows of a box.
    pub box_sizes: [u32; 2],
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
    /// A null pointer: an optional operand that is absent.
    Null,
    /// A 32-bit unsigned integer.
    U32(u32),
    /// A 64-bit unsigned integer.
    U64(u64),
    /// A 32-bit float, as its bits.
    F32(u32),
    /// A pointer to a read-only table of cells in device memory, for kernels over lists of tensors.
    /// The caller writes the table before the first launch and keeps it alive.
    Table(Vec<Cell<B>>),
    /// A tensor map, by value. The kernel does not read it if it is `None` or if the target has no
    /// TMA.
    TensorMap(Option<TensorMapArgument<B>>),
}

impl<B: Copy> Argument<B> {
    /// A view that is only read.
    pub fn read<T: Element>(view: View<B, T>) -> Self {
        Self::Buffer(BufferArgument::new(view, Access::Read))
    }

    /// A view that is overwritten completely.
    pub fn write<T: Element>(view: View<B, T>) -> Self {
        Self::Buffer(BufferArgument::new(view, Access::Write))
    }

    /// A view that is updated in place.
    pub fn update<T: Element>(view: View<B, T>) -> Self {
        Self::Buffer(BufferArgument::new(view, Access::ReadWrite))
    }

    /// A constant float.
    pub fn f32(value: f32) -> Self {
        Self::F32(value.to_bits())
    }

    /// The buffer ranges that this argument accesses. A tensor map declares none.
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

/// A pointer parameter in a launch, to elements of type `E`.
pub(crate) struct Pointer<B, E>(Argument<B>, PhantomData<fn() -> E>);

impl<B, E> Pointer<B, E> {
    fn new(argument: Argument<B>) -> Self {
        Self(argument, PhantomData)
    }

    /// The null pointer: an optional operand that is absent.
    pub(crate) fn null() -> Self {
        Self::new(Argument::Null)
    }

    /// The same pointer for a parameter that takes elements of any type.
    pub(crate) fn any(self) -> Pointer<B, Any> {
        Pointer::new(self.0)
    }
}

impl<B: Copy, E> Pointer<B, E> {
    /// A view that is only read.
    pub(crate) fn read<T: Element<Parameter = E>>(view: View<B, T>) -> Self {
        Self::new(Argument::read(view))
    }

    /// A view that is overwritten completely.
    pub(crate) fn write<T: Element<Parameter = E>>(view: View<B, T>) -> Self {
        Self::new(Argument::write(view))
    }

    /// A view that is updated in place.
    pub(crate) fn update<T: Element<Parameter = E>>(view: View<B, T>) -> Self {
        Self::new(Argument::update(view))
    }

    /// A view that is updated if `accumulate` is set, and overwritten completely if not.
    pub(crate) fn output<T: Element<Parameter = E>>(view: View<B, T>, accumulate: bool) -> Self {
        if accumulate { Self::update(view) } else { Self::write(view) }
    }

    /// An optional view that is only read.
    pub(crate) fn read_optional<T: Element<Parameter = E>>(view: Option<View<B, T>>) -> Self {
        view.map_or(Self::null(), Self::read)
    }

    /// An optional view that is overwritten completely.
    pub(crate) fn write_optional<T: Element<Parameter = E>>(view: Option<View<B, T>>) -> Self {
        view.map_or(Self::null(), Self::write)
    }

    /// The same pointer with an empty range.
    pub(crate) fn without_access(mut self) -> Self {
        if let Argument::Buffer(argument) = &mut self.0 {
            argument.bytes.end = argument.bytes.start;
        }
        self
    }

    /// The same pointer with [`Access::ReadBeforeWait`], if it is only read.
    pub(crate) fn before_wait(mut self) -> Self {
        if let Argument::Buffer(argument) = &mut self.0
            && argument.access == Access::Read
        {
            argument.access = Access::ReadBeforeWait;
        }
        self
    }
}

impl<B> Pointer<B, u64> {
    /// A table of cells.
    pub(crate) fn table(cells: Vec<Cell<B>>) -> Self {
        Self::new(Argument::Table(cells))
    }
}

/// The values of parameters in a launch, for the parameter structs of `retrograph-kernel-abi`.
pub(crate) struct ArgumentTypes<B>(PhantomData<B>);

impl<B> ParameterTypes for ArgumentTypes<B> {
    type Pointer<E> = Pointer<B, E>;
    type U32 = u32;
    type F32 = f32;
    type TensorMap = Option<TensorMapArgument<B>>;
    type F64 = f64;
    type Bool = bool;
    type Flags<F: Flags> = F;
}

impl<B> Arguments for ArgumentTypes<B> {
    type Argument = Argument<B>;

    fn pointer<E>(value: Pointer<B, E>) -> Argument<B> {
        value.0
    }

    fn u32(value: u32) -> Argument<B> {
        Argument::U32(value)
    }

    fn f32(value: f32) -> Argument<B> {
        Argument::F32(value.to_bits())
    }

    fn f64(value: f64) -> Argument<B> {
        Argument::U64(value.to_bits())
    }

    fn bool(value: bool) -> Argument<B> {
        Argument::U32(value.into())
    }

    fn flags<F: Flags>(value: F) -> Argument<B> {
        Argument::U32(value.bits())
    }

    fn tensor_map(value: Option<TensorMapArgument<B>>) -> Argument<B> {
        Argument::TensorMap(value)
    }
}

/// What is launched for a problem on an SM target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dispatch {
    /// The entry point in the kernel's image.
    pub entry: &'static str,
    /// Blocks in x, y, z. A zero in any of them means that there is nothing to launch.
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

/// A kernel: the image with its entry points, its parameters, and its launch geometry.
pub struct Kernel {
    /// The name, unique among kernels.
    pub name: &'static str,
    /// The image with its entry points; see [`crate::images`].
    pub image: &'static str,
    /// The parameters, the same for every entry point of the kernel.
    pub parameters: &'static [Parameter],
    /// Every entry point that `dispatch` can choose, on any target.
    pub entries: &'static [&'static str],
    /// Chooses entry point, grid, block and shared memory. `None` for a problem of a kind that the
    /// kernel does not take.
    pub dispatch: fn(&Problem, SmTarget) -> Option<Dispatch>,
}

impl Kernel {
    /// The kernel `name` with the given signature.
    pub(crate) const fn new(
        name: &'static str,
        signature: &Signature,
        dispatch: fn(&Problem, SmTarget) -> Option<Dispatch>,
    ) -> Self {
        let Signature { image, parameters, entries } = *signature;
        Self { name, image, parameters, entries, dispatch }
    }
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

/// One launch: a kernel, its problem and its arguments.
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
    ///
    /// # Panics
    /// If the problem is of a kind that the kernel does not take. Launches that this crate returns
    /// never are.
    pub fn dispatch(&self, target: SmTarget) -> Dispatch {
        let dispatch = (self.kernel.dispatch)(&self.problem, target);
        dispatch.unwrap_or_else(|| panic!("{:?} does not take {:?}", self.kernel, self.problem))
    }

    /// Declares that `count` launches of the same sizes may run concurrently with this one, as
    /// parallel branches of a graph do. A matrix product then takes the tile that is fastest for
    /// all of them together. Other launches do not change. The bits of the result do not change
    /// either.
    pub fn concurrent(mut self, count: u32) -> Self {
        if let Problem::Gemm(problem) = &mut self.problem {
            problem.concurrent = count;
        }
        self
    }
}
