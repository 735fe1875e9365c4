//! One prewarming call: loads each image from the first source that has it.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use retrograph_driver::{Context, Function, LoadError, Module, compile_ptx};

use super::cache::ModuleCache;
use super::compile_workers::CompileWorkers;
use super::compiler::Compiler;
use super::error::PrewarmError;
use super::flight::{Claim, Settle};
use super::image::{ImageKey, ModuleKey, Wanted};
use super::job::Failure;
use super::progress::Progress;
use super::report::{ImageReport, Source, Warning};
use super::stored;

/// Maximum device memory of a worker process's context.
const CONTEXT_BYTES: usize = 1 << 30;
/// Minimum bytes of PTX per worker process: less is compiled before a worker has started.
const PROCESS_BYTES: usize = 128 << 10;

/// Default number of processes, including this one. More are not faster on an H200 with 16 cores
/// (docs/hardware/2026-11-28-compile-time).
const DEFAULT_PROCESSES: usize = 4;

/// A module that this thread loads.
type Mine<'a, 'w> = (&'a Wanted<'w>, Claim<ModuleKey, Module>);
type Functions = HashMap<ImageKey, HashMap<String, Function>>;

/// The images loaded so far.
pub(super) struct Session<'s> {
    cache: &'s ModuleCache,
    total: usize,
    progress: &'s mut dyn FnMut(&Progress<'_>),
    functions: Functions,
    images: Vec<ImageReport>,
    warnings: Vec<Warning>,
}

impl<'a, 'w> Settle<ModuleKey, Module, &'a Wanted<'w>> for Session<'_> {
    type Error = PrewarmError;

    fn key<'k>(wanted: &'k &'a Wanted<'w>) -> &'k ModuleKey {
        &wanted.key
    }

    fn take(&mut self, wanted: &Wanted<'_>, module: Module) -> Result<(), PrewarmError> {
        self.finish(wanted, &module, Source::Memory, Duration::ZERO)
    }

    fn make(&mut self, mine: Vec<Mine<'a, 'w>>) -> Result<(), PrewarmError> {
        self.load(mine)
    }
}

