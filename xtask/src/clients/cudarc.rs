//! cudarc's own tests of its driver and NVRTC modules.
//!
//! The sources come from the registry, with the lock file of the package. A workspace around them
//! keeps cargo from looking for one further up.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use serde_json::Value;

use super::Setup;
use super::suite::{Outcome, Report, Test};
use crate::toolchain;
use crate::workspace::{check, output};

const VERSION: &str = "0.19.10";
const FEATURES: &str = "std,driver,nvrtc,fallback-dynamic-loading,cuda-13000";
/// Why the suite skips a test that must not share a process with others.
const BY_ITSELF: &str = "must be executed by itself";

pub(super) fn run(setup: &Setup) -> anyhow::Result<Report> {
    let program = build(setup)?;
    let nvrtc = toolchain::nvrtc()?;
    let simulated = |seconds, devices: &str| {
        let mut command = setup.simulated(seconds, &program);
        command.env("LD_LIBRARY_PATH", &nvrtc).env("RETROGRAPH_SIM_DEVICES", devices);
        command.env("RUST_BACKTRACE", "0");
        command
    };
    let mut command = simulated(60, "1");
    command.args(["--list", "--format", "terse"]);
    let (_, list) = setup.output(command, "list")?;
    let names = list.lines().filter_map(|line| line.strip_suffix(": test"));
    let names: Vec<&str> = names.filter(|name| name.contains(&setup.only)).collect();
    if names.is_empty() {
        bail!("cudarc lists no test that contains `{}`", setup.only);
    }
    let mut command = simulated(600, "1");
    if !setup.only.is_empty() {
        command.arg(&setup.only);
    }
    let (status, text) = setup.output(command, "suite")?;
    let mut results = read(&text);
    for name in names {
        match results.get(name) {
            // Tests for several devices also get their own process, on a machine with two devices.
            Some((Outcome::Skip, _)) => {
                let mut command = simulated(120, "2");
                command.args(["--exact", name, "--ignored"]);
                let (status, text) = setup.output(command, &name.replace("::", "."))?;
                let ended = || (Outcome::Fail, format!("the process ended: {status}"));
                let result = read(&text).remove(name).unwrap_or_else(ended);
                results.insert(name.to_owned(), result);
            }
            Some(_) => {}
            None => {
                let ended = format!("the process ended: {status}");
                results.insert(name.to_owned(), (Outcome::Fail, ended));
            }
        }
    }
    let test = |(name, (outcome, cause))| Test { name, outcome, cause };
    Ok(Report {
        versions: format!("cudarc {VERSION}, NVRTC 13.0.88"),
        tests: results.into_iter().map(test).collect(),
    })
}

/// Builds the test program.
fn build(setup: &Setup) -> anyhow::Result<PathBuf> {
    let source = fetch(&setup.folder)?;
    let mut command = Command::new("cargo");
    command.args(["test", "--lib", "--no-run", "--locked", "--message-format=json"]);
    command.args(["--no-default-features", "--features", FEATURES]);
    command.current_dir(&source).env("CARGO_TARGET_DIR", setup.folder.join("target"));
    for line in output(command)?.lines() {
        let message: Value = serde_json::from_str(line)?;
        if message["profile"]["test"] == true && message["target"]["name"] == "cudarc" {
            let path = message["executable"].as_str().context("cudarc's tests are no program")?;
            return Ok(path.into());
        }
    }
    bail!("cargo built no tests of cudarc in {}", source.display());
}

/// Copies the package from the registry; returns its folder.
fn fetch(folder: &Path) -> anyhow::Result<PathBuf> {
    let source = folder.join(format!("cudarc-{VERSION}"));
    if source.join("Cargo.lock").exists() {
        return Ok(source);
    }
    // A package that depends on it makes cargo fetch it.
    let user = folder.join("fetch");
    std::fs::create_dir_all(user.join("src"))?;
    std::fs::write(user.join("src/lib.rs"), "")?;
    std::fs::write(
        user.join("Cargo.toml"),
        format!(
            "[package]\nname = \"fetch\"\nversion = \"0.0.0\"\nedition = \"2021\"\n[workspace]\n\
             [dependencies.cudarc]\nversion = \"={VERSION}\"\ndefault-features = false\n\
             features = [\"driver\", \"dynamic-loading\", \"cuda-13000\"]\n"
        ),
    )?;
    let mut command = Command::new("cargo");
    command.args(["metadata", "--format-version=1"]).current_dir(&user);
    let metadata: Value = serde_json::from_str(&output(command)?)?;
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    let package = packages.iter().find(|package| package["name"] == "cudarc");
    let manifest = package.and_then(|package| package["manifest_path"].as_str());
    let registry = Path::new(manifest.context("cargo fetched no cudarc")?).parent();
    let mut command = Command::new("cp");
    command.arg("-r").arg(registry.context("a manifest lies in a folder")?).arg(folder);
    check(command)?;
    std::fs::copy(source.join("Cargo.lock"), folder.join("Cargo.lock"))?;
    let member = format!("[workspace]\nmembers = [\"cudarc-{VERSION}\"]\nresolver = \"2\"\n");
    std::fs::write(folder.join("Cargo.toml"), member)?;
    Ok(source)
}

/// The results in the output of the test program, by name.
fn read(text: &str) -> BTreeMap<String, (Outcome, String)> {
    let mut results = BTreeMap::new();
    for line in text.lines() {
        let Some((name, result)) =
            line.strip_prefix("test ").and_then(|line| line.split_once(" ... "))
        else {
            continue;
        };
        let name = name.trim_end_matches(" - should panic");
        let outcome = match result.split(',').next() {
            Some("ok") => (Outcome::Pass, String::new()),
            Some("FAILED") => (Outcome::Fail, cause(text, name)),
            Some("ignored") => {
                let reason = result.strip_prefix("ignored, ").unwrap_or(BY_ITSELF);
                (Outcome::Skip, reason.to_owned())
            }
            _ => continue,
        };
        results.insert(name.to_owned(), outcome);
    }
    results
}

/// The message of the panic of a test.
fn cause(text: &str, name: &str) -> String {
    let section = text.split(&format!("---- {name} stdout ----")).nth(1).unwrap_or_default();
    let mut lines = section.lines().skip_while(|line| !line.contains("panicked at"));
    lines.nth(1).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_libtest_are_read_with_their_causes() {
        let text = "running 4 tests\ntest a::b - should panic ... ok\ntest c ... FAILED\n\
                    test d ... ignored, must be executed by itself\ntest e ... \n\nfailures:\n\n\
                    ---- c stdout ----\n\nthread 'c' panicked at src/x.rs:1:2:\n1 vs 2\n";
        let results = read(text);
        assert_eq!(results["a::b"], (Outcome::Pass, String::new()));
        assert_eq!(results["c"], (Outcome::Fail, "1 vs 2".to_owned()));
        assert_eq!(results["d"], (Outcome::Skip, BY_ITSELF.to_owned()));
        assert_eq!(results.len(), 3);
    }
}
