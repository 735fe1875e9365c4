//! Gradient clipping by the global norm: sums of squares, the clip factor with its guard, and the
//! scaling.

use retrograph_kernel_abi::optimizer::{self as abi, CLIP_ROW, GRAD_ROW};

use crate::checks::Check;
use crate::geometry::linear;
use crate::launch::{ArgumentTypes, Pointer};
use crate::tensor_list::{self, ListedTensor};
use crate::{
    Access, BufferArgument, DType, Kernel, KernelError, Launch, Problem, TensorView, View,
};

/// Kernel of [`GradNormPartials`].
pub static GRAD_NORM_PARTIALS: Kernel =
    Kernel::new("grad_norm_partials", &abi::GRAD_NORM_PARTIALS, |problem, _| {
        tensor_list::dispatch(&abi::GRAD_NORM_PARTIALS, problem)
    });

/// Kernel of [`ClipFactor`].
pub static CLIP_FACTOR: Kernel = Kernel::new("clip_factor", &abi::CLIP_FACTOR, |problem, _| {
    problem.items().map(|_| linear(abi::CLIP_FACTOR.entry(), 1, abi::CLIP_FACTOR_THREADS))
});

/// Kernel of [`ClipGrads`].
pub static CLIP_GRADS: Kernel = Kernel::new("clip_grads", &abi::CLIP_GRADS, |problem, _| {
    tensor_list::dispatch(&abi::CLIP_GRADS, problem)
});

/// Returns the argument of a gradient of `len` elements, and whether it is bf16.
pub(super) fn gradient<B: Copy>(
    check: Check,
    grad: TensorView<B>,
    len: usize,
) -> Result<(BufferArgument<B>, bool), KernelError> {
    check.elements("grad", grad.len(), len)?;
    match grad {
        TensorView::F32(view) => Ok((BufferArgument::new(view, Access::Read), false)),
        TensorView::Bf16(view) => Ok((BufferArgument::new(view, Access::Read), true)),
        TensorView::Nf4(_) | TensorView::Split(_) => Err(KernelError::UnsupportedDType {
            kernel: check.0,
            compute: DType::F32,
            dtype: grad.dtype(),
            help: "gradients are f32 or bf16",
        }),
    }
}

/// Returns the number of partial sums that [`GradNormPartials`] writes for tensors of these
/// lengths.
pub fn grad_norm_partials_len(lens: &[usize]) -> usize {
    tensor_list::chunks(lens.iter().copied())
}

/// `partials[c] = Σ x²` over each chunk of a list of tensors, in one launch.
///
/// Deterministic: sums have a fixed order. They are f64, which holds the squares of 1e-30 and 1e30.
#[derive(Clone, Copy, Debug)]
pub struct GradNormPartials<'a, B, X = View<B, f32>> {
    /// The tensors, read: f32 or bf16.
    pub tensors: &'a [X],
    /// `[grad_norm_partials_len(lengths)]`, written.
    pub partials: View<B, f64>,
}

impl<B: Copy, X: Copy + Into<TensorView<B>>> GradNormPartials<'_, B, X> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If `partials` has another length, or a tensor is NF4.
    pub fn launch(&self) -> Result<Launch<B>, KernelError> {
        let check = Check(GRAD_NORM_PARTIALS.name);
        let tensors = || self.tensors.iter().map(|&tensor| tensor.into());
        let chunks = tensor_list::chunks(tensors().map(|tensor| tensor.len()));
        check.length("partials", self.partials, chunks)?;
        let problem = tensor_list::problem(check, chunks)?;
        let mut table = Vec::new();
        for tensor in tensors() {
            let (grad, is_bf16) = gradient(check, tensor, tensor.len())?;
            let arrays: [_; GRAD_ROW.arrays] = [Some(grad)];
            let constants: [_; GRAD_ROW.constants] = [is_bf16.into()];
            ListedTensor { len: tensor.len(), arrays, constants }.add_rows(&mut table);
        }
        let table = Pointer::table(table);
        let partials = Pointer::write(self.partials);
        let parameters = abi::GradNormPartialsParameters::<ArgumentTypes<B>> { table, partials };
        let arguments = parameters.into_arguments();
        Ok(Launch { kernel: &GRAD_NORM_PARTIALS, problem, arguments })
    }
}

