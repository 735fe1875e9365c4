//! cuBLAS products in a pass: with a stand-in for the library, and with the library itself on a
//! GPU.
//!
//! On a GPU the library is looked up by its usual names, or at the path `RETROGRAPH_CUBLAS`. With
//! `RETROGRAPH_REQUIRE_GPU=1` a missing library is a failure.

use std::ffi::{c_int, c_void};
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use retrograph_driver_sys::{CUstream, DriverTable};
use retrograph_kernels::ops::{Add, Fprop, GemmShape, Silu};
use retrograph_runtime::library::CublasTable;
use retrograph_runtime::{
    Bindings, BuildError, BuildOptions, CUBLAS_WORKSPACE_BYTES, Cublas, DeviceBuffer, Error,
    LibraryGemm, MatrixShape, Pass, PassError, Policy, Slice, StepError, Strategy,
};

use crate::device::{Device, device, required};
use crate::failing_programs::{Bench, fallback};
use crate::programs::build;

const SHAPE: MatrixShape = MatrixShape { m: 48, n: 80, k: 64 };

/// `y = silu(x) · wᵀ` by a library and by our kernel, and the sum of both.
pub(crate) struct Products {
    pub(crate) pass: Pass,
    pub(crate) x: Slice<f32>,
    pub(crate) w: Slice<f32>,
    pub(crate) ours: Slice<f32>,
    pub(crate) theirs: Slice<f32>,
    pub(crate) sum: Slice<f32>,
}

impl Products {
    pub(crate) fn new(workspace_bytes: usize) -> Self {
        let MatrixShape { m: rows, n: columns, k: inner } = SHAPE;
        let mut pass = Pass::new("products");
        let (x, w) = (pass.external("x", rows * inner), pass.external("w", columns * inner));
        let [ours, theirs, sum] =
            ["ours", "theirs", "sum"].map(|name| pass.external(name, rows * columns));
        let active = pass.transient("active", rows * inner);
        let workspace = pass.transient("workspace", workspace_bytes / 4);
        pass.launch(Silu { x, y: active }.launch().unwrap()).unwrap();
        let shape = GemmShape { rows, inputs: inner, outputs: columns };
        let (bias, alpha, accumulate) = (None, 1.0, false);
        let fprop = Fprop { x: active, w, bias, y: ours, shape, alpha, accumulate };
        pass.launch(fprop.launch().unwrap()).unwrap();
        let mut product = LibraryGemm::new(SHAPE, active, w, theirs, workspace);
        product.transpose_b = true;
        pass.library_gemm(&product).unwrap();
        pass.launch(Add { a: ours, b: theirs, out: sum }.launch().unwrap()).unwrap();
        Self { pass, x, w, ours, theirs, sum }
    }

    /// Our product, the library's and the sum after two steps; a replay is also compared with an
    /// eager step.
    fn run(
        &self,
        device: &Device,
        cublas: &Cublas,
        options: impl Into<BuildOptions>,
    ) -> [Vec<f32>; 3] {
        let values = |len: usize, seed: usize| -> Vec<f32> {
            (0..len).map(|at| ((at * 37 + seed) % 101) as f32 / 50.0 - 1.0).collect()
        };
        let x = DeviceBuffer::from_slice(&device.stream, &values(self.x.len(), 3)).unwrap();
        let w = DeviceBuffer::from_slice(&device.stream, &values(self.w.len(), 8)).unwrap();
        let outputs = [self.ours, self.theirs, self.sum];
        let buffers = outputs.map(|slice| {
            DeviceBuffer::from_slice(&device.stream, &vec![f32::NAN; slice.len()]).unwrap()
        });
        let mut bindings = Bindings::new();
        bindings.bind(self.x, &x).bind(self.w, &w).cublas(cublas);
        for (slice, buffer) in outputs.into_iter().zip(&buffers) {
            bindings.bind(slice, buffer);
        }
        let options = options.into();
        let mut program = build(device, &self.pass, &bindings, options).unwrap();
        let report = program.report();
        let strategy = match options.policy {
            Policy::Eager => Strategy::Eager,
            Policy::Capture => Strategy::Capture,
            _ => Strategy::Hybrid,
        };
        assert_eq!(report.strategy, strategy, "{report}");
        assert_eq!(report.library_nodes > 0, strategy != Strategy::Eager, "{report}");
        assert_eq!(report.nodes.saturating_sub(report.library_nodes) > 0, report.nodes > 0);
        for _ in 0..2 {
            program.step(&device.stream, &self.pass.controls()).unwrap();
        }
        let admission = program.admit(&device.stream, &self.pass.controls()).unwrap();
        assert_eq!(admission.bytes, 3 * 4 * SHAPE.m * SHAPE.n);
        buffers.map(|buffer| buffer.download(&device.stream).unwrap())
    }
}

