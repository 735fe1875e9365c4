//! The buffers of a parameter's values in a pass.

use half::bf16;
use retrograph_kernels::nf4::{BLOCK, NESTED_BLOCK};
use retrograph_kernels::ops::{Nf4, Nf4Scales, SplitMatrix, TensorView};
use retrograph_runtime::{BufferId, Pass, Slice};

use crate::parameters::{Parameter, Storage};

/// The external buffers of a parameter.
#[derive(Clone, Copy, Debug)]
pub struct Value {
    stored: TensorView<BufferId>,
    copy: Option<Slice<bf16>>,
    f16: Option<SplitMatrix<BufferId>>,
}

impl Value {
    /// Declares the buffers of `parameter`. `map` is the map of quantized scales, which the first
    /// parameter that needs it declares.
    pub(super) fn declare(
        pass: &mut Pass,
        parameter: &Parameter,
        map: &mut Option<Slice<f32>>,
    ) -> Self {
        let (name, len) = (&parameter.name, parameter.len());
        let copied = parameter.storage == Storage::F32WithBf16;
        let stored = match parameter.storage {
            Storage::F32 | Storage::F32WithBf16 | Storage::F32WithF16 { .. } => {
                TensorView::F32(pass.external(name.clone(), len))
            }
            Storage::Bf16 => TensorView::Bf16(pass.external(name.clone(), len)),
            Storage::Nf4 { double } => {
                let codes = pass.external(name.clone(), len.div_ceil(2));
                let (blocks, absmax) = (len.div_ceil(BLOCK), format!("{name}.absmax"));
                let scales = if double {
                    let absmax = pass.external(absmax, blocks);
                    let count = blocks.div_ceil(NESTED_BLOCK);
                    // The mean, and then the scales.
                    let nested = pass.external(format!("{name}.nested_absmax"), 1 + count);
                    let map = *map.get_or_insert_with(|| pass.external("nested_quant_map", 256));
                    let (offset, nested) = (nested.slice(0..1), nested.slice(1..1 + count));
                    Nf4Scales::Nested { absmax, nested, map, offset }
                } else {
                    Nf4Scales::Plain(pass.external(absmax, blocks))
                };
                TensorView::Nf4(Nf4 { codes, scales, len })
            }
        };
        let copy = copied.then(|| pass.external(format!("{name}.bf16"), len));
        let f16 = match parameter.storage {
            Storage::F32WithF16 { rows, terms } => Some(SplitMatrix {
                terms: pass.external(format!("{name}.f16"), terms * len),
                term_count: terms,
                scales: pass.external(format!("{name}.f16.scales"), rows),
            }),
            _ => None,
        };
        Self { stored, copy, f16 }
    }

    /// Returns the buffers that checkpoints store: f32 if there are copies.
    pub fn stored(&self) -> TensorView<BufferId> {
        self.stored
    }

    /// The bf16 copy of [`Storage::F32WithBf16`].
    pub fn copy(&self) -> Option<Slice<bf16>> {
        self.copy
    }

    /// The f16 copy of [`Storage::F32WithF16`].
    pub fn f16(&self) -> Option<SplitMatrix<BufferId>> {
        self.f16
    }

    /// Returns the buffers that matrix products read: the bf16 copy if there is one.
    pub fn operand(&self) -> TensorView<BufferId> {
        self.copy.map_or(self.stored, TensorView::Bf16)
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.stored.len()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the values of a parameter that is f32 in every precision.
    ///
    /// # Panics
    /// If the parameter has another dtype, which only frozen matrices have.
    pub fn floats(&self) -> Slice<f32> {
        match self.stored {
            TensorView::F32(slice) => slice,
            other => panic!("norms, biases and trained weights are f32, not {}", other.dtype()),
        }
    }
}
