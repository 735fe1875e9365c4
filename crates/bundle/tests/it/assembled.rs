//! Bundles from a fake assembler, whose output is its source.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use retrograph_bundle::{
    AssembleError, Assembler, Bundle, BundleBuildError, BundleEntry, BundleError, BundleImage,
    digest_of,
};
use retrograph_ptx::SmTarget;

pub(crate) const STORE: &str = "\
.version 7.0
.target sm_80
.address_size 64
.visible .entry store(.param .u64 to)
{
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [to];
    st.global.u32 [%rd1], 1;
    ret;
}
";

/// Answers `--version`, and copies the source, after the target, to the code.
const COPY: &str = r#"
case "$1" in --version) echo version 1; echo build 1; echo; exit;; esac
target="$1"
(echo "$target"; cat "$2") > "$4""#;

/// A shell writes the program: a file that this process has open for writing, even in a child of
/// another test, cannot be started.
fn program(folder: &Path, lines: &str) -> Assembler {
    let path = folder.join("program");
    let mut shell = Command::new("sh");
    shell.args(["-c", r#"printf '#!/bin/sh\n%s\n' "$1" > "$0" && chmod 755 "$0""#]);
    assert!(shell.arg(&path).arg(lines).status().unwrap().success());
    Assembler::at(path)
}

pub(crate) fn targets(names: &[&str]) -> Vec<SmTarget> {
    names.iter().map(|name| name.parse().unwrap()).collect()
}

pub(crate) fn image(name: &str, ptx: &str, names: &[&str]) -> BundleImage {
    BundleImage { name: name.to_owned(), ptx: ptx.to_owned(), targets: targets(names) }
}

fn build(
    lines: &str,
    images: &[BundleImage],
) -> (tempfile::TempDir, PathBuf, Result<Bundle, BundleBuildError>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("images.bundle");
    let built = Bundle::build(&path, images, &program(folder.path(), lines));
    (folder, path, built)
}

#[test]
fn a_bundle_has_every_image_for_each_of_its_targets() {
    let other = STORE.replace("store", "other");
    let images = [image("store", STORE, &["sm_80", "sm_90a"]), image("other", &other, &["sm_90"])];
    let (_folder, path, built) = build(COPY, &images);
    let bundle = built.unwrap();
    assert_eq!((bundle.len(), bundle.path()), (3, path.as_path()));
    assert_eq!(bundle.targets(), targets(&["sm_80", "sm_90", "sm_90a"]));
    let code = |ptx: &str, device: &str| {
        let code = bundle.code(&digest_of(ptx), device.parse().unwrap()).unwrap();
        code.map(|code| String::from_utf8(code).unwrap())
    };
    assert_eq!(code(STORE, "sm_86"), Some(format!("-arch=sm_80\n{STORE}")));
    assert_eq!(code(STORE, "sm_90"), Some(format!("-arch=sm_90a\n{STORE}")));
    assert_eq!(code(&other, "sm_90"), Some(format!("-arch=sm_90\n{other}")));
    assert_eq!(code(&other, "sm_80"), None);
    let listed = bundle.find(&digest_of(STORE), "sm_80".parse().unwrap()).unwrap();
    assert_eq!((listed.name(), listed.producer()), ("store", "build 1"));
}

#[test]
fn two_targets_of_one_device_are_both_written() {
    let (_folder, _, built) = build(COPY, &[image("store", STORE, &["sm_90", "sm_90a"])]);
    let bundle = built.unwrap();
    assert_eq!(bundle.targets(), targets(&["sm_90", "sm_90a"]));
}

#[test]
#[cfg(unix)]
fn a_bundle_has_the_permissions_of_any_new_file() {
    use std::os::unix::fs::PermissionsExt;
    let (folder, path, built) = build(COPY, &[image("store", STORE, &["sm_90"])]);
    built.unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
    let other = folder.path().join("other");
    fs::write(&other, "").unwrap();
    assert_eq!(mode(&path), mode(&other));
}

#[test]
fn the_same_images_give_the_same_bytes() {
    let images: Vec<_> = (0..20)
        .map(|i| image(&format!("store {i}"), &format!("{STORE}// {i}"), &["sm_80", "sm_90"]))
        .collect();
    let (_first_folder, first, built) = build(COPY, &images);
    built.unwrap();
    let (_second_folder, second, built) = build(COPY, &images);
    built.unwrap();
    assert_eq!(fs::read(first).unwrap(), fs::read(second).unwrap());
}

#[test]
fn an_image_for_other_devices_is_refused_before_the_assembler_starts() {
    let (folder, path, built) = build("touch \"$0.ran\"", &[image("store", STORE, &["sm_75"])]);
    let error = built.unwrap_err();
    let BundleBuildError::WrongTarget { image, .. } = &error else { panic!("{error}") };
    assert_eq!(image, "store");
    let text = error.to_string();
    assert!(text.contains("sm_80") && text.contains("sm_75"), "{text}");
    assert!(!path.exists() && !folder.path().join("program.ran").exists());
}

#[test]
fn a_refused_image_is_named_with_target_and_messages_and_nothing_is_written() {
    let lines =
        COPY.replace("(echo", "case \"$target\" in *90) echo no such >&2; exit 3;; esac\n(echo");
    let images = [image("store", STORE, &["sm_80", "sm_90", "sm_100"])];
    let (_folder, path, built) = build(&lines, &images);
    let error = built.unwrap_err();
    let BundleBuildError::Assemble { image, target, source } = &error else { panic!("{error}") };
    assert_eq!((image.as_str(), target.to_string().as_str()), ("store", "sm_90"));
    let AssembleError::Refused { status, log, .. } = source else { panic!("{source}") };
    assert_eq!((status.code(), log.as_str()), (Some(3), "no such"));
    assert!(!path.exists());
}

#[test]
fn after_a_refused_image_no_other_is_assembled() {
    // The first image is refused at once, and the others take a while.
    let lines = r#"
case "$1" in --version) echo version 1; exit;; esac
echo run >> "$0.runs"
grep -q "// 0$" "$2" && exit 3
sleep 1; cp "$2" "$4""#;
    let cores = std::thread::available_parallelism().unwrap().get();
    let images: Vec<_> = (0..4 * cores)
        .map(|at| image(&format!("store {at}"), &format!("{STORE}// {at}\n"), &["sm_80"]))
        .collect();
    let (folder, _, built) = build(lines, &images);
    let error = built.unwrap_err();
    assert!(
        matches!(&error, BundleBuildError::Assemble { image, .. } if image == "store 0"),
        "{error}"
    );
    let runs = fs::read_to_string(folder.path().join("program.runs")).unwrap().lines().count();
    assert!(runs < images.len(), "{runs}");
}

#[test]
fn without_an_assembler_the_error_names_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("images.bundle");
    let nowhere = Assembler::at(folder.path().join("ptxas"));
    let error = Bundle::build(&path, &[image("store", STORE, &["sm_80"])], &nowhere).unwrap_err();
    assert!(matches!(error, BundleBuildError::Assembler(AssembleError::Run { .. })), "{error}");
    assert!(error.to_string().contains("ptxas"), "{error}");
    // Nothing to assemble needs none.
    let images = [image("store", STORE, &[])];
    assert!(Bundle::build(&path, &images, &nowhere).unwrap().is_empty());
}

