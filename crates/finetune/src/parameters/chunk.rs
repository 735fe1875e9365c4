//! A chunk of a parameter, which is filled and then uploaded.

use half::bf16;
use half::slice::HalfFloatSliceExt;

/// Elements of a parameter for the caller to fill, in the dtype of the parameter on the device; f32
/// for a parameter that is quantized.
#[derive(Debug)]
pub enum Chunk<'a> {
    /// Elements of f32.
    F32(&'a mut [f32]),
    /// Elements of bf16.
    Bf16(&'a mut [bf16]),
}

impl Chunk<'_> {
    /// Fills the chunk with f32 values. A bf16 chunk rounds each to nearest, ties to even.
    pub fn fill(self, fill: impl FnOnce(&mut [f32])) {
        let Ok(()) = self.try_fill(|values| {
            fill(values);
            Ok::<_, std::convert::Infallible>(())
        });
    }

    /// Like [`Chunk::fill`], with a function that can fail.
    ///
    /// # Errors
    /// The error of `fill`.
    pub fn try_fill<E>(self, fill: impl FnOnce(&mut [f32]) -> Result<(), E>) -> Result<(), E> {
        match self {
            Self::F32(values) => fill(values),
            Self::Bf16(values) => {
                let mut wide = vec![0.0; values.len()];
                fill(&mut wide)?;
                values.convert_from_f32_slice(&wide);
                Ok(())
            }
        }
    }
}
