//! RMSNorm: `y = x / rms(x) · gamma`.

use retrograph_kernels::ops::{
    NormPrologue, ResidualAdd, RmsNorm, RmsNormBackward, RmsNormGammaReduce, SplitRmsNorm,
    SplitRmsNormBackward,
};
use retrograph_runtime::{BufferId, Slice};

use super::Builder;
use super::activation::{Activation, Dtypes, GradTerms, Input, OutputGradient};
use super::linear::{self, Linear};
use super::residual::Residual;
use crate::error::Result;
use crate::model::builder::F32Weight;
use crate::spec::NormSpec;

/// A norm over rows of the width of its gain: tokens, or single heads of tokens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Norm {
    gamma: F32Weight,
    eps: f32,
}

/// Tensors saved for the backward pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Saved {
    /// The input, in one buffer.
    pub(super) x: Slice<f32>,
    /// The reciprocal root of each row's mean square. The backward kernel reads it instead of
    /// computing it again, so both directions use the same `eps`.
    rstd: Slice<f32>,
}

/// A gradient that norms add to.
#[derive(Clone, Copy, Debug)]
pub(super) struct GradInput {
    /// The buffer in f32, and its copy in bf16 if there is one.
    pub(super) to: Activation,
    /// Whether the buffer already has a gradient, to which the norm adds.
    pub(super) accumulate: bool,
    /// The terms of the gradient, if it is split.
    pub(super) terms: Option<GradTerms>,
}

impl GradInput {
    /// Returns the gradient of the residual stream in `stream`, to which a norm adds, and which
    /// `reader` reads next.
    pub(super) fn residual(
        builder: &mut Builder,
        stream: Slice<f32>,
        reader: Option<&Linear>,
    ) -> Result<Self> {
        let (name, dtypes) = ("grad_residual", reader.map_or(Dtypes::F32, |it| it.grad_dtypes));
        let to = Activation::with_bf16_copy(builder, name, stream, dtypes);
        let terms = reader.map(|it| it.declare_grad_terms(builder, name)).transpose()?.flatten();
        Ok(Self { to, accumulate: true, terms })
    }
}

impl Norm {
    /// Resolves the norm with the gain `name`.
    pub(super) fn new(builder: &Builder, name: &str, spec: NormSpec) -> Self {
        Self { gamma: builder.f32_weight(name), eps: spec.eps }
    }

    /// The gain.
    pub(super) fn gamma(&self) -> Slice<f32> {
        self.gamma.value
    }

    /// Appends the norm of each row of the residual stream, in the `dtypes` in which it is read.
    /// The launch also adds the pending output of the last layer to the residual stream.
    pub(super) fn forward(
        &self,
        builder: &mut Builder,
        residual: Residual,
        dtypes: Dtypes,
    ) -> Result<(Input, Saved)> {
        let Residual { x, addend } = residual;
        let (gamma, eps) = (self.gamma.value, self.eps);
        let width = gamma.len();
        let rows = x.len() / width;
        let residual = addend.map(|addend| ResidualAdd {
            residual: addend.narrowest(),
            sum: builder.transient("sum", x.len()),
        });
        let normed = Activation::transient(builder, "normed", rows * width, dtypes);
        let rstd = builder.transient("rstd", rows);
        let saved = Saved { x: residual.map_or(x, |residual| residual.sum), rstd };
        if !dtypes.terms {
            let y = normed.written();
            builder.launch(RmsNorm { x, residual, gamma, y, rstd, rows, width, eps }.launch())?;
            return Ok((normed.into(), saved));
        }
        let split = linear::declare_terms(builder, "normed", [rows, width]);
        let y = if dtypes.f32 { Some(normed.f32()?) } else { None };
        let norm = SplitRmsNorm { x, residual, gamma, y, split, rstd, rows, width, eps };
        builder.launch(norm.launch())?;
        Ok((Input { terms: Some(split), ..normed.into() }, saved))
    }

    /// Appends the norm of a decode step, in the `dtypes` in which it is read. The products that
    /// read one row compute its norm. Also returns the residual stream.
    pub(super) fn decode(
        &self,
        builder: &mut Builder,
        residual: Residual,
        dtypes: Dtypes,
    ) -> Result<(Input, Slice<f32>)> {
        if residual.x.len() == self.gamma.value.len() {
            return self.fused_into_products(builder, residual);
        }
        let (normed, saved) = self.forward(builder, residual, dtypes)?;
        Ok((normed, saved.x))
    }

    /// Returns one row of the residual stream as the input of products that compute its norm.
    fn fused_into_products(
        &self,
        builder: &mut Builder,
        residual: Residual,
    ) -> Result<(Input, Slice<f32>)> {
        let x = residual.settle(builder)?;
        let norm: NormPrologue<BufferId> = NormPrologue { gamma: self.gamma.value, eps: self.eps };
        Ok((Input { norm: Some(norm), ..Activation::from(x).into() }, x))
    }

    /// Appends the gradient of the input, and of gamma if it is trained, from one to three
    /// gradients of the output, which are added in this order.
    pub(super) fn backward(
        &self,
        builder: &mut Builder,
        Saved { x, rstd }: Saved,
        grad_out: &[Activation],
        grad_input: GradInput,
    ) -> Result<OutputGradient> {
        let GradInput { to, accumulate, terms } = grad_input;
        let gamma = self.gamma.value;
        let width = gamma.len();
        let rows = x.len() / width;
        let partial_rows = RmsNormBackward::<()>::partial_rows(rows);
        let gamma_partials =
            self.gamma.grad.map(|_| builder.transient("gamma_partials", partial_rows * width));
        builder.launch(match terms {
            None => RmsNormBackward {
                x,
                gamma,
                rstd,
                grad_out: &grad_out.iter().map(|grad| grad.narrowest()).collect::<Vec<_>>(),
                grad_input: to.written(),
                gamma_partials,
                rows,
                width,
                accumulate,
            }
            .launch(),
            Some(GradTerms { column_scales, split }) => SplitRmsNormBackward {
                x,
                gamma,
                rstd,
                grad_out: &grad_out.iter().map(|grad| grad.f32()).collect::<Result<Vec<_>>>()?,
                grad_input: to.f32()?,
                column_scales: Some(column_scales),
                split,
                gamma_partials,
                rows,
                width,
                accumulate,
            }
            .launch(),
        })?;
        if let Some((partials, grad)) = gamma_partials.zip(self.gamma.grad) {
            builder.gradient(grad, |grad_gamma| {
                RmsNormGammaReduce { partials, grad_gamma, partial_rows, width }.launch()
            })?;
        }
        Ok(OutputGradient { x: to, terms: terms.map(|terms| terms.split) })
    }
}
