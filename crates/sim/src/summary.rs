//! The summary of a process, reported when it exits: as lines of text, and as JSON.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;

use retrograph_driver_sim::FaultSite;
use retrograph_driver_sim::{Config, Diagnostic, DiagnosticKind, LiveObjects, Order};
use serde::Serialize;

use crate::Machine;

/// Number of kernels that the text names.
const KERNELS: usize = 10;

/// The report of a process. Its fields are described in docs/sim-libcuda.md.
#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    simulated: bool,
    process: Process,
    machine: Equipment,
    kernels: Vec<Kernel>,
    diagnostics: Vec<Finding>,
    not_simulated: BTreeMap<String, u64>,
    live: Objects,
}

#[derive(Debug, Serialize)]
struct Process {
    id: u32,
    arguments: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Equipment {
    devices: usize,
    memory_bytes: u64,
    compute_capability: String,
    driver: i32,
    order: &'static str,
    seed: u64,
    detect_races: bool,
}

#[derive(Debug, Serialize)]
struct Kernel {
    name: String,
    launches: u64,
}

#[derive(Debug, Serialize)]
struct Finding {
    kind: &'static str,
    call: &'static str,
    message: String,
    site: Option<Site>,
}

#[derive(Debug, Serialize)]
struct Site {
    kernel: String,
    block: [u32; 3],
    thread: [u32; 3],
    ptx_line: u32,
    instruction: String,
    file: Option<String>,
    line: Option<u32>,
}

#[derive(Debug, Serialize)]
struct Objects {
    contexts: usize,
    allocations: usize,
    allocated_bytes: u64,
    pinned: usize,
    streams: usize,
    events: usize,
    modules: usize,
    graphs: usize,
    graph_execs: usize,
    captures: usize,
    #[serde(skip)]
    text: String,
}

impl Machine {
    /// The report of this process up to now.
    pub(crate) fn summary(&self) -> Summary {
        let launches = self.simulator.launches().into_iter();
        let mut kernels: Vec<_> =
            launches.map(|(name, launches)| Kernel { name, launches }).collect();
        kernels.sort_by_key(|kernel| std::cmp::Reverse(kernel.launches));
        // Refused calls are counted instead.
        let said = self.simulator.diagnostics().into_iter();
        let said = said.filter(|said| {
            !matches!(said.kind, DiagnosticKind::Unsupported | DiagnosticKind::Unattested)
        });
        let arguments = std::env::args_os().map(|text| text.to_string_lossy().into_owned());
        Summary {
            simulated: true,
            process: Process { id: std::process::id(), arguments: arguments.collect() },
            machine: Equipment::of(&self.settings.config),
            kernels,
            diagnostics: said.map(Finding::of).collect(),
            not_simulated: self.refused(),
            live: Objects::of(&self.simulator.live()),
        }
    }
}

impl Summary {
    /// The report as text, a few lines long.
    pub(crate) fn lines(&self) -> Vec<String> {
        let total: u64 = self.kernels.iter().map(|kernel| kernel.launches).sum();
        let mut lines = vec![format!("{total} launch(es) of {} kernel(s)", self.kernels.len())];
        let row = |count: u64, name: &str| format!("{count:>8} {name}");
        lines.extend(self.kernels.iter().take(KERNELS).map(|k| row(k.launches, &k.name)));
        if let Some(rest) = self.kernels.get(KERNELS..).filter(|rest| !rest.is_empty()) {
            let launches = rest.iter().map(|kernel| kernel.launches).sum();
            lines.push(row(launches, &format!("of {} other kernel(s)", rest.len())));
        }
        if !self.diagnostics.is_empty() {
            lines.push(format!("{} finding(s), first to last:", self.diagnostics.len()));
            let texts = self.diagnostics.iter();
            lines.extend(
                texts.map(|said| format!("{}: {} ({})", said.call, said.message, said.kind)),
            );
        }
        let calls: u64 = self.not_simulated.values().sum();
        if calls > 0 {
            lines.push(format!("{calls} call(s) were not simulated and returned 801:"));
            lines.extend(self.not_simulated.iter().map(|(name, count)| row(*count, name)));
        }
        if !self.live.text.is_empty() {
            lines.push(format!("not released at exit: {}", self.live.text));
        }
        lines
    }

    /// Appends the report to a file, as one line of JSON.
    pub(crate) fn append_to(&self, path: &Path) -> std::io::Result<()> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path)?;
        // One write, so that lines of several processes do not mix.
        file.write_all(&line)
    }
}

impl Equipment {
    fn of(config: &Config) -> Self {
        let (major, minor) = config.compute_capability;
        Self {
            devices: config.devices,
            memory_bytes: config.memory_bytes,
            compute_capability: format!("{major}.{minor}"),
            driver: config.driver_version,
            order: if config.order == Order::Prompt { "prompt" } else { "adversarial" },
            seed: config.seed,
            detect_races: config.detect_races,
        }
    }
}

impl Finding {
    fn of(said: Diagnostic) -> Self {
        let kind = match said.kind {
            DiagnosticKind::Undefined => "undefined",
            DiagnosticKind::Fault => "fault",
            DiagnosticKind::Capture => "capture",
            DiagnosticKind::Unsupported => "unsupported",
            DiagnosticKind::Unattested => "unattested",
            _ => "internal",
        };
        let site = said.site.map(|site| Site::of(*site));
        Self { kind, call: said.call, message: said.message, site }
    }
}

impl Site {
    fn of(site: FaultSite) -> Self {
        let (file, line) = site.source.map(|source| (source.file, source.line)).unzip();
        Self {
            kernel: site.kernel,
            block: site.block,
            thread: site.thread,
            ptx_line: site.line,
            instruction: site.text,
            file,
            line,
        }
    }
}

impl Objects {
    fn of(live: &LiveObjects) -> Self {
        let text = if live.is_empty() { String::new() } else { live.to_string() };
        let LiveObjects { contexts, allocations, allocated_bytes, pinned, streams, .. } = *live;
        let LiveObjects { events, modules, graphs, graph_execs, captures, .. } = *live;
        Self {
            contexts,
            allocations,
            allocated_bytes,
            pinned,
            streams,
            events,
            modules,
            graphs,
            graph_execs,
            captures,
            text,
        }
    }
}
