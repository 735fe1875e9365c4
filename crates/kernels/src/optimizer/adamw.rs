//! AdamW over a list of tensors.

use crate::checks::Check;
use crate::params::{f32, pointer};
use crate::tensor_list::{self as chunks, Listed};
use crate::{Access, Argument, Kernel, KernelError, Launch, Problem, View};

/// Kernel of [`AdamW`].
pub static ADAMW: Kernel = Kernel {
    name: "adamw",
    image: "adamw",
    parameters: &[
        pointer("table"),
        pointer("scalars"),
        pointer("halt"),
        f32("beta1"),
        f32("beta1_rest"),
        f32("beta2"),
        f32("beta2_rest"),
        f32("eps"),
    ],
    entries: &["adamw"],
    dispatch: |problem, _| chunks::dispatch("adamw", problem.sizes[0]),
};

/// One parameter tensor with its gradient and moments, all of one length.
#[derive(Clone, Copy, Debug)]
pub struct AdamWTensor<B> {
    /// The parameter, updated.
    pub param: View<B, f32>,
    /// Its gradient, read.
    pub grad: View<B, f32>,
    /// Its first moment, updated.
    pub first: View<B, f32>,
    /// Its second moment, updated.
    pub second: View<B, f32>,
    /// Decoupled weight decay; finite and not negative.
    pub weight_decay: f32,
}

/// One step of AdamW over a list of tensors, in one launch.
///
/// ```text
/// first  = β1 · first  + (1 − β1) · grad
/// second = β2 · second + (1 − β2) · grad²
/// param  = param · (1 − lr · weight_decay)
/// param −= lr / (1 − β1^t) · first / (sqrt(second) / sqrt(1 − β2^t) + eps)
/// ```
/// Source: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", in the order of
/// `torch.optim.AdamW`. Everything that changes from step to step comes from the scalars that
/// [`Schedule`](crate::ops::Schedule) writes on the device. Where `halt` is not 0, nothing changes.
#[derive(Clone, Copy, Debug)]
pub struct AdamW<'a, B> {
    /// The tensors.
    pub tensors: &'a [AdamWTensor<B>],
    /// `[Schedule::SCALARS]`, read.
    pub scalars: View<B, f32>,
    /// `[1]`, read: the flag of [`Guard`](crate::ops::Guard); `None` for an update without a guard.
    pub halt: Option<View<B, u32>>,
    /// Decay of the first moment, at least 0 and below 1.
    ///
    /// In f64, because 1 − β2 of a β2 that was rounded to f32 is wrong in the fifth digit.
    pub beta1: f64,
    /// Decay of the second moment, at least 0 and below 1.
    pub beta2: f64,
    /// Added to the square root; finite and not negative.
    pub eps: f32,
}

impl<B: Copy> AdamW<'_, B> {
    /// The launch.
    pub fn launch(&self) -> Result<Launch<B>, KernelError> {
        let check = Check(ADAMW.name);
        self.check_constants(check)?;
        check.length("scalars", self.scalars, crate::ops::Schedule::<B>::SCALARS)?;
        if let Some(halt) = self.halt {
            check.length("halt", halt, 1)?;
        }
        let chunks = chunks::count(self.tensors.iter().map(|tensor| tensor.param.len()));
        let grid = chunks::grid(check, chunks)?;
        let arguments = vec![
            Argument::Table(self.table(check)?),
            Argument::read(self.scalars),
            self.halt.map_or(Argument::Null, Argument::read),
            Argument::f32(self.beta1 as f32),
            Argument::f32((1.0 - self.beta1) as f32),
            Argument::f32(self.beta2 as f32),
            Argument::f32((1.0 - self.beta2) as f32),
            Argument::f32(self.eps),
        ];
        Ok(Launch { kernel: &ADAMW, problem: Problem::from([grid]), arguments })
    }

    fn check_constants(&self, check: Check) -> Result<(), KernelError> {
        for (name, beta) in [("beta1", self.beta1), ("beta2", self.beta2)] {
            let holds = (0.0..1.0).contains(&beta);
            check.constant(name, beta as f32, (holds, "at least 0 and below 1"))?;
        }
        let decays = self.tensors.iter().map(|tensor| ("weight_decay", tensor.weight_decay));
        for (name, value) in decays.chain([("eps", self.eps)]) {
            let holds = value.is_finite() && value >= 0.0;
            check.constant(name, value, (holds, "finite and not negative"))?;
        }
        Ok(())
    }

    /// A row for each chunk: param, grad, first, second, the element count, the bits of the decay.
    fn table(&self, check: Check) -> Result<Vec<crate::Cell<B>>, KernelError> {
        let mut table = Vec::new();
        for tensor in self.tensors {
            let len = tensor.param.len();
            check.length("grad", tensor.grad, len)?;
            check.length("first", tensor.first, len)?;
            check.length("second", tensor.second, len)?;
            let views = &[
                (tensor.param, Access::ReadWrite),
                (tensor.grad, Access::Read),
                (tensor.first, Access::ReadWrite),
                (tensor.second, Access::ReadWrite),
            ];
            let constant = Some(u64::from(tensor.weight_decay.to_bits()));
            Listed { views, constant }.add_rows(&mut table);
        }
        Ok(table)
    }
}
