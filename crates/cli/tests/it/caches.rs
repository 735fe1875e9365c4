//! Sources of compiled kernels: a directory, a bundle, or compiler processes.

use crate::program::{Place, json};

/// The kernel sources in the `warm` line.
fn warm_line(out: &str) -> &str {
    out.lines().find(|line| line.starts_with("warm")).unwrap_or_else(|| panic!("{out}"))
}

#[test]
fn the_second_run_uses_the_kernels_of_the_first() {
    let place = Place::new();
    let arguments = ["--steps", "2", "--cache-dir", "cache", "--report", "r"];
    let first = place.finetune(&arguments).good();
    assert!(warm_line(&first.out).ends_with(" jit"), "{}", first.out);
    let losses = json(&place.path("r"))["losses"].clone();
    let second = place.finetune(&arguments).good();
    assert!(warm_line(&second.out).ends_with(" disk"), "{}", second.out);
    let report = json(&place.path("r"));
    assert_eq!((&report["losses"], &report["jit_after_warm"]), (&losses, &0.into()));
}

#[test]
fn compiler_processes_compile() {
    let place = Place::new();
    let arguments = ["--steps", "1", "--compile", "processes", "--compile-workers", "3"];
    let done = place.finetune(&arguments).good();
    assert!(warm_line(&done.out).ends_with(" worker"), "{}", done.out);
    assert!(!done.out.contains("compiler process failed"), "{}", done.out);
    // On the simulated driver, they are not the default.
    let done = place.finetune(&["--steps", "1"]).good();
    assert!(warm_line(&done.out).ends_with(" jit"), "{}", done.out);
}

#[test]
fn a_directory_that_cannot_be_used_is_a_warning() {
    let place = Place::new();
    let done = place.finetune(&["--steps", "1", "--cache-dir", "text/cache"]).good();
    assert!(done.out.contains("the cache on disk was not used"), "{}", done.out);
    // All files of the cache are damaged.
    place.finetune(&["--steps", "1", "--cache-dir", "cache"]).good();
    let mut folders = vec![place.path("cache")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => std::fs::write(path, "damaged").unwrap(),
            }
        }
    }
    let done = place.finetune(&["--steps", "1", "--cache-dir", "cache"]).good();
    assert_eq!(done.out.matches("the cache on disk was not used").count(), 1, "{}", done.out);
    assert!(done.out.contains(" more files alike)"), "{}", done.out);
    let done = place.finetune(&["--steps", "1", "--cache-dir", "none"]).good();
    assert!(!done.out.contains("cache on disk"), "{}", done.out);
}

#[test]
fn an_invalid_bundle_ends_the_run() {
    let place = Place::new();
    place.finetune(&["--bundle", "text"]).bad(&["text", "is not a bundle"]);
    place.finetune(&["--bundle", "absent"]).bad(&["absent"]);
    assert_eq!(place.finetune(&["--compile", "magic"]).code, Some(2));
}
