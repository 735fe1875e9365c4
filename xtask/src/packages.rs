//! Checks of the published packages: required contents, builds and tests from archives, READMEs,
//! examples, and builds with every set of features.

mod commands;
mod readmes;

use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Deserialize;

use crate::examples;
use crate::workspace::{check, command, output, own_profiles, profiles, root, target_dir};

/// Packages that leave out their folder `tests`, since it needs models and other files of the
/// repository.
const WITHOUT_TESTS: [&str; 2] = ["retrograph", "retrograph-finetune"];

/// A package of the workspace that is published.
#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    version: String,
    pub(crate) manifest_path: PathBuf,
    publish: Option<Vec<String>>,
    readme: Option<String>,
    keywords: Vec<String>,
    categories: Vec<String>,
    features: std::collections::BTreeMap<String, Vec<String>>,
    metadata: Option<serde_json::Value>,
    targets: Vec<Target>,
}

#[derive(Debug, Deserialize)]
struct Target {
    kind: Vec<String>,
}

impl Package {
    /// Name and version, as in the name of the archive.
    fn id(&self) -> String {
        format!("{}-{}", self.name, self.version)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.manifest_path.parent().unwrap_or(&self.manifest_path)
    }

    pub(crate) fn is_library(&self) -> bool {
        self.targets.iter().any(|target| target.kind.iter().any(|kind| kind == "lib"))
    }

    fn is_program(&self) -> bool {
        self.targets.iter().any(|target| target.kind.iter().any(|kind| kind == "bin"))
    }

    /// The section for docs.rs.
    fn docs_rs(&self) -> Option<&serde_json::Value> {
        self.metadata.as_ref()?.pointer("/docs/rs")
    }
}

/// The published packages, by name.
pub(crate) fn published() -> anyhow::Result<Vec<Package>> {
    #[derive(Deserialize)]
    struct Metadata {
        packages: Vec<Package>,
    }
    let text = output(command("cargo", &["metadata", "--format-version=1", "--no-deps"]))?;
    let metadata: Metadata = serde_json::from_str(&text).context("metadata of cargo")?;
    let mut packages = metadata.packages;
    packages.retain(|package| package.publish.as_ref().is_none_or(|list| !list.is_empty()));
    packages.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(packages)
}

/// `-p NAME` for each published package.
pub(crate) fn selection() -> anyhow::Result<Vec<String>> {
    let names = published()?.into_iter().map(|package| package.name);
    Ok(names.flat_map(|name| ["-p".to_owned(), name]).collect())
}

/// Packages all published packages and compiles libraries, programs and examples from the archives,
/// with dependencies also from archives.
pub(crate) fn package() -> anyhow::Result<()> {
    let directory = unpack(&published()?)?;
    let mut build = command("cargo", &["check", "--workspace", "--lib", "--bins", "--examples"]);
    build.args(profiles()).current_dir(&directory).env("CARGO_TARGET_DIR", target_dir());
    check(build)
}

/// Does everything that publishing does, except for compiling, which [`package`] does, and for
/// uploading.
pub(crate) fn publish_dry() -> anyhow::Result<()> {
    let flags = ["publish", "--dry-run", "--no-verify", "--allow-dirty", "--locked"];
    let mut publish = command("cargo", &flags);
    publish.args(selection()?);
    check(publish)
}

/// Runs the tests in the archives: unit tests and documentation of all packages, and the folder
/// `tests` of those that publish it.
pub(crate) fn archive_tests() -> anyhow::Result<()> {
    let packages = published()?;
    let directory = unpack(&packages)?;
    for package in &packages {
        let has_tests = directory.join(package.id()).join("tests").is_dir();
        let is_expected =
            package.folder().join("tests").is_dir() && !WITHOUT_TESTS.contains(&&*package.name);
        if has_tests != is_expected {
            let found = if has_tests { "has a" } else { "lacks the" };
            anyhow::bail!("the archive of {} {found} folder `tests`", package.name);
        }
    }
    let mut tests = command("cargo", &["test", "--workspace"]);
    tests.args(own_profiles()).current_dir(&directory).env("CARGO_TARGET_DIR", target_dir());
    check(tests)
}

