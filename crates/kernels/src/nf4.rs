//! NF4, in the layout of bitsandbytes: quantization on the host, dequantization on the device.
//!
//! The flattened matrix is divided into blocks of 64 elements. Each block has a scale, its largest
//! absolute value, and each element a 4-bit code: the nearest of 16 quantiles of the normal
//! distribution, in units of the scale (Dettmers et al., "QLoRA", arXiv 2305.14314). With double
//! quantization, the mean of the scales is subtracted and they are quantized in blocks of 256 to
//! the 8-bit dynamic type of Dettmers et al., arXiv 2110.02861.
//!
//! Codes equal the codes of bitsandbytes' CUDA kernels with one exception: bitsandbytes
//! approximates the reciprocal of a scale to 1 ulp, and this module rounds it correctly. A code can
//! differ if a quotient is that close to the boundary between two codes.
//!
//! ```
//! use retrograph_kernels::nf4;
//!
//! let quantized = nf4::quantize(&[1.0, -0.5, 0.1, 0.0])?;
//! assert_eq!(quantized.codes, [0xf2, 0x87]);
//! assert_eq!(quantized.absmax, [1.0]);
//! # Ok::<(), nf4::NotFinite>(())
//! ```

mod dequantize;

pub use dequantize::{Dequantize, NF4_DEQUANTIZE};

/// The values of the codes, in units of the scale.
pub use retrograph_kernel_abi::nf4::CODE_VALUES as VALUES;

pub use crate::tensor::{NF4_BLOCK as BLOCK, NF4_NESTED_BLOCK as NESTED_BLOCK};

/// Numbers above boundary i have a code greater than i. Boundaries are the midpoints of neighboring
/// values, with the decimal digits of bitsandbytes: most midpoints are not f32 numbers, and
/// rounding twice would give other boundaries.
#[expect(clippy::excessive_precision, reason = "the digits decide how they are rounded")]
pub const BOUNDARIES: &[f32] = &[
    -0.848_096_400_499_343_9,
    -0.610_632_926_225_662_2,
    -0.459_995_269_775_390_6,
    -0.339_679_434_895_515_44,
    -0.234_607_405_960_559_84,
    -0.137_911_733_239_889_14,
    -0.045_525_018_125_772_476,
    0.039_790_149_778_127_67,
    0.120_255_250_483_751_3,
    0.203_521_251_678_466_8,
    0.292_013_771_831_989_3,
    0.389_312_535_524_368_3,
    0.501_663_416_624_069_2,
    0.642_786_920_070_648_2,
    0.861_478_418_111_801_1,
];

/// An element that has no code.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("element {index} is {value}, which NF4 cannot represent")]
pub struct NotFinite {
    /// The index of the element.
    pub index: usize,
    /// Its value.
    pub value: f32,
}

/// Codes and scales.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Quantized {
    /// Two codes per byte, the first in the high nibble.
    pub codes: Vec<u8>,
    /// The scale of each block.
    pub absmax: Vec<f32>,
}

/// Returns the code of a number in units of its scale. A NaN, as in a block of zeros, has code 0.
pub fn code(scaled: f32) -> u8 {
    BOUNDARIES.partition_point(|&boundary| scaled > boundary) as u8
}

/// Quantizes `values`. The last block may be shorter, and an unused nibble is 0.
///
/// # Errors
/// [`NotFinite`] for the first element that is infinite or not a number.
pub fn quantize(values: &[f32]) -> Result<Quantized, NotFinite> {
    let mut quantized = Quantized::default();
    for (number, block) in values.chunks(BLOCK).enumerate() {
        if let Some(place) = block.iter().position(|value| !value.is_finite()) {
            return Err(NotFinite { index: number * BLOCK + place, value: block[place] });
        }
        let absmax = block.iter().fold(0f32, |most, value| most.max(value.abs()));
        let inverse = 1.0 / absmax;
        let of = |value: &f32| code(value * inverse);
        let bytes = block.chunks(2).map(|pair| of(&pair[0]) << 4 | pair.get(1).map_or(0, of));
        quantized.codes.extend(bytes);
        quantized.absmax.push(absmax);
    }
    Ok(quantized)
}

