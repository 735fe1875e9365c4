//! The generated Rust file, PTX, bundle, and lines for Cargo.

use std::fs;

use retrograph_build::{Assembly, Image, Images};
use retrograph_runtime::modules::{Bundle, CacheOptions};
use retrograph_runtime::{Context, CustomImage, DeviceIndex, Driver, ModuleCache, Requirements};

use crate::tools::{Place, SCALE};

fn images() -> Images {
    Images::new("kernels").targets(["sm_90", "sm_80"])
}

#[test]
fn an_embedded_image_is_prewarmed_from_its_bundle() {
    let place = Place::new().with_tools();
    let toolkit = place.path("");
    let place = place.set("CUDA_HOME", toolkit);
    let file = place.write("scale.ptx", SCALE);
    let built = place.build(&images().image(Image::ptx_file(&file))).unwrap();
    let out = place.path("out");
    assert_eq!(built.module, out.join("kernels.rs"));
    let text = fs::read_to_string(out.join("kernels/scale.ptx")).unwrap();
    assert_eq!(text, SCALE);

    let bundle: &'static [u8] = fs::read(&built.bundle).unwrap().leak();
    let mut options = CacheOptions::default();
    options.bundles = vec![Bundle::from_static(bundle).unwrap()];
    let driver = Driver::simulated(Default::default()).unwrap();
    let context = Context::new(&driver, DeviceIndex(0)).unwrap();
    let image = CustomImage::ptx("scale", text);
    let mut requirements = Requirements::default();
    requirements.insert_custom(&image, "scale");
    let cache = ModuleCache::with(&context, options);
    let warm = cache.prewarm(&requirements, |_| ()).unwrap();
    assert_eq!(warm.report().sources(), "1 bundle");
    assert!(warm.report().warnings.is_empty(), "{:?}", warm.report().warnings);
}

#[test]
fn the_rust_file_has_a_constant_for_each_image_and_the_bundle() {
    let place = Place::new().with_tools();
    let ptxas = place.path("bin/ptxas");
    let place = place.set("RETROGRAPH_PTXAS", ptxas);
    let images = images()
        .image(Image::ptx("made-here", SCALE))
        .image(Image::ptx_file(place.write("scale.ptx", SCALE)).named("twice"));
    let built = place.build(&images).unwrap();
    let text = fs::read_to_string(built.module).unwrap();
    let file = |name: &str| format!("(concat!(env!(\"OUT_DIR\"), \"/kernels/{name}\"));");
    for line in [
        format!("pub const MADE_HERE: &str = include_str!{}", file("made_here.ptx")),
        format!("pub const TWICE: &str = include_str!{}", file("twice.ptx")),
        format!("pub const BUNDLE: &[u8] = include_bytes!{}", file("images.bundle")),
        "#[doc = \"The machine code of all images, for sm_80, sm_90.\"]".to_owned(),
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in {text}");
    }
}

#[test]
fn cuda_files_are_compiled_for_the_lowest_target_and_tracked_with_their_headers() {
    let place = Place::new().with_tools();
    let nvcc = place.path("bin/nvcc");
    let place = place.set("NVCC", nvcc);
    let source = place.write("scale.cu", &SCALE.replace("sm_80", "%s"));
    let built = place.build(&images().image(Image::cuda_file(&source))).unwrap();
    // ptxas is beside nvcc.
    let bundle = Bundle::open(&built.bundle).unwrap();
    assert_eq!(bundle.len(), 2);
    assert_eq!(fs::read_to_string(place.path("out/kernels/scale.ptx")).unwrap(), SCALE);
    let followed = format!("cargo::rerun-if-changed={}", source.display());
    let (header, variable) =
        ("cargo::rerun-if-changed=some header.h", "cargo::rerun-if-env-changed=NVCC");
    for line in [followed.as_str(), header, variable] {
        assert!(built.instructions.iter().any(|found| found == line), "{:?}", built.instructions);
    }
}

#[test]
fn without_an_assembler_images_are_checked_and_the_build_warns() {
    let place = Place::new();
    let file = place.write("scale.ptx", SCALE);
    let images = images().image(Image::ptx_file(&file)).assembly(Assembly::IfFound);
    let built = place.build(&images).unwrap();
    assert!(Bundle::open(&built.bundle).unwrap().is_empty());
    let warnings: Vec<_> =
        built.instructions.iter().filter(|line| line.starts_with("cargo::warning=")).collect();
    assert!(matches!(&warnings[..], [one] if one.contains("no ptxas")), "{warnings:?}");
    let followed = format!("cargo::rerun-if-changed={}", file.display());
    assert!(built.instructions.contains(&followed), "{:?}", built.instructions);
}

#[test]
fn the_same_images_give_the_same_files() {
    let place = Place::new().with_tools();
    let bin = place.path("bin");
    let place = place.set("PATH", bin);
    let read = || {
        let images = images().image(Image::ptx("a", SCALE)).image(Image::ptx("b", SCALE));
        let built = place.build(&images).unwrap();
        (fs::read(built.module).unwrap(), fs::read(built.bundle).unwrap())
    };
    assert_eq!(read(), read());
}
