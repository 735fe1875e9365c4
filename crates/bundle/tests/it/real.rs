//! Bundles made by the `ptxas` that `RETROGRAPH_PTXAS` names. Without it the test says that it is
//! skipped; with `RETROGRAPH_REQUIRE_TOOLS`, as in CI, it fails.

use retrograph_bundle::{Assembler, Bundle, BundleBuildError, digest_of};

use crate::assembled::{STORE, image};

#[test]
#[expect(clippy::print_stderr, reason = "a test that does nothing says so")]
fn machine_code_is_an_elf_file_and_the_same_each_time() {
    let Some(path) = std::env::var_os("RETROGRAPH_PTXAS") else {
        let required = std::env::var_os("RETROGRAPH_REQUIRE_TOOLS").is_some();
        assert!(!required, "RETROGRAPH_PTXAS names no ptxas");
        eprintln!("skipped: RETROGRAPH_PTXAS names no ptxas");
        return;
    };
    let assembler = Assembler::at(path);
    let folder = tempfile::tempdir().unwrap();
    let images = [image("store", STORE, &["sm_80", "sm_90"])];
    let [first, second] = ["first", "second"].map(|name| folder.path().join(name));
    let bundle = Bundle::build(&first, &images, &assembler).unwrap();
    for device in ["sm_80", "sm_90"] {
        let code = bundle.code(&digest_of(STORE), device.parse().unwrap()).unwrap().unwrap();
        assert!(code.starts_with(b"\x7fELF"), "{device}");
    }
    let listed = bundle.find(&digest_of(STORE), "sm_80".parse().unwrap()).unwrap();
    assert!(listed.producer().contains("cuda_"), "{}", listed.producer());
    Bundle::build(&second, &images, &assembler).unwrap();
    assert_eq!(std::fs::read(&first).unwrap(), std::fs::read(&second).unwrap());

    let broken = STORE.replace("st.global.u32", "st.nowhere.u32");
    let error = Bundle::build(&first, &[image("store", &broken, &["sm_80"])], &assembler);
    let error = error.unwrap_err();
    assert!(matches!(error, BundleBuildError::Assemble { .. }), "{error}");
    assert!(error.to_string().contains("nowhere"), "{error}");
}
