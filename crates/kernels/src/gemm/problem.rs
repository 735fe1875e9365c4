//! The sizes of a matrix product.

/// The sizes that determine the tile and the grid of a matrix product.
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
    /// Whether both operands have tensor maps, so that TMA can copy them.
    pub tensor_maps: bool,
    /// Number of other launches of the same sizes that run concurrently; see
    /// [`Launch::concurrent`](crate::Launch::concurrent).
    pub concurrent: u32,
}
