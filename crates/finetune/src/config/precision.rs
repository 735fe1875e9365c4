//! In which numbers a run computes, and in which it keeps the weights that it does not train.

use std::fmt;
use std::str::FromStr;

use retrograph_kernels::ops::DType;
use serde::{Deserialize, Serialize};

/// The type of the factors of all products, and of frozen matrices. Everything else is f32: sums,
/// activations, norms, biases, trained weights and the optimizer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// f32 throughout.
    #[default]
    F32,
    /// Products of bf16 numbers on tensor cores.
    Bf16,
}

impl Dtype {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        self.compute().name()
    }

    /// Bytes of an element.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
        }
    }

    /// How the kernels call it.
    pub fn compute(self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::Bf16 => DType::Bf16,
        }
    }
}

impl FromStr for Dtype {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = [Self::F32, Self::Bf16];
        known
            .into_iter()
            .find(|dtype| dtype.name() == text)
            .ok_or_else(|| format!("`{text}` is no type of factors; known are f32 and bf16"))
    }
}

/// Frozen weights of the linear layers in fewer bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Quantization {
    /// Codes of 4 bits with a scale for each 64 weights, as bitsandbytes has them.
    Nf4 {
        /// Whether the scales are quantized to 8 bits in turn.
        double: bool,
    },
}

/// In which numbers a run computes. The default is f32 throughout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Precision {
    /// The type of factors, and of frozen matrices that are not quantized.
    pub dtype: Dtype,
    /// How the frozen weights of the linear layers of the decoder are quantized: not the token
    /// table, and not the output projection.
    #[serde(default)]
    pub quantize: Option<Quantization>,
}

impl Precision {
    /// f32 throughout.
    pub const F32: Self = Self { dtype: Dtype::F32, quantize: None };
    /// Products in bf16.
    pub const BF16: Self = Self { dtype: Dtype::Bf16, quantize: None };

    /// The same with frozen linear layers in NF4.
    pub const fn nf4(self, double: bool) -> Self {
        Self { quantize: Some(Quantization::Nf4 { double }), ..self }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.dtype.name())?;
        match self.quantize {
            None => Ok(()),
            Some(Quantization::Nf4 { double: false }) => f.write_str(", linear layers in NF4"),
            Some(Quantization::Nf4 { double: true }) => {
                f.write_str(", linear layers in NF4 with quantized scales")
            }
        }
    }
}
