//! The sizes of programs: rows of a prompt, and positions that a pass can attend to.

use retrograph_kernels::DType;
use retrograph_kernels::ops::KvCacheShape;
use retrograph_runtime::Requirements;
use retrograph_runtime::program::Buckets;

use crate::config::{InferenceConfig, LoraLayers, Mode};
use crate::error::{Error, Result};
use crate::model::{CacheConfig, GenerationPass};
use crate::spec::ModelSpec;

/// The shortest length for which programs are built.
const MIN_LENGTH: usize = 256;
/// Maximum rows of a prefill with fused attention over a bf16 cache. Activations take twice the
/// memory with an f32 cache, which has half the rows.
const MAX_ROWS: usize = 4096;
/// Maximum rows of a prefill that stores attention scores.
const MAX_SCORE_ROWS: usize = 512;
/// Maximum padding of a prefill. On an H200 and for 1.5 billion parameters, one more pass over the
/// weights takes as long as about 450 rows.
const MAX_PADDING: usize = 448;
/// Minimum rows of a prefill.
const MIN_ROWS: usize = 16;
/// With fused attention, there are also prefills of this many rows, and of twice as many and so on.
/// Fewer rows take about as long as the next power of two.
const MIN_ROWS_BETWEEN: usize = 384;
/// Maximum sequences of a pass.
pub(super) const MAX_BATCH: usize = 64;
/// Maximum attention scores of a prefill: 256 MiB.
const MAX_SCORES: usize = 64 << 20;

/// The sizes of programs.
#[derive(Clone, Debug)]
pub(super) struct Sizes {
    rows: Buckets,
    lengths: Buckets,
    heads: usize,
    /// Whether prefill stores no attention scores.
    fused: bool,
    /// Maximum rows of a prefill.
    max_rows: usize,
    /// Texts that a pass decodes.
    batch: usize,
    /// Positions of a sequence in the KV cache.
    capacity: usize,
    /// The dtype of the KV cache.
    dtype: DType,
}

impl Sizes {
    /// Returns powers of two up to `capacity`, which must hold a token of the prompt and one more.
    ///
    /// # Errors
    /// If the cache of a layer, or a product over it, has more elements than the 32-bit sizes of
    /// the kernels.
    pub(super) fn new(config: &InferenceConfig, capacity: usize, dtype: DType) -> Result<Self> {
        require_sizes(config, capacity, 1)?;
        let powers = |from: usize, to: usize| {
            std::iter::successors(Some(from), |size| Some(size * 2)).take_while(move |&s| s < to)
        };
        let shape = |_| Error::InvalidConfig {
            field: "max_length",
            value: capacity.to_string(),
            rule: "at least 2".to_owned(),
        };
        let spec = ModelSpec::from(&config.model);
        let fused = spec.layers.iter().all(|layer| layer.attention.has_fused_prefill(dtype));
        let max_rows = match dtype {
            _ if !fused => MAX_SCORE_ROWS,
            DType::Bf16 => MAX_ROWS,
            _ => MAX_ROWS / 2,
        };
        let between = powers(MIN_ROWS_BETWEEN, if fused { max_rows } else { 0 });
        let rows = powers(MIN_ROWS, max_rows + 1).chain(between).chain([1]);
        let rows = Buckets::list(rows).map_err(shape)?;
        let lengths =
            Buckets::list(powers(MIN_LENGTH, capacity).chain([capacity])).map_err(shape)?;
        Ok(Self {
            rows,
            lengths,
            heads: config.model.heads,
            fused,
            max_rows,
            batch: 1,
            capacity,
            dtype,
        })
    }

    /// Whether one kernel computes the attention of prefill in every layer.
    pub(super) fn has_fused_prefill(&self) -> bool {
        self.fused
    }

