//! The jobs of CI, one row each. `cargo xtask ci JOB` runs one by hand.

use std::fs::File;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Context, bail};

use crate::workspace::{BUILD_PROGRAMS, check, command, root, target_dir};
use crate::{
    bench, codegen, dependencies, ecosystem, examples, mutants, packages, prewarm, toolchain,
};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The job, `all`, or `list` for the names of the jobs that `ci.yml` runs as a matrix, as JSON.
    #[arg(default_value = "all")]
    job: String,
}

type Job = (&'static str, fn() -> anyhow::Result<()>);

/// The jobs of `all`, in order: those that fail fastest first.
const JOBS: &[Job] = &[
    ("fmt", || cargo(&["fmt", "--all", "--check"])),
    ("tidy", crate::tidy::run),
    ("actionlint", actionlint),
    ("deny", dependencies::deny),
    ("codegen", || codegen::run(&codegen::Arguments { check: true })),
    ("prewarm", || prewarm::run(&prewarm::Arguments::of_ci())),
    // Takes about a minute. Run more when the parser changes.
    ("ptx-mutants", || mutants::run(&mutants::Arguments { count: 1000, seed: 1, ptxas: None })),
    ("clippy", || {
        cargo(&["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"])
    }),
    ("docs", docs),
    ("test", test),
    ("interop", || {
        let features = ["--features", "cuda-driver-sys"];
        cargo(&[&["test", "-p", "retrograph-driver-sys", "--locked"][..], &features].concat())
    }),
    ("examples", examples::run),
    ("main-job", main_job),
    ("bench", bench::check),
    ("ecosystem", ecosystem::run),
    ("package", || {
        packages::package()?;
        packages::publish_dry()
    }),
];

/// Jobs that `all` leaves out: they need network access beyond package registries, take long to
/// install, or compile crates again.
const SEPARATE_JOBS: &[Job] = &[
    ("unchecked", unchecked),
    ("release", release),
    ("readmes", packages::readmes),
    ("archive-tests", packages::archive_tests),
    ("error-codes", error_codes),
    ("feature-powerset", packages::feature_powerset),
    ("docs-rs", packages::docs_rs),
    ("msrv", msrv),
    ("advisories", dependencies::advisories),
];

/// Jobs that `all` leaves out and for which `ci.yml` has steps: `semver` needs the tags of the
/// repository and a tool that takes long to compile, `aarch64` a machine of this architecture.
const PREPARED_JOBS: &[Job] = &[
    ("semver", dependencies::semver),
    ("aarch64", || {
        let flags = ["--all-targets", "--locked", "--target", "aarch64-unknown-linux-gnu"];
        cargo(&[&["check", "--workspace"][..], &flags].concat())
    }),
];

/// The GPU jobs: a machine with cargo builds the archive, a machine with a GPU runs it.
const GPU_JOBS: &[Job] = &[("gpu-archive", gpu_archive), ("gpu-test", gpu_test)];

/// The jobs that a workflow must name, with its file: `ci.yml` takes the names of the others from
/// `cargo xtask ci list`.
pub(crate) fn named_jobs() -> impl Iterator<Item = (&'static str, &'static str)> {
    let of = |file, jobs: &'static [Job]| jobs.iter().map(move |(name, _)| (file, *name));
    of("ci.yml", PREPARED_JOBS).chain(of("gpu.yml", GPU_JOBS))
}

/// All jobs.
fn jobs() -> impl Iterator<Item = &'static Job> {
    [JOBS, SEPARATE_JOBS, PREPARED_JOBS, GPU_JOBS].into_iter().flatten()
}

/// The names of all jobs.
pub(crate) fn job_names() -> impl Iterator<Item = &'static str> {
    jobs().map(|(name, _)| *name)
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    if arguments.job == "list" {
        let names: Vec<_> = JOBS.iter().chain(SEPARATE_JOBS).map(|(name, _)| *name).collect();
        println!("{}", serde_json::to_string(&names)?);
        return Ok(());
    }
    if arguments.job == "all" {
        return all();
    }
    let Some((name, job)) = jobs().find(|(name, _)| *name == arguments.job) else {
        let names: Vec<_> = job_names().collect();
        bail!("no job `{}`; the jobs are all, {}", arguments.job, names.join(", "));
    };
    job().with_context(|| format!("job {name}"))
}

