//! The programs of a generator with their buffers: one lane, and with verification an eager second.

use retrograph_kernels::ops::SamplingParameters;
use retrograph_runtime::program::{CacheOptions, Described, ProgramCache};
use retrograph_runtime::{
    Bindings, BuildOptions, ControlError, Controls, DeviceBuffer, Report, Slice, Stream,
    WarmModules,
};

use super::cache::CacheBuffers;
use super::sizes::Sizes;
use crate::config::{Dtype, InferenceConfig};
use crate::error::{Error, Result};
use crate::model::{GenerationPass, SAMPLED, TokenSource};
use crate::state::{ModelState, RotaryTables};

/// The input of a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step<'a> {
    /// Tokens of a prompt; none for the token that was sampled last.
    pub(super) tokens: &'a [u32],
    /// The position of the first.
    pub(super) position: usize,
    pub(super) sampling: [u32; SamplingParameters::LEN],
}

impl Step<'_> {
    /// Returns the positions of the tokens.
    pub(super) fn positions(self) -> std::ops::Range<usize> {
        self.position..self.position + self.tokens.len().max(1)
    }
}

/// The buffers that steps change.
#[derive(Debug)]
struct Buffers {
    caches: Vec<CacheBuffers>,
    seen: DeviceBuffer<u32>,
    sampled: DeviceBuffer<u32>,
    logits: DeviceBuffer<f32>,
}

/// The controls of a program.
struct Handles {
    source: TokenSource,
    position: Slice<u32>,
    sampling: Slice<u32>,
}

/// The arguments of [`Lane::new`], besides configuration and state.
#[derive(Clone, Copy)]
pub(super) struct Site<'a> {
    pub(super) stream: &'a Stream,
    pub(super) modules: &'a WarmModules,
    pub(super) rotary: &'a RotaryTables,
    /// Positions in the KV cache.
    pub(super) capacity: usize,
    /// The dtype of the KV cache.
    pub(super) cache: Dtype,
}

/// Programs by rows and length, and their buffers.
pub(super) struct Lane {
    config: InferenceConfig,
    sizes: Sizes,
    state: ModelState,
    rotary: RotaryTables,
    buffers: Buffers,
    programs: ProgramCache<2, Handles>,
    report: Option<Report>,
}

impl Lane {
    pub(super) fn new(
        site: Site<'_>,
        config: &InferenceConfig,
        state: ModelState,
        build: BuildOptions,
    ) -> Result<Self> {
        let (context, model) = (site.stream.context(), &config.model);
        let sizes = Sizes::new(config, site.capacity, site.cache)?;
        let elements = site.capacity * model.kv_width();
        let caches = (0..model.layers).map(|_| CacheBuffers::new(context, site.cache, elements));
        let buffers = Buffers {
            caches: caches.collect::<Result<_>>()?,
            seen: DeviceBuffer::zeroed(context, model.vocab)?,
            sampled: DeviceBuffer::zeroed(context, SAMPLED)?,
            logits: DeviceBuffer::zeroed(context, model.vocab)?,
        };
        let options = CacheOptions { build, ..CacheOptions::default() };
        let buckets = [sizes.rows.clone(), sizes.lengths.clone()];
        let programs = ProgramCache::new(site.modules, buckets, options);
        let rotary = site.rotary.clone();
        Ok(Self { config: *config, sizes, state, rotary, buffers, programs, report: None })
    }

    pub(super) fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    pub(super) fn report(&self) -> Option<&Report> {
        self.report.as_ref()
    }

    /// Returns device bytes, without the parameters.
    pub(super) fn bytes(&self) -> usize {
        let Buffers { caches, seen, sampled, logits } = &self.buffers;
        let caches: usize = caches.iter().map(CacheBuffers::bytes).sum();
        let small = seen.bytes() + sampled.bytes() + logits.bytes();
        caches + small + self.programs.statistics().bytes
    }

    /// Returns the device address of the token of the last step.
    pub(super) fn sampled(&self) -> u64 {
        self.buffers.sampled.address()
    }

    /// Downloads token and status of the last step.
    pub(super) fn sampled_words(&self, stream: &Stream) -> Result<Vec<u32>> {
        Ok(self.buffers.sampled.download(stream)?)
    }