impl<'s> Session<'s> {
    pub(super) fn new(
        cache: &'s ModuleCache,
        total: usize,
        progress: &'s mut dyn FnMut(&Progress<'_>),
    ) -> Self {
        let (functions, images, warnings) = (HashMap::new(), Vec::new(), Vec::new());
        Self { cache, total, progress, functions, images, warnings }
    }

    pub(super) fn into_parts(self) -> (Functions, Vec<ImageReport>, Vec<Warning>) {
        (self.functions, self.images, self.warnings)
    }

    /// Looks up the functions of a loaded image, and reports progress.
    fn finish(
        &mut self,
        wanted: &Wanted<'_>,
        module: &Module,
        source: Source,
        spent: Duration,
    ) -> Result<(), PrewarmError> {
        let started = Instant::now();
        let mut functions = HashMap::new();
        for entry in &wanted.entries {
            let function = entry.look_up(module).map_err(|error| {
                let (image, entry) = (wanted.name.clone(), entry.name.clone().into_owned());
                PrewarmError::Entry { image, entry, error }
            })?;
            functions.insert(function.name().to_owned(), function);
        }
        let elapsed = spent + started.elapsed();
        let report = ImageReport::of(&wanted.name, source, elapsed, functions.values());
        self.functions.entry(wanted.key.image.clone()).or_default().extend(functions);
        (self.progress)(&Progress {
            done: self.images.len() + 1,
            total: self.total,
            image: &wanted.name,
            source,
            elapsed,
        });
        self.images.push(report);
        Ok(())
    }

    /// Loads images of machine code, from bundles and from disk, and compiles the others.
    fn load(&mut self, mine: Vec<Mine<'_, '_>>) -> Result<(), PrewarmError> {
        let (mut cold, mut space) = (Vec::new(), Vec::new());
        for (wanted, claim) in mine {
            let started = Instant::now();
            if let Some(code) = wanted.machine_code() {
                let loaded = Module::load_code(self.context(), code);
                let module = claim.fulfil(loaded.map_err(|failure| failed(wanted, failure))?);
                self.finish(wanted, &module, Source::MachineCode, started.elapsed())?;
                continue;
            }
            match self.load_stored(wanted, &mut space)? {
                Some((module, source)) => {
                    let module = claim.fulfil(module);
                    self.finish(wanted, &module, source, started.elapsed())?;
                }
                None => cold.push((wanted, claim)),
            }
        }
        let cold = match self.cache.options().compile.compiler {
            Compiler::Ptxas(_) if !cold.is_empty() => self.load_from_workers(cold)?,
            Compiler::Processes(_) if cold.len() > 1 => self.load_from_workers(cold)?,
            _ => cold,
        };
        for (wanted, claim) in cold {
            let started = Instant::now();
            let module = self.compile_here(wanted).map_err(|failure| failed(wanted, failure))?;
            let module = claim.fulfil(module);
            self.finish(wanted, &module, Source::Jit, started.elapsed())?;
        }
        Ok(())
    }

    /// The image from a bundle or from disk; `None` if neither has code that the driver accepts.
    fn load_stored(
        &mut self,
        wanted: &Wanted<'_>,
        space: &mut Vec<u8>,
    ) -> Result<Option<(Module, Source)>, PrewarmError> {
        let bad = |source| PrewarmError::Bundle { image: wanted.name.clone(), source };
        let mut is_listed = false;
        for (bundle, listed) in stored::in_bundles(self.cache, wanted) {
            is_listed = true;
            let code = bundle.read_code(listed, space).map_err(bad)?;
            if let Some(module) = self.accept(wanted, code, Source::Bundle)? {
                return Ok(Some((module, Source::Bundle)));
            }
        }
        if !is_listed && !self.cache.options().bundles.is_empty() {
            let (image, device) = (wanted.name.clone(), self.context().device_target());
            self.warn(Warning::NotInBundle { image, device });
        }
        match stored::on_disk(self.cache, wanted, space) {
            Ok(Some(code)) => {
                let module = self.accept(wanted, code, Source::Disk)?;
                Ok(module.map(|module| (module, Source::Disk)))
            }
            Ok(None) => Ok(None),
            Err(error) => {
                self.warn(Warning::Disk(error));
                Ok(None)
            }
        }
    }

    /// Loads compiled code, or warns that the driver refuses it.
    fn accept(
        &mut self,
        wanted: &Wanted<'_>,
        code: &[u8],
        source: Source,
    ) -> Result<Option<Module>, PrewarmError> {
        match Module::load_code(self.context(), code) {
            Ok(module) => Ok(Some(module)),
            Err(failure) if failure.is_of_image() => {
                let (image, LoadError { error, log }) = (wanted.name.clone(), failure);
                self.warn(Warning::Refused { image, origin: source, error, log });
                Ok(None)
            }
            Err(failure) => Err(failed(wanted, failure)),
        }
    }

    /// Compiles in this process. Without a cache on disk, the code need not be returned by the
    /// driver.
    fn compile_here(&mut self, wanted: &Wanted<'_>) -> Result<Module, LoadError> {
        if self.cache.options().disk.is_none() {
            return Module::load_ptx(self.context(), &wanted.ptx());
        }
        match compile_ptx(self.context(), &wanted.ptx()) {
            Ok(code) => {
                let module = Module::load_code(self.context(), &code)?;
                self.keep(wanted, &code);
                Ok(module)
            }
            // Not an error: the driver may load images that the linker refuses.
            Err(failure) if failure.is_of_image() => {
                let module = Module::load_ptx(self.context(), &wanted.ptx())?;
                let (image, error) = (wanted.name.clone(), failure.error);
                self.warn(Warning::NotLinked { image, error });
                Ok(module)
            }
            Err(failure) => Err(failure),
        }
    }

    /// Compiles in several processes, and loads each result as it arrives. Returns the images that
    /// failed.
    fn load_from_workers<'a, 'w>(
        &mut self,
        mut cold: Vec<Mine<'a, 'w>>,
    ) -> Result<Vec<Mine<'a, 'w>>, PrewarmError> {
        // Largest first, so that no large image starts last.
        cold.sort_by_cached_key(|(wanted, _)| Reverse(wanted.ptx().len()));
        let images: Vec<_> = cold.iter().map(|(wanted, _)| wanted.ptx()).collect();
        let images: Vec<&str> = images.iter().map(|ptx| &**ptx).collect();
        let count = self.processes(images.iter().map(|ptx| ptx.len()).sum())?;
        let mut cold: Vec<_> = cold.into_iter().map(Some).collect();
        let limit = self.cache.options().compile.timeout;
        let workers = CompileWorkers {
            compiler: &self.cache.options().compile.compiler,
            context: self.context(),
            count,
            limit,
        };
        workers.compile(&images, &mut |made| {
            let slot = made.index.map(|index| &mut cold[index]);
            let name = |(wanted, _): &Mine<'_, '_>| wanted.name.clone();
            match (made.code, slot) {
                (Err(failure), slot) => {
                    let image = slot.and_then(|slot| slot.as_ref().map(name));
                    match failure {
                        Failure::Told(reason) => self.warn(Warning::Compiler { image, reason }),
                        Failure::TooSlow => self.warn(Warning::TooSlow { image, timeout: limit }),
                        Failure::Here => {}
                    }
                    Ok(())
                }
                (Ok((code, source)), Some(slot)) => self.take(slot, &code, source, made.elapsed),
                (Ok(_), None) => Ok(()),
            }
        })?;
        Ok(cold.into_iter().flatten().collect())
    }

    /// Loads compiled code, and keeps the image in its slot if that fails.
    fn take(
        &mut self,
        slot: &mut Option<Mine<'_, '_>>,
        code: &[u8],
        source: Source,
        elapsed: Duration,
    ) -> Result<(), PrewarmError> {
        let started = Instant::now();
        let Some((wanted, _)) = slot else { return Ok(()) };
        let Some(module) = self.accept(wanted, code, source)? else { return Ok(()) };
        self.keep(wanted, code);
        let Some((wanted, claim)) = slot.take() else { return Ok(()) };
        let module = claim.fulfil(module);
        self.finish(wanted, &module, source, elapsed + started.elapsed())
    }

    /// Returns the number of processes that compile `bytes` of PTX. Every additional process takes
    /// time to start and device memory for its context.
    fn processes(&self, bytes: usize) -> Result<usize, PrewarmError> {
        let warming = &self.cache.options().compile;
        let most = warming.width();
        if !matches!(warming.compiler, Compiler::Processes(_)) {
            return Ok(most);
        }
        let most = if warming.workers == 0 { most.min(DEFAULT_PROCESSES) } else { most };
        let most = most.min(1 + bytes / PROCESS_BYTES);
        if self.context().driver().is_simulated() {
            return Ok(most);
        }
        let (free, _) = self.context().mem_get_info()?;
        Ok(most.min(1 + free / CONTEXT_BYTES))
    }

    fn keep(&mut self, wanted: &Wanted<'_>, code: &[u8]) {
        let Some(disk) = &self.cache.options().disk else { return };
        if let Err(error) = disk.put(&stored::key(self.cache, wanted), code) {
            self.warn(Warning::Disk(error));
        }
    }

    fn context(&self) -> &'s Context {
        self.cache.context()
    }

    fn warn(&mut self, warning: Warning) {
        tracing::warn!(%warning, "prewarming");
        self.warnings.push(warning);
    }
}

fn failed(wanted: &Wanted<'_>, LoadError { error, log }: LoadError) -> PrewarmError {
    PrewarmError::Load { image: wanted.name.clone(), error, log }
}
