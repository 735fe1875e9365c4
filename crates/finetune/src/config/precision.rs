//! Dtypes of matrix products and of frozen weights.

use std::fmt;

use retrograph_kernels::DType;
use serde::{Deserialize, Serialize};

use super::check::require;
use super::choice::UnknownChoice;

/// Parses `f32` or `bf16`, the dtypes of products, frozen weights and KV caches.
///
/// # Errors
/// If the text is another one.
pub fn parse_dtype(text: &str) -> Result<DType, UnknownChoice> {
    let known = [DType::F32, DType::Bf16].into_iter().find(|dtype| dtype.name() == text);
    known.ok_or_else(|| UnknownChoice::new(text, "a data type", "f32 or bf16"))
}

/// Whether `dtype` is bf16 and not f32; fails for other dtypes.
pub(crate) fn is_bf16(field: &'static str, dtype: DType) -> crate::Result<bool> {
    require(field, dtype, matches!(dtype, DType::F32 | DType::Bf16), "f32 or bf16")?;
    Ok(dtype == DType::Bf16)
}

/// Dtypes in files: `f32` or `bf16`.
pub(crate) mod dtype_name {
    use retrograph_kernels::DType;
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(crate) fn serialize<S: Serializer>(dtype: &DType, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(dtype.name())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<DType, D::Error> {
        super::parse_dtype(&String::deserialize(from)?).map_err(de::Error::custom)
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
    /// The dtype of the inputs of matrix products, and of frozen matrices that are not quantized:
    /// f32 or bf16. Everything else is f32: accumulators, activations, norms, biases, trained
    /// weights and the optimizer. Products in bf16 read bf16 copies of trained weights.
    #[serde(with = "dtype_name")]
    pub dtype: DType,
    /// Quantization of the frozen weights of linear layers, except the output projection of the
    /// model; the token table is never quantized.
    #[serde(default)]
    pub quantize: Option<Quantization>,
}

impl Precision {
    /// f32 throughout.
    pub const F32: Self = Self { dtype: DType::F32, quantize: None };
    /// Products in bf16.
    pub const BF16: Self = Self { dtype: DType::Bf16, quantize: None };

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dtype_is_stored_by_name_and_others_are_refused() {
        let text = serde_json::to_string(&Precision::BF16).unwrap();
        assert_eq!(text, r#"{"dtype":"bf16","quantize":null}"#);
        assert_eq!(serde_json::from_str::<Precision>(&text).unwrap(), Precision::BF16);
        let error = serde_json::from_str::<Precision>(r#"{"dtype":"u8"}"#).unwrap_err();
        assert!(error.to_string().contains("f32 or bf16"), "{error}");
    }
}
