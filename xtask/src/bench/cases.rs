//! The cases: measured quantities, shapes and sizes.

/// Dimensions of a transformer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    pub(crate) layers: usize,
    pub(crate) hidden: usize,
    pub(crate) intermediate: usize,
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) vocab: usize,
    pub(crate) head_dim: usize,
    /// The file in the folder of the scripts that describes the architecture; `None` for Qwen2.5.
    pub(crate) config: Option<&'static str>,
}

impl Shape {
    const fn new(
        name: &'static str,
        [layers, hidden, intermediate, heads, kv_heads, vocab]: [usize; 6],
    ) -> Self {
        let head_dim = hidden / heads;
        let config = None;
        Self { name, layers, hidden, intermediate, heads, kv_heads, vocab, head_dim, config }
    }

    /// The options of the shape, which our program and the scripts share. Both use these dimensions
    /// instead of those in the file.
    pub(crate) fn options(&self) -> Vec<String> {
        let Self { layers, hidden, intermediate, heads, kv_heads, vocab, .. } = self;
        let dimensions = [
            ("--layers", layers),
            ("--hidden", hidden),
            ("--intermediate", intermediate),
            ("--heads", heads),
            ("--kv-heads", kv_heads),
            ("--vocab", vocab),
        ];
        let config = self.config.map(|file| ["--model-config".to_owned(), file.to_owned()]);
        dimensions
            .iter()
            .map(|(name, value)| [(*name).to_owned(), value.to_string()])
            .chain(config)
            .flatten()
            .collect()
    }
}

/// Dimensions of Qwen2.5-0.5B, 1.5B, 3B and 7B, of Llama-3.1-8B and of Qwen3-1.7B.
const QWEN_0_5B: Shape = Shape::new("0.5B", [24, 896, 4864, 14, 2, 151_936]);
const QWEN_1_5B: Shape = Shape::new("1.5B", [28, 1536, 8960, 12, 2, 151_936]);
const QWEN_3B: Shape = Shape::new("3B", [36, 2048, 11_008, 16, 2, 151_936]);
const QWEN_7B: Shape = Shape::new("7B", [28, 3584, 18_944, 28, 4, 152_064]);
const LLAMA_8B: Shape = Shape::new("8B", [32, 4096, 14_336, 32, 8, 128_256]);
const QWEN3_1_7B: Shape = Shape::new("1.7B", [28, 2048, 6144, 16, 8, 151_936]);
/// Gemma 2 2B.
const GEMMA2_2B: Shape = Shape {
    head_dim: 256,
    config: Some("gemma-2-2b.json"),
    ..Shape::new("gemma2-2B", [26, 2304, 9216, 8, 4, 256_000])
};

/// The shape for checking commands.
const TINY: Shape = Shape::new("tiny", [1, 64, 128, 4, 2, 256]);

/// The weights that a step trains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// LoRA of q and v, and the norms of each layer.
    Lora,
    /// LoRA of all seven projections, and the norms of each layer.
    LoraAll,
    /// All weights.
    Full,
}

/// The data type of products and of frozen matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dtype {
    F32,
    /// f32 products with frozen matrices that are exactly bf16, as in most checkpoints.
    F32Bf16Weights,
    Bf16,
    /// The same, with gradients of weights in bf16.
    Bf16Gradients,
    /// bf16 products with frozen linear layers in NF4.
    Nf4,
}

impl Dtype {
    fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F32Bf16Weights => "f32-bf16-weights",
            Self::Bf16 => "bf16",
            Self::Bf16Gradients => "bf16-gradients",
            Self::Nf4 => "nf4",
        }
    }
}

/// The LoRA rank of all steps.
pub(crate) const RANK: usize = 16;

