//! The initial magnitudes of DoRA: the row norms of weights in the dtype on the device.

use half::bf16;
use half::slice::HalfFloatSliceExt;
use retrograph_kernels::nf4::{self, Nested};

use super::upload::{on_all_cores, quantize_all};
use crate::error::{Error, Result};
use crate::init::row_norm;
use crate::parameters::{Parameter, Storage};

/// Minimum rows per thread.
const ROWS: usize = 64;

/// Returns the row norms of `weight`, which has these values in f32. Uses one thread per CPU core.
pub(super) fn row_norms(weight: &Parameter, values: Vec<f32>) -> Result<Vec<f32>> {
    let (rows, values) = (weight.shape[0], stored(weight, values)?);
    let (width, mut norms) = (weight.len() / rows.max(1), vec![0.0; rows]);
    let width = width.max(1);
    on_all_cores(&values, ROWS * width, &mut norms, ROWS, |values, norms| {
        let rows = values.chunks_exact(width);
        norms.iter_mut().zip(rows).for_each(|(norm, row)| *norm = row_norm(row));
    });
    Ok(norms)
}

/// Rounds the values of a weight to its dtype.
fn stored(weight: &Parameter, mut values: Vec<f32>) -> Result<Vec<f32>> {
    match weight.storage {
        Storage::F32 | Storage::F32WithBf16 | Storage::F32WithF16 { .. } => {}
        Storage::Bf16 => {
            let mut rounded = vec![bf16::ZERO; values.len()];
            rounded.convert_from_f32_slice(&values);
            rounded.convert_to_f32_slice(&mut values);
        }
        Storage::Nf4 { double } => {
            let mut codes = vec![0; values.len().div_ceil(2)];
            let scales = quantize_all(&values, &mut codes).map_err(|error| {
                let (parameter, index, value) = (weight.name.clone(), error.index, error.value);
                Error::NotQuantizable { parameter, index, value }
            })?;
            let scales = if double { Nested::new(&scales).scales() } else { scales };
            values = nf4::dequantize(&codes, &scales, values.len());
        }
    }
    Ok(values)
}