/// Follows the README of each package, and runs copies of the examples, with the packages from
/// their archives.
pub(crate) fn readmes() -> anyhow::Result<()> {
    let packages = published()?;
    let directory = unpack(&packages)?;
    let examples = examples::copy(&directory)?;
    readmes::follow(&packages, &directory, &examples)?;
    examples::run_copies(&directory, &examples)
}

/// Writes the packed images of `retrograph-kernels` into its folder `images`, which belongs to the
/// package: build scripts of dependents are not optimized, and this one does most of the work.
fn write_images() -> anyhow::Result<()> {
    let flags = ["build", "--locked", "-p", "retrograph-kernels", "--message-format", "json"];
    let messages = output(command("cargo", &flags))?;
    let mut scripts = messages.lines().filter_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let is_ours = message["package_id"].as_str()?.contains("/crates/kernels#");
        is_ours.then(|| message["out_dir"].as_str().map(PathBuf::from)).flatten()
    });
    let generated = scripts.next().context("the build script of the kernels did not run")?;
    let images = root().join("crates/kernels/images");
    if images.exists() {
        std::fs::remove_dir_all(&images)?;
    }
    std::fs::create_dir(&images)?;
    for file in std::fs::read_dir(generated)? {
        let file = file?;
        std::fs::copy(file.path(), images.join(file.file_name()))?;
    }
    Ok(())
}

/// Packages `packages` and unpacks the archives into a workspace. Returns its folder.
fn unpack(packages: &[Package]) -> anyhow::Result<PathBuf> {
    write_images()?;
    let mut archives = command("cargo", &["package", "--no-verify", "--allow-dirty", "--locked"]);
    archives.args(selection()?);
    check(archives)?;
    let directory = target_dir().join("unpacked");
    if directory.exists() {
        std::fs::remove_dir_all(&directory)?;
    }
    std::fs::create_dir_all(&directory)?;
    for package in packages {
        let archive = target_dir().join("package").join(format!("{}.crate", package.id()));
        // All files in archives have the same old time, so cargo would consider an earlier build
        // of the same version current.
        let mut unpack = command("tar", &["-xmzf"]);
        unpack.arg(archive).current_dir(&directory);
        check(unpack)?;
    }
    let kernels = packages.iter().find(|package| package.name == "retrograph-kernels");
    let images = kernels.map(|package| directory.join(package.id()).join("images/images.rs"));
    if !images.is_some_and(|images| images.is_file()) {
        anyhow::bail!("the package of the kernels lacks the folder `images`");
    }
    std::fs::write(directory.join("Cargo.toml"), unpacked_manifest(packages, &[]))?;
    std::fs::copy(root().join("Cargo.lock"), directory.join("Cargo.lock"))?;
    Ok(directory)
}

/// A workspace of unpacked archives and of the packages `others`.
fn unpacked_manifest(packages: &[Package], others: &[String]) -> String {
    let archives = packages.iter().map(Package::id);
    let members: Vec<_> = archives.chain(others.iter().cloned()).collect();
    let patch = |package: &Package| format!("{} = {{ path = {:?} }}\n", package.name, package.id());
    let patches: String = packages.iter().map(patch).collect();
    format!("[workspace]\nresolver = \"3\"\nmembers = {members:?}\n\n[patch.crates-io]\n{patches}")
}

/// Checks each package with every set of its features; warnings are errors.
pub(crate) fn feature_powerset() -> anyhow::Result<()> {
    for package in published()? {
        let names: Vec<_> = package.features.keys().filter(|name| *name != "default").collect();
        for set in sets(names.iter().copied()) {
            let features = set.join(",");
            let flags = ["clippy", "--locked", "--no-default-features", "-p", &package.name];
            let mut command = command("cargo", &flags);
            command.args(["--features", &features, "--", "-D", "warnings"]);
            // The feature `embedded-bundle` embeds this file; any file compiles.
            command.env("RETROGRAPH_BUNDLE", root().join("README.md"));
            check(command)?;
        }
    }
    Ok(())
}

