//! Memory layouts of operands.

/// The dimension along which consecutive elements of an operand are contiguous in global memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Major {
    /// Along K.
    K,
    /// Along M (operand a) or N (operand b).
    Mn,
}

/// Layouts of a and b: a row-major, b transposed.
pub(super) const NT: [Major; 2] = [Major::K, Major::K];
/// Layouts of a and b: both row-major.
pub(super) const NN: [Major; 2] = [Major::K, Major::Mn];
/// Layouts of a and b: a transposed, b row-major.
pub(super) const TN: [Major; 2] = [Major::Mn, Major::Mn];
