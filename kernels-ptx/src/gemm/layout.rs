//! Memory layouts of operands.

use retrograph_kernel_abi::gemm::Layout;

/// The dimension along which consecutive elements of an operand are contiguous in global memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Major {
    /// Along K.
    K,
    /// Along M (operand a) or N (operand b).
    Mn,
}

/// The dimensions of a and b along which elements are contiguous in `layout`.
pub(super) const fn majors(layout: Layout) -> [Major; 2] {
    match layout {
        Layout::Nt => [Major::K, Major::K],
        Layout::Nn => [Major::K, Major::Mn],
        Layout::Tn => [Major::Mn, Major::Mn],
    }
}
