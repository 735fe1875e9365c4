//! Checks of third-party crates with cargo-deny, and of the public API of our crates with
//! cargo-semver-checks.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::bail;

use crate::workspace::{check, command, output, root, target_dir};
use crate::{examples, packages, toolchain};

/// Compiling it takes several minutes, so it is not part of `all`.
const SEMVER_CHECKS: &str = "0.51.0";

/// Checks bans, licenses and sources. Needs only the lock files and the sources.
pub(crate) fn deny() -> anyhow::Result<()> {
    deny_each(&["bans", "licenses", "sources"])
}

/// Checks the advisories of RustSec, whose database it fetches.
pub(crate) fn advisories() -> anyhow::Result<()> {
    deny_each(&["advisories"])
}

/// Runs checks of cargo-deny on the workspace, the examples and the fuzz targets.
fn deny_each(checks: &[&str]) -> anyhow::Result<()> {
    let program = toolchain::cargo_deny()?;
    let folders = [root().to_owned(), root().join("fuzz")];
    for folder in folders.into_iter().chain(examples::folders()?) {
        let mut command = Command::new(&program);
        command.arg("--manifest-path").arg(folder.join("Cargo.toml"));
        command.args(["--all-features", "--locked"]);
        command.arg("--config").arg(root().join("deny.toml")).arg("check");
        // Not every workspace has every allowed license.
        command.args(["--allow", "license-not-encountered"]);
        command.args(["--allow", "license-exception-not-encountered"]);
        // Only one example has the crate whose dependencies are skipped.
        command.args(["--allow", "unmatched-skip-root"]);
        // The workspace has every version that is skipped.
        let skips = if folder == root() { "--deny" } else { "--allow" };
        command.args([skips, "unmatched-skip", skips, "unnecessary-skip"]).args(checks);
        check(command)?;
    }
    Ok(())
}

/// Compares the public API of each library with the last tag.
pub(crate) fn semver() -> anyhow::Result<()> {
    // A shallow clone has no tags, and would look like a project before its first release.
    if output(command("git", &["rev-parse", "--is-shallow-repository"]))?.trim() == "true" {
        bail!("this clone is shallow, so the last tag is unknown; `git fetch --unshallow --tags`");
    }
    let tags = ["tag", "--list", "v[0-9]*", "--merged", "HEAD", "--sort=-version:refname"];
    let tags = output(command("git", &tags))?;
    let Some(tag) = tags.lines().next() else {
        println!("semver: no tag `v…` yet, so there is nothing to compare with");
        return Ok(());
    };
    let mut command = Command::new(semver_checks()?);
    command.current_dir(root()).args(["semver-checks", "--baseline-rev", tag]);
    let mut compared = 0;
    for package in packages::published()?.iter().filter(|package| package.is_library()) {
        let manifest = package.manifest_path.strip_prefix(root())?;
        if in_revision(tag, manifest)? {
            command.args(["--package", &package.name]);
            compared += 1;
        } else {
            println!("semver: {} is not part of {tag}", package.name);
        }
    }
    if compared == 0 {
        bail!("no library of {tag} is left; the release has other folders");
    }
    check(command)
}

/// Whether a file is part of a revision.
fn in_revision(revision: &str, file: &Path) -> anyhow::Result<bool> {
    let mut list = command("git", &["ls-tree", "--name-only", revision]);
    list.arg(file);
    Ok(!output(list)?.is_empty())
}

/// The pinned cargo-semver-checks: in the path, or else compiled into the build directory.
fn semver_checks() -> anyhow::Result<PathBuf> {
    let tools = target_dir().join("tools");
    let installed = tools.join("bin/cargo-semver-checks");
    let is_pinned = |program: &Path| {
        let mut version = Command::new(program);
        version.args(["semver-checks", "--version"]);
        output(version).is_ok_and(|text| text.split_whitespace().last() == Some(SEMVER_CHECKS))
    };
    for program in [Path::new("cargo-semver-checks"), &installed] {
        if is_pinned(program) {
            return Ok(program.to_owned());
        }
    }
    let package = format!("cargo-semver-checks@{SEMVER_CHECKS}");
    let mut install = command("cargo", &["install", "--locked", &package, "--root"]);
    install.arg(&tools);
    check(install)?;
    Ok(installed)
}