/// Number of concurrent jobs of `all`. Cargo builds one job at a time, but the tests run for half
/// of the time, and few other jobs keep two cores busy.
const CONCURRENT_JOBS: usize = 2;

/// Runs the jobs of `all`. After a failure, no further job starts.
fn all() -> anyhow::Result<()> {
    std::fs::create_dir_all(folder())?;
    let (jobs, output) = (Mutex::new(JOBS.iter()), Mutex::new(()));
    let next = || jobs.lock().expect("workers do not panic").next();
    let worker = || {
        while let Some((name, _)) = next() {
            if let Err(error) = run_apart(name, &output) {
                while next().is_some() {}
                return Err(error);
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers = [(); CONCURRENT_JOBS].map(|()| scope.spawn(worker));
        let results = workers.map(|worker| worker.join().expect("workers do not panic"));
        results.into_iter().collect()
    })
}

/// The folder for the outputs of jobs.
fn folder() -> PathBuf {
    target_dir().join("ci")
}

/// Runs a job in its own process, and then prints its output.
fn run_apart(name: &str, output: &Mutex<()>) -> anyhow::Result<()> {
    let (start, log) = (Instant::now(), folder().join(format!("{name}.log")));
    println!("== {name} starts");
    let file = File::create(&log)?;
    let mut job = Command::new(std::env::current_exe()?);
    job.args(["ci", name]).stdout(file.try_clone()?).stderr(file);
    let status = job.status()?;
    let printed = std::fs::read(&log)?;
    let _turn = output.lock().expect("workers do not panic");
    println!("== {name}\n{}", String::from_utf8_lossy(&printed).trim_end());
    let verdict = if status.success() { "passed" } else { "failed" };
    println!("== {name} {verdict} in {:.0} s", start.elapsed().as_secs_f64());
    if !status.success() {
        bail!("job {name} failed: {status}; its output is in {}", log.display());
    }
    Ok(())
}

fn cargo(arguments: &[&str]) -> anyhow::Result<()> {
    check(command("cargo", arguments))
}

fn archive() -> String {
    target_dir().join("gpu-tests.tar.zst").display().to_string()
}

fn gpu_archive() -> anyhow::Result<()> {
    cargo(&["nextest", "archive", "--workspace", "--locked", "--archive-file", &archive()])
}

fn gpu_test() -> anyhow::Result<()> {
    let archive = archive();
    let mut command = command("cargo-nextest", &["nextest", "run", "--archive-file", &archive]);
    command.args(["--workspace-remap", "."]);
    command.env("RETROGRAPH_DEVICE", "cuda:0").env("RETROGRAPH_REQUIRE_GPU", "1");
    check(command)
}

/// Checks the workflows.
fn actionlint() -> anyhow::Result<()> {
    let mut command = Command::new(toolchain::actionlint()?);
    command.current_dir(root());
    check(command)
}

/// Runs all tests. Those that need the headers of CUDA and NCCL, `nvcc` or `ptxas` fail without
/// them instead of skipping.
fn test() -> anyhow::Result<()> {
    let mut command = command("cargo", &["test", "--workspace", "--locked"]);
    let headers = toolchain::headers()?;
    command.env("RETROGRAPH_CUDA_13", headers.include_13);
    command.env("RETROGRAPH_CUDA_12", headers.include_12);
    command.env("RETROGRAPH_NCCL_NEWEST", headers.nccl_newest);
    command.env("RETROGRAPH_NCCL_LEAST", headers.nccl_least);
    // The test finds libclang in the build directory. LIBCLANG_PATH would compile bindgen again.
    command.env("RETROGRAPH_REQUIRE_ABI_TOOLS", "1");
    let nvcc = toolchain::nvcc()?;
    command.env("RETROGRAPH_PTXAS", nvcc.with_file_name("ptxas")).env("NVCC", nvcc);
    command.env("RETROGRAPH_REQUIRE_TOOLS", "1");
    check(command)
}

/// Runs the tests of `docs/safety.md` that must also pass in a release build, in a build without
/// debug assertions and overflow checks.
fn unchecked() -> anyhow::Result<()> {
    let packages = ["retrograph-kernels", "retrograph-driver", "retrograph-runtime"];
    let mut command = command("cargo", &["test", "--locked", "--lib", "--test", "it"]);
    for package in packages {
        command.args(["-p", package]);
        for check in ["debug-assertions", "overflow-checks"] {
            command.args(["--config", &format!("profile.dev.package.{package}.{check}=false")]);
        }
    }
    command.args(["--", "arguments::", "buffers::", "refusals::", "pass::buffer::"]);
    check(command)
}

/// Runs the doc tests with examples that must not compile. Only a nightly compiler, or this
/// variable, checks their error codes.
fn error_codes() -> anyhow::Result<()> {
    let mut command = command("cargo", &["test", "--doc", "--locked"]);
    for package in ["retrograph-driver", "retrograph-kernels", "retrograph-ptx"] {
        command.args(["-p", package]);
    }
    command.env("RUSTC_BOOTSTRAP", "1");
    check(command)
}

/// Compiles everything with the oldest supported compiler, which it installs.
fn msrv() -> anyhow::Result<()> {
    let manifest: toml::Table =
        toml::from_str(&std::fs::read_to_string(root().join("Cargo.toml"))?)?;
    let version =
        manifest["workspace"]["package"]["rust-version"].as_str().context("no version")?;
    check(command("rustup", &["toolchain", "install", version, "--profile", "minimal"]))?;
    let cargo = ["run", version, "cargo", "check", "--workspace", "--all-targets", "--locked"];
    check(command("rustup", &cargo))
}

/// Documents all packages.
fn docs() -> anyhow::Result<()> {
    let mut command = command("cargo", &["doc", "--workspace", "--no-deps", "--locked"]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    check(command)
}

/// Runs the main job in the debug build that tests also use.
fn main_job() -> anyhow::Result<()> {
    cargo(BUILD_PROGRAMS)?;
    let program = target_dir().join("debug/retrograph");
    first_steps(|| Command::new(&program))
}

/// Runs the main job in a release build, as in the README.
fn release() -> anyhow::Result<()> {
    first_steps(|| command("cargo", &["run", "--release", "--locked", "--"]))
}

/// Runs the first steps of the README's first command on the simulator, in both modes concurrently,
/// and verifies every replay against the eager step. `program` starts our program.
fn first_steps(program: impl Fn() -> Command + Sync) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder())?;
    let program = &program;
    std::thread::scope(|scope| {
        let runs = ["full", "lora"].map(|mode| scope.spawn(move || run_mode(program(), mode)));
        runs.into_iter().try_for_each(|run| run.join().expect("it does not panic"))
    })
}

