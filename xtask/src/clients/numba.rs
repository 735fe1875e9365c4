//! The tests that the wheel of numba-cuda ships, one process for each module.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use serde_json::Value;

use super::Setup;
use super::suite::{Outcome, Report, Test};
use crate::toolchain::NVRTC_REQUIREMENT;
use crate::workspace::check;

/// The pinned packages that pip installs. nvJitLink is left out: it would make cubins; without it,
/// numba-cuda links PTX with the driver.
const REQUIREMENTS: &[&str] = &[
    "numba-cuda==0.30.4",
    "numba==0.68.1",
    "llvmlite==0.50.0",
    "numpy==2.4.6",
    "cuda-bindings==13.5.0",
    "cuda-core==1.2.2",
    "cuda-pathfinder==1.9.0",
    "packaging==26.3",
    NVRTC_REQUIREMENT,
    "nvidia-nvvm==13.0.88",
    "nvidia-cuda-runtime==13.0.96",
    "nvidia-cuda-cccl==13.0.85",
    // Imports of its tests.
    "cffi==2.1.1",
    "pycparser==3.12",
    "filecheck==1.0.6",
    "ml_dtypes==0.6.0",
    "psutil==7.2.2",
    "pytest==9.2.0",
    "iniconfig==2.3.1",
    "pluggy==1.7.0",
    "Pygments==2.21.0",
];

/// The packages of tests. The others are benchmarks, and tests of numba's own simulator.
const PACKAGES: &[&str] = &["core", "cudadrv", "cudapy", "doc_examples", "nocuda", "nrt"];
/// Seconds for one module.
const LIMIT: u32 = 300;
/// The package of all tests, which names of tests leave out.
const PREFIX: &str = "numba.cuda.tests.";
const RUNNER: &str = include_str!("run_unittest.py");

pub(super) fn run(setup: &Setup) -> anyhow::Result<Report> {
    let python = install(&setup.folder)?;
    let runner = setup.folder.join("run_unittest.py");
    std::fs::write(&runner, RUNNER)?;
    let modules = modules(&setup.folder)?;
    let modules: Vec<&String> =
        modules.iter().filter(|module| module.contains(&setup.only)).collect();
    if modules.is_empty() {
        bail!("numba-cuda has no module of tests that contains `{}`", setup.only);
    }
    let mut report =
        Report { versions: "numba-cuda 0.30.4, NVRTC and NVVM 13.0.88".into(), tests: Vec::new() };
    let suite = Suite { setup, python, runner };
    for module in modules {
        let mut tests = suite.run(module)?;
        // After a fault, the context of the process is lost, and all later tests also fail.
        for test in tests.iter_mut().filter(|test| test.outcome == Outcome::Fail) {
            let alone = suite.run(&test.name)?;
            if let Some(result) = alone.into_iter().find(|result| result.name == test.name) {
                *test = result;
            }
        }
        println!("numba-cuda {module}: {} tests", tests.len());
        report.tests.extend(tests);
    }
    Ok(report)
}

struct Suite<'a> {
    setup: &'a Setup,
    python: PathBuf,
    runner: PathBuf,
}

impl Suite<'_> {
    /// Runs a module or a test in a process.
    fn run(&self, name: &str) -> anyhow::Result<Vec<Test>> {
        let Self { setup, python, runner } = self;
        let results = setup.folder.join(format!("{name}.jsonl"));
        if setup.again && results.exists() {
            let text = std::fs::read_to_string(&results)?;
            return read(&text, "the process ended, or ran into the time limit");
        }
        std::fs::write(&results, "")?;
        let mut command = setup.simulated(LIMIT, python);
        command.arg("-P").arg(runner).arg(&results).arg(format!("{PREFIX}{name}"));
        command.current_dir(&setup.folder);
        let (status, _) = setup.output(command, name)?;
        let ended = if status.code() == Some(124) {
            format!("more than {LIMIT} s")
        } else {
            format!("the process ended: {status}")
        };
        let tests = read(&std::fs::read_to_string(&results)?, &ended)?;
        if tests.is_empty() && !status.success() {
            return Ok(vec![Test { name: name.into(), outcome: Outcome::Fail, cause: ended }]);
        }
        Ok(tests)
    }
}

/// Creates the virtual environment, unless it has these packages; returns its interpreter.
fn install(folder: &Path) -> anyhow::Result<PathBuf> {
    let environment = folder.join("venv");
    let python = environment.join("bin/python");
    let (list, wanted) = (folder.join("requirements.txt"), REQUIREMENTS.join("\n"));
    if std::fs::read_to_string(&list).is_ok_and(|installed| installed == wanted) {
        return Ok(python);
    }
    let mut command = Command::new("python3");
    command.args(["-m", "venv", "--clear"]).arg(&environment);
    check(command).context("python3 with venv is needed to install numba-cuda")?;
    let mut command = Command::new(&python);
    command.args(["-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:"]);
    command.args(["--disable-pip-version-check"]).args(REQUIREMENTS);
    check(command)?;
    std::fs::write(list, wanted)?;
    Ok(python)
}

/// The modules of tests, as `cudapy.test_array`.
fn modules(folder: &Path) -> anyhow::Result<Vec<String>> {
    let lib =
        std::fs::read_dir(folder.join("venv/lib"))?.next().context("an empty folder lib")??;
    let tests = lib.path().join("site-packages/numba_cuda/numba/cuda/tests");
    let mut modules = Vec::new();
    for package in PACKAGES {
        for entry in std::fs::read_dir(tests.join(package))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if let Some(stem) = name.strip_suffix(".py").filter(|stem| stem.starts_with("test_")) {
                modules.push(format!("{package}.{stem}"));
            }
        }
    }
    modules.sort();
    Ok(modules)
}

/// Returns the results that the runner wrote. A test that did not end has the cause `ended`.
fn read(text: &str, ended: &str) -> anyhow::Result<Vec<Test>> {
    let mut tests = BTreeMap::new();
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).context("a line of run_unittest.py")?;
        let field = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
        let (name, cause) = (field("test"), field("cause"));
        let name = name.strip_prefix(PREFIX).unwrap_or(&name).to_owned();
        let (outcome, cause) = match field("outcome").as_str() {
            "pass" => (Outcome::Pass, cause),
            "skip" => (Outcome::Skip, cause),
            "fail" => (Outcome::Fail, cause),
            _ => (Outcome::Fail, ended.to_owned()),
        };
        tests.insert(name.clone(), Test { name, outcome, cause });
    }
    Ok(tests.into_values().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_without_an_end_has_failed() {
        let text = r#"{"test": "numba.cuda.tests.a.T.x", "outcome": "start", "cause": ""}
{"test": "numba.cuda.tests.a.T.x", "outcome": "pass", "cause": ""}
{"test": "numba.cuda.tests.a.T.y", "outcome": "start", "cause": ""}"#;
        let tests = read(text, "ended").unwrap();
        assert_eq!((tests[0].name.as_str(), tests[0].outcome), ("a.T.x", Outcome::Pass));
        assert_eq!((tests[1].outcome, tests[1].cause.as_str()), (Outcome::Fail, "ended"));
    }
}