/// Detects a step that is not finite and records it.
#[derive(Clone, Copy, Debug)]
pub struct Guard<B> {
    /// `[1]`, read: the loss of the step.
    pub loss: View<B, f32>,
    /// `[1]`, read: the step, counted from 0.
    pub step: View<B, u32>,
    /// `[1]`, updated: 0, or 1 plus the first step whose loss or gradient norm was not finite. No
    /// kernel clears it.
    pub halt: View<B, u32>,
}

/// `norm = sqrt(Σ partials)` and `scale = min(1, max_norm / norm)`.
///
/// If the norm or the loss of the guard is not finite, `scale` is 0 and `halt` is set.
/// [`ClipGrads`] then writes zeros, even for NaN, and [`AdamW`](crate::optimizer::AdamW) changes
/// nothing. AdamW can multiply by `scale` itself.
#[derive(Clone, Copy, Debug)]
pub struct ClipFactor<B> {
    /// `[n]`, read: the squared sums of the chunks.
    pub partials: View<B, f64>,
    /// The largest norm; positive, or infinity for no clipping.
    pub max_norm: f32,
    /// `[1]`, written.
    pub scale: View<B, f32>,
    /// `[1]`, written.
    pub norm: View<B, f32>,
    /// Loss, step and halt flag; `None` for no guard.
    pub guard: Option<Guard<B>>,
}

impl<B: Copy> ClipFactor<B> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If there are too many partial sums, another operand does not have one element, or `max_norm`
    /// is not positive.
    pub fn launch(&self) -> Result<Launch<B>, KernelError> {
        let check = Check(CLIP_FACTOR.name);
        // The kernel advances by a multiple of the block size, and the index must not wrap around.
        let most = (u32::MAX - abi::CLIP_FACTOR_THREADS * abi::CLIP_FACTOR_LOADS) as usize;
        let n = check.at_most("the number of partial sums", self.partials.len(), most)?;
        check.length("scale", self.scale, 1)?;
        check.length("norm", self.norm, 1)?;
        check.constant("max_norm", self.max_norm, self.max_norm > 0.0, "positive")?;
        if let Some(guard) = self.guard {
            check.length("guard.loss", guard.loss, 1)?;
            check.length("guard.step", guard.step, 1)?;
            check.length("guard.halt", guard.halt, 1)?;
        }
        let parameters = abi::ClipFactorParameters::<ArgumentTypes<B>> {
            partials: Pointer::read(self.partials),
            scale: Pointer::write(self.scale),
            norm: Pointer::write(self.norm),
            loss: Pointer::read_optional(self.guard.map(|guard| guard.loss)),
            step: Pointer::read_optional(self.guard.map(|guard| guard.step)),
            halt: self.guard.map_or(Pointer::null(), |guard| Pointer::update(guard.halt)),
            n,
            max_norm: self.max_norm,
        };
        let arguments = parameters.into_arguments();
        Ok(Launch { kernel: &CLIP_FACTOR, problem: Problem::Items(n), arguments })
    }
}

/// `x = x · scale` for every element of a list of tensors, in one launch, for callers that read
/// clipped gradients. [`AdamW`](crate::optimizer::AdamW) does not need it: see its `grad_scale`.
///
/// A scale of 1 changes no bit. A scale of 0 writes 0 to every element, even if it is NaN.
#[derive(Clone, Copy, Debug)]
pub struct ClipGrads<'a, B> {
    /// The tensors, updated.
    pub tensors: &'a [View<B, f32>],
    /// `[1]`, read.
    pub scale: View<B, f32>,
}

impl<B: Copy> ClipGrads<'_, B> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If `scale` does not have one element, or there are too many elements.
    pub fn launch(&self) -> Result<Launch<B>, KernelError> {
        let check = Check(CLIP_GRADS.name);
        check.length("scale", self.scale, 1)?;
        let chunks = tensor_list::chunks(self.tensors.iter().map(|view| view.len()));
        let problem = tensor_list::problem(check, chunks)?;
        let mut table = Vec::new();
        for &tensor in self.tensors {
            let updated = BufferArgument::new(tensor, Access::ReadWrite);
            let arrays: [_; CLIP_ROW.arrays] = [Some(updated)];
            let constants = [0; CLIP_ROW.constants];
            ListedTensor { len: tensor.len(), arrays, constants }.add_rows(&mut table);
        }
        let table = Pointer::table(table);
        let scale = Pointer::read(self.scale);
        let parameters = abi::ClipGradsParameters::<ArgumentTypes<B>> { table, scale };
        let arguments = parameters.into_arguments();
        Ok(Launch { kernel: &CLIP_GRADS, problem, arguments })
    }
}
