//! Matrix products by cuBLAS, which is loaded at run time.

use std::ffi::c_int;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use retrograph_driver::{Context, Error, Owner, Result};

use super::LibraryScope;
use super::table::{CublasTable, Handle, LIBRARY_NAMES, check};

/// Bytes of the workspace that the cuBLAS manual recommends for Hopper (section
/// "cublasSetWorkspace"). 4 MiB are enough on older devices.
pub const CUBLAS_WORKSPACE_BYTES: usize = 32 << 20;

/// `CUDA_R_32F` of `library_types.h`.
const F32: i32 = 0;
/// `CUBLAS_COMPUTE_32F` of `cublas_api.h`: single precision, without TF32.
const COMPUTE_F32: i32 = 68;
/// `CUBLAS_GEMM_DEFAULT` of `cublas_api.h`.
const DEFAULT_ALGORITHM: i32 = -1;

/// A cuBLAS handle in one context. Clones share it. Each use locks it, because a handle has one
/// stream and one workspace at a time.
#[derive(Clone)]
pub struct Cublas {
    inner: Arc<Inner>,
}

struct Inner {
    context: Context,
    table: CublasTable,
    handle: Mutex<SendHandle>,
    version: i32,
}

/// A handle that any thread may use, but only one at a time.
struct SendHandle(Handle);

fn not_found(tried: String) -> Error {
    let advice = "install it, or give its path";
    Error::NoLibrary { library: "cuBLAS", tried, advice }
}

// SAFETY: cuBLAS allows the use of a handle from any thread, but not from two at once; the mutex
// around it prevents that.
unsafe impl Send for SendHandle {}

impl Cublas {
    /// Loads cuBLAS by its usual names and creates a handle, which allocates device memory.
    ///
    /// # Errors
    /// [`Error::NoLibrary`], [`Error::Library`], or [`Error::RefusedDuringCapture`].
    pub fn load(context: &Context) -> Result<Self> {
        let mut tried = Vec::new();
        for name in LIBRARY_NAMES {
            // SAFETY: libraries of these names are NVIDIA's cuBLAS, of versions that have these
            // functions with these signatures.
            match unsafe { CublasTable::open(name.as_ref()) } {
                // SAFETY: as above, and the library is never unloaded.
                Ok(table) => return unsafe { Self::from_table(table, context) },
                Err(reason) => tried.push(format!("{name}: {reason}")),
            }
        }
        Err(not_found(tried.join("; ")))
    }

    /// Loads cuBLAS from `path` and creates a handle.
    ///
    /// # Safety
    /// The library must be cuBLAS 12 or 13: its initializers run, and its functions are called
    /// with these signatures.
    ///
    /// # Errors
    /// The errors of [`Cublas::load`].
    pub unsafe fn load_from(path: &Path, context: &Context) -> Result<Self> {
        let unusable = |reason| not_found(format!("{}: {reason}", path.display()));
        // SAFETY: passed on from the caller, and the library is never unloaded.
        unsafe { Self::from_table(CublasTable::open(path).map_err(unusable)?, context) }
    }

