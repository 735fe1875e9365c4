//! Activations in the dtypes that layers read.

use std::ops::Range;

use half::bf16;
use retrograph_kernels::KernelError;
use retrograph_kernels::ops::{
    Cast, DType, Embedding, NormPrologue, Output, ReorderRows, SplitMatrix, TensorView,
};
use retrograph_runtime::{BufferId, Slice};

use super::Builder;
use crate::error::Result;
use crate::model::targets::TargetRows;

/// The dtypes in which a tensor is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::model) struct Dtypes {
    pub(in crate::model) f32: bool,
    pub(in crate::model) bf16: bool,
    /// As f16 terms, which products with an f16 weight read.
    pub(in crate::model) terms: bool,
}

impl From<DType> for Dtypes {
    fn from(dtype: DType) -> Self {
        Self { f32: dtype == DType::F32, bf16: dtype == DType::Bf16, terms: false }
    }
}

impl Dtypes {
    /// Only f32.
    pub(super) const F32: Self = Self { f32: true, bf16: false, terms: false };

    /// Returns the dtypes of both.
    pub(super) fn and(self, other: Self) -> Self {
        let (f32, bf16) = (self.f32 || other.f32, self.bf16 || other.bf16);
        Self { f32, bf16, terms: self.terms || other.terms }
    }

    /// Returns the dtypes that a launch writes if it cannot write terms.
    pub(super) fn without_terms(self) -> Self {
        Self { f32: self.f32 || !self.bf16, terms: false, ..self }
    }
}

/// A tensor in one or two dtypes.
#[derive(Clone, Copy, Debug)]
pub(in crate::model) struct Activation(Output<BufferId>);

impl From<Slice<f32>> for Activation {
    fn from(slice: Slice<f32>) -> Self {
        Self(slice.into())
    }
}

impl Activation {
    /// Declares a transient in f32, bf16 or both, as `dtypes` say; in f32 if they have neither.
    pub(super) fn transient(builder: &mut Builder, name: &str, len: usize, dtypes: Dtypes) -> Self {
        let rounded = format!("{name}_bf16");
        Self(match dtypes {
            Dtypes { bf16: false, .. } => Output::F32(builder.transient(name, len)),
            Dtypes { f32: false, .. } => Output::Bf16(builder.transient_of(&rounded, len)),
            Dtypes { .. } => {
                Output::Both(builder.transient(name, len), builder.transient_of(&rounded, len))
            }
        })
    }

    /// Declares a bf16 copy of `x`, which the next launch writes, if `dtypes` has bf16.
    pub(super) fn with_bf16_copy(
        builder: &mut Builder,
        name: &str,
        x: Slice<f32>,
        dtypes: Dtypes,
    ) -> Self {
        if !dtypes.bf16 {
            return x.into();
        }
        let rounded = builder.transient_of::<bf16>(&format!("{name}_bf16"), x.len());
        Self(Output::Both(x, rounded))
    }

    /// Returns `x` in `dtypes`. Appends a cast if bf16 is among them.
    pub(super) fn cast(builder: &mut Builder, x: Slice<f32>, dtypes: Dtypes) -> Result<Self> {
        if !dtypes.bf16 {
            return Ok(x.into());
        }
        let y = builder.transient_of::<bf16>("in_bf16", x.len());
        builder.launch(Cast { x, y }.launch())?;
        Ok(Self(Output::Both(x, y)))
    }

    /// Returns the activation, with bf16 if `dtypes` has it; appends a cast if bf16 is missing.
    pub(super) fn in_dtypes(self, builder: &mut Builder, dtypes: Dtypes) -> Result<Self> {
        match self.0 {
            Output::F32(x) => Self::cast(builder, x, dtypes),
            _ => Ok(self),
        }
    }

    /// Appends a copy, in f32, of the row that the control `index` names. There are `rows` rows.
    /// The embedding kernel reads them as its table.
    pub(super) fn row(
        self,
        builder: &mut Builder,
        index: Slice<u32>,
        rows: usize,
    ) -> Result<Slice<f32>> {
        let table = self.narrowest();
        let hidden = table.len() / rows;
        let out = builder.transient("out", hidden);
        let row = Embedding { tokens: index, table, out, hidden, vocab: rows, scale: 1.0 };
        builder.launch(row.launch())?;
        Ok(out)
    }

