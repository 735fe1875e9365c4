//! Typed views of buffers, whatever a buffer is to the caller.

use std::marker::PhantomData;
use std::ops::Range;

/// A type that kernels read and write.
pub trait Element: bytemuck::Pod {
    /// The name of the type in PTX and in messages, for example `f32`.
    const NAME: &'static str;
}

impl Element for f32 {
    const NAME: &'static str = "f32";
}
impl Element for f64 {
    const NAME: &'static str = "f64";
}
impl Element for half::bf16 {
    const NAME: &'static str = "bf16";
}
impl Element for u8 {
    const NAME: &'static str = "u8";
}
impl Element for u32 {
    const NAME: &'static str = "u32";
}
impl Element for u64 {
    const NAME: &'static str = "u64";
}

/// A contiguous run of `len` elements of type `T`, `offset` elements into the buffer `B`.
///
/// `B` is whatever names a buffer to the caller: a device address for those who launch by
/// themselves, a buffer of a pass for those who use the runtime.
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
        write!(f, "{:?}[{start}..{end}]: {}", self.buffer, T::NAME)
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
    /// When `range` does not lie inside the view, as slices do.
    pub fn slice(self, range: Range<usize>) -> Self {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "range {range:?} is outside a view of {} elements",
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

    /// The bytes of the buffer that the view covers.
    pub fn byte_range(self) -> Range<usize> {
        let size = size_of::<T>();
        self.offset * size..(self.offset + self.len) * size
    }
}