/// Returns cuBLAS of this machine, or `None` on a simulated driver or if the library is missing.
// A skip must be visible, and tests can only print to standard error.
#[allow(clippy::print_stderr)]
pub(crate) fn cublas(device: &Device) -> Option<Cublas> {
    if device.context.driver().is_simulated() {
        eprintln!("SKIPPED: cuBLAS needs a GPU");
        return None;
    }
    let load = || match std::env::var_os("RETROGRAPH_CUBLAS") {
        // SAFETY: the user who sets the variable says that the file is cuBLAS.
        Some(path) => unsafe { Cublas::load_from(Path::new(&path), &device.context) },
        None => Cublas::load(&device.context),
    };
    let mut found = load();
    // Other tests may capture on the same GPU, which a new handle would disturb.
    for _ in 0..1000 {
        if !matches!(found, Err(Error::RefusedDuringCapture { .. })) {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
        found = load();
    }
    match found {
        Ok(cublas) => Some(cublas),
        Err(error) if required() => panic!("a GPU is required, and cuBLAS beside it: {error}"),
        Err(error) => {
            eprintln!("SKIPPED: {error}");
            None
        }
    }
}

#[test]
fn cublas_on_a_gpu_gives_the_same_bits_by_every_strategy() {
    let device = device();
    let Some(cublas) = cublas(&device) else { return };
    assert!(cublas.version() >= 120_000, "{cublas:?}");
    let products = Products::new(CUBLAS_WORKSPACE_BYTES);
    let expected = products.run(&device, &cublas, Policy::Eager);
    for (ours, theirs) in expected[0].iter().zip(&expected[1]) {
        assert!((ours - theirs).abs() <= 1e-4 * ours.abs().max(1.0), "{ours} and {theirs}");
    }
    let bits = |found: &[Vec<f32>; 3]| found.each_ref().map(|values| to_bits(values));
    for policy in [Policy::Auto, Policy::Hybrid, Policy::Capture] {
        let found = products.run(&device, &cublas, policy);
        assert!(bits(&found) == bits(&expected), "{policy:?}");
    }
}

fn to_bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// The calls of the stand-in, and the driver functions that it uses.
pub(crate) struct StandIn {
    table: DriverTable,
    stream: CUstream,
    workspace: Option<(u64, usize)>,
    pub(crate) calls: Vec<&'static str>,
    pub(crate) status: c_int,
    /// The value of every element of a product.
    product: f32,
}

// SAFETY: a stream's handle is a number to the simulated driver, which any thread may use.
unsafe impl Send for StandIn {}

type Handle = *mut c_void;

/// The handle is the address of the stand-in, which the test keeps.
fn stand_in<'a>(handle: Handle) -> std::sync::MutexGuard<'a, StandIn> {
    // SAFETY: `create` stored the address of a static.
    unsafe { &*handle.cast::<Mutex<StandIn>>() }.lock().unwrap()
}

static PLACE: Mutex<Option<&'static Mutex<StandIn>>> = Mutex::new(None);

extern "C" fn create(handle: *mut Handle) -> c_int {
    let made = PLACE.lock().unwrap().expect("the test has put one there");
    // SAFETY: the caller gives a valid place.
    unsafe { *handle = std::ptr::from_ref(made).cast_mut().cast() };
    0
}

extern "C" fn destroy(handle: Handle) -> c_int {
    stand_in(handle).calls.push("destroy");
    0
}

extern "C" fn get_version(_: Handle, version: *mut c_int) -> c_int {
    // SAFETY: the caller gives a valid place.
    unsafe { *version = 120_904 };
    0
}

extern "C" fn set_stream(handle: Handle, stream: CUstream) -> c_int {
    let mut held = stand_in(handle);
    (held.stream, held.workspace) = (stream, None);
    held.calls.push("set_stream");
    0
}

extern "C" fn set_workspace(handle: Handle, workspace: *mut c_void, bytes: usize) -> c_int {
    let mut held = stand_in(handle);
    held.workspace = Some((workspace as u64, bytes));
    held.calls.push("set_workspace");
    0
}

/// Fills its workspace with the product's value and copies it to the result: two nodes.
extern "C" fn gemm_ex(
    handle: Handle,
    transpose_a: c_int,
    transpose_b: c_int,
    m: c_int,
    n: c_int,
    k: c_int,
    _alpha: *const c_void,
    _a: *const c_void,
    _a_type: c_int,
    lda: c_int,
    _b: *const c_void,
    _b_type: c_int,
    ldb: c_int,
    _beta: *const c_void,
    c: *mut c_void,
    _c_type: c_int,
    ldc: c_int,
    compute_type: c_int,
    algorithm: c_int,
) -> c_int {
    let mut held = stand_in(handle);
    held.calls.push("gemm");
    if held.status != 0 {
        return held.status;
    }
    assert_eq!((transpose_a, transpose_b, m, n, k), (1, 0, 80, 48, 64));
    assert_eq!((lda, ldb, ldc, compute_type, algorithm), (64, 64, 80, 68, -1));
    let (workspace, bytes) = held.workspace.expect("the stream was set before the workspace");
    let words = (m * n) as usize;
    assert!(bytes >= words * 4 && workspace.is_multiple_of(256));
    // SAFETY: the workspace is that large, and so is the result.
    unsafe {
        let filled =
            (held.table.cuMemsetD32Async)(workspace, held.product.to_bits(), words, held.stream);
        let to = c as u64;
        let copied = (held.table.cuMemcpyDtoDAsync_v2)(to, workspace, words * 4, held.stream);
        c_int::from(!filled.is_success() || !copied.is_success()) * 13
    }
}

const STAND_IN: CublasTable =
    CublasTable { create, destroy, get_version, set_stream, set_workspace, gemm_ex };

/// A simulated device and a handle of the stand-in. The lock of the place is held meanwhile.
pub(crate) fn with_stand_in(test: impl FnOnce(&Bench, &Cublas, &Mutex<StandIn>)) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let bench = Bench::new(0);
    let (cublas, held) = stand_in_for(&bench, 1.0);
    test(&bench, &cublas, held);
}