    /// Appends a copy of the rows with a target, in their order, before zeros.
    pub(super) fn gathered(self, builder: &mut Builder, rows: TargetRows) -> Result<Self> {
        let dtypes = Dtypes { f32: self.f32().is_ok(), bf16: self.bf16().is_ok(), terms: false };
        let to = Self::transient(builder, "target_rows", self.narrowest().len(), dtypes);
        let TargetRows { order, count: row_limit } = rows;
        let width = self.narrowest().len() / order.len();
        if let (Ok(x), Ok(out)) = (self.f32(), to.f32()) {
            builder.launch(ReorderRows { x, order, row_limit, out, width }.gather())?;
        }
        if let (Ok(x), Ok(out)) = (self.bf16(), to.bf16()) {
            builder.launch(ReorderRows { x, order, row_limit, out, width }.gather())?;
        }
        Ok(to)
    }

    /// Returns a range of the elements.
    pub(super) fn slice(self, range: Range<usize>) -> Self {
        Self(match self.0 {
            Output::F32(slice) => Output::F32(slice.slice(range)),
            Output::Bf16(slice) => Output::Bf16(slice.slice(range)),
            Output::Both(slice, rounded) => {
                Output::Both(slice.slice(range.clone()), rounded.slice(range))
            }
        })
    }

    /// Returns all buffers, as the output of a kernel.
    pub(super) fn written(self) -> Output<BufferId> {
        self.0
    }

    /// Returns the activation in its smallest dtype.
    pub(super) fn narrowest(self) -> TensorView<BufferId> {
        match self.0 {
            Output::F32(slice) => TensorView::F32(slice),
            Output::Bf16(slice) | Output::Both(_, slice) => TensorView::Bf16(slice),
        }
    }

    /// Returns the bf16 elements.
    ///
    /// # Errors
    /// [`KernelError::UnsupportedDType`] if the activation is only in f32.
    pub(super) fn bf16(self) -> Result<Slice<bf16>> {
        match self.0 {
            Output::Bf16(slice) | Output::Both(_, slice) => Ok(slice),
            Output::F32(_) => Err(missing(DType::Bf16).into()),
        }
    }

    /// Returns the f32 elements.
    ///
    /// # Errors
    /// [`KernelError::UnsupportedDType`] if the activation is only in bf16.
    pub(in crate::model) fn f32(self) -> Result<Slice<f32>> {
        match self.0 {
            Output::F32(slice) | Output::Both(slice, _) => Ok(slice),
            Output::Bf16(_) => Err(missing(DType::F32).into()),
        }
    }
}

/// Returns the error that an activation lacks the dtype that a layer reads.
pub(super) fn missing(dtype: DType) -> KernelError {
    let help = "declare the activation with this dtype among its dtypes";
    KernelError::UnsupportedDType { kernel: "a layer", compute: dtype, dtype, help }
}

/// The gradient of the output of a layer.
#[derive(Clone, Copy, Debug)]
pub(in crate::model) struct OutputGradient {
    pub(in crate::model) x: Activation,
    /// x in f16 terms, if the launch that computed x has split it with the scales of the weight as
    /// column scales.
    pub(super) terms: Option<SplitMatrix<BufferId>>,
}

impl From<Activation> for OutputGradient {
    fn from(x: Activation) -> Self {
        Self { x, terms: None }
    }
}

/// The terms of an [`OutputGradient`], which the next launch writes.
#[derive(Clone, Copy, Debug)]
pub(super) struct GradTerms {
    /// The scales of the weight, by which the columns are multiplied before the split.
    pub(super) column_scales: Slice<f32>,
    pub(super) split: SplitMatrix<BufferId>,
}

/// The input of layers that share it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Input {
    pub(super) x: Activation,
    /// x split into f16 terms, if the launch that computed x has split it. Products with an f16
    /// weight read the terms.
    pub(super) terms: Option<SplitMatrix<BufferId>>,
    /// A norm of x that one-row products compute while they read x.
    pub(super) norm: Option<NormPrologue<BufferId>>,
    /// The weight that the next product reads. One-row products prefetch it to the L2 cache.
    pub(super) prefetch: Option<TensorView<BufferId>>,
}

impl From<Activation> for Input {
    fn from(x: Activation) -> Self {
        Self { x, terms: None, norm: None, prefetch: None }
    }
}
