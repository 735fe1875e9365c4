//! AdamW over a list of tensors.

use half::bf16;
use retrograph_kernel_abi::optimizer::{self as abi, ADAMW_ROW};

use super::clip::gradient;
use crate::checks::Check;
use crate::launch::{ArgumentTypes, Pointer};
use crate::tensor_list::{self, ListedTensor};
use crate::{Access, BufferArgument, Kernel, KernelError, Launch, TensorView, View};

/// Kernel of [`AdamW`].
pub static ADAMW: Kernel =
    Kernel::new("adamw", &abi::ADAMW, |problem, _| tensor_list::dispatch(&abi::ADAMW, problem));

/// One parameter tensor with its gradient, moments and copy, all of one length.
#[derive(Clone, Copy, Debug)]
pub struct AdamWTensor<B> {
    /// The parameter, updated.
    pub param: View<B, f32>,
    /// Its gradient, read: f32 or bf16.
    pub grad: TensorView<B>,
    /// Its first moment, updated.
    pub exp_avg: View<B, f32>,
    /// Its second moment, updated.
    pub exp_avg_sq: View<B, f32>,
    /// A bf16 copy of the updated parameter, rounded to nearest even, written; `None` for no copy.
    pub copy: Option<View<B, bf16>>,
    /// Decoupled weight decay; finite and not negative.
    pub weight_decay: f32,
}

/// One step of AdamW over a list of tensors, in one launch.
///
/// ```text
/// grad   = grad_scale · grad
/// first  = β1 · first  + (1 − β1) · grad
/// second = β2 · second + (1 − β2) · grad²
/// param  = param · (1 − lr · weight_decay)
/// param −= lr / (1 − β1^t) · first / (sqrt(second) / sqrt(1 − β2^t) + eps)
/// ```
/// Source: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019, in the order of
/// `torch.optim.AdamW`. The values of a step come from the scalars that
/// [`LrSchedule`](crate::optimizer::LrSchedule) writes on the device. If `halt` is not 0, nothing
/// changes, including the copies.
#[derive(Clone, Copy, Debug)]
pub struct AdamW<'a, B> {
    /// The tensors.
    pub tensors: &'a [AdamWTensor<B>],
    /// `[LrSchedule::SCALARS]`, read.
    pub scalars: View<B, f32>,
    /// `[1]`, read: the flag of [`Guard`](crate::optimizer::Guard); `None` for unconditional
    /// updates.
    pub halt: Option<View<B, u32>>,
    /// `[1]`, read: the scale of all gradients from [`ClipFactor`](crate::optimizer::ClipFactor);
    /// `None` for 1. The result has the same bits as with
    /// [`ClipGrads`](crate::optimizer::ClipGrads): a scale of 0 makes every gradient 0, even NaN.
    pub grad_scale: Option<View<B, f32>>,
    /// Decay of the first moment, at least 0 and below 1.
    ///
    /// f64, because rounding β2 to f32 changes the fifth digit of 1 − β2.
    pub beta1: f64,
    /// Decay of the second moment, at least 0 and below 1.
    pub beta2: f64,
    /// Added to the square root; finite and not negative.
    pub eps: f32,
}

impl<B: Copy> AdamW<'_, B> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If a gradient, moment or copy has another length than its parameter; if `scalars`, `halt` or
    /// `grad_scale` has a wrong length; if a gradient is neither f32 nor bf16; if a beta is outside
    /// of [0, 1); or if `eps` or a weight decay is negative or not finite.
    pub fn launch(&self) -> Result<Launch<B>, KernelError> {
        let check = Check(ADAMW.name);
        self.check_constants(check)?;
        check.length("scalars", self.scalars, abi::scalar::COUNT)?;
        if let Some(halt) = self.halt {
            check.length("halt", halt, 1)?;
        }
        if let Some(scale) = self.grad_scale {
            check.length("grad_scale", scale, 1)?;
        }
        let chunks = tensor_list::chunks(self.tensors.iter().map(|tensor| tensor.param.len()));
        let problem = tensor_list::problem(check, chunks)?;
        let parameters = abi::AdamWParameters::<ArgumentTypes<B>> {
            table: Pointer::table(self.table(check)?),
            scalars: Pointer::read(self.scalars),
            halt: Pointer::read_optional(self.halt),
            grad_scale: Pointer::read_optional(self.grad_scale),
            beta1: self.beta1 as f32,
            one_minus_beta1: (1.0 - self.beta1) as f32,
            beta2: self.beta2 as f32,
            one_minus_beta2: (1.0 - self.beta2) as f32,
            eps: self.eps,
        };
        let arguments = parameters.into_arguments();
        Ok(Launch { kernel: &ADAMW, problem, arguments })
    }

    fn check_constants(&self, check: Check) -> Result<(), KernelError> {
        for (name, beta) in [("beta1", self.beta1), ("beta2", self.beta2)] {
            let holds = (0.0..1.0).contains(&beta);
            check.constant(name, beta as f32, holds, "at least 0 and below 1")?;
        }
        for tensor in self.tensors {
            check.not_negative("weight_decay", tensor.weight_decay)?;
        }
        check.not_negative("eps", self.eps)
    }

    /// Returns a row for each chunk: param, grad, exp_avg, exp_avg_sq, copy, the element count, the
    /// bits of the decay, and whether the gradient is bf16.
    fn table(&self, check: Check) -> Result<Vec<crate::Cell<B>>, KernelError> {
        let mut table = Vec::new();
        for tensor in self.tensors {
            let len = tensor.param.len();
            let (grad, is_bf16) = gradient(check, tensor.grad, len)?;
            check.length("exp_avg", tensor.exp_avg, len)?;
            check.length("exp_avg_sq", tensor.exp_avg_sq, len)?;
            if let Some(copy) = tensor.copy {
                check.length("copy", copy, len)?;
            }
            let update = |view| Some(BufferArgument::new(view, Access::ReadWrite));
            let arrays: [_; ADAMW_ROW.arrays] = [
                update(tensor.param),
                Some(grad),
                update(tensor.exp_avg),
                update(tensor.exp_avg_sq),
                // Not `Write`: a halted step writes nothing.
                tensor.copy.map(|copy| BufferArgument::new(copy, Access::ReadWrite)),
            ];
            let decay = tensor.weight_decay.to_bits().into();
            let constants: [_; ADAMW_ROW.constants] = [decay, is_bf16.into()];
            ListedTensor { len, arrays, constants }.add_rows(&mut table);
        }
        Ok(table)
    }
}
