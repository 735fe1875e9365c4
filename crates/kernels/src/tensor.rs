//! How products are computed, and how the matrix that they multiply by is stored.

use half::bf16;

use crate::checks::Check;
use crate::{Argument, Kernel, KernelError, View};

/// The type of the factors of a product. Sums are f32 always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Compute {
    /// Factors are f32, and each product is added by a fused multiply-add.
    #[default]
    F32,
    /// Factors are rounded to bf16, to the nearest and ties to even, and multiplied by tensor
    /// cores from sm_80 on.
    Bf16,
}

impl Compute {
    /// The name of the type.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
        }
    }
}

/// A row-major matrix in device memory, by how its elements are stored.
#[derive(Clone, Copy, Debug)]
pub enum Stored<B> {
    /// As f32.
    F32(View<B, f32>),
    /// As bf16, for products in bf16.
    Bf16(View<B, bf16>),
    /// As codes of 4 bits.
    Nf4(Nf4<B>),
}

/// Where a result goes.
#[derive(Clone, Copy, Debug)]
pub enum Written<B> {
    /// As f32.
    F32(View<B, f32>),
    /// Rounded to bf16, to the nearest and ties to even.
    Bf16(View<B, bf16>),
    /// As f32, and rounded to bf16.
    Both(View<B, f32>, View<B, bf16>),
}

impl<B> From<View<B, f32>> for Written<B> {
    fn from(view: View<B, f32>) -> Self {
        Self::F32(view)
    }
}

impl<B> From<View<B, bf16>> for Written<B> {
    fn from(view: View<B, bf16>) -> Self {
        Self::Bf16(view)
    }
}

impl<B: Copy> Written<B> {
    /// Checks the length of every view, named as in the caller.
    pub(crate) fn check(
        self,
        check: Check,
        name: &'static str,
        expected: usize,
    ) -> Result<(), KernelError> {
        match self {
            Self::F32(view) => check.length(name, view, expected),
            Self::Bf16(view) => check.length(name, view, expected),
            Self::Both(view, rounded) => {
                check.length(name, view, expected)?;
                check.length(name, rounded, expected)
            }
        }
    }

    /// The view in f32, which `rule` says must be there.
    pub(crate) fn floats(
        self,
        check: Check,
        rule: &'static str,
    ) -> Result<View<B, f32>, KernelError> {
        match self {
            Self::F32(view) | Self::Both(view, _) => Ok(view),
            Self::Bf16(view) => {
                let (kernel, left, right) = (check.0, view.len(), 0);
                Err(KernelError::Shape { kernel, what: rule, left, right })
            }
        }
    }

    /// The two pointers.
    pub(crate) fn arguments(self) -> [Argument<B>; 2] {
        match self {
            Self::F32(view) => [Argument::write(view), Argument::Null],
            Self::Bf16(view) => [Argument::Null, Argument::write(view)],
            Self::Both(view, rounded) => [Argument::write(view), Argument::write(rounded)],
        }
    }
}

/// A row-major matrix of 4-bit codes in the layout of bitsandbytes: two codes in a byte, the first
/// in the upper half, and a scale for each 64 elements of the matrix as one row. Rows have a
/// multiple of 8 elements.
#[derive(Clone, Copy, Debug)]
pub struct Nf4<B> {
    /// The codes: half a byte for each element, rounded up.
    pub codes: View<B, u8>,
    /// The largest absolute value of each block.
    pub scales: Nf4Scales<B>,
    /// Number of elements.
    pub len: usize,
}

/// The scales of a matrix in NF4.
#[derive(Clone, Copy, Debug)]
pub enum Nf4Scales<B> {
    /// As they are.
    Plain(View<B, f32>),
    /// Quantized in turn: scale i is `map[absmax[i]] · nested[i ÷ 256] + offset`.
    Nested {
        /// A byte for each block of 64 elements.
        absmax: View<B, u8>,
        /// A scale for each 256 bytes.
        nested: View<B, f32>,
        /// The 256 values of the bytes.
        map: View<B, f32>,
        /// What is added to each scale.
        offset: View<B, f32>,
    },
}

/// Elements that share a scale.
pub const NF4_BLOCK: usize = 64;
/// Scales that share a scale of the second quantization.
pub const NF4_NESTED_BLOCK: usize = 256;

impl<B> From<View<B, f32>> for Stored<B> {
    fn from(view: View<B, f32>) -> Self {
        Self::F32(view)
    }
}

impl<B> From<View<B, bf16>> for Stored<B> {
    fn from(view: View<B, bf16>) -> Self {
        Self::Bf16(view)
    }
}

impl<B> From<Nf4<B>> for Stored<B> {
    fn from(matrix: Nf4<B>) -> Self {
        Self::Nf4(matrix)
    }
}