#[test]
fn an_assembler_that_makes_no_code_or_takes_too_long_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let target = "sm_80".parse().unwrap();
    let nothing = program(folder.path(), "exit 0");
    let error = nothing.assemble(STORE, target).unwrap_err();
    assert!(matches!(error, AssembleError::NoCode { .. }), "{error}");
    assert!(error.to_string().contains("program wrote no code"), "{error}");
    let slow = program(folder.path(), "sleep 60").with_timeout(Duration::from_millis(20));
    let error = slow.assemble(STORE, target).unwrap_err();
    assert!(matches!(error, AssembleError::TooSlow { .. }), "{error}");
    let error = slow.version().unwrap_err();
    assert!(matches!(error, AssembleError::TooSlow { .. }), "{error}");
}

#[test]
fn a_file_of_the_assembler_that_cannot_be_read_is_named() {
    let folder = tempfile::tempdir().unwrap();
    // The code is a folder.
    let odd = program(folder.path(), r#"mkdir "$4""#);
    let error = odd.assemble(STORE, "sm_80".parse().unwrap()).unwrap_err();
    let AssembleError::File { path, .. } = &error else { panic!("{error}") };
    assert!(path.ends_with("image.cubin"), "{error}");
}

#[test]
fn an_entry_of_another_bundle_is_an_error() {
    let (_long_folder, _, long) = build(COPY, &[image("store", STORE, &["sm_80"])]);
    let (_short_folder, _, short) = build(COPY, &[image("other", "// short", &["sm_80"])]);
    let long = long.unwrap();
    let listed = long.find(&digest_of(STORE), "sm_80".parse().unwrap()).unwrap();
    let error = short.unwrap().read_code(listed, &mut Vec::new()).unwrap_err();
    assert!(matches!(error, BundleError::Io { .. }), "{error}");
}

#[test]
fn a_bundle_that_is_too_large_to_be_read_replaces_no_file() {
    let (_folder, path, built) = build(COPY, &[image("store", STORE, &["sm_80"])]);
    built.unwrap();
    let before = fs::read(&path).unwrap();
    let entry = |name: String, code: Vec<u8>| {
        let (image, target) = (digest_of(STORE), "sm_80".parse().unwrap());
        BundleEntry { name, image, target, producer: String::new(), code }
    };
    // Zeroed memory that nothing reads takes no place.
    let long_code = entry("store".to_owned(), vec![0; (1 << 30) + 1]);
    let long_name = entry("x".repeat(64 << 20), Vec::new());
    for (entry, expected) in
        [(long_code, "the code of `store` for sm_80"), (long_name, "the index")]
    {
        let entries = [entry];
        for error in [
            Bundle::write(&path, &entries).unwrap_err(),
            Bundle::write_private(&path, &entries).unwrap_err(),
            Bundle::write_verified(&path, &entries).unwrap_err(),
        ] {
            let BundleError::TooLarge { what, bytes, limit, .. } = &error else {
                panic!("{error}")
            };
            assert_eq!(what, expected);
            assert!(bytes > limit, "{error}");
        }
    }
    assert!(fs::read(&path).unwrap() == before);
}