/// Runs the first steps in one mode and checks the report and the plot.
fn run_mode(mut command: Command, mode: &str) -> anyhow::Result<()> {
    let dir = folder();
    let report = dir.join(format!("main-job-{mode}.json"));
    let plot = dir.join(format!("main-job-{mode}.svg"));
    command
        .args(["finetune", "--device", "sim", "--verify", "--discard"])
        .args(["--mode", mode, "--steps", "25"])
        .arg("--text")
        .arg(root().join("README.md"));
    command.arg("--report").arg(&report).arg("--plot").arg(&plot);
    check(command)?;
    inspect(&std::fs::read_to_string(&report)?)
        .with_context(|| format!("the report of mode {mode}"))?;
    if !std::fs::read_to_string(&plot)?.contains("<svg") {
        bail!("the plot of mode {mode} is not an SVG: {}", plot.display());
    }
    Ok(())
}

fn inspect(text: &str) -> anyhow::Result<()> {
    let report: serde_json::Value = serde_json::from_str(text)?;
    let losses: Vec<f64> = report["losses"]
        .as_array()
        .context("no losses")?
        .iter()
        .filter_map(serde_json::Value::as_f64)
        .collect();
    let (Some(first), Some(last)) = (losses.first(), losses.last()) else { bail!("no losses") };
    if report["simulated"] != true || report["verified_bitwise"] != true {
        bail!("the run was not simulated or not verified bit for bit: {report}");
    }
    if report["jit_after_warm"] != 0 || report["strategy"] != "manual" {
        bail!("the run compiled after warming or did not use a manual graph: {report}");
    }
    if last >= first {
        bail!("the loss did not fall: {first} to {last}");
    }
    Ok(())
}