/// Builds the documentation of each library as docs.rs does: alone, with the features of its
/// metadata. Warnings are errors.
pub(crate) fn docs_rs() -> anyhow::Result<()> {
    for package in published()?.iter().filter(|package| package.is_library()) {
        let metadata = package.docs_rs().context("`tidy` says which package lacks metadata")?;
        let mut command = command("cargo", &["doc", "--no-deps", "--lib", "--locked", "-p"]);
        command.arg(&package.name).args(docs_rs_flags(metadata)?);
        command.env("RUSTDOCFLAGS", "-D warnings").env("DOCS_RS", "1");
        check(command)?;
    }
    Ok(())
}

/// The flags for a section of docs.rs.
fn docs_rs_flags(section: &serde_json::Value) -> anyhow::Result<Vec<String>> {
    let mut flags = Vec::new();
    for (key, value) in section.as_object().context("it is not a table")? {
        match (key.as_str(), value) {
            ("features", serde_json::Value::Array(features)) => {
                let names = features.iter().filter_map(serde_json::Value::as_str);
                flags.extend(["--features".to_owned(), names.collect::<Vec<_>>().join(",")]);
            }
            ("all-features" | "no-default-features", serde_json::Value::Bool(is_on)) => {
                flags.extend(is_on.then(|| format!("--{key}")));
            }
            // These keys select where docs.rs builds, not how.
            ("targets" | "default-target", _) => {}
            _ => anyhow::bail!("`package.metadata.docs.rs.{key}` is not known to this check"),
        }
    }
    Ok(flags)
}

/// Every subset, the smallest first.
fn sets<'a>(names: impl Iterator<Item = &'a String>) -> Vec<Vec<&'a str>> {
    let mut sets = vec![Vec::new()];
    for name in names {
        let with: Vec<Vec<&str>> =
            sets.iter().map(|set| [&set[..], &[name.as_str()]].concat()).collect();
        sets.extend(with);
    }
    sets.sort_by_key(Vec::len);
    sets
}

/// Returns what a package lacks for a registry and docs.rs.
pub(crate) fn complaints(package: &Package) -> Vec<String> {
    let directory = package.folder();
    let mut missing = Vec::new();
    for file in ["LICENSE-MIT", "LICENSE-APACHE"] {
        if !directory.join(file).is_file() {
            missing.push(format!("{file} (link it to the root's)"));
        }
    }
    match &package.readme {
        Some(readme) if directory.join(readme).is_file() => {}
        _ => missing.push("a README".to_owned()),
    }
    if !(1..=5).contains(&package.keywords.len()) {
        missing.push("1 to 5 keywords".to_owned());
    }
    if !(1..=5).contains(&package.categories.len()) {
        missing.push("1 to 5 categories".to_owned());
    }
    if package.is_library() && package.docs_rs().is_none() {
        missing.push("package.metadata.docs.rs".to_owned());
    }
    missing.into_iter().map(|what| format!("{}: lacks {what}", package.name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_set_of_features_is_listed_once() {
        let names = ["a".to_owned(), "b".to_owned()];
        let expected: [&[&str]; 4] = [&[], &["a"], &["b"], &["a", "b"]];
        assert_eq!(sets(names.iter()), expected);
        assert_eq!(sets([].iter()), [<&[&str]>::default()]);
    }

    #[test]
    fn documentation_is_built_with_the_features_of_the_metadata() {
        let section = serde_json::json!({
            "features": ["a", "b"], "no-default-features": true, "all-features": false,
            "targets": ["x86_64-unknown-linux-gnu"],
        });
        let flags = docs_rs_flags(&section).unwrap();
        assert_eq!(flags, ["--features", "a,b", "--no-default-features"]);
        let error = docs_rs_flags(&serde_json::json!({ "rustdoc-args": ["--cfg"] })).unwrap_err();
        assert!(error.to_string().contains("rustdoc-args"), "{error}");
    }

    #[test]
    fn unpublished_packages_are_left_out_and_lacks_are_named() {
        let mut packages = published().unwrap();
        assert!(packages.iter().all(|package| package.name != "xtask"));
        let package = packages.iter_mut().find(|package| package.name == "retrograph-ptx").unwrap();
        assert_eq!(complaints(package), [""; 0]);
        package.keywords.clear();
        package.readme = Some("NONE.md".to_owned());
        package.metadata = None;
        let lacks = ["a README", "1 to 5 keywords", "package.metadata.docs.rs"];
        assert_eq!(complaints(package), lacks.map(|what| format!("retrograph-ptx: lacks {what}")));
    }
}
