//! Arguments of a launch, and how it accesses buffers.

use std::ops::Range;

use bytemuck::Pod;
use retrograph_ptx::TensorMapLayout;

use crate::{Element, View};

/// How a launch accesses a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Only read.
    Read,
    /// No byte of the range is read before it is written, and none keeps its value: it is written,
    /// or unspecified afterwards.
    Write,
    /// Read and written, or partly written while other bytes keep their values.
    ReadWrite,
    /// Only read, and possibly before `griddepcontrol.wait`: with programmatic dependent launch
    /// (PDL), the read may happen while earlier kernels still run. A caller that uses PDL must
    /// ensure that none of them writes the range.
    ReadBeforeWait,
}

impl Access {
    /// Whether the launch may read the previous contents of the buffer.
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
    /// Creates the argument that accesses `view` with `access`.
    pub fn new<T: Element>(view: View<B, T>, access: Access) -> Self {
        Self { buffer: view.buffer(), bytes: view.byte_range(), access }
    }
}

/// Elements and rows of a box of a tensor map.
pub type BoxSizes = [u32; 2];

/// A tensor map argument. The launch accesses the range through another argument, which declares
/// the access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorMapArgument<B> {
    /// The buffer.
    pub buffer: B,
    /// The bytes of the buffer that contain the tensor. Its first element is at their start, which
    /// is a multiple of 16.
    pub bytes: Range<usize>,
    /// The tensor and the box in which it is copied.
    pub layout: TensorMapLayout,
}

/// One eight-byte cell of a table argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell<B> {
    /// The device address of a range.
    Address(BufferArgument<B>),
    /// A number, stored as eight little-endian bytes.
    Word(u64),
}

/// A scalar or a struct by value, in the layout of the kernel's parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgumentValue {
    bytes: Box<[u8]>,
    align: usize,
}

impl ArgumentValue {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The alignment in bytes, a power of two.
    pub fn align(&self) -> usize {
        self.align
    }
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
    /// Any other scalar, or a struct by value. Only kernels of the caller have such parameters.
    Value(ArgumentValue),
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

    /// A view that keeps none of its contents: [`Access::Write`].
    pub fn write<T: Element>(view: View<B, T>) -> Self {
        Self::Buffer(BufferArgument::new(view, Access::Write))
    }

    /// A view that is updated in place.
    pub fn update<T: Element>(view: View<B, T>) -> Self {
        Self::Buffer(BufferArgument::new(view, Access::ReadWrite))
    }

    /// The map of the tensor at the start of `view`. Another argument declares the access.
    pub fn tensor_map<T: Element>(view: View<B, T>, layout: TensorMapLayout) -> Self {
        let (buffer, bytes) = (view.buffer(), view.byte_range());
        Self::TensorMap(Some(TensorMapArgument { buffer, bytes, layout }))
    }

    /// A constant float.
    pub fn f32(value: f32) -> Self {
        Self::F32(value.to_bits())
    }

    /// A constant of any scalar type, or a struct by value in the layout of the parameter.
    ///
    /// A type without bytes does not compile, nor one with an alignment above 128.
    pub fn value<T: Pod>(value: T) -> Self {
        const {
            assert!(size_of::<T>() > 0, "a parameter has bytes");
            assert!(align_of::<T>() <= 128, "no parameter has this alignment");
        }
        let bytes = bytemuck::bytes_of(&value).into();
        Self::Value(ArgumentValue { bytes, align: align_of::<T>() })
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
