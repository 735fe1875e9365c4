//! Each mistake is a distinct error that names its object and a remedy.

use retrograph_build::{Assembly, Error, Image, Images};

use crate::tools::{Place, SCALE};

fn images(image: Image) -> Images {
    Images::new("kernels").targets(["sm_80"]).image(image)
}

fn with_ptxas() -> Place {
    let place = Place::new().with_tools();
    let ptxas = place.path("bin/ptxas");
    place.set("RETROGRAPH_PTXAS", ptxas)
}

#[test]
fn without_nvcc_the_error_names_its_variable_and_a_remedy() {
    let place = with_ptxas();
    let source = place.write("saxpy.cu", "");
    let error = place.build(&images(Image::cuda_file(&source))).unwrap_err();
    assert!(matches!(&error, Error::NoNvcc { source_file } if *source_file == source), "{error}");
    let text = error.to_string();
    for word in ["saxpy.cu", "nvcc", "NVCC", "CUDA_HOME", "PATH", "nvcc -ptx"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    // A missing compiler is reported before a missing assembler.
    let error = Place::new().build(&images(Image::cuda_file(&source))).unwrap_err();
    assert!(matches!(error, Error::NoNvcc { .. }), "{error}");
}

#[test]
fn without_ptxas_a_required_assembly_is_an_error() {
    let error = Place::new().build(&images(Image::ptx("scale", SCALE))).unwrap_err();
    assert!(matches!(error, Error::NoPtxas), "{error}");
    let text = error.to_string();
    assert!(text.contains("RETROGRAPH_PTXAS") && text.contains("Assembly::IfFound"), "{text}");
}

#[test]
fn a_variable_that_names_no_file_is_an_error_even_if_the_tool_is_elsewhere() {
    for variable in ["NVCC", "RETROGRAPH_PTXAS"] {
        // The last is a file in the working directory, which is not searched for bare names.
        for value in ["nowhere/tool", "no-such-tool", "Cargo.toml"] {
            let place = Place::new().with_tools();
            let bin = place.path("bin");
            let place = place.set("PATH", bin).set(variable, value);
            let source = place.write("a.cu", SCALE);
            let error = place.build(&images(Image::cuda_file(source))).unwrap_err();
            let Error::ToolAbsent { variable: found, path } = &error else { panic!("{error}") };
            assert_eq!((*found, path.to_str()), (variable, Some(value)));
        }
    }
}

#[test]
fn the_error_includes_the_output_of_nvcc() {
    let place = Place::new().with_tools();
    let nvcc = place.path("bin/nvcc");
    let place = place.set("NVCC", nvcc);
    let source = place.write("a.cu", SCALE);
    let image = Image::cuda_file(source).nvcc_arguments(["--refuse"]);
    let error = place.build(&images(image)).unwrap_err();
    let Error::Nvcc { status, log, .. } = &error else { panic!("{error}") };
    assert_eq!((status.code(), log.as_str()), (Some(2), "line 7: no"));
}

#[test]
fn names_are_checked() {
    let place = with_ptxas();
    for name in ["", "2d", "a/b", "ä"] {
        let error = place.build(&images(Image::ptx(name, SCALE))).unwrap_err();
        assert!(matches!(error, Error::Name { .. }), "{name}: {error}");
    }
    let twice = images(Image::ptx("a-b", SCALE)).image(Image::ptx("A_b", SCALE));
    let error = place.build(&twice).unwrap_err();
    assert!(matches!(&error, Error::Duplicate { constant } if constant == "A_B"), "{error}");
    let error = place.build(&images(Image::ptx("bundle", SCALE))).unwrap_err();
    assert!(matches!(error, Error::Duplicate { .. }), "{error}");
}

#[test]
fn the_rust_file_is_in_the_folder_of_the_build() {
    let place = Place::new();
    for name in ["", "..", "../kernels", "a/kernels", "/kernels", "kernels/"] {
        let image = Image::ptx("scale", SCALE);
        let images = Images::new(name).targets(["sm_80"]).image(image);
        let error = place.build(&images.assembly(Assembly::IfFound)).unwrap_err();
        assert!(matches!(&error, Error::Module { name: found } if found == name), "{error}");
    }
}

#[test]
fn targets_are_checked() {
    let place = with_ptxas();
    let of = |targets: &[&str]| {
        let image = Image::ptx("scale", SCALE).targets(targets.iter().copied());
        place.build(&images(image)).unwrap_err()
    };
    assert!(matches!(of(&[]), Error::NoTarget { .. }));
    assert!(matches!(of(&["80"]), Error::Target { .. }));
    assert!(matches!(of(&["sm_91"]), Error::UnknownTarget { .. }));
    let error = of(&["sm_75"]);
    assert!(matches!(error, Error::Bundle(_)), "{error}");
    assert!(error.to_string().contains("sm_75"), "{error}");
}

#[test]
fn without_ptxas_wrong_images_are_refused_by_the_parser() {
    let place = Place::new();
    let error = |text: &str, target: &str| {
        let image = Image::ptx("scale", text).targets([target]);
        place.build(&images(image).assembly(Assembly::IfFound)).unwrap_err()
    };
    let parse = error(&SCALE.replace("st.global", "st.nowhere"), "sm_80");
    assert!(matches!(parse, Error::Parse { .. }), "{parse}");
    let old = error(&SCALE.replace(".version 7.0", ".version 6.0"), "sm_80").to_string();
    assert!(old.contains("2:9") && old.contains("sm_80 needs PTX ISA 7.0"), "{old}");
    let wrong = error(SCALE, "sm_75");
    assert!(matches!(wrong, Error::WrongTarget { .. }), "{wrong}");
}

#[test]
fn a_missing_file_is_named() {
    let place = with_ptxas();
    for image in [Image::ptx_file("no/such.ptx"), Image::cuda_file("no/such.cu")] {
        let error = place.build(&images(image)).unwrap_err();
        assert!(matches!(error, Error::Read { .. }), "{error}");
        assert!(error.to_string().contains("no/such."), "{error}");
    }
}
