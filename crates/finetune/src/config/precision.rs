//! Dtypes of matrix products and of frozen weights.

use std::fmt;
use std::str::FromStr;

use retrograph_kernels::DType;
use serde::{Deserialize, Serialize};

use super::check::require;
use super::choice::UnknownChoice;
use crate::hub::ModelDirectory;

/// Minimum rows of a micro-batch for which the operands of f32 products are split into f16 terms
/// before the product. Products with fewer rows split them into tf32 terms in each tile. Measured
/// for a model of 1.5 billion weights (docs/hardware/2026-11-25-split-f16).
pub(crate) const MIN_SPLIT_ROWS: usize = 256;

/// The same minimum for weights that were split at upload. Measured for the same model
/// (docs/hardware/2026-11-25-f16-copies).
pub(crate) const MIN_COPIED_ROWS: usize = 32;

/// Parses `f32` or `bf16`, the dtypes of products, frozen weights and KV caches.
///
/// # Errors
/// If the text is neither.
pub fn parse_dtype(text: &str) -> Result<DType, UnknownChoice> {
    let known = [DType::F32, DType::Bf16].into_iter().find(|dtype| dtype.name() == text);
    known.ok_or_else(|| UnknownChoice::new(text, "a data type", "f32 or bf16"))
}

/// Whether `dtype` is bf16 rather than f32; fails for other dtypes.
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

/// How tensor cores compute large f32 products. Small products are fused multiply-adds in f32, and
/// weight gradients always use tf32x3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum F32Products {
    /// Each operand is split into two f16 terms before the product, with one scale per row. As
    /// accurate as f32, unless both operands have elements above 2¹⁶ times the other elements of
    /// their row.
    #[default]
    SplitF16,
    /// Each product splits its operands into two tf32 terms, tile by tile. Slower than split f16,
    /// with no limit for the range of a row; needs no f16 copies of frozen matrices.
    Tf32x3,
}

impl F32Products {
    /// All choices.
    pub const ALL: &[Self] = &[Self::SplitF16, Self::Tf32x3];

    /// The name in files and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::SplitF16 => "split-f16",
            Self::Tf32x3 => "tf32x3",
        }
    }
}

impl fmt::Display for F32Products {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for F32Products {
    type Err = UnknownChoice;

    fn from_str(text: &str) -> Result<Self, UnknownChoice> {
        let known = Self::ALL.iter().find(|products| products.name() == text);
        known.copied().ok_or_else(|| {
            UnknownChoice::new(text, "a scheme of f32 products", "split-f16 or tf32x3")
        })
    }
}

/// f16 copies of frozen f32 matrices, which f32 products of many rows read. They are made at upload
/// and kept in addition to the matrices; see
/// [`SplitMatrix`](retrograph_kernels::ops::SplitMatrix).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum F16Copies {
    /// None: such products split the matrices in each step.
    #[default]
    None,
    /// One term, 2 bytes per element. Every frozen matrix must be exactly bf16 or f16, as in most
    /// checkpoints.
    OneTerm,
    /// Two terms, 4 bytes per element. A run that does not fit in device memory with them has none;
    /// from 256 rows on, its steps have the same bits.
    TwoTerms,
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
    /// The dtype in which weight gradients of linear layers are stored and exchanged: f32, or bf16
    /// if `dtype` is bf16. A bf16 gradient is rounded once from an f32 sum; the sum over ranks is
    /// in bf16. Always f32 are gradients of other parameters, gradients accumulated over
    /// micro-batches, and the gradient of the embedding, even if it is also the output projection.
    /// Has no effect on LoRA.
    #[serde(default, with = "dtype_name")]
    pub gradients: DType,
    /// How large products are computed if `dtype` is f32; the default if it is bf16.
    #[serde(default)]
    pub f32_products: F32Products,
    /// Copies of frozen f32 matrices; see [`Precision::of_base`]. There are none unless products
    /// use split f16. Not stored in checkpoints: they
    /// follow from the base model.
    #[serde(skip)]
    pub f16_copies: F16Copies,
}

