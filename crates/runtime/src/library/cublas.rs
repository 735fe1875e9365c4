//! cuBLAS, loaded at run time.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use retrograph_driver::{Context, Error, Owner, Result};

use super::problem::GemmProblem;
use super::scope::LibraryScope;
use super::table::{CublasTable, Handle, LIBRARY_NAMES, check};

/// The workspace that NVIDIA's manual of cuBLAS recommends for Hopper, in bytes (section
/// "cublasSetWorkspace"); 4 MiB are enough on older devices.
pub const CUBLAS_WORKSPACE_BYTES: usize = 32 << 20;

/// `CUDA_R_32F` of `library_types.h`.
const F32: i32 = 0;
/// `CUBLAS_COMPUTE_32F` of `cublas_api.h`: single precision, without TF32.
const COMPUTE_F32: i32 = 68;
/// `CUBLAS_GEMM_DEFAULT` of `cublas_api.h`.
const DEFAULT_ALGORITHM: i32 = -1;

/// A cuBLAS handle in one context. Clones share it; each use locks it, since a handle has one
/// stream and one workspace at a time.
#[derive(Clone)]
pub struct Cublas {
    inner: Arc<Inner>,
}

struct Inner {
    context: Context,
    table: CublasTable,
    handle: Mutex<Sent>,
    version: i32,
}

/// The handle, which any thread may use, one at a time.
struct Sent(Handle);

// SAFETY: cuBLAS allows a handle to be used from any thread, if not from two at once; the lock
// around it sees to that.
unsafe impl Send for Sent {}

impl Cublas {
    /// Loads cuBLAS by its usual names and creates a handle, which takes some device memory.
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
        Err(Error::NoLibrary { library: "cuBLAS", tried: tried.join("; ") })
    }

    /// Loads cuBLAS from `path` and creates a handle.
    ///
    /// # Safety
    /// The library must be cuBLAS 12 or 13: its initializers run, and its functions are called
    /// with these signatures.
    ///
    /// # Errors
    /// As [`Cublas::load`].
    pub unsafe fn load_from(path: &Path, context: &Context) -> Result<Self> {
        let unusable = |reason| {
            let tried = format!("{}: {reason}", path.display());
            Error::NoLibrary { library: "cuBLAS", tried }
        };
        // SAFETY: passed on from the caller, and the library is never unloaded.
        unsafe { Self::from_table(CublasTable::open(path).map_err(unusable)?, context) }
    }

    /// Creates a handle with given functions.
    ///
    /// # Safety
    /// Each function behaves as the function of its name, and stays callable.
    ///
    /// # Errors
    /// [`Error::Library`], or [`Error::RefusedDuringCapture`]: making a handle allocates.
    pub unsafe fn from_table(table: CublasTable, context: &Context) -> Result<Self> {
        context.bind_outside_capture("making a handle of cuBLAS")?;
        let (mut handle, mut version) = (std::ptr::null_mut(), 0);
        let operation = "making a cuBLAS handle while another thread captures";
        // SAFETY: the place is valid, and the context is current.
        let create = || unsafe { (table.create)(&mut handle) };
        check("cublasCreate_v2", context.without_captures(operation, create)?)?;
        let context = context.clone();
        let mut inner = Inner { context, table, handle: Mutex::new(Sent(handle)), version };
        // SAFETY: the handle was just made, and the place is valid.
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
        // SAFETY: the handle lives and is locked, and so does the stream.
        check("cublasSetStream_v2", unsafe { (table.set_stream)(raw, stream) })?;
        let place = workspace.address as *mut std::ffi::c_void;
        // After the stream, since setting that takes the workspace away.
        // SAFETY: the range is a buffer of the pass, which the program keeps.
        check("cublasSetWorkspace_v2", unsafe {
            (table.set_workspace)(raw, place, workspace.bytes)
        })?;
        let (alpha, beta) = (problem.alpha, if problem.accumulate { 1.0_f32 } else { 0.0 });
        // By columns a row-major product is the product of the transposed factors in reverse.
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
        let (destroy, handle) = (self.table.destroy, Sent(self.handle.get_mut().0));
        self.context.release(move |_| {
            let handle = &handle;
            // SAFETY: nobody else has the handle any more.
            let status = unsafe { destroy(handle.0) };
            if let Err(error) = check("cublasDestroy_v2", status) {
                // Whether the handle is gone then, cuBLAS does not say; it is not tried again.
                tracing::warn!(%error, "a handle was not destroyed");
            }
            Ok(())
        });
    }
}
