//! Loading and launching every kernel on a device.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context as _, bail};
use retrograph_kernels::{Kernel, ParameterKind, images};
use retrograph_runtime::modules::{Bundle, CacheOptions, Compiler, WorkerCommand, serve_compiler};
use retrograph_runtime::{
    Context, DeviceBuffer, DeviceIndex, Driver, Function, KernelArguments, KernelLaunch,
    LaunchGeometry, ModuleCache, Requirements, Stream, TensorMap,
};
use serde_json::json;

use super::coverage::Coverage;
use super::occupancy::{self, Block};
use super::{Arguments, Findings, bar};

/// Bytes of the buffer that every pointer of the empty launches points to.
const SCRATCH_BYTES: usize = 1 << 20;

/// A device by its name on the command line.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DeviceName {
    Cuda(u32),
    Simulated,
}

impl FromStr for DeviceName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let index = text.strip_prefix("cuda:").and_then(|index| index.parse().ok());
        match (text, index) {
            ("sim", _) => Ok(Self::Simulated),
            (_, Some(index)) => Ok(Self::Cuda(index)),
            _ => Err(format!("`{text}` is not a device; write sim, or cuda:0")),
        }
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cuda(index) => write!(f, "cuda:{index}"),
            Self::Simulated => f.write_str("sim"),
        }
    }
}

impl DeviceName {
    pub(super) fn open(self) -> anyhow::Result<Context> {
        let (driver, index) = match self {
            Self::Cuda(index) => (Driver::load()?, index),
            Self::Simulated => (Driver::simulated(Default::default())?, 0),
        };
        Ok(Context::new(&driver, DeviceIndex(index))?)
    }

    /// Returns worker processes of this program that compile for the device.
    pub(super) fn compile_processes(self) -> anyhow::Result<Compiler> {
        let arguments = ["compile-worker", "--device", &self.to_string()].map(Into::into).to_vec();
        Ok(Compiler::Processes(WorkerCommand { program: std::env::current_exe()?, arguments }))
    }
}

/// The arguments of a process that compiles for another one.
#[derive(clap::Args)]
pub(crate) struct WorkerArguments {
    #[arg(long)]
    device: DeviceName,
}

/// Compiles for the process that started this one.
pub(crate) fn worker(arguments: &WorkerArguments) -> anyhow::Result<()> {
    let context = arguments.device.open()?;
    Ok(serve_compiler(&context, std::io::stdin().lock(), std::io::stdout().lock())?)
}

/// Warms every kernel on the device and launches each entry point.
pub(super) fn check(
    arguments: &Arguments,
    name: &DeviceName,
    coverage: &Coverage,
    findings: &mut Findings,
) -> anyhow::Result<()> {
    let context = name.open()?;
    let simulated = context.driver().is_simulated();
    // A simulated driver executes no machine code.
    let bundle = arguments.bundle.as_ref().filter(|_| !simulated);
    let mut options = CacheOptions::default();
    options.bundles = bundle.iter().map(Bundle::open).collect::<Result<_, _>>()?;
    options.compile.compiler = if simulated { Compiler::Driver } else { name.compile_processes()? };
    let cache = ModuleCache::with(&context, options);
    let mut requirements = Requirements::default();
    retrograph_kernels::all().iter().for_each(|kernel| requirements.insert(kernel));
    let loading = bar(0, "load");
    let modules = cache.prewarm(&requirements, |progress| {
        loading.set_length(progress.total as u64);
        loading.set_message(format!("{} from {}", progress.image, progress.source));
        loading.inc(1);
    })?;
    loading.finish_and_clear();
    let report = modules.report();
    findings.notes.extend(report.warnings.iter().map(ToString::to_string));
    let kernels = report.images.iter().flat_map(|image| {
        image.kernels.iter().map(|kernel| {
            json!({
                "image": image.image, "source": image.source.to_string(), "entry": kernel.entry,
                "registers": kernel.registers, "local_bytes": kernel.local_bytes,
                "shared_bytes": kernel.shared_bytes,
            })
        })
    });
    let info = context.info()?;
    findings.device = json!({
        "name": info.name, "simulated": simulated, "sources": report.sources(),
        "driver": context.driver().version().to_string(), "kernels": kernels.collect::<Vec<_>>(),
    });
    let launcher = Launcher::new(&context)?;
    for kernel in retrograph_kernels::all() {
        let has = |entry: &&&str| images::has_entry(kernel.image, entry, modules.target());
        for entry in kernel.entries.iter().filter(has) {
            let function = modules.function(kernel.image, entry)?;
            let launched = coverage.of(entry, modules.target());
            let most = function.max_threads();
            let threads = if launched.threads == 0 { most } else { launched.threads };
            let shared_bytes = images::dynamic_shared(entry, modules.target());
            launcher.launch(kernel, &function, threads, shared_bytes)?;
            let wrong = launcher.occupancy(&function, threads, launched.shared_bytes)?;
            findings.shortfalls.extend(wrong);
        }
    }
    if cache.jit_after_warm() > 0 {
        findings.shortfalls.push(format!("{} functions were not warm", cache.jit_after_warm()));
    }
    Ok(())
}

