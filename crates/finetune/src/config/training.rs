//! The configuration of a training run.

use retrograph_kernels::attention::supports_softcap;
use retrograph_kernels::ops::AttentionShape;
use serde::{Deserialize, Serialize};

use super::check::{require, within};
use super::precision::is_bf16;
use super::{F32Products, Mode, ModelConfig, OptimizerConfig, Precision, Projection, Quantization};
use crate::error::Result;

/// Everything that determines a run, except the data and the device.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrainingConfig {
    /// The model.
    pub model: ModelConfig,
    /// Which weights are trained.
    pub mode: Mode,
    /// Dtypes; f32 in checkpoints without this field.
    #[serde(default)]
    pub precision: Precision,
    /// Sequences per step.
    pub batch: usize,
    /// Tokens per sequence.
    pub seq: usize,
    /// Optimizer and schedule.
    pub optimizer: OptimizerConfig,
    /// Seed of initial weights, batches and dropout.
    pub seed: u64,
}

impl TrainingConfig {
    /// Maximum sequences of a step.
    pub const MAX_SEQUENCES: usize = 1 << 24;
    /// Maximum tokens of a sequence.
    pub const MAX_POSITIONS: usize = 1 << 24;

    /// Tokens per step.
    pub fn rows(&self) -> usize {
        self.batch * self.seq
    }

    /// Returns the sizes of attention.
    pub fn attention(&self) -> AttentionShape {
        AttentionShape {
            batch: self.batch,
            seq: self.seq,
            heads: self.model.heads,
            kv_heads: self.model.kv_heads,
            head_dim: self.model.head_dim(),
        }
    }

    /// Whether attention is fused (FlashAttention-2). This depends on `head_dim`, on the dtype, and
    /// on whether scores are capped. Otherwise the `seq × seq` probabilities are stored.
    pub fn fuses_attention(&self) -> bool {
        let dtype = self.precision.dtype;
        let caps = self.model.attention_softcap.is_none() || supports_softcap(dtype);
        caps && self.attention().can_be_fused(dtype)
    }

    /// Checks every value, and that all sizes fit the 32-bit dimensions of the kernels.
    ///
    /// Some valid configurations cannot be trained: [`Mode::Frozen`] has nothing to train, and DoRA
    /// is not trained with dropout. Training refuses these when it starts.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`](crate::Error::InvalidConfig) with the invalid value.
    pub fn validate(&self) -> Result<()> {
        self.validate_sizes()?;
        self.optimizer.validate()
    }

    /// Checks everything except the optimizer. Call this before computing with sizes.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`](crate::Error::InvalidConfig) with the invalid value.
    pub fn validate_sizes(&self) -> Result<()> {
        self.model.validate()?;
        within("batch", self.batch, Self::MAX_SEQUENCES)?;
        within("seq", self.seq, Self::MAX_POSITIONS)?;
        if let Mode::Lora(lora) = self.mode {
            lora.validate(&self.model)?;
        }
        let in_bf16 = is_bf16("dtype", self.precision.dtype)?;
        let bf16_gradients = is_bf16("gradients", self.precision.gradients)?;
        require("gradients", "bf16", in_bf16 || !bf16_gradients, "f32 unless the dtype is bf16")?;
        let products = self.precision.f32_products;
        let is_default = products == F32Products::default();
        require("f32_products", products, is_default || !in_bf16, "split-f16 with dtype bf16")?;
        self.validate_activations()?;
        self.validate_quantization()
    }

    /// Checks that the indices of every activation fit 32 bits.
    fn validate_activations(&self) -> Result<()> {
        let ModelConfig { vocab, hidden, intermediate, .. } = self.model;
        let rank = self.mode.lora().map_or(0, |lora| lora.largest_rank(&self.model));
        let widths = [
            ("vocab", vocab),
            ("hidden", hidden),
            ("intermediate", intermediate),
            ("heads x head_dim", self.model.q_width()),
            ("kv_heads x head_dim", self.model.kv_width()),
            ("rank", rank),
        ];
        let is_numbered = |elements: usize| u32::try_from(elements).is_ok();
        let rows = self.batch.saturating_mul(self.seq);
        require("batch x seq", rows, is_numbered(rows), "less than 2^32")?;
        for (name, width) in widths {
            // Activations have fewer than 2³² elements.
            let most = u32::MAX as usize / width.max(1);
            require(
                "batch x seq",
                rows,
                rows <= most,
                &format!("at most {most}: {name} is {width}"),
            )?;
        }
        let columns = if self.fuses_attention() { 1 } else { self.seq };
        let scores = rows.saturating_mul(self.model.heads).saturating_mul(columns);
        let rule = "such that heads x batch x seq x seq is less than 2^32";
        require("seq", self.seq, is_numbered(scores), rule)
    }

