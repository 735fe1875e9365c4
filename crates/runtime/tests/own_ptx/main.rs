//! Passes without kernels of the workspace: own PTX, copies, fills, library calls and controls.
//! These tests need no feature of the runtime.

#[path = "../support/mod.rs"]
mod support;
mod tiles;

use std::process::Command;

use bytemuck::{Pod, Zeroable};
use retrograph_driver::compile_ptx;
use retrograph_driver_sim::Config;
use retrograph_runtime::{
    Argument, Bindings, CustomImage, CustomLaunch, DeviceBuffer, LaunchGeometry, LibraryCall,
    ModuleCache, Pass, Policy, PrewarmError, Program, Slice, Strategy,
};

use crate::support::device::{Device, device, device_of, simulated};
use crate::support::fatbin::{EntryKind, fatbin};
use crate::support::ptx::SCALE;
use crate::support::with;

const LEN: usize = 1000;

/// The kernel of [`SCALE`] in CUDA C++.
const SCALE_CUDA: &str = r#"
extern "C" __global__ void scale(float *x, unsigned n, float a) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= a;
}
"#;

/// Stores the fields of a struct, an f64 and an i8 as f32.
const VALUES: &str = "
.version 6.3
.target sm_75
.address_size 64

.visible .entry values(
    .param .u64 to,
    .param .align 4 .b8 pair[8],
    .param .f64 double,
    .param .s8 byte
)
{
    .reg .b64 %rd<2>;
    .reg .b32 %r<2>;
    .reg .f32 %f<4>;
    .reg .f64 %fd<1>;
    ld.param.u64 %rd0, [to];
    cvta.to.global.u64 %rd1, %rd0;
    ld.param.f32 %f0, [pair];
    ld.param.u32 %r0, [pair+4];
    cvt.rn.f32.u32 %f1, %r0;
    ld.param.f64 %fd0, [double];
    cvt.rn.f32.f64 %f2, %fd0;
    ld.param.s8 %r1, [byte];
    cvt.rn.f32.s32 %f3, %r1;
    st.global.f32 [%rd1], %f0;
    st.global.f32 [%rd1+4], %f1;
    st.global.f32 [%rd1+8], %f2;
    st.global.f32 [%rd1+12], %f3;
    ret;
}
";

/// `y = 2 · x`, then 1 and a control, with every kind of operation.
struct Scaled {
    pass: Pass,
    x: Slice<f32>,
    y: Slice<f32>,
    /// Copied to the last element of `y`.
    last: Slice<f32>,
}

impl Scaled {
    fn new(image: CustomImage) -> Self {
        let mut pass = Pass::new("scaled");
        let (x, y) = (pass.external("x", LEN), pass.external("y", LEN + 2));
        let (last, inner) = (pass.control("last"), pass.transient("inner", LEN));
        pass.copy(x, inner).unwrap();
        // SAFETY: the kernel scales the elements of its range.
        unsafe { pass.custom(scale(image, inner)) }.unwrap();
        let copy = LibraryCall::new("library copy", |scope| {
            let (from, to) = (scope.range(0), scope.range(1));
            // SAFETY: both ranges are declared, of equal length, and in two buffers.
            unsafe { scope.stream().memcpy_dtod(to.address, from.address, from.bytes) }
        });
        // SAFETY: the work accesses only the declared ranges, and uses only its stream.
        unsafe { pass.library(copy.reads(inner).writes(y.slice(0..LEN))) }.unwrap();
        pass.fill(y.slice(LEN..LEN + 1), 1.0_f32.to_bits()).unwrap();
        pass.copy(last, y.slice(LEN + 1..LEN + 2)).unwrap();
        Self { pass, x, y, last }
    }

    /// Runs three steps with different controls, and returns the sources of the modules.
    fn check(&self, device: &Device, policy: Policy) -> String {
        let cache = ModuleCache::new(&device.context);
        let modules = cache.prewarm(&self.pass.requirements(), |_| ()).unwrap();
        let input: Vec<f32> = (0..LEN).map(|at| at as f32).collect();
        let x = DeviceBuffer::from_slice(&device.stream, &input).unwrap();
        let y = DeviceBuffer::zeroed(&device.context, LEN + 2).unwrap();
        let mut bindings = Bindings::new();
        bindings.bind(self.x, &x).bind(self.y, &y);
        let mut program =
            Program::build(&device.stream, &modules, &self.pass, &bindings, policy).unwrap();
        let strategy = program.report().strategy;
        assert_eq!(strategy == Strategy::Eager, policy == Policy::Eager);
        let mut controls = self.pass.controls();
        for last in [5.0, 6.0, 7.0] {
            controls.set(self.last, last).unwrap();
            program.step(&device.stream, &controls).unwrap();
            let mut expected: Vec<f32> = input.iter().map(|x| 2.0 * x).collect();
            expected.extend([1.0, last]);
            assert_eq!(y.download(&device.stream).unwrap(), expected, "{strategy:?}");
        }
        modules.report().sources()
    }
}

/// Doubles the elements of `x`.
fn scale(image: CustomImage, x: Slice<f32>) -> CustomLaunch {
    let geometry = LaunchGeometry::linear((x.len() as u32).div_ceil(128), 128);
    let arguments = vec![Argument::update(x), Argument::U32(x.len() as u32), Argument::f32(2.0)];
    CustomLaunch::new(image, "scale", geometry, arguments)
}

#[test]
fn a_pass_of_own_ptx_has_controls_and_library_calls() {
    let scaled = Scaled::new(CustomImage::ptx("scale", SCALE));
    for policy in [Policy::Auto, Policy::Eager] {
        assert_eq!(scaled.check(&device(), policy), "2 jit");
    }
}

