//! The real `nvcc`, which `NVCC` names, with the `ptxas` beside it. Without it the test says that
//! it is skipped; with `RETROGRAPH_REQUIRE_TOOLS`, as in CI, it fails.

use std::ffi::OsString;

use retrograph_build::{Error, Image, Images};
use retrograph_runtime::modules::Bundle;

#[test]
#[expect(clippy::print_stderr, reason = "a test that does nothing says so")]
fn cuda_files_become_machine_code_for_each_target() {
    let Some(nvcc) = std::env::var_os("NVCC") else {
        let required = std::env::var_os("RETROGRAPH_REQUIRE_TOOLS").is_some();
        assert!(!required, "NVCC names no nvcc");
        eprintln!("skipped: NVCC names no nvcc");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        std::fs::write(folder.path().join(name), text).unwrap();
        folder.path().join(name)
    };
    let header = write("factor.h", "#define FACTOR 3.0f\n");
    let source = write(
        "scale.cu",
        "#include \"factor.h\"\n\
         extern \"C\" __global__ void scale(float *x) { x[threadIdx.x] *= FACTOR; }\n",
    );
    let out = folder.path().join("out");
    let variable = |name: &str| -> Option<OsString> {
        (name == "NVCC").then(|| nvcc.clone()).or_else(|| std::env::var_os(name))
    };
    let images = Images::new("kernels").targets(["sm_80", "sm_90a"]);
    let built = images.clone().image(Image::cuda_file(&source)).build(&out, &variable).unwrap();
    let bundle = Bundle::open(&built.bundle).unwrap();
    assert_eq!(bundle.len(), 2);
    let followed = format!("cargo::rerun-if-changed={}", header.display());
    assert!(built.instructions.contains(&followed), "{:?}", built.instructions);

    let wrong = write("wrong.cu", "extern \"C\" __global__ void wrong() { nothing; }\n");
    let error = images.image(Image::cuda_file(wrong)).build(&out, &variable).unwrap_err();
    assert!(matches!(error, Error::Nvcc { .. }), "{error}");
    assert!(error.to_string().contains("nothing"), "{error}");
}
