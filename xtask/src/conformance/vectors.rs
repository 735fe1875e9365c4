//! Instruction vectors: recording, comparison and coverage.

use std::ffi::OsString;
use std::path::Path;
use std::time::Instant;

use anyhow::bail;
use retrograph_conformance::Folders;
use retrograph_conformance::record::record_vectors;
use retrograph_conformance::vectors::{module, plan, unsupported, verify};

use super::Record;

pub(super) fn record(program: &[OsString], out: &Path, asked: &Record) -> anyhow::Result<()> {
    let started = Instant::now();
    let recorded = record_vectors(program, out, asked.jobs, &asked.filter, &|opcode| {
        println!("{:.0} s {opcode}", started.elapsed().as_secs_f64());
    })?;
    for failure in &recorded.failed {
        println!("failed: {failure}");
    }
    println!(
        "{} instructions, {} cases, {} failed",
        recorded.instances,
        recorded.cases,
        recorded.failed.len()
    );
    Ok(())
}

pub(super) fn replay(opcode: &str, folders: &Folders) -> anyhow::Result<()> {
    let report = verify(&folders.vectors, opcode);
    for one in &report.wrong {
        println!("{}: {} of {} cases differ, such as", one.name, one.wrong.0, one.wrong.1);
        println!("    sources   {:x?}", one.sources);
        println!("    hardware  {:x?}", one.expected);
        println!("    simulator {:x?}", one.actual);
    }
    for (name, why) in &report.unsupported {
        println!("{name}: {why}");
    }
    for name in &report.orphans {
        println!("vectors of no instruction: {name}");
    }
    for name in report.missing.iter().take(20) {
        println!("no vectors: {name}");
    }
    for (name, measured) in &report.measured {
        let (bound, ulps, cases) = (measured.bound, measured.ulps, measured.cases);
        println!("{name:<16} {bound:?}: at most {ulps} units in {cases} cases");
    }
    if !report.missing.is_empty() {
        let unsupported = unsupported(opcode);
        for (name, why) in unsupported.iter().filter(|(name, _)| report.missing.contains(name)) {
            println!("not simulated: {name}: {why}");
        }
    }
    println!(
        "{} instructions, {} cases; {} differ, {} not simulated, {} without vectors",
        report.instances,
        report.cases,
        report.wrong.len(),
        report.unsupported.len(),
        report.missing.len()
    );
    if !report.is_clean() {
        bail!("the simulator differs from the recorded vectors listed above");
    }
    Ok(())
}

/// Counts covered forms and lists the others.
pub(super) fn list() {
    let plan = plan("");
    let cases: usize = plan.instances.iter().map(|instance| instance.cases).sum();
    println!();
    for one in &plan.uncovered {
        println!("no vectors for {}: {}", one.form, one.reason);
    }
    println!(
        "{} forms of instructions have vectors ({} instructions, {cases} cases), {} have none",
        plan.covered_forms,
        plan.instances.len(),
        plan.uncovered.len()
    );
}

/// Writes the kernels of every opcode to a folder, for other tools to assemble.
pub(super) fn write_kernels(folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder)?;
    let plan = plan("");
    let mut opcodes: Vec<&str> = plan.instances.iter().map(|one| one.opcode.text()).collect();
    opcodes.dedup();
    for opcode in opcodes {
        let of_opcode = plan.instances.iter().filter(|one| one.opcode.text() == opcode);
        let instances: Vec<_> = of_opcode.collect();
        std::fs::write(folder.join(format!("{opcode}.ptx")), module(&instances))?;
    }
    Ok(())
}
