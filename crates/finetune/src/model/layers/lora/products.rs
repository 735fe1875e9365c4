//! Updates as ordinary matrix products: large ranks in f32, and all bf16 updates.

use half::bf16;
use retrograph_kernels::Element;
use retrograph_kernels::ops::{
    ColumnSum, Dgrad, Fprop, GemmConfig, GemmShape, TensorView, Wgrad, WgradSplitK,
};
use retrograph_runtime::{BufferId, Slice};

use super::update::{Bf16Matrices, Lora, Method, SavedIn};
use crate::error::Result;
use crate::model::builder::Builder;

/// An update with matrices of type `T`, which is also the type of x, dy, t and dt.
#[derive(Clone, Copy)]
pub(super) struct Products<'a, T> {
    pub(super) lora: &'a Lora,
    pub(super) a: Slice<T>,
    pub(super) b: Slice<T>,
    /// The factors of t and of `t·Bᵀ`, whose product is s.
    pub(super) factors: [f32; 2],
}

impl Lora {
    pub(super) fn f32_products(&self) -> Products<'_, f32> {
        Products { lora: self, a: self.a.value, b: self.b.value, factors: [1.0, self.scale] }
    }

    /// The products of [`Method::Bf16Products`].
    pub(super) fn bf16_products(&self) -> Option<Products<'_, bf16>> {
        match self.method {
            Method::Bf16Products(Bf16Matrices { a, b, .. }) => {
                // The product with the weight cannot apply a factor.
                Some(Products { lora: self, a, b, factors: [self.scale, 1.0] })
            }
            _ => None,
        }
    }
}

impl<T: Element> Products<'_, T>
where
    Slice<T>: Into<TensorView<BufferId>>,
{
    /// The shape of `t = x·Aᵀ`.
    fn down_shape(&self) -> GemmShape {
        GemmShape { outputs: self.lora.rank, ..self.lora.shape }
    }

    /// The shape of `t·Bᵀ`.
    fn up_shape(&self) -> GemmShape {
        GemmShape { inputs: self.lora.rank, ..self.lora.shape }
    }

    /// Appends `t = x·Aᵀ` with its factor.
    pub(super) fn down(&self, builder: &mut Builder, x: Slice<T>) -> Result<Slice<T>> {
        let (w, shape, [alpha, _]) = (self.a, self.down_shape(), self.factors);
        let t = builder.transient_of::<T>("low_rank", shape.rows * shape.outputs);
        let product = Fprop { x, w, bias: None, y: t, shape, alpha, accumulate: false };
        builder.launch(product.launch_in(self.lora.compute))?;
        Ok(t)
    }

    /// Appends `y += t·Bᵀ` with its factor.
    pub(super) fn up(&self, builder: &mut Builder, t: Slice<T>, y: Slice<f32>) -> Result<()> {
        let (w, shape, [_, alpha]) = (self.b, self.up_shape(), self.factors);
        let product = Fprop { x: t, w, bias: None, y, shape, alpha, accumulate: true };
        builder.launch(product.launch_in(self.lora.compute))
    }

    /// Appends `dt = s·dy·B`.
    pub(super) fn grad_t(&self, builder: &mut Builder, grad_out: Slice<T>) -> Result<Slice<T>> {
        let (w, shape, alpha) = (self.b, self.up_shape(), self.lora.scale);
        let grad_input = builder.transient_of::<T>("grad_low_rank", shape.rows * shape.inputs);
        let product = Dgrad { grad_out, w, grad_input, shape, alpha, accumulate: false };
        builder.launch(product.launch_in(self.lora.compute))?;
        Ok(grad_input)
    }

    /// Appends `dB = dyᵀ·t`, with the factor of `t·Bᵀ`, and `dA = dtᵀ·x`, for one of `updates`
    /// updates whose products run concurrently.
    pub(super) fn grad_matrices(
        &self,
        builder: &mut Builder,
        SavedIn { x, t }: SavedIn<T>,
        updates: usize,
        [grad_out, grad_t]: [Slice<T>; 2],
    ) -> Result<()> {
        let concurrent = 2 * updates as u32 - 1;
        if let Some(grad) = self.lora.b.grad {
            let (shape, alpha) = (self.up_shape(), self.factors[1]);
            self.wgrad(builder, [grad_out, t], grad, shape, alpha, concurrent)?;
        }
        if let Some(grad) = self.lora.a.grad {
            self.wgrad(builder, [grad_t, x], grad, self.down_shape(), 1.0, concurrent)?;
        }
        Ok(())
    }

    /// Appends `dx (+)= dt·A`.
    pub(super) fn grad_input(
        &self,
        builder: &mut Builder,
        grad_out: Slice<T>,
        grad_input: Slice<f32>,
        accumulate: bool,
    ) -> Result<()> {
        let (w, shape) = (self.a, self.down_shape());
        let product = Dgrad { grad_out, w, grad_input, shape, alpha: 1.0, accumulate };
        builder.launch(product.launch_in(self.lora.compute))
    }

    /// Appends `grad = alpha·dyᵀ·x`. Few elements with many rows are computed in splits of the
    /// rows.
    fn wgrad(
        &self,
        builder: &mut Builder,
        [grad_out, x]: [Slice<T>; 2],
        grad_weight: Slice<f32>,
        shape: GemmShape,
        alpha: f32,
        concurrent: u32,
    ) -> Result<()> {
        let (compute, accumulate) = (self.lora.compute, builder.accumulates());
        let operand: TensorView<BufferId> = x.into();
        let (activations, weights) = (operand.dtype(), operand.dtype());
        let config = GemmConfig { compute, activations, weights, concurrent };
        // Only a product without splits applies a factor.
        let splits = if alpha == 1.0 { shape.wgrad_splits(config) } else { 1 };
        if splits == 1 {
            let product = Wgrad { grad_out, x, grad_weight, shape, alpha, accumulate };
            let launch = product.launch_in(compute).map(|launch| launch.concurrent(concurrent));
            return builder.launch(launch);
        }
        let (rows, columns) = (splits, grad_weight.len());
        let partials = builder.transient("grad_terms", rows * columns);
        let product = WgradSplitK { grad_out, x, partials, shape, splits };
        builder.launch(product.launch_in(compute))?;
        let sum = ColumnSum { x: partials, out: grad_weight, rows, columns, accumulate };
        builder.launch(sum.launch())
    }
}
