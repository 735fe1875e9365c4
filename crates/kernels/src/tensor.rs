//! Tensors whose element type is known at run time: inputs, outputs, and matrices in NF4.

use std::ops::Range;

use half::bf16;
use retrograph_kernel_abi::{Any, Bf16, nf4};

use crate::checks::Check;
use crate::gemm::SplitMatrix;
use crate::launch::{ArgumentTypes, Pointer};
use crate::{DType, FoundSizes, KernelError, View};

/// A row-major tensor that a kernel reads, by its element type.
#[derive(Clone, Copy, Debug)]
pub enum TensorView<B> {
    /// f32.
    F32(View<B, f32>),
    /// bf16.
    Bf16(View<B, bf16>),
    /// 4-bit codes with scales.
    Nf4(Nf4<B>),
    /// f32 in two terms of f16. Only products of two split matrices read it.
    Split(SplitMatrix<B>),
}

/// A tensor that a kernel writes, in one element type or in two.
#[derive(Clone, Copy, Debug)]
pub enum Output<B> {
    /// f32.
    F32(View<B, f32>),
    /// Rounded to bf16, to the nearest, ties to even.
    Bf16(View<B, bf16>),
    /// Both: f32, and the same rounded to bf16.
    Both(View<B, f32>, View<B, bf16>),
}

impl<B> From<View<B, f32>> for Output<B> {
    fn from(view: View<B, f32>) -> Self {
        Self::F32(view)
    }
}

impl<B> From<View<B, bf16>> for Output<B> {
    fn from(view: View<B, bf16>) -> Self {
        Self::Bf16(view)
    }
}

/// The pointers of an output in f32 and in bf16; null if it is not written in that type.
pub(crate) type OutputPointers<B> = (Pointer<B, f32>, Pointer<B, Bf16>);

impl<B: Copy> Output<B> {
    /// Checks the length of every view; `name` is the field of the caller.
    pub(crate) fn check(
        self,
        check: Check,
        name: &'static str,
        expected: usize,
    ) -> Result<(), KernelError> {
        self.f32().map_or(Ok(()), |view| check.length(name, view, expected))?;
        self.bf16().map_or(Ok(()), |view| check.length(name, view, expected))
    }

    /// The view in f32, if there is one.
    pub(crate) fn f32(self) -> Option<View<B, f32>> {
        match self {
            Self::F32(view) | Self::Both(view, _) => Some(view),
            Self::Bf16(_) => None,
        }
    }

    /// The view in bf16, if there is one.
    pub(crate) fn bf16(self) -> Option<View<B, bf16>> {
        match self {
            Self::Bf16(view) | Self::Both(_, view) => Some(view),
            Self::F32(_) => None,
        }
    }

    /// The view in f32, or the violated `rule` as an error.
    pub(crate) fn require_f32(
        self,
        check: Check,
        rule: &'static str,
    ) -> Result<View<B, f32>, KernelError> {
        let (kernel, found) = (check.0, FoundSizes::None);
        self.f32().ok_or(KernelError::Shape { kernel, rule, found })
    }

    /// The pointers to f32 and to bf16.
    pub(crate) fn pointers(self) -> OutputPointers<B> {
        (Pointer::write_optional(self.f32()), Pointer::write_optional(self.bf16()))
    }
}

/// A row-major matrix in NF4, in the layout of bitsandbytes.
///
/// A byte holds two codes, the first one in its high nibble. Every 64 elements of the flattened
/// matrix share a scale. Rows have a multiple of 8 elements. See [`crate::nf4`] for the values.
#[derive(Clone, Copy, Debug)]
pub struct Nf4<B> {
    /// `[len ÷ 2]`, rounded up: the codes.
    pub codes: View<B, u8>,
    /// The largest absolute value of each block.
    pub scales: Nf4Scales<B>,
    /// Number of elements.
    pub len: usize,
}

/// The scales of a matrix in NF4.
#[derive(Clone, Copy, Debug)]
pub enum Nf4Scales<B> {
    /// One f32 per block.
    Plain(View<B, f32>),
    /// Quantized (double quantization): scale i is `map[absmax[i]] · nested[i ÷ 256] + offset`.
    Nested {
        /// One byte per block of 64 elements.
        absmax: View<B, u8>,
        /// One scale per 256 bytes.
        nested: View<B, f32>,
        /// `[256]`: the values of the bytes.
        map: View<B, f32>,
        /// `[1]`: added to each scale.
        offset: View<B, f32>,
    },
}

/// Elements that share a scale.
pub const NF4_BLOCK: usize = nf4::BLOCK as usize;
/// Scales that share a scale of the second quantization.
pub const NF4_NESTED_BLOCK: usize = nf4::NESTED_BLOCK as usize;

impl<B: Copy> Nf4<B> {
    /// Checks the lengths of codes and scales. `row_sizes` are as in
    /// [`TensorView::is_vectorizable`].
    pub(crate) fn check(&self, check: Check, row_sizes: &[usize]) -> Result<(), KernelError> {
        let Self { codes, scales, len } = *self;
        check.length("codes of w", codes, len.div_ceil(2))?;
        let blocks = len.div_ceil(NF4_BLOCK);
        match scales {
            Nf4Scales::Plain(absmax) => check.length("absmax of w", absmax, blocks)?,
            Nf4Scales::Nested { absmax, nested, map, offset } => {
                check.length("absmax of w", absmax, blocks)?;
                check.length("nested absmax of w", nested, blocks.div_ceil(NF4_NESTED_BLOCK))?;
                check.length("the map of w", map, nf4::BYTE_VALUES as usize)?;
                check.length("the offset of w", offset, 1)?;
            }
        }
        check.size("the number of elements of w", len)?;
        TensorView::from(*self).check_vectors(check, row_sizes)
    }

