//! Dtypes of matrix products and of frozen weights.

use std::fmt;
use std::str::FromStr;

use retrograph_kernels::ops::DType;
use serde::{Deserialize, Serialize};

use super::choice::UnknownChoice;

/// The dtype of the inputs of matrix products and of frozen matrices. Everything else is f32:
/// accumulators, activations, norms, biases, trained weights and the optimizer. Products in bf16
/// read bf16 copies of trained weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// f32 throughout.
    #[default]
    F32,
    /// bf16 inputs of matrix products, on tensor cores.
    Bf16,
}

impl Dtype {
    /// The name: `f32` or `bf16`.
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

    /// Returns the dtype of the kernels.
    pub fn compute(self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::Bf16 => DType::Bf16,
        }
    }
}

impl FromStr for Dtype {
    type Err = UnknownChoice;

    fn from_str(text: &str) -> Result<Self, UnknownChoice> {
        let known = [Self::F32, Self::Bf16];
        known
            .into_iter()
            .find(|dtype| dtype.name() == text)
            .ok_or_else(|| UnknownChoice::new(text, "a data type", "f32 or bf16"))
    }
}

/// Quantization of the frozen weights of linear layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Quantization {
    /// 4-bit NormalFloat: 4-bit codes with a scale per block of 64 weights, as in bitsandbytes.
    Nf4 {
        /// Whether the scales are quantized to 8 bits.
        double: bool,
    },
}

/// The dtypes of a run. The default is f32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Precision {
    /// Inputs of matrix products, and frozen matrices that are not quantized.
    pub dtype: Dtype,
    /// Quantization of the frozen weights of linear layers, except the output projection of the
    /// model; the token table is never quantized.
    #[serde(default)]
    pub quantize: Option<Quantization>,
}

impl Precision {
    /// f32 throughout.
    pub const F32: Self = Self { dtype: Dtype::F32, quantize: None };
    /// Products in bf16.
    pub const BF16: Self = Self { dtype: Dtype::Bf16, quantize: None };

    /// Returns this precision with frozen linear layers in NF4.
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