/// Blocks of a launch, a multiple of every cluster size.
const BLOCKS: u32 = 4;

struct Launcher {
    context: Context,
    stream: Stream,
    scratch: DeviceBuffer<u8>,
}

impl Launcher {
    fn new(context: &Context) -> anyhow::Result<Self> {
        let stream = Stream::new(context)?;
        let scratch = DeviceBuffer::zeroed(context, SCRATCH_BYTES)?;
        Ok(Self { context: context.clone(), stream, scratch })
    }

    /// Launches whole clusters, if there are clusters, with an empty problem: sizes of 0, and
    /// pointers to zeros.
    fn launch(
        &self,
        kernel: &Kernel,
        function: &Function,
        threads: u32,
        shared_bytes: u32,
    ) -> anyhow::Result<()> {
        let arguments = kernel.parameters.iter().fold(KernelArguments::new(), |arguments, one| {
            match one.kind {
                ParameterKind::Pointer => arguments.address(self.scratch.address()),
                ParameterKind::U32 => arguments.u32(0),
                ParameterKind::U64 => arguments.u64(0),
                ParameterKind::F32 => arguments.f32(0.0),
                ParameterKind::TensorMap => arguments.tensor_map(TensorMap::UNUSED),
            }
        });
        let geometry = LaunchGeometry { shared_bytes, ..LaunchGeometry::linear(BLOCKS, threads) };
        let launch = KernelLaunch::new(function, geometry, &arguments);
        // Earlier kernels may have written to the buffer, and some kernels read addresses from it.
        // SAFETY: the range is the scratch buffer, which outlives the fill.
        unsafe { self.stream.memset_d32(self.scratch.address(), 0, SCRATCH_BYTES / 4)? };
        // SAFETY: the arguments match the kernel's parameters, sizes of 0 bound its accesses, and
        // the scratch buffer lives until the stream is synchronized.
        let launched = unsafe { self.stream.launch(&launch) };
        let outcome = launched.and_then(|()| self.stream.synchronize());
        outcome.with_context(|| format!("launching `{}` of {threads} threads", function.name()))
    }

    /// Compares the driver's number of resident blocks with the computed one.
    fn occupancy(
        &self,
        function: &Function,
        threads: u32,
        dynamic: u32,
    ) -> anyhow::Result<Option<String>> {
        let mut found = 0;
        self.context.bind()?;
        let ask = self.context.table().cuOccupancyMaxActiveBlocksPerMultiprocessor;
        // SAFETY: the function belongs to the current context, and the pointer is valid.
        let code = unsafe { ask(&mut found, function.raw(), threads as i32, dynamic as usize) };
        if !code.is_success() {
            bail!("cuOccupancyMaxActiveBlocksPerMultiprocessor returned {}", code.0);
        }
        let (registers, shared_bytes) = (function.registers(), function.shared_bytes() + dynamic);
        let block = Block { threads, registers, shared_bytes };
        let ours = occupancy::blocks(self.context.device_target(), block);
        let name = function.name();
        Ok((i64::from(found) != i64::from(ours)).then(|| {
            format!("{name}: the driver has room for {found} blocks, the table says {ours}")
        }))
    }
}