    /// Checks that quantized weights are frozen, and that their rows are multiples of eight codes.
    fn validate_quantization(&self) -> Result<()> {
        let Some(Quantization::Nf4 { .. }) = self.precision.quantize else { return Ok(()) };
        let frozen = !self.mode.is_full();
        require("quantize", "nf4", frozen, "left out if all weights are trained")?;
        for &projection in Projection::ALL {
            let [inputs, _] = self.model.projection(projection);
            let rule = "such that the inputs of every layer in NF4 are a multiple of 8";
            require(projection.module(), inputs, inputs.is_multiple_of(8), rule)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use retrograph_kernels::DType;

    use super::*;
    use crate::config::{LoraConfig, Preset};

    fn config() -> TrainingConfig {
        TrainingConfig {
            model: Preset::Tiny.model(),
            mode: Mode::Full,
            precision: Precision::F32,
            batch: 4,
            seq: 32,
            optimizer: OptimizerConfig::new(1e-3, 100),
            seed: 0,
        }
    }

    #[test]
    fn presets_are_valid_and_found_by_name() {
        for &preset in Preset::ALL {
            preset.model().validate().unwrap();
            assert_eq!(preset.name().parse::<Preset>().unwrap(), preset);
        }
        assert!("qwen".parse::<Preset>().unwrap_err().choices.contains("tiny"));
    }

    #[test]
    fn the_field_that_is_wrong_is_named() {
        let mut wrong = config();
        wrong.model.kv_heads = 3;
        assert!(wrong.validate().unwrap_err().to_string().contains("kv_heads"));
        let mut wrong = config();
        wrong.optimizer.peak_lr = f64::NAN;
        assert!(wrong.validate().unwrap_err().to_string().contains("lr"));
        let mut wrong = config();
        wrong.model.head_dim = Some(7);
        assert!(wrong.validate().unwrap_err().to_string().contains("head_dim is 7"));
        let mut wrong = config();
        (wrong.batch, wrong.seq) = (1 << 20, 1 << 20);
        assert!(wrong.validate().unwrap_err().to_string().contains("batch x seq"));
        let named = |change: fn(&mut TrainingConfig)| {
            let mut wrong = config();
            change(&mut wrong);
            wrong.validate().unwrap_err().to_string()
        };
        let hidden = named(|wrong| wrong.model.hidden = 1 << 31);
        assert!(hidden.starts_with("hidden is 2147483648"), "{hidden}");
        let dtype = named(|wrong| wrong.precision.dtype = DType::U8);
        assert!(dtype.starts_with("dtype is u8"), "{dtype}");
        let products = named(|wrong| {
            wrong.precision = Precision { dtype: DType::Bf16, ..Precision::TF32X3 };
        });
        assert!(products.starts_with("f32_products is tf32x3"), "{products}");
        let rank = named(|wrong| wrong.mode = Mode::Lora(LoraConfig::new(1 << 32, 8.0)));
        assert!(rank.starts_with("rank is 4294967296"), "{rank}");
    }

    #[test]
    fn a_size_beyond_32_bits_is_refused_by_name() {
        let two = |set: &dyn Fn(&mut TrainingConfig, usize)| {
            [1 << 32, usize::MAX].map(|value| {
                let mut wrong = config();
                set(&mut wrong, value);
                wrong.validate().unwrap_err().to_string()
            })
        };
        let lora = |rank| Mode::Lora(LoraConfig::new(rank, 1.0));
        type Set<'a> = &'a dyn Fn(&mut TrainingConfig, usize);
        let dimensions: [(&str, Set<'_>); 9] = [
            ("vocab", &|config, value| config.model.vocab = value),
            ("layers", &|config, value| config.model.layers = value),
            ("hidden", &|config, value| config.model.hidden = value),
            ("intermediate", &|config, value| config.model.intermediate = value),
            ("heads", &|config, value| config.model.heads = value),
            ("head_dim", &|config, value| config.model.head_dim = Some(value)),
            ("batch", &|config, value| config.batch = value),
            ("seq", &|config, value| config.seq = value),
            ("rank", &|config, value| config.mode = lora(value)),
        ];
        for (name, set) in dimensions {
            for error in two(set) {
                assert!(error.starts_with(&format!("{name} is ")), "{name}: {error}");
            }
        }
    }

    #[test]
    fn matrices_of_2_to_the_32_elements_are_refused() {
        let wrong = |change: &dyn Fn(&mut TrainingConfig)| {
            let mut wrong = config();
            change(&mut wrong);
            wrong.validate().unwrap_err().to_string()
        };
        let most = ModelConfig::MAX_WIDTH;
        let error = wrong(&|config| (config.model.vocab, config.model.hidden) = (most, 256));
        assert!(error.starts_with("vocab x hidden is 4294967296"), "{error}");
        let error = wrong(&|config| config.model.head_dim = Some(most));
        assert!(error.starts_with("heads x head_dim is"), "{error}");
        let error = wrong(&|config| {
            (config.model.hidden, config.mode) = (most / 4, Mode::Lora(LoraConfig::new(1025, 1.)));
            (config.model.vocab, config.model.intermediate) = (256, 256);
            config.model.head_dim = Some(2);
        });
        assert!(error.starts_with("rank is 1025"), "{error}");
    }

    #[test]
    fn only_frozen_weights_of_whole_groups_of_eight_are_quantized() {
        let quantized =
            |mode| TrainingConfig { mode, precision: Precision::BF16.nf4(true), ..config() };
        let error = quantized(Mode::Full).validate().unwrap_err().to_string();
        assert!(error.contains("all weights are trained"), "{error}");
        let mut lora = quantized(Mode::Lora(LoraConfig::new(8, 32.0)));
        lora.validate().unwrap();
        lora.model.intermediate = 180;
        assert!(lora.validate().unwrap_err().to_string().contains("down_proj is 180"));
    }

    #[test]
    fn the_default_precision_is_f32() {
        let mut json = serde_json::to_value(config()).unwrap();
        json.as_object_mut().unwrap().remove("precision");
        assert_eq!(serde_json::from_value::<TrainingConfig>(json).unwrap(), config());
    }

    #[test]
    fn configurations_survive_json() {
        let before = TrainingConfig {
            mode: Mode::Lora(LoraConfig::new(8, 32.0)),
            precision: Precision::BF16.nf4(true),
            ..config()
        };
        let text = serde_json::to_string(&before).unwrap();
        assert_eq!(serde_json::from_str::<TrainingConfig>(&text).unwrap(), before);
    }
}
