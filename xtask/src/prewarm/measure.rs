//! Measures the time to warm kernels from each source, per process and without the driver's cache:
//! first for a training step, then for generation.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, bail};
use retrograph_finetune::{
    LoraConfig, Mode, OptimizerConfig, Plan, Precision, Preset, Source, TextData, TrainerOptions,
    TrainingConfig,
};
use retrograph_runtime::ModuleCache;
use retrograph_runtime::modules::{Bundle, CacheDir, CacheOptions, Compiler};
use serde_json::{Value, json};

use super::{Arguments, Findings, bar};

/// Training steps of the small model after warming, none of which may compile.
const STEPS: u32 = 2;

/// Starts a process for each case and repetition.
pub(super) fn run(arguments: &Arguments, findings: &mut Findings) -> anyhow::Result<()> {
    let mut cases = vec!["serial", "processes", "disk"];
    cases.extend(arguments.ptxas.is_some().then_some("ptxas"));
    cases.extend(arguments.bundle.is_some().then_some("bundle"));
    let bar = bar(cases.len() * arguments.repeat, "measure");
    let mut measured = Vec::new();
    let filled = tempfile::tempdir()?;
    for case in cases {
        let mut runs = Vec::new();
        if case == "disk" {
            child(arguments, "fill", filled.path())?;
        }
        for _ in 0..arguments.repeat.max(1) {
            bar.set_message(case);
            runs.push(child(arguments, case, filled.path())?);
            bar.inc(1);
        }
        measured.push(joined(case, &runs));
    }
    bar.finish_and_clear();
    let jit = |case: &Value| case["jit_after_warm"].as_u64() != Some(0);
    let jits = measured.iter().filter(|case| jit(case));
    findings.shortfalls.extend(jits.map(|case| format!("JIT after warming: {case}")));
    findings.measured = measured.into();
    Ok(())
}

/// Runs a case in a new process. `filled` is the disk cache that one case fills for others.
fn child(arguments: &Arguments, case: &str, filled: &Path) -> anyhow::Result<Value> {
    let mut command = Command::new(std::env::current_exe()?);
    let device = arguments.device.context("measuring needs --device")?;
    command.args(["prewarm", "--measure", "--device", &device.to_string(), "--case", case]);
    if let Some(preset) = arguments.preset {
        command.args(["--preset", preset.name()]);
    }
    for (flag, path) in [("--ptxas", &arguments.ptxas), ("--bundle", &arguments.bundle)] {
        if let Some(path) = path {
            command.arg(flag).arg(path);
        }
    }
    command.arg("--case-folder").arg(filled).env("CUDA_CACHE_DISABLE", "1");
    let output = command.output()?;
    if !output.status.success() {
        bail!("case {case}: {}", String::from_utf8_lossy(&output.stderr));
    }
    serde_json::from_slice(&output.stdout).with_context(|| format!("case {case} printed no JSON"))
}

/// Joins runs of a case: times of all runs, other values of the last one.
fn joined(case: &str, runs: &[Value]) -> Value {
    let of = |key: &str| runs.iter().map(|run| run[key].clone()).collect::<Vec<_>>();
    let (times, with_generation) = (of("ms"), of("ms_with_generation"));
    let parts = of("parts_ms");
    let max_jit = runs.iter().filter_map(|run| run["jit_after_warm"].as_u64()).max();
    let last = runs.last().unwrap_or(&Value::Null);
    json!({
        "case": case, "ms": times, "ms_with_generation": with_generation, "parts_ms": parts,
        "kernels_with_generation": last["kernels_with_generation"],
        "jit_after_warm": max_jit, "simulated": last["simulated"],
        "images": last["images"], "kernels": last["kernels"], "sources": last["sources"],
        "warnings": last["warnings"], "slowest": last["slowest"],
    })
}