    /// Returns the sizes of programs that decode several sequences, without prefill.
    ///
    /// # Errors
    /// If there are not 1 to [`MAX_BATCH`], or as [`Sizes::new`].
    pub(super) fn with_batch(self, config: &InferenceConfig, batch: usize) -> Result<Self> {
        let invalid = || Error::InvalidConfig {
            field: "batch",
            value: batch.to_string(),
            rule: format!("from 1 to {MAX_BATCH}"),
        };
        if !(1..=MAX_BATCH).contains(&batch) {
            return Err(invalid());
        }
        require_sizes(config, self.capacity, batch)?;
        let rows = Buckets::list([1]).map_err(|_| invalid())?;
        Ok(Self { rows, batch, ..self })
    }

    /// Texts that a pass decodes.
    pub(super) fn batch(&self) -> usize {
        self.batch
    }

    /// Returns the rows and the lengths.
    pub(super) fn buckets(&self) -> [Buckets; 2] {
        [self.rows.clone(), self.lengths.clone()]
    }

    /// Positions of a sequence in the KV cache.
    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// The dtype of the KV cache.
    pub(super) fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns how many of the `left` tokens of a prompt, from `position` on, the next prefill
    /// computes. Limits the number of attention scores, and the padding.
    pub(super) fn piece(&self, position: usize, left: usize) -> usize {
        let length = self.lengths.fit(position + left).unwrap_or(self.capacity);
        let tokens = left.min(self.max_rows(length));
        let rows = self.rows.fit(tokens).unwrap_or(tokens);
        if rows - tokens <= MAX_PADDING {
            return tokens;
        }
        self.rows.sizes().take_while(|rows| *rows <= tokens).last().unwrap_or(tokens)
    }

    /// Returns the maximum rows of a program of `length`.
    fn max_rows(&self, length: usize) -> usize {
        if self.fused {
            return self.max_rows;
        }
        let fits = MAX_SCORES / (self.heads * length).max(1);
        1 << fits.clamp(MIN_ROWS, self.max_rows).ilog2()
    }

    /// Returns rows and length of every program that a sequence may need.
    pub(super) fn all(&self) -> impl Iterator<Item = [usize; 2]> {
        self.lengths.sizes().flat_map(|length| {
            let most = self.max_rows(length).min(length);
            let most = self.rows.fit(most.max(2)).unwrap_or(self.max_rows);
            self.rows.sizes().take_while(move |rows| *rows <= most).map(move |rows| [rows, length])
        })
    }

    /// Describes the pass of a program.
    pub(super) fn describe(
        &self,
        config: &InferenceConfig,
        [rows, length]: [usize; 2],
    ) -> Result<GenerationPass> {
        let Self { batch, capacity, dtype, .. } = *self;
        let cache = CacheConfig { batch, length, capacity, dtype };
        match rows {
            1 => GenerationPass::decode(config, cache),
            _ => GenerationPass::prefill(config, rows, cache),
        }
    }

    /// Returns the kernels of the programs of all sizes. If all layers have the same updates, they
    /// launch the same kernels, but prefill computes only one row of the last layer's output, so
    /// two layers are enough.
    pub(super) fn requirements(&self, config: &InferenceConfig) -> Result<Requirements> {
        let mut config = *config;
        let alike = config.mode.lora().is_none_or(|lora| lora.layers_are_alike(&config.model));
        if alike {
            config.model.layers = config.model.layers.min(2);
            if let Mode::Lora(lora) = &mut config.mode {
                lora.layers = LoraLayers::ALL;
            }
        }
        self.all().try_fold(Requirements::default(), |all, size| {
            Ok(all.union(&self.describe(&config, size)?.pass.requirements()))
        })
    }

    /// Returns rows and length of the largest prefill.
    pub(super) fn largest_prompt(&self) -> [usize; 2] {
        let piece = self.piece(0, self.capacity);
        [self.rows.fit(piece.max(2)).unwrap_or(self.max_rows), self.capacity]
    }
}

/// Checks that the buffers of `batch` sequences have sizes of 32 bits.
fn require_sizes(config: &InferenceConfig, capacity: usize, batch: usize) -> Result<()> {
    let (field, value) = ("max_length", capacity.to_string());
    let rule = violated(config, capacity, batch);
    rule.map_or(Ok(()), |rule| Err(Error::InvalidConfig { field, value, rule }))
}