#[test]
fn a_device_older_than_every_kernel_runs_own_ptx() {
    let scaled = Scaled::new(CustomImage::ptx("scale", SCALE.replace("sm_75", "sm_50")));
    for compute_capability in [(6, 1), (5, 0)] {
        let device = device_of(&simulated(with(Config::default(), |it| {
            it.compute_capability = compute_capability
        })));
        for policy in [Policy::Auto, Policy::Eager] {
            scaled.check(&device, policy);
        }
    }
}

#[test]
fn own_ptx_for_a_newer_target_is_refused_with_both_targets() {
    let mut config = Config::default();
    config.compute_capability = (6, 1);
    let cache = ModuleCache::new(&device_of(&simulated(config)).context);
    let refused = cache
        .prewarm(&Scaled::new(CustomImage::ptx("scale", SCALE)).pass.requirements(), |_| ())
        .unwrap_err();
    let text = refused.to_string();
    assert!(text.contains("sm_75") && text.contains("sm_61"), "{text}");
}

#[test]
fn machine_code_of_an_own_kernel_is_loaded_without_compilation() {
    let device = device();
    let code = compile_ptx(&device.context, SCALE).unwrap();
    let scaled = Scaled::new(CustomImage::machine_code("scale", code));
    assert_eq!(scaled.check(&device, Policy::Auto), "1 machine code, 1 jit");
}

#[test]
fn the_zero_byte_at_the_end_of_ptx_is_ignored() {
    let (ptx, terminated) =
        (CustomImage::ptx("scale", SCALE), CustomImage::ptx("scale", format!("{SCALE}\0")));
    assert_eq!(ptx, terminated);
    assert_eq!(Scaled::new(terminated).check(&device(), Policy::Auto), "2 jit");
    let inside = CustomImage::ptx("scale", format!("{SCALE}\0{SCALE}"));
    let requirements = Scaled::new(inside).pass.requirements();
    let refused = ModuleCache::new(&device().context).prewarm(&requirements, |_| ()).unwrap_err();
    assert!(matches!(&refused, PrewarmError::Load { image, .. } if image == "scale"), "{refused}");
}

#[test]
fn a_fatbin_with_ptx_is_loaded() {
    let fatbin = fatbin(EntryKind::Ptx, SCALE.as_bytes());
    let scaled = Scaled::new(CustomImage::machine_code("scale", fatbin));
    for policy in [Policy::Auto, Policy::Eager] {
        assert_eq!(scaled.check(&device(), policy), "1 machine code, 1 jit");
    }
}

/// Needs `nvcc`, which `NVCC` names. With `RETROGRAPH_REQUIRE_TOOLS`, as in CI, it fails without.
#[test]
#[expect(clippy::print_stderr, reason = "a test that does nothing says so")]
fn a_fatbin_of_nvcc_is_loaded() {
    let Some(nvcc) = std::env::var_os("NVCC") else {
        let required = std::env::var_os("RETROGRAPH_REQUIRE_TOOLS").is_some();
        assert!(!required, "NVCC names no nvcc");
        eprintln!("skipped: NVCC names no nvcc");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let (source, fatbin) = (folder.path().join("scale.cu"), folder.path().join("scale.fatbin"));
    std::fs::write(&source, SCALE_CUDA).unwrap();
    // Machine code for one target, and PTX for all later ones.
    let targets = "-gencode=arch=compute_75,code=[sm_75,compute_75]";
    let mut compiler = Command::new(nvcc);
    let status = compiler.args(["-fatbin", targets, "-o"]).args([&fatbin, &source]).status();
    assert!(status.unwrap().success());
    let scaled = Scaled::new(CustomImage::machine_code("scale", std::fs::read(fatbin).unwrap()));
    assert_eq!(scaled.check(&device(), Policy::Auto), "1 machine code, 1 jit");
}

#[test]
fn machine_code_that_the_driver_does_not_take_is_refused_by_name() {
    let scaled = Scaled::new(CustomImage::machine_code("scale", *b"\x7fELF of no device"));
    let cache = ModuleCache::new(&device().context);
    let refused = cache.prewarm(&scaled.pass.requirements(), |_| ()).unwrap_err();
    assert!(matches!(&refused, PrewarmError::Load { image, .. } if image == "scale"), "{refused}");
}

/// As `VALUES` declares it.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Pair {
    factor: f32,
    count: u32,
}

#[test]
fn own_ptx_takes_scalars_of_every_size_and_structs_by_value() {
    let device = device();
    let mut pass = Pass::new("values");
    let to = pass.external::<f32>("to", 4);
    let pair = Pair { factor: 0.5, count: 7 };
    let arguments = vec![
        Argument::write(to),
        Argument::value(pair),
        Argument::value(2.5_f64),
        Argument::value(-3_i8),
    ];
    let image = CustomImage::ptx("values", VALUES);
    let launch = CustomLaunch::new(image, "values", LaunchGeometry::linear(1, 1), arguments);
    // SAFETY: the kernel writes the four elements of its range.
    unsafe { pass.custom(launch) }.unwrap();
    let cache = ModuleCache::new(&device.context);
    let modules = cache.prewarm(&pass.requirements(), |_| ()).unwrap();
    let memory = DeviceBuffer::zeroed(&device.context, 4).unwrap();
    let mut bindings = Bindings::new();
    bindings.bind(to, &memory);
    for policy in [Policy::Auto, Policy::Eager] {
        let mut program =
            Program::build(&device.stream, &modules, &pass, &bindings, policy).unwrap();
        program.step(&device.stream, &pass.controls()).unwrap();
        assert_eq!(memory.download(&device.stream).unwrap(), [0.5, 7.0, 2.5, -3.0]);
    }
}
