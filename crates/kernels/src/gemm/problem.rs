//! The sizes of a matrix product.

/// The sizes from which tile and grid of a matrix product follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct GemmProblem {
    /// Rows of the result.
    pub m: u32,
    /// Columns of the result.
    pub n: u32,
    /// Length of the contraction.
    pub k: u32,
    /// Number of products: batch × heads, or splits.
    pub planes: u32,
    /// Whether rows of both operands can be copied in vectors of 16 bytes.
    pub vectorized: bool,
    /// Whether tensor maps describe both operands, so that they can be copied by TMA.
    pub tensor_maps: bool,
    /// Number of launches of the same sizes that run concurrently with this one; see
    /// [`Launch::concurrent`](crate::Launch::concurrent).
    pub concurrent: u32,
}
