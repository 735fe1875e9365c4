//! Checks of the documentation: local links lead to existing files and headings, tests and paths
//! that a page names exist, the page of kernels lists every kernel, and pages count images
//! correctly.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use retrograph_kernels::SmTarget;

/// The pages that cite tests as `` `module::test` ``.
const NAMES_TESTS: [&str; 2] = ["docs/hazards.md", "docs/safety.md"];

/// Reports broken links and missing tests. `files` are the tracked files, relative to `root`.
pub(super) fn check(root: &Path, files: &[&Path], complaints: &mut Vec<String>) {
    let read = |path: &Path| fs::read_to_string(root.join(path)).unwrap_or_default();
    let of_kind = |kind: &'static str| {
        files.iter().filter(move |path| path.extension().is_some_and(|it| it == kind))
    };
    for page in of_kind("md") {
        links(root, page, &read(page), complaints);
        if page.as_os_str() == "ARCHITECTURE.md" || page.parent() == Some(Path::new("docs")) {
            paths(root, page, &read(page), complaints);
        }
    }
    let tests: HashSet<String> = of_kind("rs")
        .filter(|path| path.components().any(|part| part.as_os_str() == "tests"))
        .flat_map(|path| test_functions(&read(path)))
        .collect();
    for page in NAMES_TESTS {
        let text = read(Path::new(page));
        let named: Vec<_> = named_tests(&text).collect();
        if named.is_empty() {
            complaints.push(format!("{page}: names no tests"));
        }
        for test in named.into_iter().filter(|test| !tests.contains(*test)) {
            complaints.push(format!("{page}: no test is called `{test}`"));
        }
    }
    kernels(&read(Path::new(KERNELS_PAGE)), complaints);
    assembled(&read(Path::new(CONTRIBUTING)), complaints);
}

/// Folders at the start of a path in a page.
const ROOTS: [&str; 4] = ["crates/", "kernels-ptx/", "xtask/", "docs/"];

/// Reports paths in code spans that do not exist. Paths with placeholders are not checked.
fn paths(root: &Path, page: &Path, text: &str, complaints: &mut Vec<String>) {
    let spans = text.split('`').skip(1).step_by(2);
    let is_plain = |path: &str| path.chars().all(|it| it.is_alphanumeric() || "/_.-".contains(it));
    let named = spans.filter(|it| ROOTS.iter().any(|root| it.starts_with(root)) && is_plain(it));
    for path in named.filter(|path| !root.join(path).exists()) {
        complaints.push(format!("{}: `{path}` does not exist", page.display()));
    }
}

/// The page that lists every kernel and counts images.
const KERNELS_PAGE: &str = "docs/kernels.md";
/// Words of a kernel's name that the page leaves out: dtype and mainloop.
const VARIANTS: [&str; 4] = ["f32", "bf16", "nf4", "multistage"];

/// Reports kernels that `text`, the page of kernels, does not list, and wrong counts of images.
fn kernels(text: &str, complaints: &mut Vec<String>) {
    let mut names: Vec<_> = retrograph_kernels::all().iter().map(|it| plain(it.name)).collect();
    names.dedup();
    for name in names.iter().filter(|name| !text.contains(&format!("`{name}`"))) {
        complaints.push(format!("{KERNELS_PAGE}: does not list the kernel `{name}`"));
    }
    let images: Vec<_> = retrograph_kernels::images::names().collect();
    let gemm = images.iter().filter(|name| name.starts_with("gemm_")).count();
    let claims = [
        format!("{} images", images.len()),
        format!("{gemm} GEMM images"),
        format!("for {} SM targets", spelled(SmTarget::GENERATED.len())),
    ];
    for claim in claims.into_iter().filter(|claim| !text.contains(claim.as_str())) {
        complaints.push(format!("{KERNELS_PAGE}: does not say \"{claim}\", which is true now"));
    }
}

/// The page that counts the calls of `ptxas`.
const CONTRIBUTING: &str = "CONTRIBUTING.md";

/// Reports a wrong count of the images that `prewarm` assembles.
fn assembled(text: &str, complaints: &mut Vec<String>) {
    let (images, targets) =
        (retrograph_kernels::images::names().count(), SmTarget::GENERATED.len());
    let all = images * targets;
    let claim = format!("{all} images, {images} for each of {targets} SM targets");
    // Lines end anywhere.
    if !text.split_whitespace().collect::<Vec<_>>().join(" ").contains(&claim) {
        complaints.push(format!("{CONTRIBUTING}: does not say \"{claim}\", which is true now"));
    }
}