/// The measured quantity of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Case {
    /// A training step; `size` is batch and sequence.
    Step { shape: Shape, mode: Mode, dtype: Dtype, size: [usize; 2] },
    /// The prefill of one prompt, up to the first token.
    Prefill { shape: Shape, dtype: Dtype, tokens: usize, capacity: usize },
    /// A token of greedy decoding in bf16, of each of `batch` sequences.
    Decode { shape: Shape, batch: usize, position: usize, capacity: usize },
    /// bf16 products of linear layers, inputs and outputs each.
    Products { rows: usize, layers: &'static [[usize; 2]] },
    /// Causal bf16 attention: batch, sequence, heads, key heads, head size.
    Attention { sizes: &'static [[usize; 5]] },
}

/// LoRA steps: weights to train, type, shape, batch and sequence.
#[rustfmt::skip]
const STEPS: &[(Mode, Dtype, Shape, [usize; 2])] = &[
    (Mode::Lora, Dtype::Bf16, QWEN_1_5B, [1, 32]),
    (Mode::Lora, Dtype::Bf16, QWEN_1_5B, [4, 128]),
    (Mode::Lora, Dtype::Bf16, QWEN_1_5B, [3, 384]),
    (Mode::Lora, Dtype::Bf16, QWEN_1_5B, [4, 512]),
    (Mode::Lora, Dtype::Bf16, QWEN_1_5B, [2, 1024]),
    (Mode::Lora, Dtype::Bf16, QWEN_1_5B, [1, 2048]),
    (Mode::Lora, Dtype::Bf16, QWEN_1_5B, [1, 4096]),
    (Mode::Lora, Dtype::Bf16, QWEN_1_5B, [4, 2048]),
    // Head size 64.
    (Mode::Lora, Dtype::Bf16, QWEN_0_5B, [4, 512]),
    (Mode::Lora, Dtype::Bf16, QWEN_3B, [1, 2048]),
    (Mode::Lora, Dtype::Bf16, QWEN_7B, [1, 2048]),
    (Mode::Lora, Dtype::Bf16, LLAMA_8B, [1, 512]),
    (Mode::Lora, Dtype::Bf16, LLAMA_8B, [1, 2048]),
    (Mode::LoraAll, Dtype::Bf16, QWEN3_1_7B, [2, 2048]),
    (Mode::Lora, Dtype::Bf16, GEMMA2_2B, [4, 512]),
    (Mode::Lora, Dtype::Bf16, GEMMA2_2B, [1, 2048]),
    (Mode::Full, Dtype::Bf16, QWEN_0_5B, [4, 512]),
    (Mode::Full, Dtype::Bf16, QWEN_1_5B, [4, 512]),
    (Mode::Full, Dtype::Bf16Gradients, QWEN_0_5B, [4, 512]),
    (Mode::Full, Dtype::Bf16Gradients, QWEN_1_5B, [4, 512]),
    (Mode::Lora, Dtype::Nf4, QWEN_1_5B, [4, 512]),
    (Mode::Lora, Dtype::F32, QWEN_1_5B, [1, 32]),
    (Mode::Lora, Dtype::F32, QWEN_1_5B, [4, 128]),
    (Mode::Lora, Dtype::F32, QWEN_1_5B, [4, 512]),
    (Mode::Lora, Dtype::F32Bf16Weights, QWEN_1_5B, [1, 32]),
    (Mode::Lora, Dtype::F32Bf16Weights, QWEN_1_5B, [4, 128]),
    (Mode::Lora, Dtype::F32Bf16Weights, QWEN_1_5B, [4, 512]),
];

/// Types and tokens of the prompts.
const PROMPTS: [(Dtype, usize); 5] = [
    (Dtype::Bf16, 128),
    (Dtype::Bf16, 512),
    (Dtype::Bf16, 2048),
    (Dtype::Bf16, 8192),
    (Dtype::F32, 2048),
];

/// Sequences and positions of decoding.
const DECODE: [[usize; 2]; 4] = [[1, 512], [1, 4096], [8, 512], [8, 4096]];

/// Rows of the products.
const ROWS: [usize; 3] = [512, 2048, 4096];

/// Layers of the products: o, k and v, gate and up, and down of 1.5B; o and gate of 8B; gate and
/// down of 0.5B; merged gate and up of 1.5B.
const LAYERS: &[[usize; 2]] = &[
    [1536, 1536],
    [1536, 256],
    [1536, 8960],
    [8960, 1536],
    [4096, 4096],
    [4096, 14_336],
    [896, 4864],
    [4864, 896],
    [1536, 17_920],
];

/// Sizes of attention.
const ATTENTION: &[[usize; 5]] = &[
    [1, 32, 12, 2, 128],
    [4, 128, 12, 2, 128],
    [3, 384, 12, 2, 128],
    [4, 512, 12, 2, 128],
    [2, 1024, 12, 2, 128],
    [1, 2048, 12, 2, 128],
    [4, 2048, 12, 2, 128],
    [1, 2048, 32, 8, 128],
    [1, 8192, 32, 8, 128],
    [4, 512, 14, 2, 64],
    [4, 512, 8, 8, 96],
    [4, 512, 4, 1, 256],
    [1, 2048, 8, 4, 256],
];

/// All cases, in the order of the table.
pub(crate) fn all() -> Vec<Case> {
    let step = |&(mode, dtype, shape, size)| Case::Step { shape, mode, dtype, size };
    let shape = QWEN_1_5B;
    let prefill = PROMPTS.map(|(dtype, tokens)| {
        let capacity = 2 * tokens;
        Case::Prefill { shape, dtype, tokens, capacity }
    });
    let decode = DECODE.map(|[batch, position]| {
        let capacity = 2 * position;
        Case::Decode { shape, batch, position, capacity }
    });
    let products = ROWS.iter().map(|&rows| Case::Products { rows, layers: LAYERS });
    let attention = Case::Attention { sizes: ATTENTION };
    let steps = STEPS.iter().map(step);
    steps.chain(prefill).chain(decode).chain(products).chain([attention]).collect()
}

impl Case {
    /// Returns the unique name.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Step { shape, mode, dtype, size: [batch, seq] } => {
                let mode = match mode {
                    Mode::Lora => "lora",
                    Mode::LoraAll => "lora-all",
                    Mode::Full => "full",
                };
                format!("{mode}-{}-{}-{batch}x{seq}", dtype.name(), shape.name)
            }
            Self::Prefill { shape, dtype, tokens, .. } => {
                format!("prefill-{}-{}-{tokens}", dtype.name(), shape.name)
            }
            Self::Decode { shape, batch, position, capacity } => {
                format!("decode-bf16-{}-{batch}x{position}of{capacity}", shape.name)
            }
            Self::Products { rows, .. } => format!("gemm-bf16-{rows}"),
            Self::Attention { .. } => "attention-bf16".to_owned(),
        }
    }

    /// The case with small dimensions, for the simulated driver.
    pub(crate) fn tiny(&self) -> Self {
        match *self {
            Self::Step { mode, dtype, shape: Shape { config, .. }, .. } => {
                Self::Step { mode, dtype, shape: Shape { config, ..TINY }, size: [1, 8] }
            }
            Self::Prefill { dtype, .. } => {
                Self::Prefill { shape: TINY, dtype, tokens: 4, capacity: 16 }
            }
            Self::Decode { batch, .. } => {
                Self::Decode { shape: TINY, batch, position: 4, capacity: 16 }
            }
            Self::Products { .. } => Self::Products { rows: 8, layers: &[[64, 64]] },
            Self::Attention { .. } => Self::Attention { sizes: &[[1, 16, 4, 2, 64]] },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_names_are_unique() {
        let mut names: Vec<_> = all().iter().map(Case::name).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn heads_divide_the_width_and_key_heads_the_heads() {
        for case in all() {
            if let Case::Step { shape, .. }
            | Case::Prefill { shape, .. }
            | Case::Decode { shape, .. } = case
            {
                assert!(shape.hidden.is_multiple_of(shape.heads), "{shape:?}");
                assert!(shape.heads.is_multiple_of(shape.kv_heads), "{shape:?}");
            }
        }
    }

    #[test]
    fn files_have_the_dimensions_of_their_shapes() {
        let Shape { layers, hidden, intermediate, heads, kv_heads, vocab, head_dim, .. } =
            GEMMA2_2B;
        let expected = [
            ("num_hidden_layers", layers),
            ("hidden_size", hidden),
            ("intermediate_size", intermediate),
            ("num_attention_heads", heads),
            ("num_key_value_heads", kv_heads),
            ("vocab_size", vocab),
            ("head_dim", head_dim),
        ];
        let path = crate::workspace::root().join("benches/peers").join(GEMMA2_2B.config.unwrap());
        let text = std::fs::read_to_string(path).unwrap();
        let config: serde_json::Value = serde_json::from_str(&text).unwrap();
        for (field, value) in expected {
            assert_eq!(config[field], value, "{field}");
        }
    }
}
