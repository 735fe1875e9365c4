//! The buffers that steps of generation read and write.

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
    /// Tokens of a prompt; empty to use the last sampled tokens.
    pub(super) tokens: &'a [u32],
    /// The position of the first token of each sequence.
    pub(super) positions: &'a [u32],
    /// The sampling parameters of each sequence.
    pub(super) sampling: &'a [u32],
}

impl Step<'_> {
    /// Tokens of each sequence.
    fn rows(self) -> usize {
        self.tokens.len().max(1)
    }

    /// The largest position of a first token.
    fn last_position(self) -> u32 {
        self.positions.iter().copied().max().unwrap_or(0)
    }
}

/// The controls of a pass.
pub(super) struct Handles {
    source: TokenSource,
    positions: Slice<u32>,
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
        config: &InferenceConfig,
        sizes: Sizes,
        state: ModelState,
        rotary: RotaryTables,
    ) -> Result<Self> {
        let (context, model) = (stream.context(), &config.model);
        let batch = sizes.batch();
        let elements = batch * sizes.capacity() * model.kv_width();
        let cache = |_| CacheBuffers::new(context, sizes.dtype(), elements);
        let caches = (0..model.layers).map(cache).collect::<Result<_>>()?;
        Ok(Self {
            config: *config,
            sizes,
            state,
            rotary,
            caches,
            dora_norms: DeviceBuffer::zeroed(context, config.dora_norms())?,
            seen: DeviceBuffer::zeroed(context, batch * model.vocab)?,
            sampled: DeviceBuffer::zeroed(context, batch * SAMPLED)?,
            logits: DeviceBuffer::zeroed(context, batch * model.vocab)?,
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

    /// Returns the device address of the words of the last step.
    pub(super) fn sampled(&self) -> u64 {
        self.sampled.address()
    }

    /// Downloads the logits of the last step.
    pub(super) fn logits(&self, stream: &Stream) -> Result<Vec<f32>> {
        Ok(self.logits.download(stream)?)
    }

    /// Clears the last sequence. Unfused attention multiplies all positions without a token by 0,
    /// so they must be finite; the other kernels do not read them.
    pub(super) fn clear(&self, stream: &Stream) -> Result<()> {
        let stream = stream.outside_capture("clearing the last sequence")?;
        let fused = self.sizes.has_fused_prefill();
        let caches = self.caches.iter().filter(|_| !fused).flat_map(CacheBuffers::words);
        for (address, words) in caches.chain([(self.seen.address(), self.seen.len())]) {
            // SAFETY: the buffer has this many words. Programs that use it run on this stream after
            // the fill, and freeing it waits for the context.
            unsafe { stream.memset_d32(address, 0, words) }?;
        }
        Ok(())
    }

    /// Takes the `sequence` from `prefilled`, which has one sequence whose first `tokens` positions
    /// are computed. Decode does not read later positions of the cache.
    pub(super) fn take_over(
        &self,
        stream: &Stream,
        prefilled: &Self,
        tokens: usize,
        sequence: usize,
    ) -> Result<()> {
        let stream = stream.outside_capture("copying a prefilled sequence")?;
        let word = size_of::<u32>();
        // The address of the words of `sequence`; every sequence has the same number of words.
        let of_sequence = |address: u64, words: usize| address + (sequence * words * word) as u64;
        for (to, from) in self.caches.iter().zip(&prefilled.caches) {
            for (to, (from, words)) in to.words().into_iter().zip(from.words()) {
                let (to, computed) =
                    (of_sequence(to.0, words), words / self.sizes.capacity() * tokens);
                // SAFETY: a sequence has this many words in both buffers, and `tokens` are at most
                // the capacity. Programs that use them run on this stream, and freeing them waits
                // for the context.
                unsafe { stream.memcpy_dtod(to, from, computed * word) }?;
            }
        }
        let seen = of_sequence(self.seen.address(), prefilled.seen.len());
        // SAFETY: as above.
        unsafe { stream.memcpy_dtod(seen, prefilled.seen.address(), prefilled.seen.bytes()) }?;
        // The token, then the status.
        for part in 0..SAMPLED {
            let to =
                self.sampled.address() + ((part * self.sizes.batch() + sequence) * word) as u64;
            let from = prefilled.sampled.address() + (part * word) as u64;
            // SAFETY: as above.
            unsafe { stream.memcpy_dtod(to, from, word) }?;
        }
        let (to, from) = (&self.dora_norms, &prefilled.dora_norms);
        if from.is_empty() {
            return Ok(());
        }
        // SAFETY: both buffers have the norms of the same layers; for the rest, as above.
        Ok(unsafe { stream.memcpy_dtod(to.address(), from.address(), from.bytes()) }?)
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
        [rows, step.last_position() as usize + step.rows()]
    }

    fn describe(&self, _: &Stream, size: [usize; 2]) -> Result<Described<Handles>> {
        let pass = self.sizes.describe(&self.config, size)?;
        let bindings = self.bindings(&pass);
        let GenerationPass { pass, source, positions, sampling, .. } = pass;
        Ok(Described { pass, bindings, handles: Handles { source, positions, sampling } })
    }

    fn set(handles: &Handles, controls: &mut Controls, step: Step<'_>) -> Result<()> {
        controls.set_array(handles.sampling, step.sampling)?;
        let TokenSource::Prompt { tokens, count, last } = handles.source else {
            return Ok(controls.set_array(handles.positions, step.positions)?);
        };
        let start = step.positions.first().copied().unwrap_or(0);
        let positions: Vec<_> = (start..).take(handles.positions.len()).collect();
        controls.set_array(handles.positions, &positions)?;
        let mut padded = step.tokens.to_vec();
        padded.resize(tokens.len(), 0);
        controls.set_array(tokens, &padded)?;
        controls.set(count, step.tokens.len() as u32)?;
        Ok(controls.set(last, step.tokens.len() as u32 - 1)?)
    }

    fn number(step: Step<'_>) -> u32 {
        step.last_position()
    }

    /// Logits, the sampled tokens, and the keys and values of the positions of the step.
    fn results<'a, 's>(
        &'a self,
        stream: &'a Stream,
        step: Self::Step<'s>,
    ) -> impl Iterator<Item = Result<NamedTensor>> {
        let logits = std::iter::once_with(|| Ok(("the logits".to_owned(), self.logits(stream)?)));
        let sampled = std::iter::once_with(|| {
            let words = self.sampled.download(stream)?.into_iter().map(|word| word as f32);
            Ok(("the tokens and their status".to_owned(), words.collect()))
        });
        let (width, capacity) = (self.config.model.kv_width(), self.sizes.capacity());
        let layers = self.caches.iter().enumerate();
        let sequences = step.positions.iter().enumerate();
        let each =
            layers.flat_map(move |layer| sequences.clone().map(move |sequence| (layer, sequence)));
        let caches = each.flat_map(move |((layer, pair), (sequence, &position))| {
            let place = if self.sizes.batch() > 1 {
                format!(" in sequence {sequence}")
            } else {
                String::new()
            };
            let name = |part| format!("the {part} of layer {layer}{place}");
            let start = sequence * capacity + position as usize;
            let range = start * width..(start + step.rows()) * width;
            match pair.download(stream, range.clone()) {
                Ok([keys, values]) => vec![Ok((name("keys"), keys)), Ok((name("values"), values))],
                Err(error) => vec![Err(error)],
            }
        });
        logits.chain(sampled).chain(caches)
    }
}
