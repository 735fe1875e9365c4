//! Stored types, and the encoding of a row of weights.

use std::fmt;
use std::str::FromStr;

use half::{bf16, f16};
use safetensors::tensor::Dtype;

use crate::config::UnknownChoice;

/// The type of stored weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightType {
    /// f32.
    F32,
    /// f16, up to 65504.
    F16,
    /// bf16.
    Bf16,
}

impl WeightType {
    /// Every type.
    pub const ALL: [Self; 3] = [Self::F32, Self::F16, Self::Bf16];

    /// The name, for example `bf16`.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
        }
    }

    /// Bytes of a row of `width` elements.
    pub(crate) fn bytes(self, width: usize) -> usize {
        match self {
            Self::F32 => 4 * width,
            Self::F16 | Self::Bf16 => 2 * width,
        }
    }

    /// Returns the type of a stored tensor; `None` for one that is not supported.
    pub(crate) fn of(dtype: Dtype) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.safetensors() == dtype)
    }

    /// The type in safetensors files.
    pub(crate) fn safetensors(self) -> Dtype {
        match self {
            Self::F32 => Dtype::F32,
            Self::F16 => Dtype::F16,
            Self::Bf16 => Dtype::BF16,
        }
    }

    /// Appends the encoded `row`, little-endian. Each element is rounded once to nearest, ties to
    /// even. Fails with the index of the first element beyond the range of the type.
    pub(crate) fn encode(self, row: &[f64], out: &mut Vec<u8>) -> Result<(), usize> {
        for (index, &x) in row.iter().enumerate() {
            let finite = match self {
                Self::F32 => {
                    let value = x as f32;
                    out.extend(value.to_le_bytes());
                    value.is_finite()
                }
                Self::F16 => {
                    let value = f16::from_f32(odd(x));
                    out.extend(value.to_le_bytes());
                    value.is_finite()
                }
                Self::Bf16 => {
                    let value = bf16::from_f32(odd(x));
                    out.extend(value.to_le_bytes());
                    value.is_finite()
                }
            };
            if !finite {
                return Err(index);
            }
        }
        Ok(())
    }
}

impl fmt::Display for WeightType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for WeightType {
    type Err = UnknownChoice;

    fn from_str(text: &str) -> Result<Self, UnknownChoice> {
        Self::ALL.into_iter().find(|one| one.name() == text).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|one| one.name()).collect();
            UnknownChoice::new(text, "a type of weights", names.join(", "))
        })
    }
}

/// Rounds `x` to odd. A second rounding to fewer bits then equals a single rounding of `x` (Boldo
/// and Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
fn odd(x: f64) -> f32 {
    let nearest = x as f32;
    let bits = nearest.to_bits();
    if f64::from(nearest) == x || !nearest.is_finite() || bits & 1 == 1 {
        return nearest;
    }
    let outwards = f64::from(nearest).abs() < x.abs();
    f32::from_bits(if outwards { bits + 1 } else { bits - 1 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weight_file::decode;

    #[test]
    fn values_are_rounded_once_and_ties_go_to_even() {
        let one = |dtype: WeightType, x: f64| {
            let mut bytes = Vec::new();
            dtype.encode(&[x], &mut bytes)?;
            Ok::<f32, usize>(decode(dtype.safetensors(), &bytes).unwrap()[0])
        };
        // Half a unit of the last place above 1 is a tie; a hair more, which f32 does not have,
        // is not.
        let units = [(WeightType::Bf16, 2f64.powi(-8)), (WeightType::F16, 2f64.powi(-11))];
        for (dtype, half_unit) in units {
            let hair = 2f64.powi(-40);
            let above = (1.0 + 2.0 * half_unit) as f32;
            assert_eq!(one(dtype, 1.0 + half_unit), Ok(1.0));
            assert_eq!(one(dtype, 1.0 + half_unit + hair), Ok(above));
            assert_eq!(one(dtype, 1.0 + half_unit - hair), Ok(1.0));
            assert_eq!(one(dtype, -1.0 - half_unit - hair), Ok(-above));
            let tie = 1.0 + 3.0 * half_unit;
            assert_eq!(one(dtype, tie), Ok((1.0 + 4.0 * half_unit) as f32));
            assert_eq!(one(dtype, tie - hair), Ok(above));
            assert_eq!(one(dtype, 1e300), Err(0));
            assert_eq!(one(dtype, f64::NAN), Err(0));
        }
        assert_eq!(one(WeightType::F32, 0.1), Ok(0.1f32));
        assert_eq!(one(WeightType::F16, 65519.0), Ok(65504.0));
        assert_eq!(one(WeightType::F16, 65520.0), Err(0));
    }
}
