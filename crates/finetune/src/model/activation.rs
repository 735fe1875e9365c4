//! What linear layers read: in f32, and rounded to bf16 where large products take it so.

use std::ops::Range;

use half::bf16;
use retrograph_kernels::ops::{Cast, NormPrologue, Output, TensorView};
use retrograph_runtime::{BufferId, Slice};

use super::builder::Builder;
use crate::error::Result;

/// In which forms something is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Forms {
    pub(super) f32: bool,
    pub(super) bf16: bool,
}

impl Forms {
    /// In f32 alone.
    pub(super) const F32: Self = Self { f32: true, bf16: false };
    /// In bf16 alone.
    pub(super) const BF16: Self = Self { f32: false, bf16: true };

    /// What both need.
    pub(super) fn and(self, other: Self) -> Self {
        Self { f32: self.f32 || other.f32, bf16: self.bf16 || other.bf16 }
    }
}

/// A tensor in the forms in which it is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Activation {
    written: Output<BufferId>,
    /// A norm that is still to be taken, by the products that read it.
    norm: Option<NormPrologue<BufferId>>,
}

impl From<Slice<f32>> for Activation {
    fn from(slice: Slice<f32>) -> Self {
        Self { written: slice.into(), norm: None }
    }
}

impl Activation {
    /// A transient in these forms, f32 where there is none.
    pub(super) fn transient(
        builder: &mut Builder,
        (name, len): (&str, usize),
        forms: Forms,
    ) -> Self {
        let brain = format!("{name}_bf16");
        let written = match forms {
            Forms { bf16: false, .. } => Output::F32(builder.transient(name, len)),
            Forms { f32: false, .. } => Output::Bf16(builder.transient_of(&brain, len)),
            Forms { .. } => {
                Output::Both(builder.transient(name, len), builder.transient_of(&brain, len))
            }
        };
        Self { written, norm: None }
    }

    /// `x`, which is about to be written, and a transient beside it where it is read as bf16.
    pub(super) fn beside(
        builder: &mut Builder,
        (name, x): (&str, Slice<f32>),
        forms: Forms,
    ) -> Self {
        if !forms.bf16 {
            return x.into();
        }
        let rounded = builder.transient_of::<bf16>(&format!("{name}_bf16"), x.len());
        Self { written: Output::Both(x, rounded), norm: None }
    }

    /// `x` behind a norm that products take when they read it, which those of one token do.
    pub(super) fn to_be_normed(x: Slice<f32>, norm: NormPrologue<BufferId>) -> Self {
        Self { written: x.into(), norm: Some(norm) }
    }

    /// The norm that is still to be taken.
    pub(super) fn norm(self) -> Option<NormPrologue<BufferId>> {
        self.norm
    }

    /// `x` in these forms. Where it must be rounded, that is an operation of its own.
    pub(super) fn of(builder: &mut Builder, x: Slice<f32>, forms: Forms) -> Result<Self> {
        if !forms.bf16 {
            return Ok(x.into());
        }
        let y = builder.transient_of::<bf16>("in_bf16", x.len());
        builder.launch(Cast { x, y }.launch())?;
        Ok(Self { written: Output::Both(x, y), norm: None })
    }

    /// Some of its elements.
    pub(super) fn slice(self, range: Range<usize>) -> Self {
        let written = match self.written {
            Output::F32(slice) => Output::F32(slice.slice(range)),
            Output::Bf16(slice) => Output::Bf16(slice.slice(range)),
            Output::Both(slice, rounded) => {
                Output::Both(slice.slice(range.clone()), rounded.slice(range))
            }
        };
        Self { written, ..self }
    }

    /// Where a kernel writes it.
    pub(super) fn written(self) -> Output<BufferId> {
        self.written
    }

    /// As products with a frozen weight read it: as bf16 where it is there.
    pub(super) fn stored(self) -> TensorView<BufferId> {
        match self.written {
            Output::F32(slice) => TensorView::F32(slice),
            Output::Bf16(slice) | Output::Both(_, slice) => TensorView::Bf16(slice),
        }
    }

    /// In f32.
    ///
    /// # Panics
    /// When it is not: [`Forms`] must ask for it.
    pub(super) fn floats(self) -> Slice<f32> {
        match self.written {
            Output::F32(slice) | Output::Both(slice, _) => slice,
            Output::Bf16(_) => panic!("what reads an activation in f32 must say so"),
        }
    }
}
