//! The end of attention and of the MLP: the projection back to the residual stream, and the norm
//! after it, if the model has one.

use retrograph_runtime::Slice;

use super::Builder;
use super::activation::{Activation, Dtypes, Input};
use super::linear::{self, Forward, Linear};
use super::norm::{self, GradInput, Norm};
use super::residual::Residual;
use crate::error::Result;

/// The projection to the residual stream and its norm.
#[derive(Debug)]
pub(super) struct BlockOutput {
    pub(super) projection: Linear,
    norm: Option<Norm>,
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
    pub(super) fn new(projection: Linear, norm: Option<Norm>, scopes: [String; 2]) -> Self {
        Self { projection, norm, scopes }
    }

    /// The dtypes in which the block reads the gradient of its output.
    pub(super) fn grad_dtypes(&self) -> Dtypes {
        self.norm.map_or(self.projection.grad_dtypes, |_| Dtypes::F32)
    }

    /// Appends the projection and its norm, and adds the result to `residual`.
    pub(super) fn forward(
        &self,
        builder: &mut Builder,
        (input, residual): (Input, Slice<f32>),
    ) -> Result<(Residual, Saved)> {
        builder.scope(&*self.scopes[0]);
        let added = Some(residual).filter(|_| self.norm.is_none());
        let call = Forward { residual: added, ..self.projection.call() };
        let [out] = linear::forward(builder, input, [call])?;
        let projection = out.saved;
        let Some(norm) = self.norm else {
            return Ok((out.residual()?, Saved { projection, norm: None }));
        };
        builder.scope(&*self.scopes[1]);
        let (normed, norm) = norm.forward(builder, out.y.f32()?.into(), Dtypes::F32)?;
        let residual = Residual { x: residual, addend: Some(normed.f32()?) };
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
        let name = ("grad_unnormed", grad_out.len());
        let to = Activation::transient(builder, name, self.projection.grad_dtypes);
        norm.backward(builder, saved, (&[grad_out], GradInput { to, accumulate: false }))?;
        Ok(to)
    }
}