/// The rule that a capacity violates.
fn violated(config: &InferenceConfig, capacity: usize, batch: usize) -> Option<String> {
    let (model, most) = (&config.model, KvCacheShape::MAX_CAPACITY);
    if !(2..=most).contains(&capacity) {
        return Some(format!("from 2 to {most}: a token of the prompt and those that follow"));
    }
    let (heads, head_dim) = (model.heads, model.head_dim());
    let shape = KvCacheShape { capacity, heads, kv_heads: model.kv_heads, head_dim };
    let sizes = [
        ("keys of a layer", capacity, model.kv_width()),
        ("attention scores of a prompt", capacity, MIN_ROWS.saturating_mul(heads)),
        ("partial sums of attention", batch * shape.splits(batch), model.q_width()),
    ];
    let too_large = |&(_, positions, width): &(&str, usize, usize)| {
        u32::try_from(positions.saturating_mul(width)).is_err()
    };
    let (what, ..) = sizes.into_iter().find(too_large)?;
    Some(format!("such that the {what} have fewer than 2^32 elements"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{LoraConfig, ModelConfig, Precision, Preset};
    use crate::generate::{GenerationPlan, GeneratorOptions};

    fn config() -> InferenceConfig {
        InferenceConfig::frozen(Preset::Qwen25OneAndHalf.model(), Precision::F32)
    }

    fn sizes(capacity: usize) -> Sizes {
        Sizes::new(&config(), capacity, DType::F32).unwrap()
    }

    #[test]
    fn every_piece_of_every_prompt_has_a_program_among_all_sizes() {
        for capacity in [2, 20, 300, 1000, 32_768] {
            let sizes = sizes(capacity);
            let all: Vec<_> = sizes.all().collect();
            assert!(
                all.contains(&sizes.largest_prompt()) && all.contains(&[1, capacity]),
                "{all:?}"
            );
            for position in (0..capacity).step_by(capacity.div_ceil(40)) {
                for left in (1..=capacity - position).step_by(capacity.div_ceil(40)) {
                    let piece = sizes.piece(position, left);
                    let length = sizes.lengths.fit(position + piece).unwrap();
                    let rows = sizes.rows.fit(piece.max(2)).unwrap();
                    assert!(all.contains(&[rows, length]), "{rows} rows, {length} positions");
                }
            }
        }
    }

    #[test]
    fn the_kernels_of_all_layers_are_required() {
        let lora = LoraConfig::new(4, 8.0);
        let layers = |text: &str| Mode::Lora(LoraConfig { layers: text.parse().unwrap(), ..lora });
        let sizes = sizes(1000);
        let target = retrograph_kernels::SmTarget::arch_specific(90);
        for mode in [Mode::Frozen, Mode::Lora(lora), layers("0-27"), layers("3")] {
            let config = InferenceConfig { mode, ..config() };
            let required = sizes.requirements(&config).unwrap().entries(target);
            for size in [[512, 1000], [16, 256], [1, 512]] {
                let pass = sizes.describe(&config, size).unwrap().pass;
                let launched = pass.requirements().entries(target);
                assert!(launched.iter().all(|entry| required.contains(entry)), "{size:?}");
            }
        }
    }

    #[test]
    fn prompts_are_split_so_that_attention_scores_stay_small() {
        let softcap = Some(50.0);
        let model = ModelConfig { attention_softcap: softcap, ..config().model };
        let config = InferenceConfig { model, ..config() };
        let sizes = |capacity| Sizes::new(&config, capacity, DType::F32).unwrap();
        let short = sizes(1024);
        assert_eq!((short.piece(0, 5), short.piece(0, 600), short.piece(512, 88)), (5, 512, 88));
        assert_eq!(short.largest_prompt(), [512, 1024]);
        // 12 heads over 32 768 positions fit 170 rows.
        assert_eq!(sizes(32_768).largest_prompt(), [128, 32_768]);
    }

    #[test]
    fn long_prompts_are_split_so_that_little_is_padding() {
        let sizes = sizes(32_768);
        assert_eq!(sizes.largest_prompt(), [2048, 32_768]);
        let in_bf16 = Sizes::new(&config(), 32_768, DType::Bf16).unwrap();
        assert_eq!(in_bf16.largest_prompt(), [4096, 32_768]);
        let pieces = |tokens: usize| {
            let mut pieces = Vec::new();
            while pieces.iter().sum::<usize>() < tokens {
                let done = pieces.iter().sum::<usize>();
                pieces.push(sizes.piece(done, tokens - done));
            }
            pieces
        };
        assert_eq!([5, 300, 512, 768].map(pieces), [vec![5], vec![300], vec![512], vec![768]]);
        assert_eq!([600, 1050, 1100].map(pieces), [vec![600], vec![1024, 26], vec![1100]]);
        assert_eq!([1900, 9000].map(pieces), [vec![1900], vec![2048, 2048, 2048, 2048, 808]]);
    }

    #[test]
    fn a_capacity_above_the_sizes_of_kernels_is_refused() {
        let most = GeneratorOptions::MAX_LENGTH;
        for capacity in [0, 1, most + 1, 1 << 24, 1 << 32, usize::MAX] {
            let error = Sizes::new(&config(), capacity, DType::F32).unwrap_err().to_string();
            assert!(error.starts_with(&format!("max_length is {capacity}, ")), "{error}");
        }
        let wide = ModelConfig { head_dim: Some(1 << 20), ..config().model };
        let error = Sizes::new(&InferenceConfig { model: wide, ..config() }, 1 << 20, DType::F32);
        assert!(error.unwrap_err().to_string().contains("2^32 elements"));
    }

    #[test]
    fn the_largest_capacity_works_and_the_first_larger_one_is_refused_by_name() {
        let most = GeneratorOptions::MAX_LENGTH;
        let plan = |heads: usize, capacity| {
            let model = ModelConfig { heads, kv_heads: 1, head_dim: Some(2), ..config().model };
            let model =
                ModelConfig { vocab: 256, hidden: 16, intermediate: 16, layers: 1, ..model };
            let config = InferenceConfig { model, ..config() };
            GenerationPlan::new(&config, GeneratorOptions::new(capacity)).map(|_| ())
        };
        plan(4, most).unwrap();
        // 64 heads have 2^32 scores of 16 rows over 2^22 positions.
        plan(64, (1 << 22) - 1).unwrap();
        for (heads, capacity) in [(4, most + 1), (64, 1 << 22)] {
            let error = plan(heads, capacity).unwrap_err().to_string();
            assert!(error.starts_with(&format!("max_length is {capacity}, ")), "{error}");
        }
    }

    #[test]
    fn partial_sums_of_a_batch_have_32_bit_sizes() {
        // 2¹⁴ splits of 256 positions, of 1536 elements each, or 6144.
        let sizes = |batch| sizes(1 << 22).with_batch(&config(), batch);
        sizes(MAX_BATCH).unwrap();
        let wide = ModelConfig { heads: 48, head_dim: Some(128), ..config().model };
        let wide = InferenceConfig { model: wide, ..config() };
        let sizes = |batch| Sizes::new(&wide, 1 << 22, DType::F32)?.with_batch(&wide, batch);
        sizes(42).unwrap();
        let error = sizes(43).unwrap_err().to_string();
        assert!(error.starts_with("max_length is 4194304, ") && error.contains("2^32"), "{error}");
    }

    #[test]
    fn lengths_are_powers_of_two_up_to_the_capacity() {
        let sizes = sizes(1000);
        let fit = |length| sizes.lengths.fit(length).unwrap();
        assert_eq!([1, 256, 257, 513, 1000].map(fit), [256, 256, 512, 1000, 1000]);
        assert!(sizes.lengths.fit(1001).is_err());
        let small = super::tests::sizes(20);
        assert_eq!(small.lengths.fit(3).unwrap(), 20);
    }
}
