//! Programs of several sizes over the same buffers.

use retrograph_runtime::program::{Buckets, CacheOptions, Cached, Described, ProgramCache};
use retrograph_runtime::{BuildOptions, Controls, Profile, Program, Report, Stream, WarmModules};

use crate::error::{Error, Result};

/// A tensor that a step wrote: its name, and its elements as f32.
pub(crate) type NamedTensor = (String, Vec<f32>);

/// Buffers on the device, and the passes that read and write them. A pass has `N` sizes.
pub(crate) trait Workload<const N: usize> {
    /// The controls of a pass.
    type Handles;
    /// The input of a step.
    type Step<'a>: Copy;

    /// Returns the sizes of the pass that runs `step`.
    fn size(&self, step: Self::Step<'_>) -> [usize; N];

    /// Describes the pass of these sizes, bound to the buffers.
    fn describe(&self, stream: &Stream, size: [usize; N]) -> Result<Described<Self::Handles>>;

    /// Sets the controls of a pass to the input of `step`.
    fn set(handles: &Self::Handles, controls: &mut Controls, step: Self::Step<'_>) -> Result<()>;

    /// Returns the number of a step in errors: the training step, or the position in a text.
    fn number(step: Self::Step<'_>) -> u32;

    /// Downloads every tensor that `step` wrote, one after another.
    fn results<'a, 's>(
        &'a self,
        stream: &'a Stream,
        step: Self::Step<'s>,
    ) -> impl Iterator<Item = Result<NamedTensor>>;
}

/// The program that is built before the first step, with reused controls.
struct Prebuilt<const N: usize, H> {
    size: [usize; N],
    program: Program,
    handles: H,
    controls: Controls,
}

/// The programs of a workload. Each is built when a step first needs its sizes.
pub(crate) struct Programs<const N: usize, W: Workload<N>> {
    workload: W,
    prebuilt: Option<Prebuilt<N, W::Handles>>,
    cache: ProgramCache<N, W::Handles>,
    /// The report of the cached program of the last step.
    report: Option<Report>,
}

impl<const N: usize, W: Workload<N>> Programs<N, W> {
    /// Returns programs without building any. `modules` must have their kernels.
    pub(crate) fn new(
        workload: W,
        modules: &WarmModules,
        sizes: [Buckets; N],
        build: BuildOptions,
    ) -> Self {
        let mut options = CacheOptions::default();
        options.build = build;
        let cache = ProgramCache::new(modules, sizes, options);
        Self { workload, prebuilt: None, cache, report: None }
    }

    /// Adds the program of a size, which has its own memory, with the controls of its pass.
    pub(crate) fn with_prebuilt(
        self,
        size: [usize; N],
        program: Program,
        handles: W::Handles,
        controls: Controls,
    ) -> Self {
        Self { prebuilt: Some(Prebuilt { size, program, handles, controls }), ..self }
    }

    /// The buffers.
    pub(crate) fn workload(&self) -> &W {
        &self.workload
    }

    /// Frees the programs and returns the buffers.
    pub(crate) fn into_workload(self) -> W {
        self.workload
    }

    /// The prebuilt program and its controls.
    pub(crate) fn prebuilt_mut(&mut self) -> Option<(&mut Program, &Controls)> {
        self.prebuilt.as_mut().map(|prebuilt| (&mut prebuilt.program, &prebuilt.controls))
    }

    /// The report of the prebuilt program, or else of the program of the last step.
    pub(crate) fn report(&self) -> Option<&Report> {
        self.prebuilt.as_ref().map(|prebuilt| prebuilt.program.report()).or(self.report.as_ref())
    }

    /// Device bytes of the programs that are not prebuilt.
    pub(crate) fn cached_bytes(&self) -> usize {
        self.cache.statistics().bytes
    }

    /// Sets the controls of the prebuilt program to `step`, and returns both.
    ///
    /// # Errors
    /// If the input has other sizes than the program.
    pub(crate) fn set_prebuilt(
        &mut self,
        step: W::Step<'_>,
    ) -> Result<Option<(&mut Program, &Controls)>> {
        let Some(prebuilt) = &mut self.prebuilt else { return Ok(None) };
        W::set(&prebuilt.handles, &mut prebuilt.controls, step)?;
        Ok(Some((&mut prebuilt.program, &prebuilt.controls)))
    }

    /// Sets the controls of the prebuilt program, if that one runs `step`.
    ///
    /// # Errors
    /// If the input has other sizes than the program.
    pub(crate) fn prepare(&mut self, step: W::Step<'_>) -> Result<()> {
        let size = self.workload.size(step);
        match self.prebuilt.as_mut().filter(|prebuilt| prebuilt.size == size) {
            Some(Prebuilt { handles, controls, .. }) => W::set(handles, controls, step),
            None => Ok(()),
        }
    }

    /// Enqueues a step that was [prepared](Programs::prepare).
    ///
    /// # Errors
    /// If a program cannot be built, or the device fails.
    pub(crate) fn enqueue(&mut self, stream: &Stream, step: W::Step<'_>) -> Result<()> {
        let Self { workload, prebuilt, cache, report } = self;
        let size = workload.size(step);
        if let Some(prebuilt) = prebuilt.as_mut().filter(|prebuilt| prebuilt.size == size) {
            prebuilt.program.step(stream, &prebuilt.controls)?;
            return Ok(());
        }
        let (mut cached, controls) = cached(cache, workload, stream, step)?;
        cached.step(stream, &controls)?;
        let (found, steps) = (cached.program().report(), cached.program().steps());
        // Copy the report only if the program changed.
        let changed = || report.as_ref().is_none_or(|last| last.pass != found.pass);
        if prebuilt.is_none() && (steps == 1 || changed()) {
            *report = Some(found.clone());
        }
        Ok(())
    }

    /// Profiles the program that is not prebuilt and runs `step`, see
    /// [`retrograph_runtime::profile`]. The buffers are unchanged.
    ///
    /// # Errors
    /// If a program cannot be built, or the device fails.
    pub(crate) fn profile(
        &mut self,
        stream: &Stream,
        step: W::Step<'_>,
        replays: usize,
    ) -> Result<Profile> {
        let (mut cached, controls) = cached(&mut self.cache, &self.workload, stream, step)?;
        Ok(cached.profile(stream, &controls, replays)?)
    }

    /// Prepares and enqueues a step.
    ///
    /// # Errors
    /// As [`Programs::prepare`] and [`Programs::enqueue`].
    pub(crate) fn run(&mut self, stream: &Stream, step: W::Step<'_>) -> Result<()> {
        self.prepare(step)?;
        self.enqueue(stream, step)
    }
}

/// The program in `cache` that runs `step`, and its controls.
fn cached<'a, const N: usize, W: Workload<N>>(
    cache: &'a mut ProgramCache<N, W::Handles>,
    workload: &W,
    stream: &Stream,
    step: W::Step<'_>,
) -> Result<(Cached<'a, N, W::Handles>, Controls)> {
    let describe = |size| workload.describe(stream, size);
    let built: Result<_, Error> = cache
        .get_or_build(stream, workload.size(step), |bucket| describe(bucket.size))
        .map_err(Error::from);
    let cached = built?;
    let mut controls = cached.pass().controls();
    W::set(cached.handles(), &mut controls, step)?;
    Ok((cached, controls))
}

impl<const N: usize, W: Workload<N>> std::fmt::Debug for Programs<N, W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Programs").field("cache", &self.cache.statistics()).finish_non_exhaustive()
    }
}