    /// Creates a handle with the functions of `table`.
    ///
    /// # Safety
    /// Each function behaves like the cuBLAS function of its name, and stays callable.
    ///
    /// # Errors
    /// [`Error::Library`] if cuBLAS fails, [`Error::RefusedDuringCapture`] during a capture:
    /// creating a handle allocates.
    pub unsafe fn from_table(table: CublasTable, context: &Context) -> Result<Self> {
        context.bind_outside_capture("creating a cuBLAS handle")?;
        let (mut handle, mut version) = (std::ptr::null_mut(), 0);
        let operation = "creating a cuBLAS handle while another thread captures";
        // SAFETY: the out pointer is valid, and the context is current.
        let create = || unsafe { (table.create)(&mut handle) };
        check("cublasCreate_v2", context.without_captures(operation, create)?)?;
        let context = context.clone();
        let mut inner = Inner { context, table, handle: Mutex::new(SendHandle(handle)), version };
        // SAFETY: the handle was just made, and the out pointer is valid.
        let asked = unsafe { (table.get_version)(handle, &mut version) };
        check("cublasGetVersion_v2", asked)?;
        inner.version = version;
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The version, as 10000 × major + 100 × minor + patch since version 11.
    pub fn version(&self) -> i32 {
        self.inner.version
    }

    /// The context of the handle.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// Whether `other` is a clone of this handle.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Keeps the handle alive.
    pub(crate) fn owner(&self) -> Owner {
        self.inner.clone()
    }

    /// Enqueues a product over the ranges a, b, c and workspace of `scope`.
    pub(crate) fn gemm(&self, problem: &GemmProblem, scope: &LibraryScope<'_>) -> Result<()> {
        let (table, arguments) = (&self.inner.table, problem.by_columns()?);
        let [a, b, c, workspace] = std::array::from_fn(|at| scope.range(at));
        let handle = self.inner.handle.lock();
        let (raw, stream) = (handle.0, scope.stream().raw());
        // SAFETY: handle and stream are alive, and the handle is locked.
        check("cublasSetStream_v2", unsafe { (table.set_stream)(raw, stream) })?;
        let place = workspace.address as *mut std::ffi::c_void;
        // After the stream: setting the stream resets the workspace.
        // SAFETY: the range is a buffer of the pass, which the program keeps.
        check("cublasSetWorkspace_v2", unsafe {
            (table.set_workspace)(raw, place, workspace.bytes)
        })?;
        let (alpha, beta) = (problem.alpha, if problem.accumulate { 1.0_f32 } else { 0.0 });
        // SAFETY: the lengths were checked against the shape when the call was described, and the
        // scalars are read before the function returns.
        let status = unsafe {
            (table.gemm_ex)(
                raw,
                i32::from(arguments.transpose_a),
                i32::from(arguments.transpose_b),
                arguments.m,
                arguments.n,
                arguments.k,
                (&raw const alpha).cast(),
                b.address as *const _,
                F32,
                arguments.lda,
                a.address as *const _,
                F32,
                arguments.ldb,
                (&raw const beta).cast(),
                c.address as *mut _,
                F32,
                arguments.ldc,
                COMPUTE_F32,
                DEFAULT_ALGORITHM,
            )
        };
        check("cublasGemmEx", status)
    }
}

impl fmt::Debug for Cublas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cublas({} in {:?})", self.inner.version, self.inner.context)
    }
}

impl Drop for Inner {
    /// Destroying a handle waits for the device, so it must not happen during a capture.
    fn drop(&mut self) {
        let (destroy, handle) = (self.table.destroy, SendHandle(self.handle.get_mut().0));
        self.context.release(move |_| {
            let handle = &handle;
            // SAFETY: this is the last use of the handle.
            let status = unsafe { destroy(handle.0) };
            if let Err(error) = check("cublasDestroy_v2", status) {
                // cuBLAS does not report whether the handle still exists, so there is no second
                // attempt.
                tracing::warn!(%error, "a handle was not destroyed");
            }
            Ok(())
        });
    }
}

/// The sizes of `c = a · b`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MatrixShape {
    /// Rows of the result.
    pub m: usize,
    /// Columns of the result.
    pub n: usize,
    /// The contracted size.
    pub k: usize,
}

/// A row-major product without its operands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct GemmProblem {
    pub(crate) shape: MatrixShape,
    pub(crate) transpose_a: bool,
    pub(crate) transpose_b: bool,
    pub(crate) alpha: f32,
    pub(crate) accumulate: bool,
}

impl GemmProblem {
    /// Checks that cuBLAS can compute the product.
    ///
    /// # Errors
    /// [`Error::NotCalled`] if a size exceeds 2^31 - 1.
    pub(crate) fn check(&self) -> Result<()> {
        self.by_columns().map(drop)
    }

    /// Returns the product in column-major order. A row-major matrix is its transpose in
    /// column-major order, so `c = a · b` becomes `cᵀ = bᵀ · aᵀ`; the first operand is `b`.
    fn by_columns(&self) -> Result<GemmArguments> {
        let size = |value: usize| {
            let too_large = |_| Error::NotCalled {
                call: "cublasGemmEx",
                reason: format!(
                    "a size of the product is {value}, but at most 2^31 - 1; split the product"
                )
                .into(),
            };
            c_int::try_from(value).map_err(too_large)
        };
        let MatrixShape { m: rows, n: columns, k: inner } = self.shape;
        Ok(GemmArguments {
            transpose_a: self.transpose_b,
            transpose_b: self.transpose_a,
            m: size(columns)?,
            n: size(rows)?,
            k: size(inner)?,
            lda: size(if self.transpose_b { inner } else { columns })?,
            ldb: size(if self.transpose_a { rows } else { inner })?,
            ldc: size(columns)?,
        })
    }
}

/// A column-major product: the arguments of `cublasGemmEx`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct GemmArguments {
    /// Whether the first factor is transposed.
    transpose_a: bool,
    /// Whether the second factor is transposed.
    transpose_b: bool,
    /// Rows of the result.
    m: c_int,
    /// Columns of the result.
    n: c_int,
    /// The contracted size.
    k: c_int,
    /// Elements from one column of the first factor to the next.
    lda: c_int,
    /// Elements from one column of the second factor to the next.
    ldb: c_int,
    /// Elements from one column of the result to the next.
    ldc: c_int,
}

#[cfg(test)]
mod tests;