/// A handle of a stand-in for which every element of a product is `product`.
pub(crate) fn stand_in_for(bench: &Bench, product: f32) -> (Cublas, &'static Mutex<StandIn>) {
    let (table, stream) = (*bench.simulator.table(), CUstream::NULL);
    let calls = Vec::new();
    let held = StandIn { table, stream, workspace: None, calls, status: 0, product };
    let held: &'static Mutex<StandIn> = Box::leak(Box::new(Mutex::new(held)));
    *PLACE.lock().unwrap() = Some(held);
    // SAFETY: the functions behave like cuBLAS, as far as the tests use them.
    let cublas = unsafe { Cublas::from_table(STAND_IN, &bench.device.context) }.unwrap();
    (cublas, held)
}

#[test]
fn products_are_captured_with_a_workspace_of_the_program() {
    with_stand_in(|bench, cublas, held| {
        let products = Products::new(SHAPE.m * SHAPE.n * 4);
        let expected = products.run(&bench.device, cublas, Policy::Eager);
        assert_eq!(expected[1], vec![1.0; SHAPE.m * SHAPE.n]);
        for policy in [Policy::Auto, Policy::Hybrid, Policy::Capture] {
            held.lock().unwrap().calls.clear();
            let found = products.run(&bench.device, cublas, policy);
            assert_eq!(found, expected, "{policy:?}");
            let calls = held.lock().unwrap().calls.clone();
            // To load kernels, for the graph, twice for the admission and once for its eager step.
            assert_eq!(calls, ["set_stream", "set_workspace", "gemm"].repeat(5), "{policy:?}");
        }
    });
}

