//! The part of a run to reduce so that it fits into device memory.

/// The part of a run to reduce first, so that it fits into device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reduce {
    /// The copies of the verification.
    Verification,
    /// The forward pass over held-out data.
    HeldOut,
    /// Sequences of a step, or their length.
    Batch,
    /// The number of trained weights.
    Trained,
    /// The bytes of the weights.
    Model,
    /// The maximum length of prompt and generated text, or the texts that are generated together.
    Length,
}

impl std::fmt::Display for Reduce {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Verification => "it by not verifying",
            Self::HeldOut => "it by holding out no data",
            Self::Batch => "the sequences of a step or their length",
            Self::Trained => "the trained weights, with LoRA or a smaller model",
            Self::Model => "the weights, with bf16, quantization or a smaller model",
            Self::Length => {
                "the maximum length of prompt and generated text, or the number of texts"
            }
        })
    }
}