impl<B: Copy> Stored<B> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::F32(view) => view.len(),
            Self::Bf16(view) => view.len(),
            Self::Nf4(matrix) => matrix.len,
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The name of the type.
    pub fn name(&self) -> &'static str {
        match self {
            Self::F32(_) => "f32",
            Self::Bf16(_) => "bf16",
            Self::Nf4(_) => "NF4",
        }
    }

    /// Whether loads of 16 bytes, or of eight codes, can be used, given how the elements of a row
    /// follow each other. Every one of `sizes` is a distance in elements or a length of a row.
    pub(crate) fn in_vectors(&self, sizes: &[usize]) -> bool {
        let (start, unit) = match self {
            Self::F32(view) => (view.byte_range().start, 4),
            Self::Bf16(view) => (view.byte_range().start, 8),
            Self::Nf4(matrix) => (matrix.codes.byte_range().start, 8),
        };
        start % 16 == 0 && sizes.iter().all(|size| size % unit == 0)
    }

    /// Checks that codes and scales are as many as the elements need.
    pub(crate) fn check(&self, check: Check, sizes: &[usize]) -> Result<(), KernelError> {
        let Self::Nf4(Nf4 { codes, scales, len }) = *self else { return Ok(()) };
        check.length("codes of w", codes, len.div_ceil(2))?;
        let blocks = len.div_ceil(NF4_BLOCK);
        match scales {
            Nf4Scales::Plain(absmax) => check.length("absmax of w", absmax, blocks)?,
            Nf4Scales::Nested { absmax, nested, map, offset } => {
                check.length("absmax of w", absmax, blocks)?;
                check.length("nested absmax of w", nested, blocks.div_ceil(NF4_NESTED_BLOCK))?;
                check.length("the map of w", map, 256)?;
                check.length("the offset of w", offset, 1)?;
            }
        }
        check.size("the number of elements of w", len)?;
        let rule = "rows in NF4 start at a multiple of 16 bytes and have a multiple of 8 elements";
        let worst = sizes.iter().copied().find(|size| size % 8 != 0).unwrap_or(0);
        check.rule(self.in_vectors(sizes), rule, (codes.byte_range().start, worst))
    }

    /// The pointer to the elements, and those to scales where there are any.
    pub(crate) fn arguments(&self) -> (Argument<B>, Vec<Argument<B>>) {
        match *self {
            Self::F32(view) => (Argument::read(view), Vec::new()),
            Self::Bf16(view) => (Argument::read(view), Vec::new()),
            Self::Nf4(Nf4 { codes, scales, .. }) => {
                let scales = match scales {
                    Nf4Scales::Plain(absmax) => {
                        [Argument::read(absmax), Argument::Null, Argument::Null, Argument::Null]
                    }
                    Nf4Scales::Nested { absmax, nested, map, offset } => [
                        Argument::read(absmax),
                        Argument::read(nested),
                        Argument::read(map),
                        Argument::read(offset),
                    ],
                };
                (Argument::read(codes), scales.into())
            }
        }
    }
}

/// The kernels of one formula, by how they compute and how b is stored.
#[derive(Clone, Copy)]
pub(crate) struct Family {
    pub(crate) f32: &'static Kernel,
    pub(crate) bf16: &'static Kernel,
    /// With b in bf16, computed in bf16.
    pub(crate) bf16_stored: Option<&'static Kernel>,
    /// With b in NF4, computed in f32 and in bf16.
    pub(crate) nf4: Option<[&'static Kernel; 2]>,
    /// With a and b in bf16, computed in bf16.
    pub(crate) streamed: Option<&'static Kernel>,
    /// With a in bf16 and b in NF4, computed in bf16.
    pub(crate) streamed_nf4: Option<&'static Kernel>,
}

impl Family {
    /// A formula whose b is never a stored weight.
    pub(crate) const fn of(f32: &'static Kernel, bf16: &'static Kernel) -> Self {
        Self { f32, bf16, bf16_stored: None, nf4: None, streamed: None, streamed_nf4: None }
    }

    /// The kernel that computes in `compute` with these operands.
    pub(crate) fn kernel<B: Copy>(
        &self,
        compute: Compute,
        (a, b): (&Stored<B>, &Stored<B>),
    ) -> Result<&'static Kernel, KernelError> {
        let found = match (compute, a, b) {
            (Compute::Bf16, Stored::Bf16(_), Stored::Bf16(_)) => self.streamed,
            (Compute::Bf16, Stored::Bf16(_), Stored::Nf4(_)) => self.streamed_nf4,
            (_, Stored::Bf16(_) | Stored::Nf4(_), _) => None,
            (Compute::F32, _, Stored::F32(_)) => Some(self.f32),
            (Compute::Bf16, _, Stored::F32(_)) => Some(self.bf16),
            (Compute::F32, _, Stored::Bf16(_)) => None,
            (Compute::Bf16, _, Stored::Bf16(_)) => self.bf16_stored,
            (Compute::F32, _, Stored::Nf4(_)) => self.nf4.map(|[f32, _]| f32),
            (Compute::Bf16, _, Stored::Nf4(_)) => self.nf4.map(|[_, bf16]| bf16),
        };
        let wrong = if matches!(a, Stored::F32(_)) { b } else { a };
        found.ok_or(KernelError::Storage {
            kernel: self.f32.name,
            compute: compute.name(),
            stored: wrong.name(),
            way_out: "compute in bf16, or store it as f32; a first operand in bf16 takes a second \
                      one in bf16 or NF4",
        })
    }
}
