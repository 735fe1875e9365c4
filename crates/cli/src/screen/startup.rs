//! Progress of the stages before the first step: loading, compiling, uploading.

use std::mem::discriminant;
use std::time::Instant;

use indicatif::{HumanBytes, ProgressBar};
use retrograph_finetune::Stage;
use retrograph_finetune::trainer::MemoryNeed;
use retrograph_runtime::modules::Warning;
use retrograph_runtime::{Report, WarmModules};

use super::{bars, fact, milliseconds, planned, style};

/// Shows the stages of the start.
pub(crate) struct Startup {
    bar: ProgressBar,
    started: Instant,
}

impl Startup {
    pub(crate) fn new() -> Self {
        let bar = ProgressBar::with_draw_target(Some(0), bars());
        bar.set_style(style("{prefix:<11} {bar:30} {msg}"));
        Self { bar, started: Instant::now() }
    }

    pub(crate) fn show(&mut self, stage: &Stage<'_>) {
        match stage {
            Stage::WithoutCopies { bytes } => {
                let bytes = HumanBytes(*bytes as u64);
                let reason = format!("the f16 copies ({bytes}) do not fit in memory");
                fact("weights", format!("frozen weights are split in each step: {reason}"));
            }
            Stage::Warming(progress) => {
                self.progress("warm", progress.image, progress.done, progress.total);
            }
            Stage::Warm(modules) => self.warm(modules),
            Stage::Fits(need, free) => memory(need, *free),
            Stage::Uploading { done, total, name } => {
                self.progress("upload", name, *done, *total);
                if done == total {
                    self.bar.finish_and_clear();
                }
            }
            Stage::Built(report) => built(report),
            _ => (),
        }
    }

    fn progress(&self, prefix: &'static str, message: &str, done: usize, total: usize) {
        self.bar.set_prefix(prefix);
        self.bar.set_message(message.to_owned());
        self.bar.set_length(total as u64);
        self.bar.set_position(done as u64);
    }

    fn warm(&mut self, modules: &WarmModules) {
        self.bar.finish_and_clear();
        let report = modules.report();
        let (functions, target, sources) = (modules.len(), modules.target(), report.sources());
        let time = milliseconds(self.started.elapsed());
        fact("warm", format!("{functions} kernels for {target} in {time}: {sources}"));
        for warning in grouped(&report.warnings) {
            fact("", warning);
        }
        self.bar.reset();
    }
}

/// Returns the texts of warnings. Several compiler processes can fail for the same reason, and all
/// files of a cache can be damaged in the same way.
fn grouped(warnings: &[Warning]) -> Vec<String> {
    let is_alike = |one: &Warning, other: &Warning| match (one, other) {
        (Warning::Disk(one), Warning::Disk(other)) => discriminant(one) == discriminant(other),
        _ => one.to_string() == other.to_string(),
    };
    let mut groups: Vec<(&Warning, usize)> = Vec::new();
    for warning in warnings {
        match groups.iter_mut().find(|(first, _)| is_alike(first, warning)) {
            Some((_, count)) => *count += 1,
            None => groups.push((warning, 1)),
        }
    }
    let text = |(first, count): (&Warning, usize)| match (first, count) {
        (Warning::Disk(_), 2..) => format!("{first} ({} more files alike)", count - 1),
        _ => first.to_string(),
    };
    groups.into_iter().map(text).collect()
}

fn memory(need: &MemoryNeed, free: usize) {
    fact("memory", format!("{}, {} free", planned(need), HumanBytes(free as u64)));
}

fn built(report: &Report) {
    fact("strategy", format!("{}: {}", report.strategy, report.reason));
    let Report { operations, nodes, edges, depth, collectives, .. } = report;
    let peak = HumanBytes(report.peak_bytes as u64);
    fact(
        "step",
        format!(
            "{operations} operations, {nodes} nodes, {edges} edges, depth {depth}, peak {peak}"
        ),
    );
    if collectives.operations > 0 {
        let bytes = HumanBytes(collectives.bytes as u64);
        let (count, others) = (collectives.operations, collectives.overlapping);
        let text = format!("{count} of {bytes}, during which {others} other operations can run");
        fact("collectives", text);
    }
}