#[test]
fn a_product_that_fails_is_named_with_its_status() {
    with_stand_in(|bench, cublas, held| {
        held.lock().unwrap().status = 14;
        let products = Products::new(4096);
        let (slices, device) = ([products.ours, products.theirs, products.sum], &bench.device);
        let buffer = |len| DeviceBuffer::<f32>::zeroed(&device.context, len).unwrap();
        let (x, w) = (buffer(products.x.len()), buffer(products.w.len()));
        let outputs = slices.map(|slice| buffer(slice.len()));
        let mut bindings = Bindings::new();
        bindings.bind(products.x, &x).bind(products.w, &w).cublas(cublas);
        for (slice, buffer) in slices.into_iter().zip(&outputs) {
            bindings.bind(slice, buffer);
        }
        let mut program = build(device, &products.pass, &bindings, Policy::Auto).unwrap();
        let (failure, retry_after) = fallback(program.report());
        let text = failure.to_string();
        let expected = "cublasGemmEx returned 14 (CUBLAS_STATUS_INTERNAL_ERROR)";
        assert!(text.contains(expected) && retry_after.is_some(), "{text}");
        let error = program.step(&device.stream, &products.pass.controls()).unwrap_err();
        let StepError::Incomplete { operation, cause, .. } = &error else { panic!("{error}") };
        assert!(matches!(cause, Error::Library { status: 14, .. }), "{error}");
        assert_eq!(operation, "cublas_gemm");
    });
}

#[test]
fn the_handle_lives_as_long_as_the_last_program_with_it() {
    with_stand_in(|bench, cublas, held| {
        let mut pass = Pass::new("one product");
        let a = pass.external::<f32>("a", SHAPE.m * SHAPE.k);
        let b = pass.external::<f32>("b", SHAPE.n * SHAPE.k);
        let c = pass.external::<f32>("c", SHAPE.m * SHAPE.n);
        let workspace = pass.transient("workspace", SHAPE.m * SHAPE.n);
        let mut gemm = LibraryGemm::new(SHAPE, a, b, c, workspace);
        (gemm.transpose_b, gemm.accumulate) = (true, true);
        let mut short = gemm;
        short.b = b.slice(0..5);
        let error = pass.library_gemm(&short).unwrap_err();
        assert!(matches!(error, PassError::MatrixLength { operand: "b", found: 5, .. }), "{error}");
        pass.library_gemm(&gemm).unwrap();
        let context = &bench.device.context;
        let buffers = [a, b, c].map(|slice| DeviceBuffer::zeroed(context, slice.len()).unwrap());
        let mut bindings = Bindings::new();
        for (slice, buffer) in [a, b, c].into_iter().zip(&buffers) {
            bindings.bind(slice, buffer);
        }
        let error = build(&bench.device, &pass, &bindings, Policy::Auto).unwrap_err();
        assert!(matches!(error, BuildError::NoCublas { .. }), "{error}");
        // SAFETY: as in `with_stand_in`.
        let second = unsafe { Cublas::from_table(STAND_IN, context) }.unwrap();
        bindings.cublas(&second);
        let program = build(&bench.device, &pass, &bindings, Policy::Auto).unwrap();
        drop((bindings, second));
        assert!(!held.lock().unwrap().calls.contains(&"destroy"));
        drop(program);
        assert!(held.lock().unwrap().calls.contains(&"destroy"));
        assert_eq!(cublas.version(), 120_904);
    });
}

#[test]
fn a_missing_library_is_reported() {
    let device = device();
    // SAFETY: there is no such file.
    let error = unsafe { Cublas::load_from(Path::new("/nowhere/libcublas.so"), &device.context) };
    let error = error.unwrap_err();
    assert!(
        matches!(&error, Error::NoLibrary { tried, .. } if tried.contains("/nowhere")),
        "{error}"
    );
}
