//! Direct preference optimization (DPO): log-ratios of sequences, the loss of pairs, and the
//! weights of their gradients.

use retrograph_kernel_abi::loss as abi;

use crate::checks::Check;
use crate::geometry::{MAX_GRID_X, linear};
use crate::launch::{ArgumentTypes, Pointer};
use crate::problem::RowsProblem;
use crate::{Kernel, KernelError, Launch, Problem, View};

/// Kernel of [`LogRatios`].
pub static LOG_RATIOS: Kernel = Kernel::new("log_ratios", &abi::LOG_RATIOS, |problem, _| {
    let sequences = problem.items()?;
    Some(linear(abi::LOG_RATIOS.entry(), sequences, abi::LOG_RATIOS_THREADS))
});

/// Kernel of [`Preference`].
pub static PREFERENCE: Kernel = Kernel::new("preference", &abi::PREFERENCE, |problem, _| {
    let blocks = problem.items()?.div_ceil(abi::PREFERENCE_THREADS);
    Some(linear(abi::PREFERENCE.entry(), blocks, abi::PREFERENCE_THREADS))
});

/// Kernel of [`ScaleRows`].
pub static SCALE_ROWS: Kernel = Kernel::new("scale_rows", &abi::SCALE_ROWS, |problem, _| {
    let RowsProblem { rows, .. } = problem.rows()?;
    Some(linear(abi::SCALE_ROWS.entry(), rows, abi::SCALE_ROWS_THREADS))
});

/// For each sequence: `ratio = Σ (reference − policy)`, the log-probability under the policy minus
/// the one under the reference model, computed from the cross-entropy losses of both.
///
/// Sums are in f64. An ignored token has the loss 0 and adds nothing.
#[derive(Clone, Copy, Debug)]
pub struct LogRatios<B> {
    /// `[sequences, seq]`, read: losses of the trained model.
    pub policy: View<B, f32>,
    /// `[sequences, seq]`, read: losses of the reference.
    pub reference: View<B, f32>,
    /// `[sequences]`, written.
    pub ratios: View<B, f64>,
    /// Losses of a sequence, not 0.
    pub seq: usize,
}

impl<B: Copy> LogRatios<B> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If a length does not match, or there are too many losses.
    pub fn launch(&self) -> Result<Launch<B>, KernelError> {
        let check = Check(LOG_RATIOS.name);
        let sequences = self.ratios.len();
        check.rule(self.seq > 0, "a sequence must have at least one token", self.seq)?;
        let elements = check.product("sequences × seq", &[sequences, self.seq])?;
        check.length("policy", self.policy, elements)?;
        check.length("reference", self.reference, elements)?;
        let sequences = check.at_most("sequences", sequences, MAX_GRID_X)?;
        // The kernel advances by the block size, and the index must not wrap around.
        let most = (u32::MAX - abi::LOG_RATIOS_THREADS) as usize;
        let seq = check.at_most("seq", self.seq, most)?;
        let parameters = abi::LogRatiosParameters::<ArgumentTypes<B>> {
            policy: Pointer::read(self.policy),
            reference: Pointer::read(self.reference),
            ratios: Pointer::write(self.ratios),
            seq,
        };
        let arguments = parameters.into_arguments();
        Ok(Launch { kernel: &LOG_RATIOS, problem: Problem::Items(sequences), arguments })
    }
}

/// The DPO loss of pairs of sequences (Rafailov et al., arXiv 2305.18290) and its derivatives.
///
/// With ε the probability that a label is wrong:
///
/// ```text
/// reward = β · ratio
/// x      = reward of chosen − reward of rejected
/// loss   = −(1 − ε) · ln σ(x) − ε · ln σ(−x)
/// weight = ± β · ((1 − ε) · σ(−x) − ε · σ(x))         + for chosen, − for rejected
/// ```
/// These are `loss_type="sigmoid"` and `label_smoothing` of TRL. A weight is the derivative of the
/// pair's loss with respect to the negative log-probability of a sequence; it scales the gradients
/// of the sequence's token losses. A NaN or infinity in a ratio reaches every result of its pair.
#[derive(Clone, Copy, Debug)]
pub struct Preference<B> {
    /// `[2 · pairs]`, read: log-ratios, alternating between chosen and rejected.
    pub ratios: View<B, f64>,
    /// `[pairs]`, written.
    pub losses: View<B, f32>,
    /// `[pairs]` each, written: rewards of chosen and of rejected sequences.
    pub rewards: [View<B, f32>; 2],
    /// `[pairs]`, written: 1 if the chosen reward is larger, else 0.
    pub correct: View<B, f32>,
    /// `[2 · pairs]`, written: the weights, in the order of `ratios`.
    pub weights: View<B, f32>,
    /// β, finite and above 0.
    pub beta: f32,
    /// ε, at least 0 and below 0.5.
    pub label_smoothing: f32,
}

