//! Cross-entropy loss and its gradient in one kernel, which may also split it into f16 terms.

pub use retrograph_kernel_abi::loss::IGNORED_TARGET;
use retrograph_kernel_abi::{RowKernel, loss as abi};

use crate::checks::Check;
use crate::gemm::{SplitMatrix, SplitSizes};
use crate::geometry::{MAX_GRID_X, per_row};
use crate::launch::{ArgumentTypes, Pointer};
use crate::problem::RowsProblem;
use crate::{DType, Dispatch, Kernel, KernelError, Launch, Output, Problem, TensorView, View};

/// Kernel of [`CrossEntropy`].
pub static CROSS_ENTROPY: Kernel =
    Kernel::new("cross_entropy", &abi::CROSS_ENTROPY.signature, |problem, _| {
        dispatch(problem, &abi::CROSS_ENTROPY)
    });

/// Kernel of [`CrossEntropy`] with logits in bf16.
pub static CROSS_ENTROPY_BF16: Kernel =
    Kernel::new("cross_entropy_bf16", &abi::CROSS_ENTROPY_BF16.signature, |problem, _| {
        dispatch(problem, &abi::CROSS_ENTROPY_BF16)
    });

/// Kernel of [`CrossEntropy`] with logits in f32 and a cap.
pub static CROSS_ENTROPY_SOFTCAP: Kernel =
    Kernel::new("cross_entropy_softcap", &abi::CROSS_ENTROPY_SOFTCAP.signature, |problem, _| {
        dispatch(problem, &abi::CROSS_ENTROPY_SOFTCAP)
    });

/// Kernel of [`CrossEntropy`] with logits in bf16 and a cap.
pub static CROSS_ENTROPY_SOFTCAP_BF16: Kernel = Kernel::new(
    "cross_entropy_softcap_bf16",
    &abi::CROSS_ENTROPY_SOFTCAP_BF16.signature,
    |problem, _| dispatch(problem, &abi::CROSS_ENTROPY_SOFTCAP_BF16),
);

/// Kernel of [`CrossEntropy`] with a gradient in f16 terms.
pub static SPLIT_CROSS_ENTROPY: Kernel =
    Kernel::new("split_f16_cross_entropy", &abi::SPLIT_CROSS_ENTROPY.signature, |problem, _| {
        dispatch(problem, &abi::SPLIT_CROSS_ENTROPY)
    });

fn dispatch(problem: &Problem, kernel: &RowKernel) -> Option<Dispatch> {
    let RowsProblem { rows, width: vocab, .. } = problem.rows()?;
    Some(per_row(kernel, rows, vocab))
}

/// For each row: `loss = ln Σ exp(logits) − logits[target]`, and the gradient of the mean loss,
/// `(softmax(logits) − onehot(target)) ÷ max(counted, 1)`.
///
/// A row with the target [`IGNORED_TARGET`] has loss 0 and gradient 0, and its logits are not read.
/// Any other target that is not below `vocab` gives a NaN loss and a NaN gradient; nothing outside
/// of the row is accessed. A row with a NaN or a positive infinity, or with only negative
/// infinities, gives the same. If the logit of the target is negative infinity, the loss is
/// infinite.
///
/// With a [row limit](Launch::row_limit), rows of logits from the limit on have loss 0, and their
/// logits are not read and their gradient is not written.
///
/// With a `softcap`, logits are `cap · tanh(x ÷ cap)` of the given ones, and the gradient is that
/// of the given ones. An infinite one becomes the cap.
#[derive(Clone, Copy, Debug)]
pub struct CrossEntropy<B, L = View<B, f32>> {
    /// `[rows, vocab]`, f32 or bf16, read; overwritten by an in-place gradient.
    pub logits: L,
    /// `[rows]`, read: the token to predict, or [`IGNORED_TARGET`].
    pub targets: View<B, u32>,
    /// `[rows]`, written.
    pub losses: View<B, f32>,
    /// `[rows]`, a permutation, read: the index of the target and of the loss of each row of
    /// logits. A row of logits whose index is not below `rows` is skipped.
    pub order: Option<View<B, u32>>,
    /// The destination of the gradient.
    pub grad_logits: GradLogits<B>,
    /// `[1]`, read: the number of targets that are not ignored, in this launch and all others whose
    /// gradients are accumulated with it.
    pub counted: View<B, u32>,
    /// Number of rows.
    pub rows: usize,
    /// Size of the vocabulary, not 0.
    pub vocab: usize,
    /// The cap of the logits, finite and above 0.
    pub softcap: Option<f32>,
}

/// The destination of the gradient of the logits.
#[derive(Clone, Copy, Debug)]
pub enum GradLogits<B> {
    /// None: only losses are computed.
    None,
    /// The logits, which it overwrites.
    InPlace,
    /// `[rows, vocab]`, not the logits: f32, bf16, or both.
    Separate(Output<B>),
    /// Two f16 terms, with the bits of a launch that writes the gradient in f32 and a
    /// [`Split`](crate::gemm::Split). The logits are f32 and have no cap, `vocab` is a multiple
    /// of 8, and all matrices are aligned to 16 bytes.
    Split {
        /// `[vocab]`, read: powers of two by which the columns of the gradient are multiplied
        /// before the split.
        column_scales: Option<View<B, f32>>,
        /// Terms and scales, written.
        split: SplitMatrix<B>,
    },
}