/// One run of one case, in this process.
pub(super) fn run_case(arguments: &Arguments, case: &str) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let disk = Some(CacheDir::at(folder.path().join("cache")));
    let filled = arguments.case_folder.as_ref().map(|folder| CacheDir::at(folder.join("cache")));
    let preset = arguments.preset.unwrap_or(Preset::Tiny);
    let plan = plan(preset)?;
    let training = plan.step_pass().pass.requirements();
    let device = arguments.device.context("a case needs --device")?;
    let context = device.open()?;
    let with = |options| ModuleCache::with(&context, options);
    // Includes opening the bundle.
    let started = Instant::now();
    let mut options = CacheOptions::default();
    match case {
        "serial" => (),
        "processes" => {
            options.disk = disk;
            options.compile.compiler = device.compile_processes()?;
        }
        "ptxas" => {
            let path = arguments.ptxas.clone().context("the case ptxas needs --ptxas")?;
            options.disk = disk;
            options.compile.compiler = Compiler::Ptxas(path);
        }
        "fill" | "disk" => options.disk = filled,
        "bundle" => {
            let path = arguments.bundle.as_ref().context("the case bundle needs --bundle")?;
            options.bundles = vec![Bundle::open(path)?];
        }
        other => bail!("no case `{other}`"),
    }
    let opened = started.elapsed();
    let cache = with(options);
    let warm = cache.prewarm(&training, |_| ())?;
    let elapsed = started.elapsed();
    // Then the kernels of generation, as in a program that samples after training.
    let all = cache.prewarm(&plan.requirements(), |_| ())?;
    let with_generation = started.elapsed();
    if preset == Preset::Tiny {
        train(plan, &cache)?;
    }
    let jit_after_warm = cache.jit_after_warm();
    let report = warm.report();
    // The memory queries of a report, before and after loading.
    let asked = Instant::now();
    for _ in 0..2 {
        context.mem_get_info()?;
    }
    let parts = [opened, report.images.iter().map(|image| image.elapsed).sum(), asked.elapsed()];
    let [open, images, memory] = parts.map(|part| part.as_secs_f64() * 1e3);
    let simulated = context.driver().is_simulated();
    let slowest = report.images.iter().max_by_key(|image| image.elapsed);
    let slowest = slowest.map(|image| format!("{} {:.2?}", image.image, image.elapsed));
    let warnings: Vec<String> = report.warnings.iter().map(ToString::to_string).collect();
    let result = json!({
        // Times on the simulated driver are meaningless.
        "ms": (!simulated).then_some(elapsed.as_secs_f64() * 1e3), "simulated": simulated,
        "ms_with_generation": (!simulated).then_some(with_generation.as_secs_f64() * 1e3),
        "parts_ms": (!simulated).then_some(json!({
            "open": open, "images": images, "ask_for_memory": memory,
        })),
        "kernels_with_generation": all.len(), "images": report.images.len(),
        "kernels": warm.len(), "sources": report.sources(),
        "warnings": warnings, "jit_after_warm": jit_after_warm,
        "slowest": slowest.filter(|_| !simulated),
    });
    println!("{result}");
    Ok(())
}

fn plan(preset: Preset) -> anyhow::Result<Plan> {
    let (mode, precision, batch, seq) = match preset {
        Preset::Tiny => (Mode::Full, Precision::F32, 1, 16),
        _ => (Mode::Lora(LoraConfig::new(16, 32.0)), Precision::BF16, 4, 512),
    };
    let (model, optimizer) = (preset.model(), OptimizerConfig::new(1e-2, STEPS));
    let config = TrainingConfig { model, mode, precision, batch, seq, optimizer, seed: 1 };
    Ok(Plan::new(&config, TrainerOptions::default())?)
}

fn train(plan: Plan, cache: &ModuleCache) -> anyhow::Result<()> {
    let text =
        TextData::from_bytes(b"what is warm stays warm, and what is cold is named. ".repeat(9));
    let mut trainer = plan.start(cache, Source::Seed, &mut |_| ())?;
    for step in 0..STEPS {
        trainer.step(&text.batch([1, 16], 1, step)?)?;
    }
    Ok(())
}
