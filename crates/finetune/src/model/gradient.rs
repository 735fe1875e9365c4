//! The gradient of a parameter in a pass.

use std::ops::Range;

use half::bf16;
use retrograph_kernels::ops::TensorView;
use retrograph_runtime::{BufferId, CollectiveGroup, PassError, Slice};

/// The gradient of a parameter, or a part of it.
#[derive(Clone, Copy, Debug)]
pub enum Gradient {
    /// f32.
    F32(Slice<f32>),
    /// bf16, rounded once from an f32 sum: for weights of linear layers if
    /// [`Precision::gradients`](crate::Precision::gradients) is bf16.
    Bf16(Slice<bf16>),
}

impl Gradient {
    /// The elements `range`.
    pub(super) fn slice(self, range: Range<usize>) -> Self {
        match self {
            Self::F32(slice) => Self::F32(slice.slice(range)),
            Self::Bf16(slice) => Self::Bf16(slice.slice(range)),
        }
    }

    /// Returns the gradient of a parameter that is not a linear weight, or that accumulates.
    ///
    /// # Panics
    /// If it is bf16.
    pub(crate) fn f32(self) -> Slice<f32> {
        match self {
            Self::F32(slice) => slice,
            Self::Bf16(_) => panic!("only gradients of weights of linear layers are bf16"),
        }
    }

    /// Adds a reduce-scatter of the gradient to `group`.
    pub(super) fn reduce_scatter(
        self,
        group: CollectiveGroup,
    ) -> Result<CollectiveGroup, PassError> {
        match self {
            Self::F32(slice) => group.reduce_scatter(slice),
            Self::Bf16(slice) => group.reduce_scatter(slice),
        }
    }
}

impl From<Gradient> for TensorView<BufferId> {
    fn from(gradient: Gradient) -> Self {
        match gradient {
            Gradient::F32(slice) => slice.into(),
            Gradient::Bf16(slice) => slice.into(),
        }
    }
}
