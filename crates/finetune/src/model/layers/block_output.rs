//! The end of an attention or MLP block: the projection to the residual stream, and the norm after
//! it, if the model has one.

use retrograph_kernels::DType;
use retrograph_runtime::Slice;

use super::activation::{Activation, Dtypes, Input};
use super::linear::{self, Forward, Linear, Output};
use super::norm::{self, GradInput, Norm};
use super::residual::Residual;
use super::{Builder, PassConfig};
use crate::error::Result;

/// The projection to the residual stream and its norm.
#[derive(Debug)]
pub(super) struct BlockOutput {
    pub(super) projection: Linear,
    norm: Option<Norm>,
    /// The dtype of the output that is added to the residual stream.
    dtype: DType,
    /// The scopes of the projection and of the norm.
    scopes: [String; 2],
}

/// Tensors saved for the backward pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Saved {
    pub(super) projection: linear::Saved,
    norm: Option<norm::Saved>,
}

impl BlockOutput {
    pub(super) fn new(
        config: &PassConfig,
        projection: Linear,
        norm: Option<Norm>,
        scopes: [String; 2],
    ) -> Self {
        let rounds = config.bf16_branches && projection.can_round_output();
        let dtype = if rounds { DType::Bf16 } else { DType::F32 };
        Self { projection, norm, dtype, scopes }
    }

    /// The dtypes in which the block reads the gradient of its output.
    pub(super) fn grad_dtypes(&self) -> Dtypes {
        self.norm.map_or(self.projection.grad_dtypes, |_| Dtypes::F32)
    }

    /// Appends the projection and its norm, and adds the result to `residual`.
    pub(super) fn forward(
        &self,
        builder: &mut Builder,
        input: Input,
        residual: Slice<f32>,
    ) -> Result<(Residual, Saved)> {
        builder.scope(&*self.scopes[0]);
        let call = self.projection.call();
        let Some(norm) = self.norm else {
            let output = Output::Transient(self.dtype);
            let call = Forward { residual: Some(residual), output, ..call };
            let [out] = linear::forward(builder, input, [call])?;
            return Ok((out.residual()?, Saved { projection: out.saved, norm: None }));
        };
        let [out] = linear::forward(builder, input, [call])?;
        let projection = out.saved;
        builder.scope(&*self.scopes[1]);
        let (normed, norm) = norm.forward(builder, out.y.f32()?.into(), self.dtype.into())?;
        let residual = Residual { x: residual, addend: Some(normed) };
        Ok((residual, Saved { projection, norm: Some(norm) }))
    }

    /// Appends the gradient of the projection's output, in the dtypes in which the projection reads
    /// it.
    pub(super) fn backward(
        &self,
        builder: &mut Builder,
        saved: Saved,
        grad_out: Activation,
    ) -> Result<Activation> {
        let Some((norm, saved)) = self.norm.zip(saved.norm) else { return Ok(grad_out) };
        builder.scope(format!("{} backward", self.scopes[1]));
        let grad_out = grad_out.f32()?;
        let (len, dtypes) = (grad_out.len(), self.projection.grad_dtypes);
        let to = Activation::transient(builder, "grad_unnormed", len, dtypes);
        norm.backward(builder, saved, &[grad_out.into()], GradInput { to, accumulate: false })?;
        Ok(to)
    }
}
