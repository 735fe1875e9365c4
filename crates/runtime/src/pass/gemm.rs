//! Matrix products by cuBLAS as operations: row-major, like all matrices of the workspace.

use super::buffer::Slice;
use super::error::PassError;
use super::library::LibraryCall;
use crate::library::{GemmProblem, MatrixShape};

/// `c = alpha · a · b`, or `c += alpha · a · b` if it accumulates, in f32 without TF32.
///
/// All matrices are row-major. Deterministic for one handle, device and cuBLAS version: the edges
/// of the pass let only one product at a time use a workspace.
///
/// ```
/// use retrograph_runtime::{CUBLAS_WORKSPACE_BYTES, LibraryGemm, MatrixShape, Pass};
///
/// let mut pass = Pass::new("y = x·wᵀ");
/// let x = pass.external::<f32>("x", 2 * 3);
/// let w = pass.external::<f32>("w", 4 * 3);
/// let y = pass.external::<f32>("y", 2 * 4);
/// let workspace = pass.transient::<u32>("workspace", CUBLAS_WORKSPACE_BYTES / 4);
/// let mut product = LibraryGemm::new(MatrixShape { m: 2, n: 4, k: 3 }, x, w, y, workspace);
/// product.transpose_b = true;
/// pass.library_gemm(&product)?;
/// // The program then needs a handle: `bindings.cublas(&Cublas::load(&context)?)`.
/// assert_eq!(pass.operations()[0].name(), "cublas_gemm");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct LibraryGemm {
    /// The sizes.
    pub shape: MatrixShape,
    /// `m × k`, or `k × m` if it is transposed.
    pub a: Slice<f32>,
    /// `k × n`, or `n × k` if it is transposed.
    pub b: Slice<f32>,
    /// `m × n`.
    pub c: Slice<f32>,
    /// Scratch memory of the library, [`CUBLAS_WORKSPACE_BYTES`](crate::CUBLAS_WORKSPACE_BYTES)
    /// or less. Products that share a workspace run one after another.
    pub workspace: Slice<u32>,
    /// Whether `a` is used transposed.
    pub transpose_a: bool,
    /// Whether `b` is used transposed.
    pub transpose_b: bool,
    /// The factor of the product.
    pub alpha: f32,
    /// Whether the product is added to `c`.
    pub accumulate: bool,
}

impl LibraryGemm {
    /// The product `c = a · b` without transposition.
    pub fn new(
        shape: MatrixShape,
        a: Slice<f32>,
        b: Slice<f32>,
        c: Slice<f32>,
        workspace: Slice<u32>,
    ) -> Self {
        let (transpose_a, transpose_b, alpha, accumulate) = (false, false, 1.0, false);
        Self { shape, a, b, c, workspace, transpose_a, transpose_b, alpha, accumulate }
    }

    /// The library call.
    ///
    /// # Errors
    /// If a size is 0 or too large for cuBLAS, or a slice has another length than its matrix.
    pub fn call(&self) -> Result<LibraryCall, PassError> {
        let MatrixShape { m: rows, n: columns, k: inner } = self.shape;
        for (operand, slice, len) in [
            ("a", self.a, rows.saturating_mul(inner)),
            ("b", self.b, inner.saturating_mul(columns)),
            ("c", self.c, rows.saturating_mul(columns)),
        ] {
            if slice.len() != len || len == 0 {
                let found = slice.len();
                return Err(PassError::MatrixLength { operand, expected: len, found });
            }
        }
        let (alpha, accumulate) = (self.alpha, self.accumulate);
        let (transpose_a, transpose_b) = (self.transpose_a, self.transpose_b);
        let problem =
            GemmProblem { shape: self.shape, transpose_a, transpose_b, alpha, accumulate };
        problem.check().map_err(|_| PassError::MatrixSize { shape: self.shape })?;
        let call = LibraryCall::gemm(problem).reads(self.a).reads(self.b);
        let call = if accumulate { call.updates(self.c) } else { call.writes(self.c) };
        Ok(call.writes(self.workspace))
    }
}