impl Precision {
    /// f32 throughout.
    pub const F32: Self = Self {
        dtype: DType::F32,
        quantize: None,
        gradients: DType::F32,
        f32_products: F32Products::SplitF16,
        f16_copies: F16Copies::None,
    };
    /// f32 throughout, with large products in tf32x3.
    pub const TF32X3: Self = Self { f32_products: F32Products::Tf32x3, ..Self::F32 };
    /// Products in bf16.
    pub const BF16: Self = Self { dtype: DType::Bf16, ..Self::F32 };

    /// Returns this precision with gradients of weights of linear layers in bf16.
    pub const fn bf16_gradients(self) -> Self {
        Self { gradients: DType::Bf16, ..self }
    }

    /// Returns this precision with copies for a run whose frozen weights come from `base`, or from
    /// a seed: one term if the matrices of `base` have 16 bits, else two.
    pub fn of_base(self, base: Option<&ModelDirectory>) -> Self {
        let f16_copies = match base.is_some_and(ModelDirectory::is_16_bit) {
            true => F16Copies::OneTerm,
            false => F16Copies::TwoTerms,
        };
        Self { f16_copies, ..self }
    }

    /// Returns this precision without copies.
    pub(crate) fn without_copies(self) -> Self {
        Self { f16_copies: F16Copies::None, ..self }
    }

    /// Returns this precision without copies of two terms.
    pub fn without_two_term_copies(self) -> Self {
        match self.f16_copies {
            F16Copies::TwoTerms => self.without_copies(),
            _ => self,
        }
    }

    /// Whether large products read operands that were split into f16 terms.
    pub(crate) fn splits_f16(self) -> bool {
        self.dtype == DType::F32 && self.f32_products == F32Products::SplitF16
    }

    /// Returns the number of terms of the f16 copies in runs with micro-batches of `rows` rows;
    /// `None` for no copies.
    pub(crate) fn copied_terms(self, rows: usize) -> Option<usize> {
        match self.f16_copies {
            _ if !self.splits_f16() || rows < MIN_COPIED_ROWS => None,
            F16Copies::None => None,
            F16Copies::OneTerm => Some(1),
            F16Copies::TwoTerms => Some(2),
        }
    }

    /// Returns this precision with frozen linear layers in NF4.
    pub const fn nf4(self, double: bool) -> Self {
        Self { quantize: Some(Quantization::Nf4 { double }), ..self }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.dtype.name())?;
        match self.f32_products {
            F32Products::SplitF16 => {}
            products => write!(f, ", large products in {products}")?,
        }
        match self.quantize {
            None => {}
            Some(Quantization::Nf4 { double: false }) => f.write_str(", linear layers in NF4")?,
            Some(Quantization::Nf4 { double: true }) => {
                f.write_str(", linear layers in NF4 with quantized scales")?;
            }
        }
        match self.gradients {
            DType::Bf16 => f.write_str(", gradients in bf16"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dtype_is_stored_by_name_and_others_are_refused() {
        let text = serde_json::to_string(&Precision::BF16).unwrap();
        let expected =
            r#"{"dtype":"bf16","quantize":null,"gradients":"f32","f32_products":"split-f16"}"#;
        assert_eq!(text, expected);
        assert_eq!(serde_json::from_str::<Precision>(&text).unwrap(), Precision::BF16);
        let error = serde_json::from_str::<Precision>(r#"{"dtype":"u8"}"#).unwrap_err();
        assert!(error.to_string().contains("f32 or bf16"), "{error}");
    }

    #[test]
    fn f32_products_have_one_name_in_files_and_in_text_and_split_f16_is_the_default() {
        for &products in F32Products::ALL {
            assert_eq!(serde_json::to_value(products).unwrap(), products.name());
            assert_eq!(products.name().parse(), Ok(products));
        }
        let older = r#"{"dtype":"f32"}"#;
        assert_eq!(serde_json::from_str::<Precision>(older).unwrap(), Precision::F32);
        let error = "tf32".parse::<F32Products>().unwrap_err().to_string();
        assert!(error.contains("split-f16 or tf32x3"), "{error}");
        assert_eq!(Precision::TF32X3.to_string(), "f32, large products in tf32x3");
        assert_eq!(Precision::F32.to_string(), "f32");
    }
}
