//! The end of an attention or MLP block: the projection to the residual stream, and the norm after
//! it, if the model has one.

use retrograph_kernels::DType;
use retrograph_runtime::Slice;

use super::activation::{Activation, Input, OutputGradient};
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

    /// The layer that reads the gradient of the output of the block; `None` if it is a norm.
    pub(super) fn grad_reader(&self) -> Option<&Linear> {
        self.norm.is_none().then_some(&self.projection)
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
        let residual = Residual { x: residual, addend: Some(normed.x) };
        Ok((residual, Saved { projection, norm: Some(norm) }))
    }

    /// Appends the gradient of the projection's output, in the dtypes in which the projection reads
    /// it.
    pub(super) fn backward(
        &self,
        builder: &mut Builder,
        saved: Saved,
        grad_out: OutputGradient,
    ) -> Result<OutputGradient> {
        let Some((norm, saved)) = self.norm.zip(saved.norm) else { return Ok(grad_out) };
        builder.scope(format!("{} backward", self.scopes[1]));
        let grad_out = grad_out.x.f32()?;
        let name = "grad_unnormed";
        let to = Activation::transient(builder, name, grad_out.len(), self.projection.grad_dtypes);
        let terms = self.projection.declare_grad_terms(builder, name)?;
        let grad_input = GradInput { to, accumulate: false, terms };
        norm.backward(builder, saved, &[grad_out.into()], grad_input)
    }
}
