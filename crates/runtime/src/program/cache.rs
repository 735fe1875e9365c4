//! A cache of programs for many shapes, within a budget of device memory.
//!
//! ```
//! # #[cfg(feature = "sim")] {
//! use retrograph_runtime::program::{Buckets, CacheOptions, Described, ProgramCache};
//! use retrograph_runtime::{
//!     Bindings, BuildError, Context, DeviceBuffer, DeviceIndex, Driver, ModuleCache, Pass, Stream,
//! };
//!
//! let context = Context::new(&Driver::simulated(Default::default())?, DeviceIndex(0))?;
//! let stream = Stream::new(&context)?;
//! let out = DeviceBuffer::<f32>::zeroed(&context, 64)?;
//! let describe = |size: usize| {
//!     let mut pass = Pass::new("copy");
//!     let tokens = pass.control_array::<f32>("tokens", size);
//!     let target = pass.external::<f32>("out", 64);
//!     pass.copy(tokens, target.slice(0..size))?;
//!     let mut bindings = Bindings::new();
//!     bindings.bind(target, &out);
//!     Ok::<_, retrograph_runtime::PassError>(Described { pass, bindings, handles: tokens })
//! };
//! // Here every size needs the same.
//! let modules = ModuleCache::new(&context);
//! let modules = modules.prewarm(&describe(64)?.pass.requirements(), |_| ())?;
//!
//! let mut options = CacheOptions::default();
//! options.budget_bytes = 1 << 20;
//! let mut cache = ProgramCache::new(&modules, [Buckets::powers_of_two(64)?], options);
//! for length in [5, 7, 30] {
//!     let mut cached =
//!         cache.get_or_build(&stream, [length], |bucket| describe(bucket.size[0]))?;
//!     let mut values = vec![1.0; length];
//!     values.resize(length + cached.bucket().padding(0), 0.0);
//!     let mut controls = cached.pass().controls();
//!     controls.set_array(*cached.handles(), &values)?;
//!     cached.step(&stream, &controls)?;
//! }
//! assert_eq!((cache.statistics().builds, cache.statistics().hits), (2, 1));
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The caller pads the data and makes the pass ignore the padding; a [`Bucket`] reports the amount
//! of padding.
//!
//! # Memory
//!
//! The programs of a cache run one at a time, so their transients share one arena. Build the
//! largest shape first: other shapes then add only their control blocks and tables. An arena that
//! must grow is replaced, and the old one is freed with its last program. Bound buffers and the
//! driver's memory for graphs are not part of the budget.

use retrograph_driver::{Profile, Stream};

use super::Bindings;
use super::arena::Share;
use super::arena::Sharing;
use super::blueprint::Blueprint;
use super::buckets::{Bucket, Buckets, ShapeError};
use super::{BuildError, BuildOptions, ProfileError, Program, Rebound, StepError, StepOutcome};
use crate::modules::WarmModules;
use crate::pass::{Controls, Pass};

/// Options of a program cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheOptions {
    /// Maximum device memory of all programs, in bytes.
    pub budget_bytes: usize,
    /// How programs are built.
    pub build: BuildOptions,
}

impl Default for CacheOptions {
    /// No limit.
    fn default() -> Self {
        Self { budget_bytes: usize::MAX, build: BuildOptions::default() }
    }
}

/// A pass and bindings for one bucket.
pub struct Described<T = ()> {
    /// The pass, of the size of the bucket.
    pub pass: Pass,
    /// Memory for its external buffers.
    pub bindings: Bindings,
    /// Caller data stored with the program, such as the slices of its controls.
    pub handles: T,
}

/// Counters of a program cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStatistics {
    /// Requests served by a cached program.
    pub hits: u64,
    /// Programs built.
    pub builds: u64,
    /// Programs evicted.
    pub evictions: u64,
    /// Programs held now.
    pub programs: usize,
    /// Their device memory, shared arenas counted once.
    pub bytes: usize,
}

/// No program for a shape. The cache is unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError<E> {
    /// The shape fits no bucket.
    #[error("axis {axis} of the shape: {cause}")]
    Shape {
        /// The axis, from 0.
        axis: usize,
        /// Why not.
        cause: ShapeError,
    },
    /// The caller's description of the pass failed.
    #[error("the pass of bucket {size:?} was not described: {cause}")]
    Describe {
        /// The size of the bucket.
        size: Vec<usize>,
        /// The caller's error.
        cause: E,
    },
    /// The program could not be built.
    #[error("the program of bucket {size:?} could not be built: {cause}")]
    Build {
        /// The size of the bucket.
        size: Vec<usize>,
        /// Why not.
        cause: Box<BuildError>,
    },
}

struct Entry<const N: usize, T> {
    size: [usize; N],
    program: Program,
    pass: Pass,
    handles: T,
    last_used: u64,
}

/// Programs by bucket, for shapes with `N` axes. `T` is caller data stored with each program.
pub struct ProgramCache<const N: usize, T = ()> {
    modules: WarmModules,
    buckets: [Buckets; N],
    options: CacheOptions,
    entries: Vec<Entry<N, T>>,
    /// The arena for the next program's transients, if they fit.
    arena: Option<Share>,
    uses: u64,
    statistics: CacheStatistics,
}

impl<const N: usize, T> ProgramCache<N, T> {
    /// An empty cache. `modules` must have every kernel that the passes of all buckets launch:
    /// entry points may differ by size, see [`Buckets::sizes`].
    pub fn new(modules: &WarmModules, buckets: [Buckets; N], options: CacheOptions) -> Self {
        let (modules, statistics) = (modules.clone(), CacheStatistics::default());
        Self { modules, buckets, options, entries: Vec::new(), arena: None, uses: 0, statistics }
    }