impl<B: Copy> Preference<B> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If a length does not match, or a constant is outside of its range.
    pub fn launch(&self) -> Result<Launch<B>, KernelError> {
        let check = Check(PREFERENCE.name);
        let pairs = self.losses.len();
        let sequences = check.product("2 · pairs", &[2, pairs])?;
        check.length("ratios", self.ratios, sequences)?;
        check.length("weights", self.weights, sequences)?;
        for rewards in self.rewards {
            check.length("rewards", rewards, pairs)?;
        }
        check.length("correct", self.correct, pairs)?;
        check.positive("beta", self.beta)?;
        let holds = (0.0..0.5).contains(&self.label_smoothing);
        let rule = "at least 0 and below 0.5";
        check.constant("label_smoothing", self.label_smoothing, holds, rule)?;
        let pairs = check.at_most("pairs", pairs, MAX_GRID_X)?;
        let [chosen, rejected] = self.rewards.map(Pointer::write);
        let parameters = abi::PreferenceParameters::<ArgumentTypes<B>> {
            ratios: Pointer::read(self.ratios),
            losses: Pointer::write(self.losses),
            chosen,
            rejected,
            correct: Pointer::write(self.correct),
            weights: Pointer::write(self.weights),
            pairs,
            beta: self.beta,
            label_smoothing: self.label_smoothing,
        };
        let arguments = parameters.into_arguments();
        Ok(Launch { kernel: &PREFERENCE, problem: Problem::Items(pairs), arguments })
    }
}

/// `out[r, c] = x[r, c] · scales[r ÷ n]`: each scale multiplies n consecutive rows.
#[derive(Clone, Copy, Debug)]
pub struct ScaleRows<B> {
    /// `[rows, width]`, read.
    pub x: View<B, f32>,
    /// `[rows ÷ n]`, read.
    pub scales: View<B, f32>,
    /// `[rows, width]`, written.
    pub out: View<B, f32>,
    /// Number of rows, a multiple of the number of scales.
    pub rows: usize,
}

impl<B: Copy> ScaleRows<B> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If a length does not match, `rows` is not a multiple of the number of scales, or there are
    /// too many elements.
    pub fn launch(&self) -> Result<Launch<B>, KernelError> {
        let Self { x, scales, out, rows } = *self;
        let check = Check(SCALE_ROWS.name);
        let even = !scales.is_empty() && rows > 0 && rows.is_multiple_of(scales.len());
        let rule = "rows must be a multiple of the number of scales, and neither may be 0";
        check.rule(even, rule, [rows, scales.len()])?;
        let width = x.len() / rows;
        let elements = check.product("rows × width", &[rows, width])?;
        check.length("x", x, elements)?;
        check.length("out", out, elements)?;
        let count = check.at_most("rows", rows, MAX_GRID_X)?;
        let most = (u32::MAX - abi::SCALE_ROWS_THREADS) as usize;
        let width = check.at_most("width", width, most)?;
        let parameters = abi::ScaleRowsParameters::<ArgumentTypes<B>> {
            x: Pointer::read(x),
            scales: Pointer::read(scales),
            out: Pointer::write(out),
            width,
            rows_of_factor: (rows / scales.len()) as u32,
        };
        let arguments = parameters.into_arguments();
        let problem = Problem::Rows(RowsProblem { rows: count, width, vectorized: false });
        Ok(Launch { kernel: &SCALE_ROWS, problem, arguments })
    }
}