    /// Downloads the logits of the last step.
    pub(super) fn logits(&self, stream: &Stream) -> Result<Vec<f32>> {
        Ok(self.buffers.logits.download(stream)?)
    }

    /// Downloads the keys and values of some positions, each with a name.
    pub(super) fn cached<'a>(
        &'a self,
        stream: &'a Stream,
        positions: std::ops::Range<usize>,
    ) -> impl Iterator<Item = Result<(String, Vec<f32>)>> + 'a {
        let width = self.config.model.kv_width();
        let range = positions.start * width..positions.end * width;
        let layers = self.buffers.caches.iter().enumerate();
        layers.flat_map(move |(layer, pair)| {
            let name = |part| format!("the {part} of layer {layer}");
            match pair.download(stream, range.clone()) {
                Ok([keys, values]) => vec![Ok((name("keys"), keys)), Ok((name("values"), values))],
                Err(error) => vec![Err(error)],
            }
        })
    }

    /// Forgets the last text. Attention multiplies cache rows without a token by 0, so that they
    /// must be finite.
    pub(super) fn clear(&mut self, stream: &Stream) -> Result<()> {
        let Buffers { caches, seen, .. } = &self.buffers;
        let caches = caches.iter().flat_map(CacheBuffers::words);
        for (address, words) in caches.chain([(seen.address(), seen.len())]) {
            // SAFETY: the buffer has this many words and lives in the lane, whose programs run on
            // this stream after the fill; freeing it waits for the context.
            unsafe { stream.fill_u32(address, 0, words) }?;
        }
        Ok(())
    }

    /// Enqueues a step.
    pub(super) fn run(&mut self, stream: &Stream, step: Step<'_>) -> Result<()> {
        let Self { config, sizes, state, rotary, buffers, programs, .. } = self;
        let tokens = step.tokens.len();
        // A program of one row reads the token that was sampled last.
        let rows = if tokens == 0 { 1 } else { tokens.max(2) };
        let bind = |pass: &GenerationPass| bind(pass, (state, rotary), buffers);
        let built = programs.get_or_build(stream, [rows, step.positions().end], |bucket| {
            let pass = sizes.describe(config, bucket.size)?;
            let bindings = bind(&pass);
            let GenerationPass { pass, source, position, sampling, .. } = pass;
            Ok::<_, Error>(Described {
                pass,
                bindings,
                handles: Handles { source, position, sampling },
            })
        });
        let mut program = built?;
        let mut controls = program.pass().controls();
        program.handles().set(&mut controls, step)?;
        program.step(stream, &controls)?;
        let (report, steps) = (program.program().report(), program.program().steps());
        // Copies the report only if the program changed.
        if steps == 1 || self.report.as_ref().is_none_or(|last| last.pass != report.pass) {
            self.report = Some(report.clone());
        }
        Ok(())
    }
}

impl std::fmt::Debug for Lane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lane({:?})", self.programs.statistics())
    }
}

impl Handles {
    fn set(&self, controls: &mut Controls, step: Step<'_>) -> Result<(), ControlError> {
        controls.set(self.position, step.position as u32)?;
        controls.set_array(self.sampling, &step.sampling)?;
        let TokenSource::Prompt { tokens, count, last } = self.source else { return Ok(()) };
        let mut padded = step.tokens.to_vec();
        padded.resize(tokens.len(), 0);
        controls.set_array(tokens, &padded)?;
        controls.set(count, step.tokens.len() as u32)?;
        controls.set(last, step.tokens.len() as u32 - 1)
    }
}

fn bind(
    pass: &GenerationPass,
    (state, rotary): (&ModelState, &RotaryTables),
    buffers: &Buffers,
) -> Bindings {
    let mut bindings = Bindings::new();
    state.bind(&mut bindings, &pass.parameters);
    bindings.bind(pass.cos, &rotary.cos).bind(pass.sin, &rotary.sin);
    for (declared, caches) in pass.caches.iter().zip(&buffers.caches) {
        caches.bind(&mut bindings, declared);
    }
    bindings.bind(pass.seen, &buffers.seen).bind(pass.sampled, &buffers.sampled);
    bindings.bind(pass.logits, &buffers.logits);
    bindings
}
