//! Stored types, and the encoding of a row of weights.

use std::fmt;
use std::str::FromStr;

use half::{bf16, f16};
use safetensors::tensor::Dtype;

use crate::config::UnknownChoice;

/// The type of stored weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WeightType {
    /// f32.
    F32,
    /// f16, up to 65504.
    F16,
    /// bf16.
    Bf16,
    /// 8-bit integers in blocks of 32 with an f16 scale, in GGUF only.
    Q8_0,
}

/// Elements of a block of [`WeightType::Q8_0`].
const BLOCK: usize = 32;
/// The largest integer of a block.
const LARGEST: f64 = 127.0;

impl WeightType {
    /// Every type.
    pub const ALL: &[Self] = &[Self::F32, Self::F16, Self::Bf16, Self::Q8_0];

    /// The name, for example `bf16`.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Q8_0 => "q8_0",
        }
    }

    /// Bytes of a row of `width` elements.
    pub(crate) fn bytes(self, width: usize) -> usize {
        match self {
            Self::F32 => 4 * width,
            Self::F16 | Self::Bf16 => 2 * width,
            Self::Q8_0 => width / BLOCK * (2 + BLOCK),
        }
    }

    /// Returns the type for rows of `width` elements: rows that are not whole blocks become f16.
    pub(crate) fn for_width(self, width: usize) -> Self {
        if self == Self::Q8_0 && !width.is_multiple_of(BLOCK) { Self::F16 } else { self }
    }

    /// Returns the type of a stored tensor; `None` if it is not supported.
    pub(crate) fn of(dtype: Dtype) -> Option<Self> {
        Self::ALL.iter().copied().find(|one| one.safetensors() == Some(dtype))
    }

    /// The type in safetensors files, if they have it.
    pub(crate) fn safetensors(self) -> Option<Dtype> {
        match self {
            Self::F32 => Some(Dtype::F32),
            Self::F16 => Some(Dtype::F16),
            Self::Bf16 => Some(Dtype::BF16),
            Self::Q8_0 => None,
        }
    }

    /// Appends the encoded `row`, little-endian. Each element is rounded once to nearest, ties to
    /// even. Fails with the index of the first element beyond the range of the type.
    pub(crate) fn encode(self, row: &[f64], out: &mut Vec<u8>) -> Result<(), usize> {
        if self == Self::Q8_0 {
            return encode_blocks(row, out);
        }
        for (index, &x) in row.iter().enumerate() {
            let finite = match self {
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
                _ => {
                    let value = x as f32;
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
        Self::ALL.iter().copied().find(|one| one.name() == text).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|one| one.name()).collect();
            UnknownChoice::new(text, "a type of weights", names.join(", "))
        })
    }
}

/// Encodes blocks of Q8_0: an f16 scale, then `round(x ÷ scale)` for each element. Each error is
/// at most half the scale. Fails with the index of an element whose block has no finite scale.
fn encode_blocks(row: &[f64], out: &mut Vec<u8>) -> Result<(), usize> {
    let (blocks, rest) = row.as_chunks::<BLOCK>();
    debug_assert!(rest.is_empty(), "blocks fill the row");
    for (number, block) in blocks.iter().enumerate() {
        let largest = |at: &usize, other: &usize| block[*at].abs().total_cmp(&block[*other].abs());
        let at = (0..BLOCK).max_by(largest).unwrap_or(0);
        let most = block[at].abs();
        let mut scale = f16::from_f32((most / LARGEST) as f32);
        // A scale that was rounded down must still reach the largest element.
        if scale.to_f64() * (LARGEST + 0.5) < most {
            scale = f16::from_bits(scale.to_bits() + 1);
        }
        if !scale.is_finite() {
            return Err(number * BLOCK + at);
        }
        out.extend(scale.to_le_bytes());
        let scale = scale.to_f64();
        let code = |x: &f64| if scale == 0.0 { 0.0 } else { (x / scale).round() };
        out.extend(block.iter().map(|x| code(x).clamp(-LARGEST, LARGEST) as i8 as u8));
    }
    Ok(())
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
            Ok::<f32, usize>(decode(dtype.safetensors().unwrap(), &bytes).unwrap()[0])
        };
        // 1 plus half a unit in the last place is a tie. Slightly more, which f32 cannot represent,
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

    #[test]
    fn blocks_err_by_at_most_half_their_scale() {
        for size in [0.0, 1e-9, 3e-7, 4e-5, 0.003, 0.02, 1.0, 3e4, 8e6] {
            let value = |index: usize| size * ((index * 37 % 64) as f64 / 31.5 - 1.0);
            let row: Vec<f64> = (0..64).map(value).collect();
            let mut bytes = Vec::new();
            WeightType::Q8_0.encode(&row, &mut bytes).unwrap();
            assert_eq!(bytes.len(), WeightType::Q8_0.bytes(64));
            for (block, values) in bytes.chunks(34).zip(row.chunks(32)) {
                let scale = f16::from_le_bytes([block[0], block[1]]).to_f64();
                for (code, value) in block[2..].iter().zip(values) {
                    let error = (f64::from(*code as i8) * scale - value).abs();
                    assert!(error <= scale / 2.0 * (1.0 + 1e-12), "{size}: {error} of {scale}");
                }
            }
        }
        let mut row = [1.0; 64];
        row[40] = -1e8;
        assert_eq!(WeightType::Q8_0.encode(&row, &mut Vec::new()), Err(40));
        assert_eq!(WeightType::Q8_0.for_width(48), WeightType::F16);
    }
}