/// The name of a kernel without dtype and mainloop.
fn plain(name: &str) -> String {
    let parts: Vec<_> = name.split('_').filter(|part| !VARIANTS.contains(part)).collect();
    parts.join("_")
}

/// A small number as a word, as in prose.
fn spelled(number: usize) -> String {
    let words = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"];
    words.get(number).map_or_else(|| number.to_string(), |word| (*word).to_owned())
}

/// Returns the names of all functions after a `#[test]` attribute or inside a test macro.
fn test_functions(text: &str) -> Vec<String> {
    let names = text.split("fn ").skip(1).map(|rest| {
        rest.chars().take_while(|it| it.is_alphanumeric() || *it == '_').collect::<String>()
    });
    names.collect()
}

/// The last part of each `` `module::function` `` of a table.
fn named_tests(text: &str) -> impl Iterator<Item = &str> {
    let code = text.split('`').skip(1).step_by(2);
    let paths = code.filter(|it| it.contains("::") && it.chars().all(is_path));
    // Paths with an upper-case letter are items of the API.
    let paths = paths.filter(|path| !path.chars().any(char::is_uppercase));
    paths.filter_map(|path| path.rsplit("::").next())
}

fn is_path(character: char) -> bool {
    character.is_alphanumeric() || "_:".contains(character)
}

fn links(root: &Path, page: &Path, text: &str, complaints: &mut Vec<String>) {
    let folder = page.parent().unwrap_or(Path::new(""));
    for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
        if target.contains("://") || target.contains(' ') || target.starts_with("mailto:") {
            continue;
        }
        let (file, heading) = target.split_once('#').unwrap_or((target, ""));
        let path = if file.is_empty() { root.join(page) } else { root.join(folder).join(file) };
        if !path.exists() {
            complaints.push(format!("{}: `{target}` leads nowhere", page.display()));
        } else if !heading.is_empty() && path.extension().is_some_and(|it| it == "md") {
            let other = fs::read_to_string(&path).unwrap_or_default();
            if !headings(&other).any(|it| it == heading) {
                complaints.push(format!("{}: no heading for `{target}`", page.display()));
            }
        }
    }
}

/// Anchors of the headings of a page.
fn headings(text: &str) -> impl Iterator<Item = String> {
    let lines = text.lines().filter(|line| line.starts_with('#'));
    lines.map(|line| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|it| it.is_alphanumeric() || " -_".contains(*it));
        kept.map(|it| if it == ' ' { '-' } else { it }).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_and_a_missing_heading_are_reported() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("b.md"), "# B\n## What it `does`, twice\n").unwrap();
        let text = "[a](b.md) [b](b.md#what-it-does-twice) [c](c.md) [d](b.md#no) [e](https://x/y)";
        let mut complaints = Vec::new();
        links(folder.path(), Path::new("a.md"), text, &mut complaints);
        assert_eq!(complaints.len(), 2, "{complaints:?}");
        assert!(complaints[0].contains("c.md") && complaints[1].contains("b.md#no"));
    }

    #[test]
    fn a_missing_path_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("docs")).unwrap();
        fs::write(folder.path().join("docs/a.md"), "").unwrap();
        let text = "`docs/a.md` `docs/b.md` `docs/<name>.md` `other/c.md` `docs/`";
        let mut complaints = Vec::new();
        paths(folder.path(), Path::new("a.md"), text, &mut complaints);
        assert_eq!(complaints, ["a.md: `docs/b.md` does not exist"]);
    }

    #[test]
    fn a_missing_kernel_and_a_wrong_count_are_reported() {
        let mut complaints = Vec::new();
        kernels("`gemm_fprop` in 1 images for two SM targets", &mut complaints);
        assert!(!complaints.iter().any(|it| it.contains("`gemm_fprop`")), "{complaints:?}");
        assert!(complaints.iter().any(|it| it.contains("`gemm_dgrad`")), "{complaints:?}");
        assert_eq!(complaints.iter().filter(|it| it.contains("which is true now")).count(), 3);
        assert_eq!(plain("flash_attention_bf16_grad_q"), "flash_attention_grad_q");
    }

    #[test]
    fn tests_and_types_are_distinguished() {
        let text = "| `a::b_c` | `Reuse::Full` | `two_devices` | `x::y::z` |";
        assert_eq!(named_tests(text).collect::<Vec<_>>(), ["b_c", "z"]);
        assert_eq!(test_functions("#[test]\nfn one() {}\n fn two<T>() {}"), ["one", "two"]);
    }
}
