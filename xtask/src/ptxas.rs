//! Assembles images with the pinned `ptxas`, which is independent of our writer and parser.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, bail};
use indicatif::ProgressBar;
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;

use crate::workspace;

/// The resources of an entry point, as reported by `ptxas`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Usage {
    pub(crate) target: SmTarget,
    pub(crate) image: String,
    pub(crate) entry: String,
    pub(crate) registers: u32,
    pub(crate) shared_bytes: u32,
    pub(crate) spill_bytes: u32,
}

/// One image for one target.
pub(crate) struct Job {
    pub(crate) target: SmTarget,
    pub(crate) image: String,
    pub(crate) module: Module,
    source: PathBuf,
}

impl Job {
    pub(crate) fn new(target: SmTarget, image: &str, module: Module) -> Self {
        let dir = workspace::target_dir().join(format!("ptx/{target}"));
        let source = dir.join(format!("{image}.ptx"));
        Self { target, image: image.to_owned(), module, source }
    }

    /// The path of the machine code after assembly.
    pub(crate) fn cubin(&self) -> PathBuf {
        self.source.with_extension("cubin")
    }
}

/// Generates all images for the targets.
pub(crate) fn jobs(targets: &[SmTarget]) -> Vec<Job> {
    let of_target = |&target: &SmTarget| {
        let images = retrograph_kernels_ptx::images(target).into_iter();
        images.map(move |(image, module)| Job::new(target, image, module))
    };
    targets.iter().flat_map(of_target).collect()
}

/// Assembles `jobs` on all cores. Returns the resources of each entry point, and the errors.
pub(crate) fn assemble_all(
    ptxas: &Path,
    jobs: &[&Job],
    bar: &ProgressBar,
) -> (Vec<Usage>, Vec<String>) {
    let next = AtomicUsize::new(0);
    let results = Mutex::new((Vec::new(), Vec::new()));
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = assemble(ptxas, job);
                    bar.set_message(format!("{} for {}", job.image, job.target));
                    bar.inc(1);
                    let mut results = results.lock().expect("no holder of the lock panics");
                    match result {
                        Ok(usages) => results.0.extend(usages),
                        Err(error) => results.1.push(format!("{error:#}")),
                    }
                }
            });
        }
    });
    results.into_inner().expect("no holder of the lock panics")
}

fn assemble(ptxas: &Path, job: &Job) -> anyhow::Result<Vec<Usage>> {
    if let Some(dir) = job.source.parent() {
        fs::create_dir_all(dir)?;
    }
    fs::write(&job.source, job.module.to_string())?;
    let mut command = Command::new(ptxas);
    command.arg("-v").arg(format!("-arch={}", job.target)).arg(&job.source);
    command.arg("-o").arg(job.cubin());
    let output = command.output().context("cannot start ptxas")?;
    let log = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("{} for {}: {log}", job.image, job.target);
    }
    let losses = losses(&log, job.target, &job.image);
    if !losses.is_empty() {
        bail!("{}", losses.join("\n"));
    }
    let usages = parse_log(&log, job.target, &job.image)?;
    if usages.is_empty() {
        bail!("{} for {}: ptxas reported no entry point", job.image, job.target);
    }
    Ok(usages)
}

/// The messages that instructions were serialized (`wgmma`) or ignored (`setmaxnreg`), such as
/// C7508 to C7515, which make a kernel several times slower. Those about `setmaxnreg` name no entry
/// point.
fn losses(log: &str, target: SmTarget, image: &str) -> Vec<String> {
    let loss = |line: &str| {
        let (code, message) = line.split_once("(C")?.1.split_once(") ")?;
        let is_loss = message.starts_with("Potential Performance Loss: ");
        let entry = message.split_once("function '").and_then(|(_, name)| name.split('\'').next());
        let entry = entry.map_or("an entry point".to_owned(), |name| format!("`{name}`"));
        is_loss.then(|| format!("{entry} of image `{image}` for {target}: C{code}: {message}"))
    };
    log.lines().filter_map(loss).collect()
}

/// Parses the `-v` report: a line with the entry point, then its spills and resources.
fn parse_log(log: &str, target: SmTarget, image: &str) -> anyhow::Result<Vec<Usage>> {
    let mut usages: BTreeMap<String, Usage> = BTreeMap::new();
    let mut entry = String::new();
    for line in log.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            entry = rest.split('\'').next().unwrap_or_default().to_owned();
            let (name, image) = (entry.clone(), image.to_owned());
            let (registers, shared_bytes, spill_bytes) = (0, 0, 0);
            let usage = Usage { target, image, entry: name, registers, shared_bytes, spill_bytes };
            usages.insert(entry.clone(), usage);
        } else if let Some(usage) = usages.get_mut(&entry) {
            usage.spill_bytes += number_before(line, " bytes spill stores").unwrap_or(0);
            usage.spill_bytes += number_before(line, " bytes spill loads").unwrap_or(0);
            usage.registers = number_before(line, " registers").unwrap_or(usage.registers);
            usage.shared_bytes = number_before(line, " bytes smem").unwrap_or(usage.shared_bytes);
        }
    }
    if let Some(usage) = usages.values().find(|usage| usage.registers == 0) {
        bail!("ptxas reported no registers for {}: {log}", usage.entry);
    }
    Ok(usages.into_values().collect())
}

fn number_before(line: &str, suffix: &str) -> Option<u32> {
    let head = &line[..line.find(suffix)?];
    head.rsplit(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serialized_and_ignored_instructions_are_found_with_image_entry_and_code() {
        let log = "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async \
                   instructions are serialized due to insufficient register resources for the \
                   wgmma pipeline in the function 'a'\n\
                   ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored to \
                   allow debugging.\n\
                   ptxas info    : (C7519) warpgroup.arrive is injected in around line 3 by \
                   compiler to allow use of registers in GMMA in function 'b'\n\
                   ptxas info    : Compiling entry function 'a' for 'sm_90a'\n";
        let [serialized, ignored] = &losses(log, SmTarget::arch_specific(90), "i")[..] else {
            panic!("{:?}", losses(log, SmTarget::arch_specific(90), "i"))
        };
        assert!(serialized.starts_with("`a` of image `i` for sm_90a: C7510: "), "{serialized}");
        assert!(serialized.contains("wgmma.mma_async instructions are serialized"), "{serialized}");
        assert!(
            ignored.starts_with("an entry point of image `i` for sm_90a: C7508: "),
            "{ignored}"
        );
    }

    #[test]
    fn the_report_of_the_assembler_is_read() {
        let log = "ptxas info    : Compiling entry function 'a' for 'sm_90'\n\
                   ptxas info    : Function properties for a\n    0 bytes stack frame, \
                   8 bytes spill stores, 12 bytes spill loads\nptxas info    : Used 40 registers, \
                   used 1 barriers, 1024 bytes smem\n";
        let usages = parse_log(log, SmTarget::arch_specific(90), "i").unwrap();
        let [usage] = &usages[..] else { panic!("{usages:?}") };
        assert_eq!((usage.registers, usage.shared_bytes, usage.spill_bytes), (40, 1024, 20));
        let without = "Compiling entry function 'a' for 'sm_90'\n";
        assert!(parse_log(without, SmTarget::arch_specific(90), "i").is_err());
    }
}