impl<B: Copy, L: Copy + Into<TensorView<B>>> CrossEntropy<B, L> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If a row has no logit, a length does not match, a size exceeds the limit of the kernel,
    /// logits are neither f32 nor bf16, the cap is not finite and above 0, or a gradient in f16
    /// terms lacks what it needs.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { targets, losses, order, grad_logits, counted, rows, vocab, softcap, .. } = self;
        if let GradLogits::Split { column_scales, split } = grad_logits {
            return self.split(column_scales, split);
        }
        let logits: TensorView<B> = self.logits.into();
        let in_place = matches!(grad_logits, GradLogits::InPlace);
        let [f32, bf16] = match softcap {
            None => [&CROSS_ENTROPY, &CROSS_ENTROPY_BF16],
            Some(_) => [&CROSS_ENTROPY_SOFTCAP, &CROSS_ENTROPY_SOFTCAP_BF16],
        };
        let (kernel, pointer) = match (logits, in_place) {
            (TensorView::F32(logits), true) => (f32, Pointer::update(logits).any()),
            (TensorView::Bf16(logits), true) => (bf16, Pointer::update(logits).any()),
            (TensorView::F32(_), false) => (f32, logits.pointer()),
            (TensorView::Bf16(_), false) => (bf16, logits.pointer()),
            (TensorView::Nf4(_) | TensorView::Split(_), _) => {
                let (dtype, help) = (logits.dtype(), "write the logits in f32 or bf16");
                let (kernel, compute) = (CROSS_ENTROPY.name, DType::F32);
                return Err(KernelError::UnsupportedDType { kernel, compute, dtype, help });
            }
        };
        let check = Check(kernel.name);
        check.rule(vocab > 0 || rows == 0, "a row must have at least one logit", vocab)?;
        let elements = check.product("rows × vocab", &[rows, vocab])?;
        check.elements("logits", logits.len(), elements)?;
        self.check_rows(check)?;
        let rows = check.at_most("rows", rows, MAX_GRID_X)?;
        let vocab = check.at_most("vocab", vocab, MAX_GRID_X)?;
        let (grad_f32, grad_bf16) = match grad_logits {
            GradLogits::Separate(output) => {
                output.check(check, "grad_logits", elements)?;
                output.pointers()
            }
            _ => (Pointer::null(), Pointer::null()),
        };
        let parameters = abi::CrossEntropyParameters::<ArgumentTypes<B>> {
            logits: pointer,
            targets: Pointer::read(targets),
            losses: Pointer::write(losses),
            order: Pointer::read_optional(order),
            row_limit: Pointer::null(),
            grad_logits: grad_f32,
            grad_logits_bf16: grad_bf16,
            in_place,
            counted: Pointer::read(counted),
            rows,
            vocab,
            softcap: check.softcap(softcap)?,
        };
        let arguments = parameters.into_arguments();
        let problem = Problem::Rows(RowsProblem { rows, width: vocab, vectorized: false });
        Ok(Launch { kernel, problem, arguments })
    }

    /// The launch that writes the gradient in f16 terms.
    fn split(
        self,
        column_scales: Option<View<B, f32>>,
        split: SplitMatrix<B>,
    ) -> Result<Launch<B>, KernelError> {
        let Self { targets, losses, order, counted, rows, vocab, softcap, .. } = self;
        let logits: TensorView<B> = self.logits.into();
        let sizes = SplitSizes::new(&SPLIT_CROSS_ENTROPY, [rows, vocab])?;
        let check = sizes.check;
        let TensorView::F32(logits) = logits else {
            let (dtype, help) =
                (logits.dtype(), "write the logits in f32, or split in another launch");
            let (kernel, compute) = (SPLIT_CROSS_ENTROPY.name, DType::F32);
            return Err(KernelError::UnsupportedDType { kernel, compute, dtype, help });
        };
        check.rule(softcap.is_none(), "the gradient of capped logits is not split", vocab)?;
        check.rule(vocab > 0 || rows == 0, "a row must have at least one logit", vocab)?;
        sizes.require(&[("logits", Some(logits))])?;
        sizes.require_columns("column_scales", column_scales)?;
        let names = ["the terms of the gradient", "the scales of the gradient"];
        sizes.require_terms(split, names)?;
        self.check_rows(check)?;
        let (problem, [rows, vocab]) = sizes.problem()?;
        let parameters = abi::SplitCrossEntropyParameters::<ArgumentTypes<B>> {
            logits: Pointer::read(logits),
            targets: Pointer::read(targets),
            losses: Pointer::write(losses),
            order: Pointer::read_optional(order),
            row_limit: Pointer::null(),
            column_scales: Pointer::read_optional(column_scales),
            terms: Pointer::write(split.terms),
            scales: Pointer::write(split.scales),
            counted: Pointer::read(counted),
            rows,
            vocab,
        };
        let arguments = parameters.into_arguments();
        Ok(Launch { kernel: &SPLIT_CROSS_ENTROPY, problem, arguments })
    }

    /// Checks the operands that have an element per row, and the number of targets.
    fn check_rows(&self, check: Check) -> Result<(), KernelError> {
        let Self { targets, losses, order, counted, rows, .. } = *self;
        check.length("targets", targets, rows)?;
        check.length("losses", losses, rows)?;
        order.map_or(Ok(()), |order| check.length("order", order, rows))?;
        check.length("counted", counted, 1)
    }
}