    /// Returns the program for `shape`, and builds it from `describe` if it is not cached, or if
    /// the cached one was given up after a failed step. The least recently used programs are then
    /// evicted until the budget is met, which waits for their last steps. During the build, the old
    /// programs still exist.
    ///
    /// # Errors
    /// See [`CacheError`]; [`BuildError::OverBudget`] if the program alone exceeds the budget.
    pub fn get_or_build<E>(
        &mut self,
        stream: &Stream,
        shape: [usize; N],
        describe: impl FnOnce(&Bucket<N>) -> Result<Described<T>, E>,
    ) -> Result<Cached<'_, N, T>, CacheError<E>> {
        let bucket = Bucket::of(shape, &self.buckets);
        let bucket = bucket.map_err(|(axis, cause)| CacheError::Shape { axis, cause })?;
        let runs = |entry: &Entry<N, T>| entry.size == bucket.size && !entry.program.is_given_up();
        let known = self.entries.iter().position(runs);
        let at = match known {
            Some(at) => {
                self.statistics.hits += 1;
                at
            }
            None => {
                let size = bucket.size.to_vec();
                let described = describe(&bucket)
                    .map_err(|cause| CacheError::Describe { size: size.clone(), cause })?;
                self.build(stream, bucket.size, described)
                    .map_err(|cause| CacheError::Build { size, cause: Box::new(cause) })?
            }
        };
        self.uses += 1;
        self.entries[at].last_used = self.uses;
        Ok(Cached { entry: &mut self.entries[at], bucket })
    }

    /// Builds a program, evicts others, and returns its position.
    fn build(
        &mut self,
        stream: &Stream,
        size: [usize; N],
        described: Described<T>,
    ) -> Result<usize, BuildError> {
        let Described { pass, bindings, handles } = described;
        let budget = self.options.budget_bytes;
        let blueprint = Blueprint {
            pass: &pass,
            bindings: &bindings,
            options: self.options.build,
            sharing: Some(Sharing { arena: self.arena.as_ref(), budget }),
        };
        let program = Program::assemble(stream, &self.modules, &blueprint)?;
        self.arena = program.share().cloned();
        self.statistics.builds += 1;
        // The program that it replaces was given up.
        self.entries.retain(|entry| entry.size != size);
        let last_used = self.uses + 1;
        self.entries.push(Entry { size, program, pass, handles, last_used });
        while self.bytes() > budget && self.entries.len() > 1 {
            self.evict_least_recent();
        }
        Ok(self.entries.len() - 1)
    }

    /// Evicts the least recently used program after waiting for its last step; returns whether
    /// there was one.
    pub fn evict_least_recent(&mut self) -> bool {
        let oldest = self.entries.iter().enumerate().min_by_key(|(_, entry)| entry.last_used);
        let Some((at, _)) = oldest else { return false };
        // `remove` keeps the order, in which the newest is last.
        drop(self.entries.remove(at));
        self.statistics.evictions += 1;
        if let Some(arena) = &self.arena
            && !self.shares().any(|share| share.address() == arena.address())
        {
            self.arena = None;
        }
        true
    }

    /// Counters, and the memory held now.
    pub fn statistics(&self) -> CacheStatistics {
        let (programs, bytes) = (self.entries.len(), self.bytes());
        CacheStatistics { programs, bytes, ..self.statistics }
    }

    fn shares(&self) -> impl Iterator<Item = &Share> {
        self.entries.iter().filter_map(|entry| entry.program.share())
    }

    fn bytes(&self) -> usize {
        let own: usize = self.entries.iter().map(|entry| entry.program.own_bytes()).sum();
        let mut arenas: Vec<_> = self.shares().map(|held| (held.address(), held.bytes())).collect();
        arenas.sort_unstable();
        arenas.dedup();
        own + arenas.iter().map(|(_, bytes)| bytes).sum::<usize>()
    }
}

/// A program of a cache, borrowed from it.
pub struct Cached<'a, const N: usize, T> {
    entry: &'a mut Entry<N, T>,
    bucket: Bucket<N>,
}

impl<const N: usize, T> Cached<'_, N, T> {
    /// The requested shape and the program's shape.
    pub fn bucket(&self) -> Bucket<N> {
        self.bucket
    }

    /// The pass.
    pub fn pass(&self) -> &Pass {
        &self.entry.pass
    }

    /// The program. Steps go through [`Cached::step`], so that programs that share memory run one
    /// at a time.
    pub fn program(&self) -> &Program {
        &self.entry.program
    }

    /// The caller data stored with the program.
    pub fn handles(&self) -> &T {
        &self.entry.handles
    }

    /// Like [`Program::step`]; steps of all programs of the cache run one after another.
    ///
    /// # Errors
    /// As [`Program::step`].
    pub fn step(&mut self, stream: &Stream, controls: &Controls) -> Result<StepOutcome, StepError> {
        self.entry.program.step(stream, controls)
    }

    /// Like [`Program::profile`].
    ///
    /// # Errors
    /// As [`Program::profile`].
    pub fn profile(
        &mut self,
        stream: &Stream,
        controls: &Controls,
        replays: usize,
    ) -> Result<Profile, ProfileError> {
        self.entry.program.profile(stream, controls, replays)
    }

    /// Like [`Program::rebind`].
    ///
    /// # Errors
    /// As [`Program::rebind`].
    pub fn rebind(&mut self, stream: &Stream, bindings: &Bindings) -> Result<Rebound, BuildError> {
        self.entry.program.rebind(stream, bindings)
    }
}