    /// The pointers to scales; null for scales that the matrix does not have.
    pub(crate) fn scale_pointers(&self) -> nf4::Nf4Scales<ArgumentTypes<B>> {
        match self.scales {
            Nf4Scales::Plain(absmax) => nf4::Nf4Scales {
                absmax: Pointer::read(absmax).any(),
                nested: Pointer::null(),
                map: Pointer::null(),
                offset: Pointer::null(),
            },
            Nf4Scales::Nested { absmax, nested, map, offset } => nf4::Nf4Scales {
                absmax: Pointer::read(absmax).any(),
                nested: Pointer::read(nested),
                map: Pointer::read(map),
                offset: Pointer::read(offset),
            },
        }
    }
}

impl<B> From<View<B, f32>> for TensorView<B> {
    fn from(view: View<B, f32>) -> Self {
        Self::F32(view)
    }
}

impl<B> From<View<B, bf16>> for TensorView<B> {
    fn from(view: View<B, bf16>) -> Self {
        Self::Bf16(view)
    }
}

impl<B> From<Nf4<B>> for TensorView<B> {
    fn from(matrix: Nf4<B>) -> Self {
        Self::Nf4(matrix)
    }
}

impl<B> From<SplitMatrix<B>> for TensorView<B> {
    fn from(matrix: SplitMatrix<B>) -> Self {
        Self::Split(matrix)
    }
}

/// The pointers of an input in f32 and in bf16; null if it is not in that type.
pub(crate) type InputPointers<B> = (Pointer<B, f32>, Pointer<B, Bf16>);

impl<B: Copy> TensorView<B> {
    /// The view of an input that a kernel reads in f32.
    pub(crate) fn require_f32(self, check: Check) -> Result<View<B, f32>, KernelError> {
        match self {
            Self::F32(view) => Ok(view),
            _ => {
                let (dtype, help) = (self.dtype(), "pass f32");
                Err(KernelError::UnsupportedDType { kernel: check.0, compute: dtype, dtype, help })
            }
        }
    }

    /// The pointers of an input that a kernel reads in f32 or bf16.
    pub(crate) fn f32_or_bf16(self, check: Check) -> Result<InputPointers<B>, KernelError> {
        match self {
            Self::F32(view) => Ok((Pointer::read(view), Pointer::null())),
            Self::Bf16(view) => Ok((Pointer::null(), Pointer::read(view))),
            Self::Nf4(_) | Self::Split(_) => {
                let (dtype, help) = (self.dtype(), "pass f32 or bf16");
                Err(KernelError::UnsupportedDType { kernel: check.0, compute: dtype, dtype, help })
            }
        }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::F32(view) => view.len(),
            Self::Bf16(view) => view.len(),
            Self::Nf4(matrix) => matrix.len,
            Self::Split(matrix) => matrix.len(),
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The element type; f16 for a split matrix.
    pub fn dtype(&self) -> DType {
        match self {
            Self::F32(_) => DType::F32,
            Self::Bf16(_) => DType::Bf16,
            Self::Nf4(_) => DType::Nf4,
            Self::Split(_) => DType::F16,
        }
    }

    /// Whether loads of 16 bytes, or of eight codes, are aligned. Each of `row_sizes` is the length
    /// of a row or a stride, in elements.
    pub(crate) fn is_vectorizable(&self, row_sizes: &[usize]) -> bool {
        let (aligned, vector) = match self {
            Self::F32(view) => (view.is_aligned(16), 4),
            Self::Bf16(view) => (view.is_aligned(16), 8),
            Self::Nf4(matrix) => (matrix.codes.is_aligned(16), 8),
            Self::Split(matrix) => (matrix.terms.is_aligned(16), 8),
        };
        aligned && row_sizes.iter().all(|size| size % vector == 0)
    }

    /// Checks [`Self::is_vectorizable`].
    pub(crate) fn check_vectors(
        &self,
        check: Check,
        row_sizes: &[usize],
    ) -> Result<(), KernelError> {
        let rule = "operands that are read in vectors must start at multiples of 16 bytes";
        check.rule(self.is_vectorizable(&[]), rule, self.byte_range().start)?;
        let ragged = row_sizes.iter().find(|size| !self.is_vectorizable(&[**size]));
        let rule = "rows that are read in vectors, and distances of rows, must have a multiple of \
                    8 elements, in f32 of 4";
        ragged.map_or(Ok(()), |size| check.rule(false, rule, *size))
    }

    /// The pointer to the elements or codes.
    pub(crate) fn pointer(&self) -> Pointer<B, Any> {
        match *self {
            Self::F32(view) => Pointer::read(view).any(),
            Self::Bf16(view) => Pointer::read(view).any(),
            Self::Nf4(Nf4 { codes, .. }) => Pointer::read(codes).any(),
            Self::Split(SplitMatrix { terms, .. }) => Pointer::read(terms).any(),
        }
    }

    /// The bytes of the elements or codes in their buffer.
    pub(crate) fn byte_range(&self) -> Range<usize> {
        match self {
            Self::F32(view) => view.byte_range(),
            Self::Bf16(view) => view.byte_range(),
            Self::Nf4(Nf4 { codes, .. }) => codes.byte_range(),
            Self::Split(SplitMatrix { terms, .. }) => terms.byte_range(),
        }
    }

    /// The matrix in NF4, if it is one.
    pub(crate) fn nf4(&self) -> Option<&Nf4<B>> {
        if let Self::Nf4(matrix) = self { Some(matrix) } else { None }
    }

    /// The split matrix, if it is one.
    pub(crate) fn split(&self) -> Option<&SplitMatrix<B>> {
        if let Self::Split(matrix) = self { Some(matrix) } else { None }
    }
}
