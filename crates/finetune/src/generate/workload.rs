//! The buffers that steps of generation read and write.

use std::ops::Range;

use retrograph_kernels::ops::SamplingParameters;
use retrograph_runtime::program::Described;
use retrograph_runtime::{Bindings, Controls, DeviceBuffer, Slice, Stream};

use super::cache::CacheBuffers;
use super::sizes::Sizes;
use crate::config::InferenceConfig;
use crate::error::Result;
use crate::model::{GenerationPass, SAMPLED, TokenSource};
use crate::programs::{NamedTensor, Workload};
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
    fn positions(self) -> Range<usize> {
        self.position..self.position + self.tokens.len().max(1)
    }
}

/// The controls of a pass.
pub(super) struct Handles {
    source: TokenSource,
    position: Slice<u32>,
    sampling: Slice<u32>,
}

/// A model with a KV cache on a device. Passes differ by their rows and by the positions that they
/// can attend to.
#[derive(Debug)]
pub(super) struct GenerationWorkload {
    config: InferenceConfig,
    sizes: Sizes,
    pub(super) state: ModelState,
    rotary: RotaryTables,
    caches: Vec<CacheBuffers>,
    /// The norms and factors of DoRA layers, which prefill writes.
    dora_norms: DeviceBuffer<f32>,
    seen: DeviceBuffer<u32>,
    sampled: DeviceBuffer<u32>,
    logits: DeviceBuffer<f32>,
}

impl GenerationWorkload {
    /// Allocates a KV cache for `sizes`. The tables have its capacity.
    pub(super) fn new(
        stream: &Stream,
        (config, sizes): (&InferenceConfig, Sizes),
        state: ModelState,
        rotary: RotaryTables,
    ) -> Result<Self> {
        let (context, model) = (stream.context(), &config.model);
        let elements = sizes.capacity() * model.kv_width();
        let cache = |_| CacheBuffers::new(context, sizes.dtype(), elements);
        let caches = (0..model.layers).map(cache).collect::<Result<_>>()?;
        Ok(Self {
            config: *config,
            sizes,
            state,
            rotary,
            caches,
            dora_norms: DeviceBuffer::zeroed(context, config.dora_norms())?,
            seen: DeviceBuffer::zeroed(context, model.vocab)?,
            sampled: DeviceBuffer::zeroed(context, SAMPLED)?,
            logits: DeviceBuffer::zeroed(context, model.vocab)?,
        })
    }

    pub(super) fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    /// Returns device bytes, without the parameters.
    pub(super) fn bytes(&self) -> usize {
        let caches: usize = self.caches.iter().map(CacheBuffers::bytes).sum();
        caches
            + self.dora_norms.bytes()
            + self.seen.bytes()
            + self.sampled.bytes()
            + self.logits.bytes()
    }

    /// Returns the device address of the token of the last step.
    pub(super) fn sampled(&self) -> u64 {
        self.sampled.address()
    }

    /// Downloads the logits of the last step.
    pub(super) fn logits(&self, stream: &Stream) -> Result<Vec<f32>> {
        Ok(self.logits.download(stream)?)
    }

    /// Forgets the last text. Attention multiplies cache rows without a token by 0, so that they
    /// must be finite.
    pub(super) fn clear(&self, stream: &Stream) -> Result<()> {
        let caches = self.caches.iter().flat_map(CacheBuffers::words);
        for (address, words) in caches.chain([(self.seen.address(), self.seen.len())]) {
            // SAFETY: the buffer has this many words. Programs that use it run on this stream after
            // the fill, and freeing it waits for the context.
            unsafe { stream.fill_u32(address, 0, words) }?;
        }
        Ok(())
    }

    fn bindings(&self, pass: &GenerationPass) -> Bindings {
        let mut bindings = Bindings::new();
        self.state.bind(&mut bindings, &pass.parameters);
        bindings.bind(pass.cos, &self.rotary.cos).bind(pass.sin, &self.rotary.sin);
        for (declared, caches) in pass.caches.iter().zip(&self.caches) {
            caches.bind(&mut bindings, declared);
        }
        if let Some(norms) = pass.dora_norms {
            bindings.bind(norms, &self.dora_norms);
        }
        bindings.bind(pass.seen, &self.seen).bind(pass.sampled, &self.sampled);
        bindings.bind(pass.logits, &self.logits);
        bindings
    }
}

impl Workload<2> for GenerationWorkload {
    type Handles = Handles;
    type Step<'a> = Step<'a>;

    fn size(&self, step: Step<'_>) -> [usize; 2] {
        // A pass of one row reads the token that was sampled last.
        let rows = if step.tokens.is_empty() { 1 } else { step.tokens.len().max(2) };
        [rows, step.positions().end]
    }

    fn describe(&self, _: &Stream, size: [usize; 2]) -> Result<Described<Handles>> {
        let pass = self.sizes.describe(&self.config, size)?;
        let bindings = self.bindings(&pass);
        let GenerationPass { pass, source, position, sampling, .. } = pass;
        Ok(Described { pass, bindings, handles: Handles { source, position, sampling } })
    }

    fn set(handles: &Handles, controls: &mut Controls, step: Step<'_>) -> Result<()> {
        controls.set(handles.position, step.position as u32)?;
        controls.set_array(handles.sampling, &step.sampling)?;
        let TokenSource::Prompt { tokens, count, last } = handles.source else { return Ok(()) };
        let mut padded = step.tokens.to_vec();
        padded.resize(tokens.len(), 0);
        controls.set_array(tokens, &padded)?;
        controls.set(count, step.tokens.len() as u32)?;
        Ok(controls.set(last, step.tokens.len() as u32 - 1)?)
    }

    fn number(step: Step<'_>) -> u32 {
        step.position as u32
    }

    /// Logits, the sampled token, and the keys and values of the positions of the step.
    fn results<'a, 's>(
        &'a self,
        stream: &'a Stream,
        step: Self::Step<'s>,
    ) -> impl Iterator<Item = Result<NamedTensor>> {
        let logits = std::iter::once_with(|| Ok(("the logits".to_owned(), self.logits(stream)?)));
        let sampled = std::iter::once_with(|| {
            let words = self.sampled.download(stream)?.into_iter().map(|word| word as f32);
            Ok(("the token and its status".to_owned(), words.collect()))
        });
        let (width, positions) = (self.config.model.kv_width(), step.positions());
        let range = positions.start * width..positions.end * width;
        let caches = self.caches.iter().enumerate().flat_map(move |(layer, pair)| {
            let name = |part| format!("the {part} of layer {layer}");
            match pair.download(stream, range.clone()) {
                Ok([keys, values]) => vec![Ok((name("keys"), keys)), Ok((name("values"), values))],
                Err(error) => vec![Err(error)],
            }
        });
        logits.chain(sampled).chain(caches)
    }
}