/// Returns the `len` values of the codes, each a product that is rounded once.
pub fn dequantize(codes: &[u8], absmax: &[f32], len: usize) -> Vec<f32> {
    let value = |index: usize| {
        let code = codes[index / 2] >> if index.is_multiple_of(2) { 4 } else { 0 };
        VALUES[usize::from(code & 15)] * absmax[index / BLOCK]
    };
    (0..len).map(value).collect()
}

/// Scales that are themselves quantized (double quantization).
#[derive(Clone, Debug, PartialEq)]
pub struct Nested {
    /// One byte per scale.
    pub absmax: Vec<u8>,
    /// One scale per 256 bytes.
    pub nested: Vec<f32>,
    /// The subtracted mean of the scales.
    pub offset: f32,
}

impl Nested {
    /// Quantizes scales around their mean.
    pub fn new(absmax: &[f32]) -> Self {
        let sum: f64 = absmax.iter().map(|&scale| f64::from(scale)).sum();
        Self::around(absmax, (sum / absmax.len().max(1) as f64) as f32)
    }

    /// Quantizes scales around `offset`.
    pub fn around(absmax: &[f32], offset: f32) -> Self {
        let (map, mut bytes, mut nested) = (dynamic_map(), Vec::new(), Vec::new());
        for block in absmax.chunks(NESTED_BLOCK) {
            let largest = block.iter().fold(0f32, |most, &scale| most.max((scale - offset).abs()));
            let inverse = 1.0 / largest;
            bytes.extend(block.iter().map(|&scale| nearest(&map, (scale - offset) * inverse)));
            nested.push(largest);
        }
        Self { absmax: bytes, nested, offset }
    }

    /// Returns the scales, each a rounded product plus the offset, rounded again.
    pub fn scales(&self) -> Vec<f32> {
        let map = dynamic_map();
        let scale = |(index, &byte): (usize, &u8)| {
            map[usize::from(byte)] * self.nested[index / NESTED_BLOCK] + self.offset
        };
        self.absmax.iter().enumerate().map(scale).collect()
    }
}

/// Returns the 256 values of the 8-bit dynamic type in ascending order: for each power of ten from
/// 10⁻⁶ to 1, twice as many fractions as for the previous one, of either sign; and 0 and 1.
///
/// Fractions are the midpoints of equal subintervals of [0.1, 1]. The ends of a subinterval are
/// computed from the nearer end of the interval by fused multiply-adds, which gives the bits of the
/// published tables.
pub fn dynamic_map() -> [f32; 256] {
    let mut values = vec![0.0, 1.0];
    for power in 0..7 {
        let parts = 1 << power;
        let step = (1.0f32 - 0.1) / parts as f32;
        let end = |i: i32| {
            let from_below = 2 * i < parts;
            if from_below {
                step.mul_add(i as f32, 0.1)
            } else {
                (-step).mul_add((parts - i) as f32, 1.0)
            }
        };
        let scale = 10f64.powi(power - 6) as f32;
        for part in 0..parts {
            let magnitude = scale * ((end(part) + end(part + 1)) / 2.0);
            values.extend([magnitude, -magnitude]);
        }
    }
    values.sort_by(f32::total_cmp);
    values.try_into().expect("0, 1, and 127 magnitudes of either sign")
}

/// Returns the index of the value of `map` nearest to `scaled`: a binary search, then the nearer of
/// two neighbors. A NaN has index 0.
fn nearest(map: &[f32; 256], scaled: f32) -> u8 {
    let (mut low, mut pivot, mut high) = (0usize, 127usize, 255usize);
    for step in [64, 32, 16, 8, 4, 2, 1] {
        if scaled > map[pivot] {
            (low, pivot) = (pivot, pivot + step);
        } else {
            (high, pivot) = (pivot, pivot - step);
        }
    }
    let middle = |other: usize| (map[other] + map[pivot]) * 0.5;
    let index = if scaled > map[pivot] {
        if scaled > middle(high) { high } else { pivot }
    } else if scaled < middle(low) {
        low
    } else {
        pivot
    };
    index as u8
}

/// The kernels of this family.
pub(crate) static KERNELS: &[&crate::Kernel] = &[&NF4_DEQUANTIZE];
