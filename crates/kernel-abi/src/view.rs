//! Typed views of buffers, generic over the buffer type.

use std::marker::PhantomData;
use std::ops::Range;

use crate::{Bf16, DType, F16};

/// A type that kernels read and write.
pub trait Element: bytemuck::Pod {
    /// The type as a value.
    const DTYPE: DType;
    /// The element type of kernel parameters that point to it.
    type Parameter;
}

impl Element for f32 {
    const DTYPE: DType = DType::F32;
    type Parameter = f32;
}
impl Element for f64 {
    const DTYPE: DType = DType::F64;
    type Parameter = f64;
}
impl Element for half::bf16 {
    const DTYPE: DType = DType::Bf16;
    type Parameter = Bf16;
}
impl Element for half::f16 {
    const DTYPE: DType = DType::F16;
    type Parameter = F16;
}
impl Element for u8 {
    const DTYPE: DType = DType::U8;
    type Parameter = u8;
}
impl Element for u32 {
    const DTYPE: DType = DType::U32;
    type Parameter = u32;
}
impl Element for u64 {
    const DTYPE: DType = DType::U64;
    type Parameter = u64;
}

/// A contiguous run of `len` elements of type `T`, `offset` elements into the buffer `B`.
///
/// `B` identifies a buffer: a device address if the caller launches directly, or a buffer of a pass
/// in the runtime.
pub struct View<B, T> {
    buffer: B,
    offset: usize,
    len: usize,
    element: PhantomData<fn() -> T>,
}

impl<B: Clone, T> Clone for View<B, T> {
    fn clone(&self) -> Self {
        Self { buffer: self.buffer.clone(), ..*self }
    }
}
impl<B: Copy, T> Copy for View<B, T> {}

impl<B: std::fmt::Debug, T: Element> std::fmt::Debug for View<B, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (start, end) = (self.offset, self.offset + self.len);
        write!(f, "{:?}[{start}..{end}]: {}", self.buffer, T::DTYPE)
    }
}

impl<B: Copy, T: Element> View<B, T> {
    /// A view of the first `len` elements of `buffer`.
    pub fn new(buffer: B, len: usize) -> Self {
        Self { buffer, offset: 0, len, element: PhantomData }
    }

    /// The elements `range` of this view.
    ///
    /// # Panics
    /// If `range` is not inside the view.
    pub fn slice(self, range: Range<usize>) -> Self {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "range {range:?} is outside of a view of {} elements",
            self.len
        );
        Self { offset: self.offset + range.start, len: range.len(), ..self }
    }

    /// The buffer that holds the elements.
    pub fn buffer(self) -> B {
        self.buffer
    }

    /// Number of elements.
    pub fn len(self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Whether the view starts at a multiple of `bytes`, at most 16, in its buffer. Buffers
    /// themselves start at multiples of 16.
    pub fn is_aligned(self, bytes: usize) -> bool {
        self.byte_range().start.is_multiple_of(bytes)
    }

    /// The bytes of the buffer that the view covers.
    ///
    /// # Panics
    /// If the byte range overflows `usize`: a wrapped end would look like one inside the buffer.
    pub fn byte_range(self) -> Range<usize> {
        let bytes = |elements: usize| elements.checked_mul(size_of::<T>());
        let range = bytes(self.offset).zip(bytes(self.offset + self.len));
        let (start, end) = range.expect("a view has no more bytes than there are addresses");
        start..end
    }
}
